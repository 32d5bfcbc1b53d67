"""What ends under Ray: workers, actors, raylets, daemons; and nodes that come later."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest
import ray
from ray._raylet import GcsClient
from ray.util import collective

import phalanx
import phalanx.ray
from phalanx.ray import _daemons, _here

pytestmark = pytest.mark.usefixtures("fragile_cluster")
_NODE = {"object_store_memory": 100 << 20, "include_dashboard": False, "num_cpus": 4}


def on(resource):
    return {"resources": {resource: 1}}


def daemon_here():
    """Return the process of this host's node, and its keeper's."""
    place = _here.here()
    phalanx.ray.client()
    daemon = _daemons._ready(_daemons._folder(place, "node"))["process_id"]
    return daemon, parent_of(daemon)


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def runs(pid):
    return os.path.exists(f"/proc/{pid}")


def starter_of(keeper):
    """Return the mark of the process that has started a keeper, whose environment it has: all workers have "a worker"."""
    with open(f"/proc/{keeper}/environ") as file:
        variables = dict(each.split("=", 1) for each in file.read().split("\0") if "=" in each)
    return variables.get("STARTER")


@pytest.fixture
def extra_node(fragile_cluster):
    """A further node of Ray, with the resource `extra`."""
    node = fragile_cluster.add_node(resources={"extra": 10}, **_NODE)
    yield node
    if node in fragile_cluster.list_all_nodes():
        fragile_cluster.remove_node(node, allow_graceful=False)


def test_a_daemon_outlives_the_worker_that_started_it():
    def about():
        return (os.getpid(), *daemon_here())

    once = ray.remote(max_calls=1, **on("n0"))(about)
    first, second = ray.get(once.remote()), ray.get(once.remote())
    assert first[0] != second[0] and first[1:] == second[1:]


def test_an_object_of_a_dead_owner_is_freed(eventually):
    class Owner:
        def put(self):
            return phalanx.ray.put(np.ones(1000))

        def end(self):
            os._exit(1)

    owner = ray.remote(Owner).options(**on("n0")).remote()
    ref = ray.get(owner.put.remote())
    ref_id = ref.id
    assert ref.get(timeout=60).sum() == 1000
    owner.end.remote()
    del ref
    eventually(lambda: phalanx.stat(phalanx.ObjectRef(ref_id)).deleted)


def test_an_actor_that_ray_restarts_uses_the_transport_again(eventually):
    class Producer:
        @phalanx.ray.method
        def make(self, value):
            return np.full(1000, value)

        def end(self):
            os._exit(1)

        def alive(self):
            return os.getpid()

    producer = ray.remote(Producer).options(max_restarts=1, max_task_retries=1, **on("n0")).remote()
    assert ray.get(producer.make.remote(1))[0] == 1
    producer.end.options(max_task_retries=0).remote()
    assert ray.get(producer.make.remote(2), timeout=60)[999] == 2
    assert ray.get(producer.alive.remote(), timeout=60)


def test_a_task_whose_worker_dies_fails_its_readers():
    @phalanx.ray.task(max_retries=0)
    def die():
        os._exit(1)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        die.remote().get(timeout=60)


def test_a_call_of_an_actor_that_dies_fails_its_readers():
    actor = ray.remote(type("Mortal", (), {"end": lambda self: os._exit(1)})).remote()
    ref = phalanx.ray.call(actor, "end")
    with pytest.raises(ray.exceptions.ActorDiedError):
        ref.get(timeout=60)
    with pytest.raises(ray.exceptions.ActorDiedError):
        phalanx.ray.reduce([ref], dtype=np.float32).get(timeout=60)


def test_a_task_that_ray_repeats_fulfils_the_same_ref(tmp_path):
    @phalanx.ray.task(max_retries=1)
    def die_once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return np.arange(5)

    assert list(die_once.remote(str(tmp_path / "first")).get(timeout=60)) == [0, 1, 2, 3, 4]


def drain(cluster, node):
    """Say to Ray what a notice of preemption says."""
    gcs = GcsClient(address=cluster.address)
    preempted, in_a_minute = 2, int(time.time() * 1000) + 60_000
    assert gcs.drain_node(node.node_id, preempted, "a test", in_a_minute) == (True, "")


def test_what_was_sent_to_all_comes_to_a_later_node_and_what_only_it_has_outlives_its_host(fragile_cluster, eventually):
    """No worker of this job runs on the node when it comes. Its daemons end at once, as with its host."""
    ref = phalanx.ray.put(np.ones(1000))
    phalanx.ray.broadcast(ref, sticky=True).wait(60)
    copies = phalanx.stat(ref).complete_copies
    node = fragile_cluster.add_node(resources={"drained": 10}, **_NODE)
    eventually(lambda: phalanx.stat(ref).complete_copies == copies + 1)

    class Maker:
        def make(self, value):
            return np.full(100_000, value)

        def about(self):
            return daemon_here()

    maker = ray.remote(Maker).options(**on("drained")).remote()
    refs = [phalanx.ray.call(maker, "make", value) for value in range(5)]
    daemon, keeper = ray.get(maker.about.remote(), timeout=60)
    ray.get([each.task for each in refs], timeout=60)
    drain(fragile_cluster, node)
    eventually(lambda: all(phalanx.stat(each).complete_copies == 2 for each in refs))
    # Its worker goes on meanwhile, and what it makes is copied, too.
    refs.append(phalanx.ray.call(maker, "make", 5))
    ray.get(refs[5].task, timeout=60)
    eventually(lambda: phalanx.stat(refs[5]).complete_copies == 2)
    for pid in (keeper, daemon):
        os.kill(pid, signal.SIGKILL)
    fragile_cluster.remove_node(node, allow_graceful=False)
    assert [int(each.get(timeout=60)[0]) for each in refs] == list(range(6))


def test_what_only_a_node_has_outlives_its_raylet(fragile_cluster, extra_node, eventually):
    make = phalanx.ray.task(lambda: np.arange(100_000)).options(**on("extra"))
    ref = make.remote()
    about = ray.remote(daemon_here).options(**on("extra")).remote()
    daemon, keeper = ray.get(about, timeout=60)
    phalanx.ray.client().contains(ref)
    phalanx.wait([ref], timeout=0)
    ray.get(ref.task, timeout=60)
    fragile_cluster.remove_node(extra_node, allow_graceful=False)
    assert ref.get(timeout=60)[-1] == 99_999
    eventually(lambda: not runs(daemon) and not runs(keeper))
    assert not os.path.exists(f"{_here.temporary()}/{extra_node.node_id[:24]}")


def test_a_daemon_that_dies_comes_back(eventually):
    class Connected:
        """An actor with a client, and with a ref that has used it. Another host has the object."""

        def __init__(self, refs):
            self.first = refs[0]
            self.get_first()

        def about(self):
            return daemon_here()

        def put(self):
            try:
                return phalanx.ray.put(np.ones(3)).get(timeout=60).sum(), daemon_here()[1]
            except phalanx.exceptions.DisconnectedError:
                return None

        def get_first(self):
            return self.first.get(timeout=60).sum()

    connected = ray.remote(Connected).options(**on("n1")).remote([phalanx.ray.put(np.ones(3))])
    daemon, keeper = ray.get(connected.about.remote(), timeout=60)
    os.kill(daemon, signal.SIGKILL)
    assert eventually(lambda: ray.get(connected.put.remote(), timeout=60)) == (3, keeper)
    assert ray.get(connected.get_first.remote(), timeout=60) == 3


def test_the_next_use_replaces_a_keeper_that_dies(eventually):
    once = ray.remote(max_calls=1, **on("n1"))(daemon_here)
    daemon, keeper = ray.get(once.remote())
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not runs(daemon))
    new_daemon, new_keeper = ray.get(once.remote(), timeout=60)
    assert new_daemon != daemon and new_keeper != keeper and starter_of(new_keeper) == "a worker"


def process_on_the_head(role):
    """Return the process of a daemon of the head; None if it does not run."""
    found = _daemons._ready(_daemons._folder(_here.here(), role))
    return found and found["process_id"]


def test_the_keeper_replaces_a_supervisor_that_dies(fragile_cluster, eventually):
    phalanx.ray.client()
    supervisor = process_on_the_head("supervisor")
    keeper = parent_of(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    again = eventually(lambda: process_on_the_head("supervisor") not in (None, supervisor) and process_on_the_head("supervisor"))
    assert parent_of(again) == keeper


def test_the_next_use_on_the_head_replaces_a_supervisor_and_that_a_directory_whose_keepers_die(
    fragile_cluster, eventually, run_program
):
    place, supervisor = _here.here(), process_on_the_head("supervisor")
    keeper = parent_of(supervisor)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not runs(supervisor))
    run_program("-m", "phalanx.ray", f"--address={fragile_cluster.address}", STARTER="the next driver")
    again = process_on_the_head("supervisor")
    mark = starter_of(parent_of(again))
    # Or a worker that has just started on the head.
    assert again != supervisor and parent_of(again) != keeper and mark in ("the next driver", "a worker")

    def replaced_by():
        """Kill the directory's keeper, and return the mark of what has started the next one: of the supervisor, its own."""
        directory = _daemons._ready(_daemons._folder(place, "directory"))
        os.kill(parent_of(directory["process_id"]), signal.SIGKILL)
        eventually(lambda: not runs(directory["process_id"]))
        other = eventually(lambda: _daemons._ready(_daemons._folder(place, "directory")))
        assert other["address"] == directory["address"] and other["process_id"] != directory["process_id"]
        return starter_of(parent_of(other["process_id"]))

    # Here, too, a worker that has just started can be first.
    assert mark in (replaced_by() for _ in range(3))
    # The nodes find it there: an object goes from one to the other.
    ref = ray.get(ray.remote(lambda: phalanx.ray.put(np.ones(1 << 20))).options(**on("n0")).remote(), timeout=60)
    total = ray.remote(lambda ref: float(ref.get(timeout=50).sum())).options(**on("n1"))
    assert ray.get(total.remote(ref), timeout=60) == 1 << 20


