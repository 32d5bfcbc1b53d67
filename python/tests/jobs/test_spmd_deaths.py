"""Sessions whose ranks die: threads that drop their session, and processes that are killed or interrupted."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sessions_support import LIMIT_S, VALUES, WORLD, Died, run

import phalanx
import phalanx.spmd
from phalanx import _native, exceptions


class Program:
    """A program with calls of every kind, which dies at points that are numbered through."""

    ITERATIONS = 3

    def __init__(self, deaths=()):
        self.deaths = list(deaths)
        self.prepared = []

    def __call__(self, session):
        self.session, self.points = session, 0
        self.fatal = self.deaths[session.life] if session.life < len(self.deaths) else 0
        self.point()
        # Only the first life has these bytes.
        boot = session.broadcast(os.urandom(16) if session.rank == 1 else None, 1)
        self.point()
        version, model = session.load()
        if version == 0:
            model = {"weights": np.zeros(1000, np.float32), "boot": boot}
        assert model["boot"] == boot and session.version == version
        while session.version < self.ITERATIONS:
            self.iterate(model)
        self.point()
        stats = session.stats
        assert (stats.repeated > 0) == (session.life > 0)
        assert (stats.recovery > 0) == (session.life > 0 and stats.made > 0)
        return hashlib.sha256(model["weights"].tobytes()).hexdigest(), boot

    def point(self):
        self.points += 1
        if self.points == self.fatal:
            raise Died

    def prepare(self, model, version):
        self.prepared.append(version)
        return VALUES[(np.arange(1000) + self.session.rank + version) % 3] + model["weights"]

    def iterate(self, model):
        session, version = self.session, self.session.version
        self.point()
        model["weights"] += session.allreduce(prepare=lambda: self.prepare(model, version), shape=1000, dtype="f4")
        self.point()
        sent = session.broadcast(
            np.full(version + 5, 0.5) if session.rank == version % WORLD else None, version % WORLD
        )
        assert sent.tolist() == [0.5] * (version + 5)
        self.point()
        parts = session.allgather(np.full(session.rank + version % 2, session.rank))
        assert [len(part) for part in parts] == [rank + version % 2 for rank in range(WORLD)]
        self.point()
        session.barrier()
        self.point()
        session.checkpoint(model)


def of_program(client, job, victim=0, deaths=()):
    """Run the program as all ranks, of which one dies, and return the hash that all have at the end, and the victim."""
    programs = [Program(deaths if rank == victim else ()) for rank in range(WORLD)]
    results = run(client, job, lambda session: programs[session.rank](session))
    assert len(set(results)) == 1
    for program in programs:
        # No input was given twice, and none that was not needed.
        assert sorted(program.prepared) == [0, 1, 2]
    return results[0][0], programs[victim]


def test_a_rank_that_dies_anywhere_ends_with_the_bits_of_a_run_without_deaths(client):
    calm, program = of_program(client, "calm")
    assert program.points == 2 + 5 * Program.ITERATIONS + 1
    for point in range(1, program.points + 1):
        assert of_program(client, f"dies{point}", point % WORLD, [point])[0] == calm, point
    # The second life dies where it begins, and the third one within the calls that it repeats.
    assert of_program(client, "often", 1, [11, 2, 4])[0] == calm


def test_what_a_block_raises_is_the_death_of_the_rank(client):
    dead = threading.Event()

    def body(session):
        if session.rank == 1 and session.life == 0:
            kept.append(session)
            raise Died
        if session.rank == 1:
            dead.set()
        # The others wait for the next life.
        session.barrier()
        assert dead.is_set()
        return session.life

    kept = []
    assert run(client, "block", body) == [0, 1, 0]
    assert "ended" in repr(kept[0])
    for use in (kept[0].barrier, lambda: kept[0].version):
        with pytest.raises(exceptions.ClosedError, match="the session of rank 1 of 3 has ended"):
            use()


def test_a_newer_life_ends_the_older_one(client):
    older = phalanx.spmd.join("newer", "worker0", world=1, client=client)
    with phalanx.spmd.join("newer", "worker0", world=1, client=client) as newer:
        with pytest.raises(exceptions.MemberEndedError, match="a newer life of worker0"):
            older.barrier()
        newer.barrier()
        assert newer.life == 1


def test_a_rank_that_does_not_come_is_named(client):
    with pytest.raises(exceptions.GetTimeoutError, match=r"rank 1"):
        phalanx.spmd.join("absent", "worker0", world=2, client=client, peer_timeout=0.3)

    def body(session):
        if session.rank == 0:
            with pytest.raises(exceptions.GetTimeoutError, match=r"rank 1 \(worker1\)"):
                session.barrier()
        done.wait() if session.rank else done.set()
        session._left = True
        return True

    done = threading.Event()
    assert run(client, "silent", body, 2, peer_timeout=1) == [True, True]


def test_wrong_options(client):
    for options, kind, words in (
        ({"world": 0}, ValueError, "world=0"),
        ({"task": 5}, TypeError, "task=5"),
        ({"result_copies": 17}, ValueError, "result_copies=17"),
        ({"local_copies": 0}, ValueError, "local_copies=0"),
        ({"peer_timeout": -1}, ValueError, "peer_timeout=-1"),
        ({"checkpoint_dir": b"x"}, TypeError, "checkpoint_dir"),
    ):
        with pytest.raises(kind, match=words):
            phalanx.spmd.join(**{"job": "options", "task": "worker0", "world": 1, "client": client, **options})
    with pytest.raises(exceptions.InvalidArgumentError, match="PHALANX_JOB"):
        phalanx.spmd.join(client=client)


# ---- local models, and names


def test_a_next_life_loads_its_own_local_model(client):
    def body(session):
        rank, life = session.rank, session.life
        if life > 0:
            with pytest.raises(exceptions.InvalidArgumentError, match="without a local model"):
                session.load()
        version, model, local = session.load(local=True)
        if life == 0:
            assert (version, model, local) == (0, None, None)
            model, local = np.zeros(3), []
        else:
            assert version == 2 and local == [(rank, 0), (rank, 1)] and model.tolist() == [2] * 3
        while session.version < 4:
            model += session.allreduce(np.full(3, 1 / WORLD))
            if rank == 1 and life == 0 and session.version == 2:
                raise Died
            model = model.round()
            local.append((rank, session.version))
            session.checkpoint(model, local)
        with pytest.raises(exceptions.InvalidArgumentError, match="local"):
            session.checkpoint(model)
        return local

    assert run(client, "local", body) == [[(rank, version) for version in range(4)] for rank in range(WORLD)]


def test_calls_with_names_come_in_another_order_in_a_next_life(client):
    def body(session):
        rank = session.rank
        calls = {
            "sum": lambda: session.allreduce(np.full(2, rank), name="sum").tolist(),
            "words": lambda: session.allreduce("abc"[rank], lambda a, b: a + b, name="words"),
            "root": lambda: session.broadcast(rank, 2, name="root"),
            "all": lambda: session.allgather(rank, name="all"),
            "met": lambda: session.barrier("met"),
            "later": lambda: session.allreduce_async(np.full(2, rank), name="later").wait().tolist(),
        }
        order = ["all", "words", "later", "met", "sum"] if session.life else list(calls)
        results = {name: calls[name]() for name in order}
        expected = {"sum": [3, 3], "words": "abc", "root": 2, "all": [0, 1, 2], "met": None, "later": [3, 3]}
        assert results == {name: expected[name] for name in order}
        session.load()
        session.barrier()
        if rank == 1 and session.life == 0:
            raise Died
        session.barrier()
        return session.life

    assert run(client, "names", body) == [0, 1, 0]


# ---- lazy checkpoints


class Counted:
    """A model that counts how often it is pickled."""

    def __init__(self, values):
        self.values = values
        self.pickled = 0

    def __reduce__(self):
        self.pickled += 1
        return Counted, (self.values,)


def test_a_lazy_checkpoint_of_a_run_without_deaths_is_not_pickled(client):
    def body(session):
        session.load()
        models = [Counted(np.full(1000, version)) for version in range(5)]
        for model in models:
            session.barrier()
            session.checkpoint(model, lazy=True)
        session.barrier()
        assert session.version == 5
        return sum(model.pickled for model in models), session.stats.checkpoint_bytes

    assert run(client, "not pickled", body) == [(0, 0)] * WORLD


@pytest.mark.parametrize("way", ["barrier", "allreduce_async", "allreduce"])
def test_a_lazy_checkpoint_is_pickled_for_a_rank_that_has_died(client, way):
    """However the others wait for the next life of the rank."""

    def body(session):
        version, model = session.load()
        assert version == session.life
        if version == 0:
            session.barrier()
            model = Counted(VALUES)
            session.checkpoint(model, lazy=True)
            assert session.version == 1 and model.pickled == 0
        assert model.values.tolist() == VALUES.tolist()
        session.barrier()
        if session.rank == 1 and session.life == 0:
            raise Died
        if way == "barrier":
            session.barrier()
        elif way == "allreduce_async":
            session.allreduce_async(np.ones(2)).wait()
        else:
            session.allreduce(np.ones(500_000), lambda a, b: a + b)
        if session.life == 0:
            assert model.pickled == 1
        session.checkpoint(model.values)  # an eager one
        session.barrier()
        return session.version

    assert run(client, f"pickled {way}", body) == [2] * WORLD


def test_a_lazy_model_that_cannot_be_pickled_ends_the_session(client):
    """The call in which it is needed raises the error of pickle."""

    def body(session):
        version, model = session.load()
        session.barrier()
        if session.life > 0:
            # It finds no model; the others are over.
            return None
        session.checkpoint(threading.Lock(), lazy=True)
        if session.rank == 1:
            session.barrier()
            raise Died
        # The first one can end when the death is known.
        with pytest.raises(TypeError, match="pickle"):
            session.barrier()
            session.barrier()
        with pytest.raises(exceptions.PhalanxError, match="LazyCheckpoint"):
            session.barrier()
        session._left = True
        return session.rank

    with pytest.raises(exceptions.GetTimeoutError):
        run(client, "unpicklable lazy", body, 2, peer_timeout=2)


def test_a_lazy_checkpoint_has_no_local_model(client):
    with phalanx.spmd.join("lazy local", "worker0", world=1, client=client) as session:
        session.load()
        with pytest.raises(exceptions.InvalidArgumentError, match="a lazy one has no local model"):
            session.checkpoint(1, 2, lazy=True)


def test_a_rank_dies_with_its_block_also_if_a_traceback_has_its_session(client):
    def die():
        raise Died

    def peer():
        own = phalanx.Client(client.address)
        try:
            with phalanx.spmd.join("traceback", "worker1", world=2, client=own) as session:
                session.allreduce(prepare=die, shape=2, dtype="f8")
        except Died as error:
            kept.append(error)

    kept = []
    thread = threading.Thread(target=peer)
    thread.start()
    session = phalanx.spmd.join("traceback", "worker0", world=2, client=client, peer_timeout=10)
    thread.join()
    with pytest.raises(exceptions.GetTimeoutError, match="worker1.* has ended"):
        session.barrier()
    assert kept


# ---- checkpoints on disks


@pytest.mark.parametrize("local", [False, True])
def test_a_job_whose_ranks_have_all_died_goes_on_from_its_files(client, tmp_path, local):
    class AllDie(Exception):
        pass

    def body(session):
        version, model, *own = session.load(local=local)
        model = np.zeros(3) if version == 0 else model
        begun = version
        while session.version < begun + 3:
            model += session.allreduce(np.ones(3))
            session.checkpoint(model, *([(session.rank, session.version)] if local else []))
        session.barrier()
        if begun == 0:
            raise AllDie
        assert own == ([(session.rank, begun - 1)] if local else [])
        return begun, session.version, model.tolist()

    job = f"files {local}"
    with pytest.raises(AllDie):
        run(client, job, body, checkpoint_dir=tmp_path)
    ended = run(client, job, body, checkpoint_dir=tmp_path)
    assert ended == [(3, 6, [6 * WORLD] * 3)] * WORLD


# ---- interrupts, forks, and processes of their own


def python(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False)


_INTERRUPTED = """
import os, signal, threading, time
import phalanx, phalanx.spmd

