"""The supervisor on the head with stand-ins for Ray's GCS, its starter and the ``phalanx`` command. No Ray runs."""

from __future__ import annotations

import collections
import io
import json

import pytest

from phalanx import exceptions
from phalanx.ray import _supervisor


class Gcs:
    """The answers of Ray's GCS."""

    def __init__(self, *names):
        self.states = {bytes.fromhex(name): 0 for name in names}
        self.draining = {}

    def get_all_node_info(self, timeout):
        info = collections.namedtuple("info", "state")
        return {node: info(state) for node, state in self.states.items()}

    def get_draining_nodes(self):
        return self.draining


class Starter:
    """A process that the test ends."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.returncode = None
        self.killed = False
        self.stdout = io.BytesIO()

    def poll(self):
        return self.returncode

    def end(self, *failed, status=0):
        self.returncode = status
        self.stdout = io.BytesIO(b"something else\n" + json.dumps(failed).encode())

    def kill(self):
        self.killed = True
        self.returncode = -9

    def wait(self):
        pass


class Starters(list):
    def __call__(self, command):
        self.append(Starter(json.loads(command[-1])["nodes"]))
        return self[-1]


@pytest.fixture
def starters(monkeypatch):
    made = Starters()
    monkeypatch.setattr(_supervisor, "_started", made)
    monkeypatch.setattr(_supervisor._daemons, "runs", lambda node, role: True)
    return made


def supervisor_of(gcs):
    return _supervisor.Supervisor(gcs, gcs, {"address": "", "node": "aa", "capacity": None})


def test_a_node_that_comes_is_started_once(starters):
    gcs = Gcs("aa")
    supervisor = supervisor_of(gcs)
    supervisor.step(0)
    starters[0].end()
    gcs.states[b"\xbb"] = 0
    for second in range(1, 1000):
        supervisor.step(second)
        if second == 3:
            starters[1].end()
    assert [each.nodes for each in starters] == [["aa"], ["bb"]]


def test_a_node_that_does_not_start_is_tried_again_after_growing_pauses_and_then_left_alone(starters, caplog):
    gcs = Gcs("bb", "cc")
    supervisor = supervisor_of(gcs)
    begun = []
    for second in range(1000):
        supervisor.step(second)
        if len(starters) > len(begun):
            begun.append(second)
            # One says what has failed, and one ends before that.
            starters[-1].end("bb", status=len(begun) % 2)
    # Each starter's end is seen a second later. The pauses are 5, 10, 20, 40 and 80 s.
    assert begun == [0, 6, 17, 38, 79, 160]
    assert [each.nodes for each in starters] == [["bb", "cc"]] * 2 + [["bb"]] * 4
    assert "['bb'] in 6 tries" in caplog.text
    # One that has gone and comes again is tried again.
    del gcs.states[b"\xbb"]
    supervisor.step(1000)
    gcs.states[b"\xbb"] = 0
    supervisor.step(1001)
    assert len(starters) == 7


def test_many_nodes_are_started_in_parts(starters):
    supervisor = supervisor_of(Gcs(*(f"{i:04x}" for i in range(250))))
    for second in range(4):
        supervisor.step(second)
        starters[-1].end()
    assert [len(each.nodes) for each in starters] == [100, 100, 50]


def test_an_interpreter_that_has_gone_is_tried_a_few_times(starters, monkeypatch, caplog):
    def gone(command):
        raise FileNotFoundError("python")

    monkeypatch.setattr(_supervisor, "_started", gone)
    supervisor = supervisor_of(Gcs("bb"))
    for second in range(1000):
        supervisor.step(second)
    assert caplog.text.count("no starter runs: python") == 6


def test_one_starter_runs_at_a_time_and_not_forever(starters):
    gcs = Gcs("bb")
    supervisor = supervisor_of(gcs)
    supervisor.step(0)
    gcs.states[b"\xcc"] = 0
    for second in range(1, 120):
        supervisor.step(second)
    assert len(starters) == 1 and not starters[0].killed
    supervisor.step(121)
    assert starters[0].killed and starters[1].nodes == ["cc"]


def test_the_heads_own_daemons_are_repaired(starters, monkeypatch):
    gcs = Gcs("aa")
    supervisor = supervisor_of(gcs)
    supervisor.step(0)
    starters[0].end()
    supervisor.step(1)
    monkeypatch.setattr(_supervisor._daemons, "runs", lambda node, role: role != "directory")
    for second in range(2, 6):
        supervisor.step(second)
    assert len(starters) == 1, "it can be that it just starts"
    supervisor.step(6)
    assert [each.nodes for each in starters] == [["aa"], ["aa"]]


def test_the_node_that_the_user_has_set_for_the_head_is_not_replaced(starters, monkeypatch):
    monkeypatch.setenv("PHALANX_ADDRESS", "unix:/mine.sock")
    supervisor = supervisor_of(Gcs("aa"))
    supervisor.step(0)
    starters[0].end()
    monkeypatch.setattr(_supervisor._daemons, "runs", lambda node, role: role == "directory")
    for second in range(1, 10):
        supervisor.step(second)
    assert len(starters) == 1


@pytest.fixture
def drains(monkeypatch):
    """The commands that have run, and what they say."""

    class Drains(list):
        says = {"objects_left": 0, "message": ""}

        def __call__(self, *command):
            self.append(command)
            if isinstance(self.says, Exception):
                raise self.says
            return json.dumps(self.says)

    made = Drains()
    monkeypatch.setattr(_supervisor._tools, "_run", made)
    monkeypatch.setattr(_supervisor._daemons, "directory_flags", lambda node: ["--directory=d"])
    return made


def test_a_draining_node_is_drained_at_each_look_and_not_started(starters, drains):
    gcs = Gcs("aa", "bb")
    supervisor = supervisor_of(gcs)
    gcs.draining = {"bb": 0, "dd": 0}  # dd has ended
    for second in range(3):
        supervisor.step(second)
    assert drains == [("drain", "bb", "--detach", "--json", "--directory=d")] * 3
    assert [each.nodes for each in starters] == [["aa"]]
    del gcs.states[b"\xbb"]
    supervisor.step(3)
    assert len(drains) == 3


@pytest.mark.parametrize(
    "says, text",
    [
        ({"objects_left": 2, "message": "no node has room"}, "only it has 2 objects; no node has room"),
        (exceptions.PhalanxError("no such node"), "no such node"),
    ],
)
def test_the_log_has_what_a_draining_node_still_has_alone_every_30_s(starters, drains, caplog, says, text):
    gcs = Gcs("bb")
    gcs.draining = {"bb": 0}
    supervisor = supervisor_of(gcs)
    drains.says = says
    for second in range(100):
        supervisor.step(second)
    assert caplog.text.count("is copied to other nodes") == 1 and caplog.text.count(text) == 3
