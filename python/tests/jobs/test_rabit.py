"""phalanx.rabit: alone, as ranks of a launch, and with the deaths of Rabit's own test of its Python functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import phalanx
from phalanx import _native, exceptions, rabit
from phalanx._jobs import rabit_parameters

# Rank, version, call, life.
LOCAL_RECOVER = ["0,0,1,0", "1,1,1,0", "0,1,1,0", "4,1,1,0", "9,1,1,0", "1,1,1,1"]
# A version has one call, and its checkpoint is call 1; rank 0 is in its next life when version 1 comes.
LOCAL_RECOVER_MADE = ["0,0,1,0", "1,1,1,0", "1,1,1,1", "4,1,1,0", "9,1,1,0"]
DIES = re.compile(r"\[(\d+)\] dies at version (\d+), call (\d+), in life (\d+)")

_BEGIN = """
import sys
import numpy as np
import phalanx.rabit as rabit
rabit.init(lib="mock")
rank = rabit.get_rank()
"""

BASIC = """
a = np.arange(3.0) + rank
a = rabit.allreduce(a, rabit.MAX)
print(rank, "max", a.tolist())
a = rabit.allreduce(a, rabit.SUM)
print(rank, "sum", a.tolist())
print(rank, "or", rabit.allreduce(np.array([1 << rank]), rabit.BITOR).tolist())
"""

BROADCAST = """
print(rank, rabit.broadcast({"hello world": 100, 2: 3} if rank == 0 else None, 0))
"""

LAZY_ALLREDUCE = """
a = np.zeros(3)
def prepare(a):
    print(rank, "run prepare")
    a[:] = np.arange(3) + rank
b = rabit.allreduce(a, rabit.MAX, prepare_fun=prepare)
print(rank, rabit.allreduce(b, rabit.SUM).tolist())
"""

LOCAL = """
data = np.ones(10) * rank
version, model, local = rabit.load_checkpoint(True)
if version == 0:
    model, local = np.zeros(10), np.ones(10)
else:
    print(rank, "restart", version)
for i in range(version, 3):
    model = rabit.allreduce(data + model + local, rabit.SUM)
    local[:] = i
    rabit.checkpoint(model, local)
print(rank, model.tolist(), local.tolist(), rabit.version_number())
"""

# More than 65,535 bytes, the end of Rabit's own C functions.
LARGE = """
version, model = rabit.load_checkpoint()
if version == 0:
    model = np.arange(100_000)
while rabit.version_number() < 2:
    model += rabit.allreduce(np.array([1]), rabit.SUM)
    rabit.checkpoint(model)
print(rank, version, int(model.sum()))
"""

WITHOUT_LOAD = """
for i in range(2):
    rabit.allreduce(np.array([1]), rabit.SUM)
    rabit.checkpoint([i], [rank] if "local" in sys.argv else None)
print(rank, rabit.version_number())
"""

# The call that was not made is call 0 again.
NOT_MADE = """
def prepare(a):
    raise OSError("no input")
try:
    rabit.allreduce(np.zeros(1), rabit.SUM, prepare)
except OSError:
    pass
print(rank, rabit.allreduce(np.ones(1), rabit.SUM).tolist())
"""

THREADS = """
import threading
import numpy as np
import phalanx.rabit as rabit
def run(rank):
    rabit.init([f"rabit_task_id={rank}", "rabit_world_size=2"], lib_dll="librabit.so")
    total = rabit.allreduce(np.array([rank + 1]), rabit.SUM)
    rabit.checkpoint(1)
    rabit.finalize()
    totals.append(int(total[0]))
totals = []
threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(totals)
"""

TRACKER = """
rabit.tracker_print(f"rank {rank} of {rabit.get_world_size()}")
"""

DIFFERENT = """
rabit.allreduce(np.ones(1 + rank), rabit.SUM)
"""


def launch(program, *arguments, world=2, restarts=0, flags=(), expect=0):
    """Run a program on ranks; return the sorted lines of its output, and the errors."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    text = _BEGIN + program + "sys.stdout.flush()\nrabit.finalize()\n"
    command = [_native.EXECUTABLE, "launch", f"-n{world}", f"--restarts={restarts}", *flags, "--", sys.executable]
    ended = subprocess.run(
        [*command, "-c", text, *arguments], capture_output=True, text=True, timeout=150, env=environment, check=False
    )
    assert ended.returncode == expect, ended.stdout + ended.stderr
    return sorted(re.sub(r"^\[worker\d+\] ", "", line) for line in ended.stdout.splitlines()), ended.stderr


def deaths(errors):
    return sorted(",".join(numbers) for numbers in DIES.findall(errors))


# ---- alone


@pytest.fixture
def alone(monkeypatch):
    """A thread of its own for each test, without a launcher."""
    monkeypatch.delenv("PHALANX_JOB", raising=False)
    monkeypatch.setattr(rabit, "_thread", rabit._Thread())
    rabit.init([])
    yield
    rabit.finalize()