# Of an operation. What a death ends at once, ends in a part of it, on a loaded machine, too.
GROUP_LIMIT_S = 120


class Member:
    """An actor that joins a group when it starts, also after a restart."""

    def __init__(self, rank, on_loss):
        phalanx.ray.group_options(on_loss=on_loss, timeout=GROUP_LIMIT_S)
        self._name = f"deaths-{on_loss}"
        self._begun = 0
        collective.init_collective_group(3, rank, "phalanx", self._name)

    def allreduce(self):
        array = np.ones(1000)
        self._begun += 1
        try:
            collective.allreduce(array, self._name)
        except phalanx.exceptions.MemberUnavailableError as error:
            return str(error), time.monotonic()
        except phalanx.exceptions.GroupResultLostError:
            return None  # the first call of a next life, if all others have ended it
        return float(array[0])

    def allreduce_again(self):
        """Return the result of the next call that has one: not before this member knows that all have joined again."""
        clock = threading.Event()
        while not isinstance(result := self.allreduce(), float):
            clock.wait(0.2)
        return result

    @ray.method(concurrency_group="look")
    def begun(self):
        return self._begun

    def receive(self, source):
        """Return after how many seconds a receive has failed since the sender is dead."""
        started = time.monotonic()
        try:
            collective.recv(np.ones(3), source, self._name)
        except phalanx.exceptions.MemberUnavailableError:
            return time.monotonic() - started

    def end(self):
        os._exit(1)


