"""The keeper of a daemon, with a process of the test in the raylet's place. No Ray runs."""

from __future__ import annotations

import concurrent.futures
import ctypes
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from phalanx import exceptions
from phalanx.ray import _daemons


class Raylet:
    """A process that does nothing until it is ended."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.descriptor = os.pidfd_open(self._process.pid)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.end()
        self._process.stdin.close()
        os.close(self.descriptor)


@pytest.fixture
def raylet():
    made = Raylet()
    yield made
    made.close()


@pytest.fixture
def order(raylet, tmp_path, binary):
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [binary, "directory", "--json", "--listen=127.0.0.1:0"]
    return _daemons.Order("directory", str(folder), command, str(tmp_path / "log"), raylet.descriptor, 0)


def keeper_of(daemon: int) -> int:
    with open(f"/proc/{daemon}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_daemon_ends_with_the_raylet_and_leaves_nothing(order, raylet, eventually):
    ready = _daemons._start(order)
    assert _daemons._ready(order.folder) == ready
    raylet.end()
    eventually(lambda: not os.path.exists(order.folder))
    assert not runs(ready["process_id"])


def test_the_daemon_is_no_child_of_the_starter_and_in_another_session(order):
    daemon = _daemons._start(order)["process_id"]
    keeper = keeper_of(daemon)
    assert keeper != os.getpid() and keeper_of(keeper) != os.getpid()
    assert os.getsid(daemon) not in (os.getsid(0), os.getpid())
    assert os.readlink(f"/proc/{keeper}/fd/2") == order.log, "its errors are beside those of the daemon"


def test_the_daemon_is_not_the_first_that_a_full_machine_ends(order):
    with open("/proc/self/oom_score_adj", "r+") as score:
        before = score.read()
        score.write("500")
    try:
        daemon = _daemons._start(order)["process_id"]
    finally:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write(before)
    with open(f"/proc/{daemon}/oom_score_adj") as score:
        assert int(score.read()) == 0


def be_nice(may_undo):
    os.nice(7)
    if not may_undo:
        drop_from_bounding_set, cap_sys_nice = 24, 23
        ctypes.CDLL(None).prctl(drop_from_bounding_set, cap_sys_nice)


def start_from_a_nice_process(order, may_undo):
    """Return how much nicer than this process the daemon is that a process starts which is nice, as Ray's workers are."""
    with concurrent.futures.ProcessPoolExecutor(1, initializer=be_nice, initargs=(may_undo,)) as worker:
        daemon = worker.submit(_daemons._start, order).result()["process_id"]
    return os.getpriority(os.PRIO_PROCESS, daemon) - os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a niceness")
def test_the_daemon_is_as_nice_as_the_raylet(order):
    assert start_from_a_nice_process(order, may_undo=True) == 0


def test_a_daemon_that_must_stay_nice_says_what_to_do(order):
    assert start_from_a_nice_process(order, may_undo=False) == 7
    with open(order.log) as log:
        assert "Run `python -m phalanx.ray`" in log.read()


def test_a_daemon_that_dies_starts_again_at_its_address(order, eventually):
    ready = _daemons._start(order)
    keeper = keeper_of(ready["process_id"])
    os.kill(ready["process_id"], signal.SIGKILL)
    eventually(lambda: _daemons._ready(order.folder) != ready)
    again = _daemons._ready(order.folder)
    assert again == {**ready, "process_id": again["process_id"]}
    assert keeper_of(again["process_id"]) == keeper


def test_the_daemon_ends_with_its_keeper(order, eventually):
    daemon = _daemons._start(order)["process_id"]
    os.kill(keeper_of(daemon), signal.SIGKILL)
    eventually(lambda: not runs(daemon))
    assert _daemons._ready(order.folder) is None
    assert runs(_daemons._start(order)["process_id"]), "the next start finds the folder as it is"


def test_a_second_keeper_leaves_the_daemon_to_the_first(order):
    ready = _daemons._start(order)
    assert _daemons._start(order) == ready


