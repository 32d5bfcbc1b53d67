"""Children of a process: they use its cluster, which ends with the process that started it. Tasks of jobs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import threading

import pytest
from failures_support import raises

import phalanx
from phalanx import _inheritance, exceptions

# Tasks of children, in a module that spawned children can import.
TASKS = """
import concurrent.futures
import multiprocessing

import phalanx


def task(ref):
    return phalanx.get(ref, timeout=60), phalanx.init().address, phalanx.put("from a child")


def address():
    return phalanx.init().address


def pool(method):
    return concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method))


def nested(ref, method):
    with pool(method) as processes:
        return processes.submit(task, ref).result()


def check(answer):
    value, address, ref = answer
    assert (value, address) == ("from the parent", phalanx.init().address), answer
    assert phalanx.get(ref, timeout=60) == "from a child"
"""


@pytest.fixture
def run(tmp_path):
    """Run a program that can import TASKS, and return its output."""
    (tmp_path / "tasks.py").write_text(TASKS)
    script = tmp_path / "program.py"

    def call(code: str, **settings: str) -> str:
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **settings},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return call


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_use_the_cluster_of_their_parent(run, method):
    code = f"""
import multiprocessing, phalanx, tasks
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    with context.Pool(1) as pool:  # the fork server is older than the cluster
        pool.apply(len, ("",))
    ref = phalanx.put("from the parent")
    with context.Pool(1) as pool:
        tasks.check(pool.apply(tasks.task, (ref,)))
    with tasks.pool({method!r}) as executor:
        tasks.check(executor.submit(tasks.task, ref).result())
    # A child of fork cannot use its parent's fork server.
    for inner in ("fork", "spawn", "forkserver")[: 2 if {method!r} == "fork" else 3]:
        with tasks.pool({method!r}) as executor:
            tasks.check(executor.submit(tasks.nested, ref, inner).result())
    print(phalanx.get(phalanx.put("outlives its children")))
"""
    assert run(code) == "outlives its children"


def test_a_process_object_that_is_older_than_the_cluster_is_forked_into_it(run):
    code = """
import multiprocessing, os, phalanx, tasks
def child():
    # Before any call of the child itself.
    tasks.check(tasks.nested(ref, "spawn"))
    tasks.check(tasks.task(ref))
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=child)
    ref = phalanx.put("from the parent")
    process.start()
    process.join()
    assert process.exitcode == 0
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
"""
    assert run(code) == "0"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_object_that_is_older_than_the_cluster_is_spawned_into_it(run, method):
    code = f"""
import multiprocessing, phalanx, tasks
def child(pipe):
    pipe.send(tasks.address())
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    here, there = context.Pipe()
    process = context.Process(target=child, args=(there,))
    address = phalanx.init().address
    process.start()
    assert here.recv() == address
    process.join()
    print(process.exitcode)
"""
    assert run(code) == "0"


@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_processes_of_joblib(run, backend):
    pytest.importorskip("joblib")
    code = f"""
import joblib, phalanx, tasks
if __name__ == "__main__":
    ref = phalanx.put("from the parent")
    for answer in joblib.Parallel(2, backend={backend!r})(joblib.delayed(tasks.task)(ref) for _ in range(4)):
        tasks.check(answer)
    print("end")
"""
    assert run(code) == "end"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_use_the_node_that_their_parent_named(run, nodes, method):
    _, daemons, _ = nodes
    addresses = [daemon.client_address for daemon in daemons]
    code = f"""
import os, phalanx, tasks
def address_with(setting):
    os.environ["PHALANX_ADDRESS"] = setting
    return phalanx.init().address
if __name__ == "__main__":
    first, second, third = {addresses!r}
    phalanx.init(second)
    ref = phalanx.put("from the parent")
    with tasks.pool({method!r}) as executor:
        tasks.check(executor.submit(tasks.task, ref).result())
    with tasks.pool({method!r}) as executor:
        assert executor.submit(address_with, third).result() == third  # the child's own setting goes first
    with tasks.pool({method!r}) as executor:
        assert "phalanx-up" in executor.submit(address_with, "").result()  # a private cluster of the child
    phalanx.shutdown()
    with tasks.pool({method!r}) as executor:
        assert executor.submit(tasks.address).result() == first
    for close in (phalanx.Client.close, lambda client: client.__exit__(None, None, None)):
        close(phalanx.init(second))
        with tasks.pool({method!r}) as executor:
            assert executor.submit(tasks.address).result() == first
        assert phalanx.init().address == first
        phalanx.shutdown()
    print("end")