def test_one_rank_has_its_own_input(alone):
    assert (rabit.get_rank(), rabit.get_world_size(), rabit.version_number()) == (0, 1, 0)
    assert rabit.get_processor_name() == os.uname().nodename
    assert rabit.broadcast({"a": 1}, 0) == {"a": 1}
    assert rabit.load_checkpoint() == (0, None)
    assert rabit.load_checkpoint(with_local=True) == (0, None, None)
    rabit.checkpoint([1], [2])
    assert rabit.version_number() == 1


def test_an_allreduce_has_the_shape_of_its_input_and_leaves_it_alone(alone):
    data = np.arange(12.0).reshape(3, 4)
    for given in (data, data[:, ::2], data.T):
        total = rabit.allreduce(given, rabit.SUM)
        assert total.shape == given.shape and total.dtype == given.dtype and (total == given).all()
        total[:] = -1
    assert (data == np.arange(12.0).reshape(3, 4)).all()

    def prepare(array):
        array[:] = 7

    assert (rabit.allreduce(data[0], rabit.MAX, prepare) == 7).all()
    assert (data[0] == 7).all() and (data[1:] == np.arange(4.0, 12.0).reshape(2, 4)).all()


def test_bad_arguments(alone):
    with pytest.raises(TypeError, match=r"list is no numpy\.ndarray"):
        rabit.allreduce([1], rabit.SUM)
    with pytest.raises(exceptions.InvalidArgumentError, match="none of MAX"):
        rabit.allreduce(np.ones(1), 4)
    with pytest.raises(exceptions.InvalidArgumentError, match="BITOR is for integers"):
        rabit.allreduce(np.ones(1), rabit.BITOR)
    with pytest.raises(exceptions.InvalidArgumentError, match="root 1"):
        rabit.broadcast(1, 1)


def test_a_text_for_the_tracker_goes_to_standard_output(alone, capsys):
    rabit.tracker_print("text\n")
    assert capsys.readouterr().out == "text\n"


def test_threads_have_ranks_of_their_own(alone):
    rabit.checkpoint(1)
    versions = []
    thread = threading.Thread(target=lambda: versions.append(rabit.version_number()))
    thread.start()
    thread.join()
    assert (rabit.version_number(), versions) == (1, [0])


# ---- launched


def test_the_programs_of_the_guide():
    lines, _ = launch(BASIC)
    assert lines == sorted(f"{r} {line}" for r in (0, 1) for line in ("max [1.0, 2.0, 3.0]", "sum [2.0, 4.0, 6.0]", "or [3]"))
    lines, _ = launch(BROADCAST, world=3)
    assert lines == [f"{rank} {{'hello world': 100, 2: 3}}" for rank in range(3)]
    lines, errors = launch(LAZY_ALLREDUCE, "mock=0,0,1,0", restarts=1)
    assert lines == sorted(f"{rank} {line}" for rank in (0, 1) for line in ("run prepare", "[2.0, 4.0, 6.0]"))
    assert deaths(errors) == ["0,0,1,0"]


def test_ranks_with_local_models_die():
    flags = ["--unfired=warn"]
    calm, _ = launch(LOCAL, world=10)
    lines, errors = launch(LOCAL, *(f"mock={each}" for each in LOCAL_RECOVER), world=10, restarts=20, flags=flags)
    assert deaths(errors) == LOCAL_RECOVER_MADE
    assert [line for line in lines if "restart" not in line] == calm
    assert {line for line in lines if "restart" in line} == {f"{rank} restart 1" for rank in (1, 4, 9)}
    lines, errors = launch(LOCAL, "force_local=1", "mock=1,1,1,0", world=3, restarts=1)
    assert deaths(errors) == ["1,1,1,0"] and len(lines) == 4


def test_a_large_checkpoint_is_loaded_again():
    # Call 1 of a version is its checkpoint; call 0 has shown that all ranks have version 1.
    lines, errors = launch(LARGE, "mock=1,1,1,0", restarts=1)
    assert lines == [f"{rank} {rank} {4999950000 + 400000}" for rank in (0, 1)]
    assert deaths(errors) == ["1,1,1,0"]


def test_a_program_without_load_checkpoint_has_its_checkpoints():
    for arguments in ([], ["local"], ["force_local=1"]):
        lines, _ = launch(WITHOUT_LOAD, *arguments)
        assert lines == ["0 2", "1 2"]
    # Started again it cannot go on from them. The other rank waits until the launch ends it.
    _, errors = launch(WITHOUT_LOAD, "mock=1,1,1,0", restarts=1, expect=1)
    assert "ClosedError" in errors and "has not called load_checkpoint" in errors


def test_a_call_that_was_not_made_does_not_count():
    lines, errors = launch(NOT_MADE, "mock=1,0,1,0", flags=["--unfired=warn"])
    assert lines == ["0 [2.0]", "1 [2.0]"]
    assert deaths(errors) == []


def test_ranks_are_threads(client):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    environment |= {"PHALANX_JOB": "threads of rabit", "PHALANX_ADDRESS": client.address}
    ended = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=150, env=environment, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "[3, 3]\n"), ended.stderr