def members(on_loss):
    made = ray.remote(max_restarts=1, num_cpus=0.5, concurrency_groups={"look": 1})(Member)
    return [made.options(**on(f"n{rank % 2}")).remote(rank, on_loss) for rank in range(3)]


def test_a_group_fails_at_once_and_goes_on_with_the_next_life(eventually):
    group = members("fail")
    assert ray.get([each.allreduce.remote() for each in group], timeout=60) == [3, 3, 3]
    under_way = [each.allreduce.remote() for each in group[:2]]
    eventually(lambda: ray.get([each.begun.remote() for each in group[:2]]) == [2, 2])
    assert ray.wait(under_way, timeout=0)[0] == []
    killed = time.monotonic()
    group[2].end.options(max_task_retries=0).remote()
    for text, failed in ray.get(under_way, timeout=60):
        assert "rank2" in text and failed - killed < GROUP_LIMIT_S / 2
    group[2] = group[2].allreduce_again.options(max_task_retries=-1)  # waits until Ray has restarted it
    again = [group[0].allreduce_again.remote(), group[1].allreduce_again.remote(), group[2].remote()]
    assert ray.get(again, timeout=60) == [3, 3, 3]


def test_a_group_goes_on_without_a_member():
    group = members("exclude")
    assert ray.get([each.allreduce.remote() for each in group], timeout=60) == [3, 3, 3]
    under_way = [each.allreduce.remote() for each in group[:2]]
    ray.kill(group[2])
    assert ray.get(under_way, timeout=60) == [2, 2]
    assert ray.get(group[0].receive.remote(2), timeout=60) < GROUP_LIMIT_S / 2


def test_workers_refuse_where_raylets_end_orphans(monkeypatch, tmp_path):
    """Ray makes workers subreapers then: prctl(PR_SET_CHILD_SUBREAPER)."""
    libc = ctypes.CDLL(None)
    monkeypatch.setattr(_here._ray_worker.global_worker, "mode", ray.WORKER_MODE)
    monkeypatch.setattr(_here, "temporary", lambda: str(tmp_path))
    assert not _here.ends_orphans()
    libc.prctl(36, 1, 0, 0, 0)
    try:
        with pytest.raises(phalanx.exceptions.PhalanxError, match="python -m phalanx.ray"):
            _daemons.ensure_node(_here.here(), may_ask_head=False)
    finally:
        libc.prctl(36, 0, 0, 0, 0)