def test_a_starter_waits_for_the_daemon_of_another_keeper(order, tmp_path, monkeypatch):
    """The starter of the first keeper has ended before the daemon is ready, which it is when `go` can be read."""
    os.mkfifo(tmp_path / "go")
    slow = f"import sys\nopen({str(tmp_path / 'go')!r}).read()\nprint('{{\"address\": \"late\"}}', flush=True)\ninput()"
    made = order._replace(command=[sys.executable, "-c", slow])
    monkeypatch.setattr(_daemons, "_START_S", 0.5)
    with pytest.raises(exceptions.DisconnectedError, match="no answer"):
        _daemons._start(made)
    monkeypatch.setattr(_daemons, "_START_S", 60.0)
    with monkeypatch.context() as impatient, pytest.raises(exceptions.DisconnectedError, match="another keeper runs in"):
        impatient.setattr(_daemons, "_until", lambda condition: condition())
        _daemons._start(made)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = threads.submit(_daemons._start, made)
        (tmp_path / "go").write_text("")
        assert found.result(30) == {"address": "late"}


def test_a_daemon_that_says_nothing_ends_with_the_raylet(order, raylet, monkeypatch, tmp_path, eventually):
    silent = f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nimport signal\nsignal.pause()"
    monkeypatch.setattr(_daemons, "_START_S", 0.5)
    with pytest.raises(exceptions.DisconnectedError, match="no answer"):
        _daemons._start(order._replace(command=[sys.executable, "-c", silent]))
    eventually(lambda: os.path.exists(tmp_path / "pid") and (tmp_path / "pid").read_text())
    raylet.end()
    eventually(lambda: not os.path.exists(order.folder))
    assert not runs(int((tmp_path / "pid").read_text()))


def test_a_reader_does_not_stop_a_keeper(order, monkeypatch):
    """A reader that looks for a keeper holds the lock that a keeper takes, for a moment."""
    alive = os.open(os.path.join(order.folder, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(alive, fcntl.LOCK_SH)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = threads.submit(_daemons._start, order)
        with pytest.raises(concurrent.futures.TimeoutError):
            found.result(0.2)
        os.close(alive)
        assert runs(found.result(30)["process_id"])


def test_a_lock_that_is_not_given_back_is_an_error(order, monkeypatch):
    monkeypatch.setattr(_daemons, "_START_S", 0.2)
    monkeypatch.setattr(_daemons, "_make", lambda folder: None)
    with _daemons._locked(order.folder):
        with pytest.raises(exceptions.DisconnectedError, match=f"lock of {order.folder}"):
            with _daemons._locked(order.folder):
                pass


def test_a_daemon_that_does_not_start_is_an_error_with_its_cause(order):
    wrong = order._replace(command=[*order.command, "--lease=nonsense"])
    with pytest.raises(exceptions.DisconnectedError, match="nonsense"):
        _daemons._start(wrong)
    assert _daemons._ready(order.folder) is None


def test_settings_of_the_worker_do_not_reach_the_daemon(order, monkeypatch):
    monkeypatch.setenv("PHALANX_LEASE", "nonsense")
    monkeypatch.setenv("RAY_anything", "1")
    daemon = _daemons._start(order)["process_id"]
    with open(f"/proc/{daemon}/environ") as file:
        assert "RAY_" not in file.read()


def test_a_daemon_that_does_not_leave_in_time_is_killed(order, raylet, tmp_path, eventually):
    stubborn = (
        "import json, os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(json.dumps({'address': '', 'process_id': os.getpid()}), flush=True)\n"
        "signal.pause()\n"
    )
    made = order._replace(command=[sys.executable, "-c", stubborn], leaves_within_s=0.3)
    daemon = _daemons._start(made)["process_id"]
    raylet.end()
    eventually(lambda: not os.path.exists(order.folder))
    assert not runs(daemon)


def test_a_folder_of_another_user_is_refused(monkeypatch, tmp_path):
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(exceptions.AccessError, match=str(tmp_path.parts[2])):
        _daemons._make(str(tmp_path))
