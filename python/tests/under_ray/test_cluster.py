"""Objects, tasks, broadcasts and reductions of Phalanx in a cluster of Ray of three nodes."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest
import ray

import phalanx
import phalanx.ray
from phalanx.ray import _counting, _daemons, _here

MiB = 1 << 20
pytestmark = pytest.mark.usefixtures("ray_cluster")


def on(number):
    """Return the options of a task on one of the cluster's two other nodes."""
    return {"resources": {f"n{number}": 1}}


def freed(ref_id):
    """Return a condition: whether the object is gone. The ref that asks is new, since refs hold objects."""
    return lambda: phalanx.stat(phalanx.ObjectRef(ref_id)).deleted


# ---- daemons


def test_each_of_rays_nodes_has_a_node_of_its_own():
    where = ray.remote(lambda: (phalanx.ray.client().node, os.environ["PHALANX_ADDRESS"]))
    found = ray.get([where.options(**on(i)).remote() for i in (0, 1)])
    assert {node for node, _ in found} <= {each["NodeID"] for each in ray.nodes()}
    assert len({address for _, address in found}) == 2
    nodes = {each["name"]: each for each in phalanx.status()["nodes"]}
    assert {node for node, _ in found} | {_here.here().node} <= nodes.keys()
    ip = _here.here().ip
    assert all(each["address"].startswith(f"{ip}:") for each in nodes.values())
    assert all(each["capacity_bytes"] == 256 * MiB for each in nodes.values())


def test_workers_find_the_daemon_of_their_node():
    def daemon(number):
        place = _here.here()
        assert _daemons.ensure_node(place, may_ask_head=False) == os.environ["PHALANX_ADDRESS"]
        return _daemons._ready(_daemons._folder(place, "node"))["process_id"]

    started = ray.get([ray.remote(daemon).options(**on(0)).remote(i) for i in range(4)])
    assert len(set(started)) == 1


