"""torch tensors of the CPU that travel by the transport, where torch is installed."""

from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest
import ray

import phalanx.ray
from phalanx.ray import _arrays, _connecting, _transport

torch = pytest.importorskip("torch")


@pytest.fixture
def here(client, monkeypatch):
    """The default client as the one of Ray's node."""
    monkeypatch.setattr(_connecting, "client", lambda: client)
    _transport.register()
    return client


def moved(value, transport):
    """Return what arrives: the pickle of a value, whose `Array`s the transport moves."""
    found = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, given):
            if type(given) is phalanx.ray.Array:
                found.append(given)
                return len(found) - 1

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, at):
            return received[at]

    import io

    file = io.BytesIO()
    Pickler(file).dump(value)
    meta = transport.extract_tensor_transport_metadata(f"id{id(value)}", found)
    received = transport.recv_multiple_tensors("id", pickle.loads(pickle.dumps(meta)), None)
    file.seek(0)
    return Unpickler(file).load(), len(file.getvalue())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (1000,), (20, 50)])
def test_a_tensor_arrives_as_a_tensor_of_its_own_memory(here, dtype, shape):
    tensor = torch.ones(shape).to(getattr(torch, dtype))
    back, nbytes = moved(_arrays.sent({"w": [tensor]}), _transport.Transport())
    back = back["w"][0]
    assert type(back) is torch.Tensor and back.dtype is tensor.dtype and torch.equal(back, tensor)
    assert nbytes < 1000, "the elements are not in Ray's message"
    back.zero_()
    assert bool(tensor.ne(0).all()), "what a reader writes is its own"


def test_each_get_has_a_tensor_of_its_own(here):
    sent = phalanx.ray.array(torch.ones(1000))
    transport = _transport.Transport()
    meta = transport.extract_tensor_transport_metadata("id", [sent._bytes])
    received = transport.recv_multiple_tensors("id", meta, None)
    for array in (sent._bytes, *received):  # in the producer's process, and in a reader's
        function, (_, layout) = sent.__reduce__()
        first = function(array, layout)
        first.zero_()
        assert torch.equal(function(array, layout), torch.ones(1000))
        assert torch.equal(_arrays.value_of(array), torch.ones(1000)), "what is put again if the node has gone"
    # The object has gone, as with its node.
    here.delete(sent._bytes._object)
    first = function(array, layout)
    first.zero_()
    assert torch.equal(function(array, layout), torch.ones(1000))


def test_a_tensor_that_phalanx_does_not_move_is_refused(here):
    for tensor in (torch.nn.Parameter(torch.ones(3)), torch.ones(0), torch.eye(3).to_sparse()):
        with pytest.raises(TypeError, match="dense tensors of the CPU"):
            phalanx.ray.array(tensor)


def test_a_state_dict_arrives_as_one(here):
    model = torch.nn.Linear(20, 30)
    state = model.state_dict()
    back, _ = moved(_arrays.sent(state), _transport.Transport())
    assert type(back) is OrderedDict and list(back) == ["weight", "bias"] and back._metadata == state._metadata
    assert all(torch.equal(back[name], state[name]) for name in state)
    assert type(state["weight"]) is torch.Tensor, "the caller's dict stays as it was"


def test_strided_tensors_and_those_that_require_grad_arrive_as_they_were(here):
    tensor = torch.arange(12.0).reshape(3, 4).t().requires_grad_()
    back, _ = moved(phalanx.ray.array(tensor), _transport.Transport())
    assert back.requires_grad and torch.equal(back, tensor)
    gaps, _ = moved(phalanx.ray.array(torch.arange(12.0)[::3]), _transport.Transport())
    assert gaps.tolist() == [0, 3, 6, 9]


def test_what_is_no_dense_tensor_of_the_cpu_travels_as_before(here):
    other = [torch.eye(3).to_sparse(), torch.nn.Parameter(torch.ones(3)), torch.ones(0), torch.empty(3, device="meta")]
    assert all(each is given for each, given in zip(_arrays.sent(other), other))


def test_a_tensor_is_not_copied_by_extraction_and_put_again_if_it_has_gone(here):
    transport, sent = _transport.Transport(), phalanx.ray.array(torch.arange(1000))
    meta = transport.extract_tensor_transport_metadata("a", [sent._bytes])
    assert meta.objects == (sent._bytes._object.id,)
    received = transport.recv_multiple_tensors("a", meta, None)
    here.delete(phalanx.ObjectRef(meta.objects[0]))
    again = transport.extract_tensor_transport_metadata("b", received)
    assert again.objects != meta.objects
    assert transport.recv_multiple_tensors("c", again, None)[0]._tensor.tolist() == list(range(1000))


def test_without_the_transport_a_sent_tensor_is_pickled_with_its_bytes(here):
    tensor = torch.arange(6).reshape(2, 3)
    assert torch.equal(pickle.loads(pickle.dumps(phalanx.ray.array(tensor))), tensor)


def test_phalanx_stores_a_sent_tensor_as_a_tensor(here):
    value = here.get(here.put(_arrays.plain([phalanx.ray.array(torch.ones(3))])), allow_pickle=False)
    assert type(value[0]) is torch.Tensor


def test_tensors_go_from_actor_to_actor_and_by_put(stations):
    made = stations[0].produce.remote(lambda self: {"w": torch.full((1024,), 3.0, dtype=torch.bfloat16), "a": np.ones(3)})

    def use(self, value):
        assert type(value["w"]) is torch.Tensor and type(value["a"]) is phalanx.ray.Array
        return float(value["w"].sum())

    assert ray.get([each.run.remote(use, made) for each in stations[1:]]) == [3072] * 3  # 1024 * 3
    ray.get(made)["w"].zero_()
    assert float(ray.get(made)["w"].sum()) == 3072, "what a reader writes is its own"
    put = ray.put({"w": phalanx.ray.array(torch.ones(1000))}, _tensor_transport="phalanx")
    assert ray.get(stations[1].run.remote(lambda self, value: float(value["w"].sum()), put)) == 1000
    # Plain tensors of the same process are Ray's as before.
    assert torch.equal(ray.get(ray.put(torch.arange(3))), torch.arange(3))