"""
    # In the first node's environment, the program names the second.
    assert run(code, PHALANX_ADDRESS=addresses[0]) == "end"


def test_other_programs_have_their_own_cluster(client):
    code = "import phalanx; print(phalanx.init().address)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("unix:") and done.stdout.strip() != client.address
    assert "PHALANX_ADDRESS" not in os.environ


def test_offers_are_those_of_the_newest_cluster(monkeypatch):
    # The list that the processes of other tests share stays as it is.
    monkeypatch.setitem(multiprocessing.current_process()._config, "phalanx", [])
    monkeypatch.setattr(_inheritance, "_offers", (_inheritance.Offer(1, "unix:/parent", True, None),))
    assert _inheritance.received().address == "unix:/parent"

    def offered():
        return [each.address for each in _inheritance._known()]

    _inheritance.offer("unix:/named", private=False)
    _inheritance.offer("unix:/private", private=True)
    assert offered() == ["unix:/parent", "unix:/private", "unix:/named"]
    _inheritance.offer("unix:/private/2", private=True)  # the first one was killed
    assert offered() == ["unix:/parent", "unix:/private/2", "unix:/named"]
    _inheritance.withdraw()
    assert offered() == ["unix:/parent", "unix:/private/2"]
    # A process does not receive its own offers, and PHALANX_ADDRESS goes first if it has changed.
    assert _inheritance.received().address == "unix:/parent"
    monkeypatch.setenv("PHALANX_ADDRESS", "")
    assert _inheritance.received() is None


def test_a_foreign_ref_names_both_clusters_and_the_remedy(client, nodes):
    clients, _, _ = nodes
    with raises(exceptions.ForeignRefError) as caught:
        client.get(clients[0].put(1))
    for part in (clients[0].directory, client.address, client.directory, "phalanx.Client(", "phalanx.init()"):
        assert part in str(caught.value)


# ---- the end of the process that started the cluster


@contextlib.contextmanager
def program(code: str, folder: pathlib.Path):
    """Run a program with private clusters in this folder, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def folder(tmp_path_factory):
    """A folder for private clusters. The path of a socket is short."""
    import shutil
    import tempfile

    made = pathlib.Path(tempfile.mkdtemp(prefix="phx-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


# Prints the process of its private cluster's daemon, then waits.
PARENT = """
import sys, phalanx
client = phalanx.init()
print(client.node.rpartition("-")[2])
sys.stdin.read()
"""


def ends(pid: int, descriptor: int) -> bool:
    """Whether a process, of which this is the descriptor, ends."""
    readable, _, _ = select.select([descriptor], [], [], 60)
    os.close(descriptor)
    return bool(readable)


def test_a_killed_program_leaves_nothing(folder):
    with program(PARENT, folder) as process:
        daemon = int(process.stdout.readline())
        descriptor = os.pidfd_open(daemon)
        (left,) = folder.iterdir()
        assert {path.name for path in left.iterdir()} >= {"secret", "node.sock"}
        process.kill()
        assert ends(daemon, descriptor)
    assert list(folder.iterdir()) == []


def test_the_next_program_removes_what_a_killed_cluster_left(folder):
    with program(PARENT, folder) as process:
        daemon = int(process.stdout.readline())
        descriptor = os.pidfd_open(daemon)
        (left,) = folder.iterdir()
        os.kill(daemon, signal.SIGKILL)
        assert ends(daemon, descriptor)
        process.kill()
    assert (left / "secret").exists()
    with program(PARENT, folder) as running, program(PARENT, folder) as second:
        assert int(running.stdout.readline()) != int(second.stdout.readline())
        assert not left.exists()
        # Those of running clusters stay.
        assert len(list(folder.iterdir())) == 2


def test_a_program_whose_cluster_was_killed_removes_its_folder(folder):
    code = PARENT + "client.close()\nprint(phalanx.init().get(phalanx.put(7)))\nsys.stdin.read()\n"
    with program(code.replace("sys.stdin.read()", "sys.stdin.readline()"), folder) as process:
        daemon = int(process.stdout.readline())
        descriptor = os.pidfd_open(daemon)
        (left,) = folder.iterdir()
        os.kill(daemon, signal.SIGKILL)
        assert ends(daemon, descriptor)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "7\n"
        assert not left.exists() and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_cluster_ends_with_the_process_that_started_it(tmp_path, folder, method):
    """Also if children live on: their calls raise an error that names the process."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    opener = os.open(gate, os.O_RDWR)  # waits for no reader
    script = f"""
import multiprocessing, os, sys, phalanx

def child(of_parent):
    connected = phalanx.init()
    assert connected.address == of_parent
    assert phalanx.get(phalanx.put(1)) == 1
    print("ready", os.getppid(), connected.node.rpartition("-")[2], flush=True)
    open({str(gate)!r}, "rb", 0).read(1)  # until the test has seen the end of the cluster
    for call in (lambda: connected.put(2), lambda: phalanx.Client()):
        try:
            call()
        except phalanx.exceptions.DisconnectedError as error:
            print("lost:", error, flush=True)
    os.environ["PHALANX_ADDRESS"] = ""
    with phalanx.Client() as own:
        print(own.get(own.put("own")), flush=True)

if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    print("parent", os.getpid(), flush=True)
    process = multiprocessing.Process(target=child, args=(phalanx.init().address,))
    process.start()
    process.join()
"""
    path = tmp_path / "program.py"
    path.write_text(script)
    process = subprocess.Popen(
        [sys.executable, path],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )
    try:
        assert process.stdout.readline() == f"parent {process.pid}\n"
        daemon = int(process.stdout.readline().split()[2])
        descriptor = os.pidfd_open(daemon)
        process.kill()
        assert ends(daemon, descriptor)
        os.write(opener, b"x")
        first, second, own = (process.stdout.readline() for _ in range(3))
        assert first.startswith("lost:") and second.startswith("lost:")
        assert re.search(f"from process {process.pid}, .*PHALANX_ADDRESS", second)
        assert own == "own\n"
    finally:
        os.close(opener)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# ---- jobs: members that join, leave, die and come back

_JOINER = """
import os, sys, phalanx
member = phalanx.join("train", sys.argv[1], world=2)
print(member.life, flush=True)
sys.stdin.read()
os._exit(1)
"""


def _start(task: str, address: str) -> tuple[subprocess.Popen[str], int]:
    """Start a task as a process; return it and its life. The process ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", _JOINER, task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PHALANX_ADDRESS": address},
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_member_knows_its_place_and_the_others(client):
    with phalanx.join("place", "worker1", 2, client=client) as one:
        assert (one.job, one.role, one.task) == ("place", "worker", "worker1")
        assert (one.rank, one.life, one.world) == (1, 0, 2)
        assert [info.state for info in one.members()] == ["absent", "live"]
        assert one.members("ps") == []
        with pytest.raises(exceptions.GetTimeoutError, match=r"rank 0 \(has not joined\)"):
            one.wait_world(timeout=0)
        with phalanx.join("place", "worker0", 2, client=client) as zero:
            one.wait_world(timeout=60)
            assert len(set(zero.hosts)) == 1 and zero.hosts[0]
            assert zero.members()[1].node == client.node
        one.check()
    with pytest.raises(exceptions.ClosedError, match="worker1 of job place has left"):
        one.check()


def test_a_killed_task_is_seen_to_die_and_comes_back(client):
    heard: list[tuple[str, int, str]] = []
    news = threading.Condition()

    def note(info):
        with news:
            heard.append((info.task, info.life, info.state))
            news.notify()

    with phalanx.join("train", "worker0", 2, client=client) as zero:
        zero.on_member(note)
        with pytest.raises(exceptions.InvalidArgumentError):
            zero.on_member(note)
        for life in range(2):
            task, joined = _start("worker1", client.address)
            assert joined == life
            zero.wait_world(timeout=60)
            task.kill()
            task.wait()
            with news:
                assert news.wait_for(lambda life=life: ("worker1", life, "died") in heard, timeout=60)
        assert [info.state for info in zero.members()] == ["live", "died"]


def test_a_newer_life_ends_the_older_one(client):
    older = phalanx.join("lives", "worker0", 2, client=client)
    with phalanx.join("lives", "worker0", 2, client=client) as newer:
        assert newer.life == 1
        with pytest.raises(exceptions.MemberEndedError, match="a newer life of worker0 of job lives has joined"):
            older.wait_world(timeout=60)
        older.leave()
        newer.check()


def test_a_block_that_raises_is_a_death(client):
    with phalanx.join("blocks", "worker0", 2, client=client) as zero:
        with pytest.raises(KeyError), phalanx.join("blocks", "worker1", 2, client=client):
            raise KeyError
        seen = threading.Event()
        zero.on_member(lambda info: seen.set() if info.state == "died" else None)
        assert zero.members()[1].state == "died" or seen.wait(60)


def test_bad_arguments(client, monkeypatch):
    for name in ("PHALANX_JOB", "PHALANX_TASK", "PHALANX_WORLD", "PHALANX_ROLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(exceptions.InvalidArgumentError, match="PHALANX_JOB is not set"):
        phalanx.join(client=client)
    for world in (0, 65537):
        with pytest.raises(exceptions.InvalidArgumentError, match="world"):
            phalanx.join("bad", "w", world, client=client)
    with pytest.raises(TypeError):
        phalanx.join("bad", "w", "two", client=client)  # type: ignore[arg-type]
    with phalanx.join("bad", "w", 2, client=client):
        with pytest.raises(exceptions.InvalidArgumentError, match="has a world of 2, but x joins with a world of 3"):
            phalanx.join("bad", "x", 3, client=client)
        with pytest.raises(exceptions.InvalidArgumentError, match="belongs to task w"):
            phalanx.join("bad", "x", 2, rank=0, client=client)


def test_the_variables_of_launch(client, monkeypatch):
    monkeypatch.setenv("PHALANX_JOB", "launched")
    monkeypatch.setenv("PHALANX_TASK", "ps1")
    monkeypatch.setenv("PHALANX_ROLE", "ps")
    monkeypatch.setenv("PHALANX_WORLD", "2")
    with phalanx.join(client=client) as member:
        assert (member.job, member.role, member.rank) == ("launched", "ps", 1)
