"""The parts of phalanx.ray against Ray's own classes, without a cluster of Ray."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import signal
import threading
import types

import numpy as np
import pytest
import ray
import ray.cloudpickle
from ray._private import ray_constants
from ray.experimental.rdt import util
from ray.experimental.rdt.rdt_store import RDTStore, validate_tensor_buffers
from ray.util.collective import backend_registry

import phalanx
import phalanx.ray
from phalanx.ray import (
    _arrays,
    _connecting,
    _counting,
    _daemons,
    _groups,
    _here,
    _hook,
    _starting,
    _tasks,
    _transport,
)


@pytest.fixture
def here(client, monkeypatch):
    """The default client as the one of Ray's node."""
    monkeypatch.setattr(_connecting, "client", lambda: client)
    _transport.register()
    return client


@pytest.fixture
def transport(here):
    return _transport.Transport()


def numbers(value, count=1000):
    return np.full(count, value, np.float32).view(phalanx.ray.Array)


def test_an_array_goes_through_rays_store_and_back(transport, monkeypatch):
    monkeypatch.setitem(util.transport_managers, _transport.NAME, transport)
    store = RDTStore()
    meta = store.add_object_primary("ray-id", [numbers(3), numbers(4)], _transport.NAME)
    assert len(meta.tensor_meta) == len(meta.objects) == 2 and meta.tensor_device == "cpu"
    received = transport.recv_multiple_tensors("ray-id", pickle.loads(pickle.dumps(meta)), None)
    assert [float(each[0]) for each in received] == [3, 4]
    assert all(type(each) is phalanx.ray.Array for each in received)


def test_extraction_is_idempotent(transport):
    one = transport.extract_tensor_transport_metadata("id", [numbers(1)])
    assert transport.extract_tensor_transport_metadata("id", [numbers(1)]) is one
    other = transport.extract_tensor_transport_metadata("other", [numbers(1)])
    assert other.objects != one.objects, "Ray's ids come again, so they must not be those of objects"


def test_what_was_extracted_by_an_earlier_client_is_put_again(transport, here, monkeypatch):
    """Ray repeats a task, and the node has died since its first run, and all objects with it."""
    with phalanx.Client(here.address) as earlier:
        monkeypatch.setattr(_connecting, "client", lambda: earlier)
        first = transport.extract_tensor_transport_metadata("id", [numbers(1)])
    monkeypatch.setattr(_connecting, "client", lambda: here)
    again = transport.extract_tensor_transport_metadata("id", [numbers(1)])
    assert again.objects != first.objects
    assert float(transport.recv_multiple_tensors("c", again, None)[0][5]) == 1


def test_an_object_that_lies_in_phalanx_is_not_copied(transport, here):
    array = phalanx.ray.array(np.arange(10))
    meta = transport.extract_tensor_transport_metadata("id", [array])
    assert meta.objects == (array._object.id,)
    received = transport.recv_multiple_tensors("c", meta, None)
    assert transport.extract_tensor_transport_metadata("d", received).objects == meta.objects
    here.delete(phalanx.ObjectRef(meta.objects[0]))
    again = transport.extract_tensor_transport_metadata("e", received)
    assert again.objects != meta.objects, "the array has the bytes of an object that is gone"
    assert list(transport.recv_multiple_tensors("f", again, None)[0]) == list(range(10))


def test_an_object_that_was_put_by_an_earlier_client_is_put_again(transport, here, monkeypatch, eventually):
    with phalanx.Client(here.address) as earlier:
        monkeypatch.setattr(_connecting, "client", lambda: earlier)
        array = phalanx.ray.array(np.arange(10))
    monkeypatch.setattr(_connecting, "client", lambda: here)
    eventually(lambda: here.stat(phalanx.ObjectRef(array._object.id)).deleted)
    meta = transport.extract_tensor_transport_metadata("id", [array])
    assert meta.objects != (array._object.id,)
    assert list(transport.recv_multiple_tensors("b", meta, None)[0]) == list(range(10))