# A process that a shell started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = phalanx.init()
other = phalanx.Client(client.address)
def peer():
    global theirs
    theirs = phalanx.spmd.join("job", "worker1", world=2, client=other)
thread = threading.Thread(target=peer)
thread.start()
session = phalanx.spmd.join("job", "worker0", world=2)
thread.join()
def interrupt():
    while not session._caller._waits:
        time.sleep(0.01)
    at.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
at = []
threading.Thread(target=interrupt).start()
try:
    with session:
        session.barrier()
except KeyboardInterrupt:
    assert time.monotonic() - at[0] < 5
    try:
        session.barrier()
    except phalanx.exceptions.ClosedError as error:
        print(error)
# The call goes on until the next life ends it.
with phalanx.spmd.join("job", "worker0", world=2) as again:
    thread = threading.Thread(target=theirs.__exit__, args=(None, None, None))
    thread.start()
    print(again.life)
thread.join()
"""


def test_an_interrupt_ends_a_wait_and_the_session():
    ended = python(_INTERRUPTED)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["the session of rank 0 of 2 has ended", "1"]


def test_an_interrupt_ends_a_join():
    program = """
import os, signal, threading, time
import phalanx, phalanx.spmd
signal.signal(signal.SIGINT, signal.default_int_handler)
phalanx.init()
timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
try:
    phalanx.spmd.join("job", "worker0", world=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = python(program)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr


def test_a_forked_child_gets_an_error():
    program = """
import numpy, os, phalanx, phalanx.spmd, sys
with phalanx.spmd.join("fork", "worker0", world=1) as session:
    session.allreduce_async(numpy.ones(2)).wait()
    if os.fork() == 0:
        try:
            session.barrier()
        except phalanx.exceptions.ClosedError as error:
            print(error)
        # The rest of the block, and the end of the interpreter, as in the parent.
    else:
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        print(session.allgather(1), session.life)
"""
    ended = python(program)
    assert ended.returncode == 0, ended.stderr
    assert "joined before this process was forked" in ended.stdout and ended.stdout.endswith("[1] 0\n")


_LAUNCHED = """
import hashlib, os, signal, sys
import numpy as np
import phalanx.spmd

def fold(into, other):
    # Rank 0 folds along the tree, when the others have given their arrays.
    if sys.argv[1] == "in-fold" and session.life == 0 and session.version == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return into + other

VALUES = np.array([1e8, 1, -1e8], np.float32)
with phalanx.spmd.join() as session:
    seed = session.broadcast(np.random.default_rng().integers(1 << 30) if session.rank == 0 else None)
    version, model = session.load()
    if version == 0:
        model = np.zeros(300_000, np.float32)
    while session.version < 4:
        at = np.arange(len(model)) + session.rank + session.version
        model += session.allreduce(prepare=lambda: VALUES[at % 3], out=np.empty_like(model))
        model[0] += len(session.allgather(np.ones(session.rank)))
        model += session.allreduce(model + VALUES[session.rank], fold)
        session.checkpoint(model)
    seeds = session.allgather(int(seed))
    assert len(set(seeds)) == 1
    print(session.rank, session.life, session.stats.prepared, hashlib.sha256(model).hexdigest(), flush=True)
"""


def launched(*flags, program, kill="none"):
    """Run a program on three ranks, and return the lines of its output."""
    command = [_native.EXECUTABLE, "launch", "-n3", *flags, "--", sys.executable, "-c", program, kill]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def ends(*flags, kill="none"):
    """Return what all ranks print at their end, sorted: the rank, the life, the inputs, the hash."""
    lines = launched(*flags, program=_LAUNCHED, kill=kill)
    return sorted(line.split("] ", 1)[1].split() for line in lines)


def test_texts_are_printed_at_the_launch():
    """Without the name of the task in front, once, also those of a rank that dies then."""
    program = (
        "import os, phalanx.spmd\n"
        "with phalanx.spmd.join() as session:\n"
        "    session.print(['one', session.rank, session.life])\n"
        "    if session.rank == 1 and session.life == 0:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    session.barrier()\n"
    )
    lines = launched("--restarts=1", program=program)
    assert sorted(lines) == ["['one', 0, 0]", "['one', 1, 0]", "['one', 1, 1]", "['one', 2, 0]"]


def test_processes_that_are_killed_end_with_the_bits_of_a_run_without_kills():
    calm = ends()
    assert [line[:3] for line in calm] == [[str(rank), "0", "4"] for rank in range(3)]
    (result,) = {line[3] for line in calm}
    # Within the broadcast, in version 0, and in version 2 twice.
    killed = ends("--restarts=4", "--fail=0@3", "--fail=1@4", "--fail=2@10", "--fail=2@1")
    assert {line[3] for line in killed} == {result}
    assert [line[1] for line in killed] == ["1", "1", "2"]
    killed = ends("--restarts=1", kill="in-fold")
    assert {line[3] for line in killed} == {result}
    assert [line[1] for line in killed] == ["1", "0", "0"]