def test_a_text_for_the_tracker_comes_at_the_launch():
    lines, _ = launch(TRACKER, world=3)
    assert lines == [f"rank {rank} of 3" for rank in range(3)]


def test_ranks_that_differ_raise():
    _, errors = launch(DIFFERENT, expect=1)
    assert "InvalidArgumentError" in errors and "differs" in errors


def test_statistics_are_those_of_rank_0():
    lines, _ = launch(LARGE, "report_stats=1")
    assert [line.split(",")[0] for line in lines if line.startswith("[v")] == ["[v1] 1 calls", "[v2] 1 calls"]


def test_the_module_rabit_is_this_one():
    there = pytest.importorskip("rabit")
    assert there.allreduce is rabit.allreduce and there.BITOR == rabit.BITOR == 3
    assert set(rabit.__all__) <= set(vars(there))


# ---- parameters


def read(*arguments, mock=False, **environment):
    return rabit_parameters.read(arguments, environment, mock=mock)


def test_parameters_of_a_single_process():
    read_ = read("program", "10000", "name=value", "=", "mock=")
    assert (read_.launched, read_.role, read_.peer_timeout, read_.unused) == (False, "worker", 1800, [])


def test_a_job_launches_and_a_tracker_alone_does_not():
    assert read(PHALANX_JOB="train").launched
    assert not read("rabit_tracker_uri=NULL", PHALANX_JOB="train").launched
    with pytest.raises(exceptions.InvalidArgumentError, match="`phalanx launch`"):
        read(DMLC_TRACKER_URI="10.0.0.1")


def test_arguments_count_before_the_environment():
    got = read("rabit_timeout_sec=7", "rabit_task_id=4", "rabit_world_size=9", rabit_timeout_sec="8", rabit_task_id="5")
    assert (got.peer_timeout, got.task, got.world) == (7, "worker4", 9)
    assert read("rabit_task_id=7", PHALANX_ROLE="trainer").task == "trainer7"
    got = read(DMLC_TASK_ID="3", DMLC_NUM_WORKER="5", DMLC_NUM_ATTEMPT="2")
    assert (got.task, got.world, got.life) == ("worker3", 5, 2)
    launched = {"PHALANX_JOB": "j", "PHALANX_TASK": "worker0", "PHALANX_WORLD": "2"}
    got = read(DMLC_TASK_ID="3", DMLC_NUM_WORKER="5", **launched)
    assert (got.task, got.world, got.life) == (None, None, None)
    assert read(DMLC_NUM_ATTEMPT="2", PHALANX_LIFE="1", **launched).life == 1
    assert read("rabit_num_trial=3", PHALANX_LIFE="1", **launched).life == 3


def test_a_world_does_not_contradict_the_launch():
    launched = {"PHALANX_JOB": "train", "PHALANX_WORLD": "3"}
    assert read("rabit_world_size=3", **launched).world == 3
    with pytest.raises(exceptions.InvalidArgumentError, match="the launch has a world of 3"):
        read("rabit_world_size=4", **launched)
    assert not read("rabit_world_size=1", "rabit_tracker_uri=NULL", **launched).launched


def test_copies_and_timeouts():
    got = read("rabit_global_replica=5", "rabit_local_replica=100", "rabit_timeout=false", "rabit_world_size=-1")
    assert (got.result_copies, got.local_copies, got.peer_timeout, got.world) == (5, 15, None, None)


def test_parameters_without_an_effect_are_listed_once():
    got = read("rabit_debug=1", "rabit_debug=0", "rabit_of_later=x", "mock=1,2,3,4", "rabit_reduce_buffer=256MB")
    assert got.unused == ["rabit_debug", "rabit_of_later", "mock", "rabit_reduce_buffer"]
    got = read("mock=1,2,3,4", "mock=0,0,0,1", "force_local=1", mock=True)
    assert (got.deaths, got.force_local, got.unused) == ({(1, 2, 3, 4), (0, 0, 0, 1)}, True, [])


@pytest.mark.parametrize(
    "argument",
    ["rabit_world_size=0", "rabit_world_size=many", "rabit_global_replica=0", "rabit_local_replica=-1",
     "rabit_timeout=maybe", "rabit_timeout_sec=0", "rabit_timeout_sec=99999999999", "rabit_bootstrap_cache=2",
     "rabit_reduce_buffer=MB", "rabit_reduce_buffer=1T", "rabit_reduce_ring_mincount=1.5", "rabit_tracker_port=x",
     "rabit_debug=on", "rabit_num_trial=-1", "mock=1,2,3", "mock=1,2,3,x", "force_local=x", "report_stats=9"],
)  # fmt: skip
def test_bad_values_are_errors_that_name_them(argument):
    with pytest.raises(exceptions.InvalidArgumentError, match=re.escape(argument)):
        read(argument, mock=True)


def test_libraries_of_rabit_that_do_not_exist():
    with pytest.raises(exceptions.InvalidArgumentError, match="'mpi'"):
        rabit.init([], lib="mpi")