@pytest.mark.parametrize("change", [lambda a: a[1:], lambda a: a + 1, lambda a: a.T, lambda a: a.copy()])
def test_what_is_made_of_an_array_is_another_value(here, change):
    array = phalanx.ray.array(np.arange(6).reshape(2, 3))
    changed = change(array)
    assert type(changed) is phalanx.ray.Array and changed._object is None and array._object is not None


def test_phalanx_keeps_these_arrays_as_arrays(here):
    array = phalanx.ray.array(np.arange(3))
    ref = here.put(_arrays.plain({"a": [array, (array,)], "b": 1}))
    value = here.get(ref, allow_pickle=False)
    assert type(value["a"][1][0]) is np.ndarray and value["b"] == 1


def test_collection_frees_the_object(transport, here, eventually):
    meta = transport.extract_tensor_transport_metadata("id", [numbers(1)])
    transport.garbage_collect("id", meta, [])
    transport.garbage_collect("id", meta, [])  # Ray can repeat it
    eventually(lambda: here.stat(phalanx.ObjectRef(meta.objects[0])).deleted)


def test_collection_does_not_wait_for_the_node(nodes, monkeypatch):
    clients, daemons, _ = nodes
    monkeypatch.setattr(_connecting, "client", lambda: clients[0])
    transport = _transport.Transport()
    meta = transport.extract_tensor_transport_metadata("id", [numbers(1)])
    os.kill(daemons[0].process.pid, signal.SIGSTOP)
    try:
        collected = threading.Thread(target=transport.garbage_collect, args=("id", meta, []))
        collected.start()
        collected.join(10)
        assert not collected.is_alive()
    finally:
        os.kill(daemons[0].process.pid, signal.SIGCONT)


def absent_metadata(client, refs):
    return _transport.Metadata([((1000,), np.dtype("f4"))] * len(refs), "cpu", tuple(r.id for r in refs), client.directory)


def test_fetches_are_under_way_together(transport, here):
    refs = [here.ref() for _ in range(3)]
    requests = [transport.fetch_multiple_tensors("id", absent_metadata(here, [ref]), None) for ref in refs]
    with pytest.raises(TimeoutError):
        transport.wait_fetch_complete(requests[0], timeout=0)
    for value, ref in reversed(list(enumerate(refs))):
        here.put(np.asarray(numbers(value)), ref)
    # Ray waits for the last one first.
    for value, request in reversed(list(enumerate(requests))):
        assert float(transport.wait_fetch_complete(request, timeout=60)[0][5]) == value


def test_a_receive_ends_before_rays_own_limit(transport, here, monkeypatch):
    monkeypatch.setattr(ray_constants, "RDT_FETCH_FAIL_TIMEOUT_SECONDS", 0.2)
    ref = here.ref()
    with pytest.raises(TimeoutError, match=ref.hex()):
        transport.recv_multiple_tensors("id", absent_metadata(here, [ref]), None)


def test_an_abort_ends_a_receive(transport, here, eventually):
    errors = []

    def receive():
        try:
            transport.recv_multiple_tensors("id", absent_metadata(here, [here.ref()]), None)
        except TimeoutError as error:
            errors.append(error)

    receiving = threading.Thread(target=receive)
    receiving.start()
    eventually(lambda: transport._receiving)
    transport.abort_transport("id", None)
    receiving.join(10)
    assert len(errors) == 1 and "stopped" in str(errors[0])


def test_a_receive_can_fill_buffers_of_rays_caller(transport):
    meta = transport.extract_tensor_transport_metadata("id", [numbers(7)])
    buffer = np.zeros(1000, np.float32).view(phalanx.ray.Array)
    validate_tensor_buffers([buffer], meta.tensor_meta)
    request = transport.fetch_multiple_tensors("id", meta, None, [buffer])
    assert transport.wait_fetch_complete(request, 30)[0] is buffer and float(buffer[9]) == 7


def test_metadata_registers_the_process_that_receives_it(transport, monkeypatch):
    meta = pickle.dumps(transport.extract_tensor_transport_metadata("id", [numbers(1)]))
    monkeypatch.setattr(util, "transport_manager_info", {})
    pickle.loads(meta)
    assert _transport.NAME in util.transport_manager_info