def test_the_command_finds_the_cluster(binary):
    shown = subprocess.run(
        [binary, "status", f"--address={phalanx.ray.client().address}", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert _here.here().node in shown.stdout


def test_the_module_starts_what_runs_already(ray_cluster, run_program):
    _, log = run_program("-m", "phalanx.ray", f"--address={ray_cluster.address}", f"--capacity={300 * MiB}")
    # The node has the size with which it was started.
    assert phalanx.ray.client().address in log and "0.25 GiB (as when it started)" in log


def test_a_second_init_finds_the_hook(caplog, capsys):
    assert phalanx.ray.init() is None
    assert not caplog.records
    assert "as asked for" in capsys.readouterr().err


def test_a_driver_that_closes_its_client_connects_again():
    address = phalanx.ray.client().address
    assert phalanx.ray.client() is phalanx.ray.client()
    phalanx.shutdown()
    assert phalanx.ray.put([1]).get(timeout=60) == [1] and phalanx.ray.client().address == address


# ---- objects


def test_refs_are_ordinary_arguments_and_results():
    ref = phalanx.ray.put(np.arange(MiB // 8))

    def use(top, nested, *, word):
        assert top.id == nested["list"][0].id == word.id
        return [top], int(phalanx.ray.get(nested["list"])[0][-1])

    (back,), last = ray.get(ray.remote(use).options(**on(0)).remote(ref, {"list": [ref]}, word=ref))
    assert back == ref and last == MiB // 8 - 1 and type(back) is phalanx.ray.Ref


def test_an_object_lives_as_long_as_ray_counts_references(stations, eventually):
    ref = phalanx.ray.put(np.ones(1000))
    ref_id = ref.id
    ray.get(stations[0].run.remote(lambda self, refs: setattr(self, "kept", refs), [ref]))
    del ref
    assert ray.get(stations[0].run.remote(lambda self: float(self.kept[0].get(timeout=60).sum()))) == 1000
    # Only the actor has it, and passes it on.
    again = ray.get(stations[0].run.remote(lambda self: self.kept))
    ray.get(stations[0].run.remote(lambda self: delattr(self, "kept")))
    assert again[0].get(timeout=60)[0] == 1
    del again
    eventually(freed(ref_id))


def test_an_object_that_an_actor_puts_is_freed_too(stations, eventually):
    plain = ray.remote(type("Plain", (), {"put": lambda self: phalanx.ray.put([1, 2, 3])})).options(**on(1))
    actor = plain.remote()
    ref = ray.get(actor.put.remote())
    ref_id = ref.id
    assert ref.get(timeout=60) == [1, 2, 3]
    del ref
    eventually(freed(ref_id))


def test_the_functions_of_phalanx_take_these_refs():
    refs = [phalanx.ray.put(np.full(4, i, np.float32)) for i in range(3)]
    assert list(phalanx.get(phalanx.reduce(refs))) == [3, 3, 3, 3]
    assert phalanx.wait(refs, 3, timeout=10)[1] == []
    assert phalanx.get(phalanx.get(phalanx.put({"ref": refs[2]}))["ref"])[0] == 2


def test_a_worker_of_another_node_fetches_an_object_once(eventually):
    ref = phalanx.ray.put(np.ones(MiB))
    read = ray.remote(lambda ref: int(ref.get(timeout=60).sum()))
    assert ray.get([read.options(**on(0)).remote(ref) for _ in range(4)]) == [MiB] * 4
    eventually(lambda: phalanx.stat(ref).complete_copies == 2)


# ---- broadcasts


def test_nodes_have_an_object_before_tasks_use_it():
    ref = phalanx.ray.put(np.ones(MiB))
    assert phalanx.ray.broadcast(ref).wait(60) == 3
    get_now = ray.remote(lambda ref: ref.get(timeout=0).nbytes)
    assert ray.get([get_now.options(**on(i)).remote(ref) for i in (0, 1)]) == [8 * MiB] * 2


def test_64_objects_and_a_state_dict_are_sent_at_once():
    refs = [phalanx.ray.put(np.full(1000, i)) for i in range(64)]
    refs.append(phalanx.ray.put({f"layer{i}": np.full(50, i) for i in range(300)}))
    assert [each.wait(60) for each in phalanx.ray.broadcast(refs)] == [3] * 65


def test_a_broadcast_to_some_of_rays_nodes():
    target = ray.get(ray.remote(lambda: ray.get_runtime_context().get_node_id()).options(**on(1)).remote())
    ref = phalanx.ray.put(np.ones(1000))
    assert phalanx.ray.broadcast(ref, [target]).wait(60) == 1
    assert phalanx.stat(ref).complete_copies == 2
    with pytest.raises(ValueError, match="no such node"):
        phalanx.ray.broadcast(ref, ["0" * 56])


def test_a_broadcast_of_what_travels_by_the_transport_and_of_nothing_else():
    ref = ray.put(np.ones(1000).view(phalanx.ray.Array), _tensor_transport="phalanx")
    assert phalanx.ray.broadcast(ref).wait(60) == 3
    with pytest.raises(TypeError, match="phalanx.ray.put"):
        phalanx.ray.broadcast(ray.put(1))
    with pytest.raises(TypeError, match="takes refs"):
        phalanx.ray.broadcast(7)


def test_a_broadcast_of_a_result_that_does_not_come_ends_in_time(stations, tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    made = stations[0].produce.remote(lambda self, path: open(path).read(), str(go))
    with pytest.raises(phalanx.exceptions.GetTimeoutError, match="has not ended"):
        phalanx.ray.broadcast(made, timeout=0.1)
    go.write_text("")
    assert ray.get(made) == ""


# ---- tasks and reductions


@phalanx.ray.task(num_cpus=0.5)
def gradient(value, count=1000):
    """Return a gradient."""
    if value < 0:
        raise KeyError(f"no shard {value}")
    return np.full(count, value, np.float32)


def test_a_task_is_a_ref_at_once():
    assert gradient.__doc__ == "Return a gradient."
    ref = gradient.options(**on(0)).remote(3)
    assert type(ref) is phalanx.ray.Ref and ref.get(timeout=60)[999] == 3


def test_a_task_that_needs_another_ones_result_starts_after_it():
    @phalanx.ray.task(num_cpus=1)
    def double(ref, *, more):
        return ref.get(timeout=60) * 2 + more.get(timeout=60)

    # Each of Ray's nodes n0 has four CPUs: if the tasks waited in turn, nothing would run.
    refs = [gradient.options(**on(0)).remote(1)]
    for _ in range(8):
        refs.append(double.options(**on(0)).remote(refs[-1], more=refs[0]))
    assert refs[-1].get(timeout=60)[0] == 2**9 - 1


def test_options_that_ray_takes_at_the_definition_only():
    @phalanx.ray.task(max_calls=1, num_cpus=0.5, name="once")
    def worker():
        return os.getpid()

    first, second = (worker.options(**on(0)).remote().get(timeout=60) for _ in range(2))
    assert first != second
    # A worker with a GPU ends after each task by default.
    assert phalanx.ray.task(num_gpus=1)(os.getpid)._remote._default_options["max_calls"] == 1


def test_what_a_task_raises_its_readers_raise():
    ref = gradient.remote(-1)
    with pytest.raises(KeyError, match="no shard -1"):
        ref.get(timeout=60)


def test_no_result_is_freed_before_its_caller_has_it():
    """The worker's hold ends with its task, and the caller's can be later: the transit is between them."""
    for _ in range(10):
        refs = [gradient.options(**on(i % 2)).remote(i, 10) for i in range(10)]
        assert [int(ref.get(timeout=60)[9]) for ref in refs] == list(range(10))


def test_a_task_can_be_waited_for_and_cancelled(eventually):
    ref, failed = gradient.options(**on(0)).remote(3, MiB), gradient.remote(-1)
    assert ray.wait([ref.task], timeout=60, fetch_local=False) == ([ref.task], [])
    assert phalanx.wait([ref], timeout=0)[0] == [], "the result is not brought here"
    assert phalanx.ray.put(1).task is None
    never = gradient.options(resources={"absent": 1}).remote(3)
    assert never.task in _counting.unended
    ray.cancel(never.task)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        never.get(timeout=60)
    eventually(lambda: not _counting.unended.intersection(each.task for each in (ref, failed, never)))


def test_a_result_is_freed_with_its_ref(eventually):
    ids = []
    for value in range(20):
        ref = gradient.remote(value, 10)
        ids.append(ref.id)
        ref.get(timeout=60)  # can return before Ray knows that the task has ended
        del ref
    for ref_id in ids:
        eventually(freed(ref_id))


def test_a_reduction_over_running_tasks_goes_around_the_driver():
    refs = [gradient.options(**on(i % 2)).remote(i, MiB) for i in range(6)]
    store = ray.available_resources()["object_store_memory"]
    total = phalanx.ray.reduce(refs, dtype=np.float32, root="any")
    read = ray.remote(lambda ref: float(ref.get(timeout=60)[MiB - 1]))
    assert ray.get(read.options(**on(0)).remote(total)) == 15
    # Ray's store has only what it needs to run the tasks, and the driver's host has no copy.
    assert store - ray.available_resources()["object_store_memory"] < MiB
    assert not any(phalanx.wait([ref], timeout=0)[0] for ref in [*refs, total])


def test_a_reduction_takes_the_first_k_and_passes_over_failed_ones():
    refs = [gradient.remote(1), gradient.remote(-1), gradient.remote(2), phalanx.ray.client().ref()]
    assert phalanx.ray.reduce(refs, num_objects=2, dtype=np.float32).get(timeout=60)[0] == 3
    with pytest.raises(KeyError, match="no shard -1"):
        phalanx.ray.reduce(refs[:3], dtype=np.float32).get(timeout=60)


def test_calls_of_actors_are_sources_of_a_reduction(stations):
    def make(self, rank):
        if rank == 3:
            raise KeyError("rank 3")
        return {"w": np.full(1000, rank, np.float32), "loss": 0.5}

    parts = [phalanx.ray.call(each, "run", make, rank) for rank, each in enumerate(stations)]
    total = phalanx.ray.reduce(parts, num_objects=3).get(timeout=60)
    assert total["w"][999] == 3 and total["loss"] == 1.5
    with pytest.raises(KeyError, match="rank 3"):
        parts[3].get(timeout=60)
    # A method of the transport gives the same object, and a ref of a call starts the next one after it.
    marked = phalanx.ray.call(stations[0], "produce", lambda self, part: part.get(timeout=60)["w"] + 1, parts[1])
    assert type(marked.get(timeout=60)) is np.ndarray and marked.get()[0] == 2


def test_calls_name_what_they_cannot_do(stations):
    with pytest.raises(AttributeError, match="rum"):
        phalanx.ray.call(stations[0], "rum")
    later = ray.remote(type("Later", (), {"f": _coroutine})).remote()
    with pytest.raises(TypeError, match="f of Later is a coroutine"):
        phalanx.ray.call(later, "f").get(timeout=60)


async def _coroutine(self):
    return 1


def test_sources_can_be_added_later():
    growing = phalanx.ray.client().open_reduction([gradient.remote(1)], dtype=np.float32)
    growing.add(gradient.remote(2))
    growing.close()
    assert growing.wait(timeout=60).get(timeout=60)[0] == 3


# ---- the transport


def test_a_method_with_the_transport_feeds_other_actors(stations):
    made = stations[0].produce.remote(lambda self, n: {"w": np.arange(n), "step": 3}, MiB)

    def use(self, value):
        assert type(value["w"]) is phalanx.ray.Array and value["step"] == 3
        return int(value["w"][-1])

    assert ray.get([each.run.remote(use, made) for each in stations[1:]]) == [MiB - 1] * 3
    assert int(ray.get(made)["w"][5]) == 5


def test_rays_own_decorator_and_put_work(stations):
    class Producer:
        @ray.method(tensor_transport="phalanx")
        def make(self):
            return [np.full(10, i).view(phalanx.ray.Array) for i in range(3)]

    producer = ray.remote(Producer).options(**on(0)).remote()
    assert [int(each[0]) for each in ray.get(producer.make.remote())] == [0, 1, 2]
    put = ray.put({"a": np.full(10, 7).view(phalanx.ray.Array)}, _tensor_transport="phalanx")
    # Nested, since plain tasks cannot take such refs themselves.
    read = ray.remote(lambda refs: int(ray.get(refs[0])["a"][9]))
    assert ray.get(read.options(**on(1)).remote([put])) == 7


def test_arrays_that_an_actor_has_received_are_sent_on_without_a_copy(stations):
    first = stations[0].produce.remote(lambda self: np.ones(MiB))
    second = stations[1].produce.remote(lambda self, value: value, first)
    stations_ids = [
        ray.get(stations[2].run.remote(lambda self, value: value._object.id, each)) for each in (first, second)
    ]
    assert stations_ids[0] == stations_ids[1]


def test_a_coroutine_uses_the_transport():
    class Later:
        @phalanx.ray.method
        async def make(self, value):
            return np.full(3, value)

    later = ray.remote(Later).options(**on(1)).remote()
    assert list(ray.get(later.make.remote(4))) == [4, 4, 4]


def test_tensors_of_the_transport_are_freed_with_their_ref(stations, eventually):
    made = stations[1].produce.remote(lambda self: np.ones(1000))
    object_id = ray.get(made)._object.id
    del made
    eventually(freed(object_id))


def test_many_gets_are_under_way_at_once(stations):
    made = [stations[i % 4].produce.remote(lambda self, i: np.full(1000, i), i) for i in range(32)]
    assert [int(each[0]) for each in ray.get(made)] == list(range(32))


# ---- other drivers

_DRIVER = """
import logging, os, sys
import numpy as np
import ray, phalanx, phalanx.ray

{start}

class Consumer:
    def ready(self):
        pass

    def total(self, value):
        return int(value.sum())

# Of a process without the hook this is the first that it sees of Phalanx.
total = ray.remote(lambda value: int(value["w"].sum()))
print(ray.get(total.remote(value=phalanx.ray.share({{"w": np.ones(1 << 17)}}))))
put = ray.remote(lambda ref: (phalanx.ray.put(ref.get()).get().sum(), os.environ.get("USERS_HOOK")))
print(ray.get(put.remote(phalanx.ray.put(np.ones(4)))))
tensor = ray.put(phalanx.ray.array(np.full(3, 2)), _tensor_transport="phalanx")
consumer = ray.remote(Consumer).remote()
ray.get(consumer.ready.remote())  # Ray's limit of a transfer counts from the call, also while the actor starts
print(ray.get(consumer.total.remote(tensor)))
"""


@pytest.fixture
def drive(ray_cluster, run_program):
    """Run another driver, and return the lines that it prints, and its log."""

    def run(start, **variables):
        program = _DRIVER.format(start=start.format(address=ray_cluster.address))
        printed, log = run_program("-c", program, **variables)
        return printed.splitlines(), log

    return run


def test_the_users_hook_runs_in_workers_too(drive):
    printed, _ = drive(
        "def hook():\n    os.environ['USERS_HOOK'] = 'ran'\n"
        "phalanx.ray.init('{address}', log_to_driver=False, runtime_env=dict(worker_process_setup_hook=hook))",
    )
    assert printed == ["131072", "(np.float64(4.0), 'ran')", "6"]


def test_a_job_without_the_hook_works_after_a_warning(drive):
    printed, log = drive("ray.init('{address}', log_to_driver=False); phalanx.ray.init()")
    assert printed == ["131072", "(np.float64(4.0), None)", "6"]
    assert "{'worker_process_setup_hook': 'phalanx.ray.register'}" in log


def test_a_job_that_was_submitted_with_the_hook_starts(drive):
    """As `ray job submit` starts a driver: with the job's runtime environment in a variable."""
    submitted = {
        "worker_process_setup_hook": "phalanx.ray.register",
        "env_vars": {"PHALANX_RAY_CAPACITY": str(256 * MiB), "USERS_HOOK": "given"},
    }
    variable = json.dumps({"runtime_env": submitted, "metadata": {}})
    start = "phalanx.ray.init('{address}', capacity=100 << 20, log_to_driver=False)"
    printed, log = drive(start, RAY_JOB_CONFIG_JSON_ENV_VAR=variable)
    assert printed == ["131072", "(np.float64(4.0), 'given')", "6"]
    assert "capacity=104857600 is not used" in log and "do not run Phalanx's hook" not in log