def test_plain_arrays_keep_rays_zero_copy_reads(here):
    assert util.get_transport_data_type(_transport.NAME) is _arrays.Array
    buffers = []
    ray.cloudpickle.dumps(np.ones(1 << 20), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 1


# ---- decorators


def test_a_method_returns_arrays_that_lie_in_phalanx(here):
    @phalanx.ray.method
    def weights(self, step, scale=1.0):
        return {"w": [np.full(3, scale), (np.ones(2), "text")], "step": step, "object": np.array([None])}

    result = weights(None, 7, scale=2.0)
    assert type(result["w"][0]) is phalanx.ray.Array and result["w"][0]._object is not None
    assert result["step"] == 7 and result["w"][1][1] == "text" and type(result["object"]) is np.ndarray
    assert list(inspect.signature(weights).parameters) == ["self", "step", "scale"]
    # Ray looks at the innermost function.
    assert inspect.unwrap(weights).__ray_tensor_transport__ == _transport.NAME


def test_a_method_with_options_and_a_coroutine(here):
    @phalanx.ray.method(max_task_retries=3)
    async def weights(self):
        return np.ones(2)

    assert inspect.unwrap(weights).__ray_max_task_retries__ == 3
    with pytest.raises(StopIteration) as ended:
        weights(None).send(None)
    assert type(ended.value.value) is phalanx.ray.Array


def test_a_generator_cannot_be_such_a_method():
    with pytest.raises(TypeError, match="generator"):

        @phalanx.ray.method
        def items(self):
            yield np.ones(1)


def test_a_task_has_one_result_and_is_not_called():
    @phalanx.ray.task(num_cpus=1)
    def f():
        return 1

    with pytest.raises(TypeError, match="f.remote()"):
        f()
    with pytest.raises(ValueError, match="num_returns=2"):
        f.options(num_returns=2)
    with pytest.raises(ValueError, match="num_returns=2"):
        phalanx.ray.task(num_returns=2)(lambda: 1)


def test_reductions_name_wrong_arguments(here):
    with pytest.raises(TypeError, match="phalanx.ray.task"):
        phalanx.ray.reduce([ray.ObjectRef.from_random()])
    with pytest.raises(TypeError, match="int"):
        phalanx.ray.reduce([3])
    with pytest.raises(ValueError, match="at least one"):
        phalanx.ray.reduce([])


# ---- counted refs


def test_what_ray_does_not_count_is_refused(here, monkeypatch):
    core_worker = types.SimpleNamespace(add_object_out_of_scope_callback=lambda *_: False)
    monkeypatch.setattr(_counting._ray_worker, "global_worker", types.SimpleNamespace(core_worker=core_worker))
    with pytest.raises(phalanx.exceptions.PhalanxError, match="does not own it"):
        _counting.counted(here.put(1), types.SimpleNamespace(binary=lambda: b"of another"))
    assert not _counting._holds


def test_the_holds_of_an_earlier_session_of_ray_are_dropped(here, monkeypatch):
    for name in (b"first session", b"second session"):
        core_worker = types.SimpleNamespace(add_object_out_of_scope_callback=lambda *_: True)
        monkeypatch.setattr(_counting._ray_worker, "global_worker", types.SimpleNamespace(core_worker=core_worker))
        _counting.counted(here.put(1), types.SimpleNamespace(binary=lambda name=name: name))
        assert list(_counting._holds) == [name] and not _counting.unended
        _counting.unended.add(name)
    _counting.release_all()
    assert not _counting._holds and not _counting.unended


def test_a_ref_outside_of_rays_messages_is_an_ordinary_one(here, monkeypatch):
    monkeypatch.setattr(_counting, "_in_message_of_ray", lambda: False)
    plain = here.put([1, 2])
    ref = _counting.Ref(plain.id, here.directory, client=here, counted=object())
    sent = pickle.dumps(ref)
    del plain, ref
    received = pickle.loads(sent)
    assert type(received) is phalanx.ObjectRef and here.get(received) == [1, 2]


def test_a_ref_inside_an_object_is_held_by_the_object(here):
    plain = here.put("inner")
    ref = _counting.Ref(plain.id, here.directory, client=here, counted=object())
    outer = here.put({"ref": ref})
    del plain, ref
    assert here.get(here.get(outer)["ref"]) == "inner"


# ---- the hook


def test_registering_twice_is_silent(monkeypatch, caplog):
    monkeypatch.setattr(_connecting, "start_node", lambda: None)
    phalanx.ray.register()
    phalanx.ray.register()
    assert _transport.NAME in util.transport_manager_info
    assert backend_registry._global_registry.is_registered("phalanx")
    assert not caplog.records


def test_registering_never_raises(monkeypatch, caplog):
    def fail():
        raise OSError("no room")

    monkeypatch.setattr(_transport, "register", fail)
    monkeypatch.setattr(_connecting, "start_node", fail)
    with caplog.at_level(logging.ERROR, "phalanx.ray"):
        phalanx.ray.register()
    assert len(caplog.records) == 2 and "first use" in caplog.text


def test_a_registration_that_fails_ends_no_worker(monkeypatch, caplog):
    def fail():
        raise RuntimeError("another Ray")

    monkeypatch.setattr(_transport, "register", fail)
    _hook.try_to_register_names()  # what the import of phalanx.ray does, too
    assert "another Ray" in caplog.text


def test_a_broadcast_to_a_draining_node_without_phalanx_is_refused(here, monkeypatch):
    monkeypatch.setattr(_here, "nodes", lambda: ["aa", "bb"])
    monkeypatch.setattr(_here, "draining", lambda: {"bb"})
    ref = here.put(numbers(1))
    with pytest.raises(phalanx.exceptions.InvalidArgumentError, match="bb.*leave them out"):
        phalanx.ray.broadcast(ref, ["bb"])
    monkeypatch.setattr(_starting, "_started", {"bb"})
    assert _starting.absent_of(["bb", "aa"]) == ["aa"], "of those where Phalanx runs it is not asked"


def test_a_buffer_can_be_a_plain_array(transport, here):
    meta = transport.extract_tensor_transport_metadata("id", [np.arange(3)])
    assert list(transport.recv_multiple_tensors("id", meta, None)[0]) == [0, 1, 2]


def test_runtime_environments_are_merged():
    hook = "worker_process_setup_hook"
    assert _hook.merged(None) == {hook: "phalanx.ray.register"}
    given = {"pip": ["x"], "env_vars": {"A": "1"}, hook: "phalanx.ray.register"}
    made = _hook.merged(given, capacity=64 << 20)
    assert made["pip"] == ["x"] and made[hook] == "phalanx.ray.register"
    assert made["env_vars"] == {"A": "1", "PHALANX_RAY_CAPACITY": str(64 << 20)}
    assert given["env_vars"] == {"A": "1"}, "the caller's dict stays as it was"
    with pytest.raises(ValueError, match="capacity"):
        _hook.merged(None, capacity=5)


def test_the_hook_of_a_client_is_in_rays_variable():
    made = _hook.of_client(_hook.merged({"env_vars": {"A": "1"}}))
    assert made == {"env_vars": {"A": "1", ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR: "phalanx.ray.register"}}
    with pytest.raises(ValueError, match="runs no hooks"):
        _hook.of_client(_hook.merged({"worker_process_setup_hook": print}))


def test_what_a_job_was_submitted_with_is_not_repeated(caplog):
    hook = "worker_process_setup_hook"
    given = {hook: "phalanx.ray.register"}
    assert _hook.merged(None, None, given) == {}
    assert _hook.merged({"pip": ["x"], **given}, None, given) == {"pip": ["x"]}
    of_ray = {"env_vars": {ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR: "phalanx.ray.register"}}
    assert _hook.merged(None, None, of_ray) == {}
    assert _hook.merged(None, None, {"pip": ["x"]}) == given
    # Ray would refuse a second hook.
    assert _hook.merged(None, None, {hook: "mine.hook"}) == {}
    (warning,) = caplog.messages
    assert "{'worker_process_setup_hook': 'phalanx.ray.register'}" in warning


def test_the_users_hook_runs_after_phalanxs(monkeypatch):
    calls = []
    monkeypatch.setattr(_hook, "register", lambda: calls.append("phalanx"))
    _hook.merged({"worker_process_setup_hook": lambda: calls.append("user")})["worker_process_setup_hook"]()
    assert calls == ["phalanx", "user"]
    _hook.merged({"worker_process_setup_hook": "gc.collect"})["worker_process_setup_hook"]()

    def fail():
        raise KeyError("the user's")

    with pytest.raises(KeyError):
        _hook.merged({"worker_process_setup_hook": fail})["worker_process_setup_hook"]()


def test_a_job_without_the_hook_is_warned_of(caplog):
    made = _hook.merged({"worker_process_setup_hook": print})["worker_process_setup_hook"]
    variable = ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR
    assert _hook.has_hook({"env_vars": {variable: "phalanx.ray.register"}})
    assert _hook.has_hook({"worker_process_setup_hook": made.__name__})
    assert not _hook.has_hook({}) and not _hook.has_hook({"env_vars": {variable: "mine.hook"}})
    with caplog.at_level(logging.WARNING, "phalanx.ray"):
        _hook._warn_of_missing_hook({}, 1 << 30)
    assert "{'worker_process_setup_hook': 'phalanx.ray.register'}" in caplog.text
    assert "PHALANX_RAY_CAPACITY" in caplog.text


def test_a_client_whose_workers_run_no_hook_is_warned_of_what_rays_client_passes_on(caplog, monkeypatch):
    monkeypatch.setattr(_hook, "_is_client", lambda: True)
    _hook._warn_of_missing_hook(_hook.of_client(_hook.merged(None)), None)
    assert not caplog.records
    _hook._warn_of_missing_hook(_hook.merged(None), None)
    assert "{'env_vars': {'__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR': 'phalanx.ray.register'}}" in caplog.text


def test_a_capacity_that_is_no_number_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.setattr(_daemons, "_asked", None)
    monkeypatch.setenv("PHALANX_RAY_CAPACITY", "1GiB")
    with pytest.raises(ValueError, match="PHALANX_RAY_CAPACITY='1GiB'"):
        _daemons.capacity()
    monkeypatch.setenv("PHALANX_RAY_CAPACITY", str(1 << 30))
    assert _daemons.capacity()[0] == 1 << 30


@pytest.mark.parametrize("module", [_transport, _groups])
def test_two_threads_can_register_at_once(module, monkeypatch):
    """The other thread registers between the look and the registration of this one."""
    module.register()
    monkeypatch.setattr(util, "transport_manager_info", _Unseen(util.transport_manager_info))
    monkeypatch.setattr(backend_registry._global_registry, "is_registered", lambda name: False)
    module.register()


class _Unseen(dict):
    """A table whose first look finds nothing."""

    _looks = 0

    def __contains__(self, name):
        self._looks += 1
        return self._looks > 1 and super().__contains__(name)


def test_outside_of_ray_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(phalanx.exceptions.DisconnectedError, match=r"phalanx\.ray\.init"):
        _here.here()


def test_groups_have_known_policies():
    with pytest.raises(ValueError, match="'exclude'"):
        phalanx.ray.group_options(on_loss="ignore")
    phalanx.ray.group_options(on_loss="exclude", timeout=5)
    assert _groups._options == {"on_loss": "exclude", "timeout": 5}
    phalanx.ray.group_options()
    assert _groups._options == {"on_loss": "fail", "timeout": 30}


def test_a_failure_that_comes_too_late_is_dropped(here, eventually):
    ref = here.put(1)
    _tasks._background().call_soon_threadsafe(_tasks._spawn, _tasks._fail(ref, KeyError("late")))
    eventually(lambda: not _tasks._running)
    assert here.get(ref) == 1


