"""`phalanx.ray.share`: values that Ray pickles small, and that arrive as they were."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import time
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import ray
from ray._private.worker import global_worker
from ray.cloudpickle import dumps
from stations_support import Station

import phalanx
import phalanx.ray
from phalanx.ray import _counting, _sharing

MiB = 1 << 20
pytestmark = pytest.mark.usefixtures("ray_cluster")
Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Batch:
    observations: np.ndarray
    name: str


def weights(number=1.0, count=MiB // 4):
    """Return a state like that of RLlib: what a runner gets by keyword, out of Ray's store."""
    module = OrderedDict({"encoder.0.weight": np.full(count, number, np.float32), "encoder.0.bias": np.ones(3)})
    return {"default_policy": module}


def pickled_size(value):
    return global_worker.get_serialization_context().serialize(value).total_bytes


def object_of(shared):
    return shared["default_policy"]["encoder.0.weight"]._bundle.ref.id


def load(self, state=None):
    """Return what a runner sees."""
    array = state["rl_module"]["default_policy"]["encoder.0.weight"]
    return float(array.sum()), array.flags.writeable, array._bundle.ref.id


def freed(ref_id):
    """Return a condition: whether the object is gone. The ref that asks is new, since refs hold objects."""
    return lambda: phalanx.stat(phalanx.ObjectRef(ref_id)).deleted


# ---- what it does to a value


def test_a_nest_stays_a_nest_of_the_same_types():
    large, small = np.arange(MiB, dtype=np.uint8), np.arange(4)
    state = OrderedDict(w=large, b=small)
    state._metadata = {"version": 1}
    value = {"state": state, "list": [large, (small, large)], "point": Point(large, None), "batch": Batch(large, "a"), "n": 3}
    shared = phalanx.ray.share(value)
    assert type(shared["state"]) is OrderedDict and shared["state"]._metadata == {"version": 1}
    assert type(shared["point"]) is Point and type(shared["batch"]) is Batch and shared["batch"].name == "a"
    assert shared["n"] == 3 and shared["state"]["b"] is small and shared["list"][1][0] is small
    places = [shared["state"]["w"], shared["list"][0], shared["list"][1][1], shared["point"].x, shared["batch"].observations]
    assert all(each is places[0] for each in places), "an array that stands in several places is put once"
    assert np.array_equal(places[0], large) and not places[0].flags.writeable and places[0].base is not large
    assert value["state"]["w"] is large and value["batch"].observations is large, "the value given is left as it was"
    assert pickled_size(shared) < 4096


def test_small_values_and_other_classes_stay_as_they_are():
    masked = np.ma.zeros(MiB)
    objects = np.array([None] * MiB)
    value = {"small": [np.zeros(100) for _ in range(1000)], "masked": masked, "objects": objects, "text": "x" * MiB}
    assert phalanx.ray.share(value) is value
    below = {"w": np.zeros(_sharing.LEAST_VALUE - 1, np.uint8)}
    assert phalanx.ray.share(below) is below
    assert phalanx.ray.share({"w": np.zeros(_sharing.LEAST_VALUE, np.uint8)}) is not below


def test_a_container_inside_of_itself_is_left():
    value = {"w": np.zeros(MiB)}
    value["self"] = value
    assert phalanx.ray.share(value)["self"] is value


class Made(dict):
    """A dict whose items are other objects at each look."""

    def items(self):
        return [(key, item.copy()) for key, item in super().items()]


def test_classes_and_items_that_do_not_live_on_do_no_harm():
    value = {"class": Point, "made": [Made(a=np.full(MiB, i)) for i in range(5)], "w": np.ones(MiB)}
    shared = phalanx.ray.share(value)
    assert shared["class"] is Point and shared["w"]._bundle is not None
    assert [each["a"][-1] for each in shared["made"]] == [0, 1, 2, 3, 4]


def test_an_array_in_another_form_is_pickled_as_it_is(stations):
    shape, dtype = (phalanx.ray.share({"w": np.arange(MiB, dtype=np.int64)})["w"] for _ in range(2))
    shape.shape = (2, MiB // 2)
    dtype.dtype = np.uint8
    seen = stations[0].run.remote(lambda self, *arrays: [(each.shape, str(each.dtype), int(each.ravel()[-1])) for each in arrays], shape, dtype)
    assert ray.get(seen) == [((2, MiB // 2), "int64", MiB - 1), ((8 * MiB,), "uint8", 0)]
    assert pickled_size(phalanx.ray.share(shape)) < 4096, "it can be shared anew"


def test_sharing_again_puts_nothing():
    shared = phalanx.ray.share(weights())
    assert phalanx.ray.share(shared) is shared
    received = pickle.loads(dumps(shared))
    assert type(received["default_policy"]["encoder.0.weight"]) is np.ndarray, "not in a message of Ray"


def test_pickles_that_ray_does_not_make_have_the_elements():
    shared = phalanx.ray.share(weights(2.0))
    for made in (pickle.loads(pickle.dumps(shared)), copy.deepcopy(shared), pickle.loads(pickle.dumps(shared, 2))):
        array = made["default_policy"]["encoder.0.weight"]
        assert array.sum() == 2 * (MiB // 4) and array.flags.writeable
    assert len(pickle.dumps(shared)) > MiB


def test_arrays_of_the_transport_are_shared_too(stations):
    sent = phalanx.ray.array(np.ones(MiB))
    ray.put(sent, _tensor_transport="phalanx")  # from now on Ray pickles all these arrays in another way
    shared = phalanx.ray.share([sent, weights()])
    assert pickled_size(shared) < 4096
    total = stations[0].run.remote(lambda self, value: float(value[0].sum() + value[1]["default_policy"]["encoder.0.bias"][0]), shared)
    assert ray.get(total) == MiB + 1


# ---- the ways of Ray


def test_it_goes_the_way_of_rllibs_weights(stations, eventually):
    """The state of a module into Ray's store, its ref in a dict, that by keyword, and a get in the runner."""
    shared = phalanx.ray.share(weights(3.0))
    stored = ray.put(shared)

    def set_state(self, state=None):
        return load(self, {**state, "rl_module": ray.get(state["rl_module"])})

    state = {"rl_module": stored, "weights_seq_no": 7}
    came = ray.get([station.run.remote(set_state, state=state) for station in stations])
    assert came == [(3.0 * (MiB // 4), False, object_of(shared))] * 4
    # The nodes of the driver and of the two hosts of the four actors.
    ref = phalanx.ObjectRef(object_of(shared))
    eventually(lambda: phalanx.stat(ref).complete_copies == 3)


def test_it_goes_as_an_argument_by_keyword_and_inside_of_others(stations):
    state = {"rl_module": phalanx.ray.share(weights())}
    expected = (MiB // 4, False, object_of(state["rl_module"]))
    ways = [
        stations[0].run.remote(load, state),
        stations[0].run.remote(load, state=state),
        stations[1].run.remote(lambda self, states: load(self, ray.get(states[0])), [ray.put(state)]),
        stations[1].run.remote(load, ray.put(state)),
    ]
    assert ray.get(ways) == [expected] * 4


def test_what_arrives_is_sent_on_as_the_same_object(stations):
    shared = phalanx.ray.share(weights())
    back = ray.get(stations[0].run.remote(lambda self, value: {"again": value["default_policy"]}, shared))
    assert object_of({"default_policy": back["again"]}) == object_of(shared)
    assert pickled_size(back) < 4096


def test_a_result_can_be_shared(stations, eventually):
    made = ray.get(stations[1].run.remote(lambda self: phalanx.ray.share(weights(5.0))))
    assert made["default_policy"]["encoder.0.weight"][-1] == 5
    made_id = object_of(made)
    del made
    eventually(freed(made_id))


def test_tensors_arrive_as_plain_tensors(stations):
    torch = pytest.importorskip("torch")
    shared = phalanx.ray.share({"w": torch.ones(MiB), "grad": torch.ones(MiB, requires_grad=True)})
    assert isinstance(shared["w"], torch.Tensor) and type(shared["w"] + 1) is torch.Tensor
    assert shared["grad"].requires_grad and type(copy.deepcopy(shared["w"])) is torch.Tensor
    assert pickled_size(shared) < 4096

    def use(self, value):
        import torch

        assert [type(each) for each in value.values()] == [torch.Tensor] * 2
        parameter = torch.nn.Parameter(value["w"])
        module = torch.nn.Linear(MiB, 1, bias=False)
        module.load_state_dict({"weight": value["grad"].view(1, MiB)}, assign=True)
        with torch.no_grad():
            parameter += 1  # in pages of this process
        value["w"].data.add_(1)
        value["w"].numpy()[0] = 0
        return value["grad"].requires_grad, float(module.weight.sum()), value["w"]

    requires_grad, total, changed = ray.get(stations[0].run.remote(use, shared))
    assert requires_grad and total == MiB
    assert changed[:2].tolist() == [0, 3], "what a receiver has changed is sent with its elements"


def test_tensors_that_have_changed_are_pickled_as_they_are(stations):
    torch = pytest.importorskip("torch")
    names = ["in place", "data", "requires_grad", "shape"]
    shared = phalanx.ray.share({name: torch.ones(64, 1024) for name in names})
    assert pickled_size(shared) < 4096
    shared["in place"][0, 0] = 2
    shared["data"].data = torch.zeros(3)
    shared["requires_grad"].requires_grad_()
    shared["shape"].t_()
    read = lambda self, value: [(float(each.sum()), tuple(each.shape), each.requires_grad) for each in value.values()]  # noqa: E731
    ones = 64 * 1024
    expected = [(ones + 1, (64, 1024), False), (0, (3,), False), (ones, (64, 1024), True), (ones, (1024, 64), False)]
    assert ray.get(stations[0].run.remote(read, shared)) == expected
    with torch.inference_mode():
        value = {"w": torch.ones(MiB)}
        assert phalanx.ray.share(value) is value, "such tensors do not count their changes"
    assert pickled_size(phalanx.ray.share(value)) < 4096, "outside of the mode it is a copy of another kind"


# ---- lifetime


def test_the_object_lives_as_long_as_a_pickled_copy(stations, eventually):
    shared = phalanx.ray.share(weights(4.0))
    shared_id = object_of(shared)
    kept = ray.put(shared)
    ray.get(stations[0].run.remote(lambda self, refs: setattr(self, "kept", refs), [kept]))
    del shared, kept
    gc.collect()
    # Nothing but Ray's copy is left, and nobody has an array.
    read = lambda self: float(ray.get(self.kept[0])["default_policy"]["encoder.0.weight"][0])  # noqa: E731
    assert not freed(shared_id)()
    assert [ray.get(stations[0].run.remote(read)) for _ in range(2)] == [4.0, 4.0]
    ray.get(stations[0].run.remote(lambda self: delattr(self, "kept")))
    eventually(freed(shared_id))


def test_an_array_outlives_the_value(stations, eventually):
    keep = lambda self, value: setattr(self, "array", value["default_policy"]["encoder.0.weight"])  # noqa: E731
    shared = phalanx.ray.share(weights(6.0))
    shared_id = object_of(shared)
    ray.get(stations[0].run.remote(keep, shared))
    del shared
    assert ray.get(stations[0].run.remote(lambda self: float(self.array[-1]))) == 6
    again = ray.get(stations[0].run.remote(lambda self: [self.array]))
    assert again[0][0] == 6 and not freed(shared_id)(), "an array that an actor keeps can be sent on"
    del again
    ray.get(stations[0].run.remote(lambda self: delattr(self, "array")))
    eventually(freed(shared_id))


def test_memory_stays_flat_over_many_updates(stations, eventually):
    def use(self, state=None):
        return state["default_policy"]["encoder.0.weight"][0], len(_counting._holds)

    def copies():
        gc.collect()
        return sum(node["copies"] for node in phalanx.status()["nodes"])

    first = copies()
    held = len(_counting._holds)
    ours = ray.get([station.run.remote(lambda self: len(_counting._holds)) for station in stations[:2]])
    for number in range(200):
        kept = ray.put(phalanx.ray.share(weights(number, 64 << 10)))
        seen = ray.get([station.run.remote(use, state=kept) for station in stations[:2]])
        assert [value for value, _ in seen] == [number] * 2
        assert all(now <= before for (_, now), before in zip(seen, ours)), "receivers hold nothing"
    del kept
    eventually(lambda: copies() <= first and len(_counting._holds) <= held)


def test_the_death_of_the_process_that_shared_fails_the_receivers(stations, eventually):
    sharer = Station.remote()
    made = sharer.run.remote(lambda self: [phalanx.ray.share(weights())])
    made_id = ray.get(sharer.run.remote(lambda self, made: object_of(made[0]), made))
    gc.collect()
    ray.kill(sharer)
    eventually(freed(made_id))
    began = time.monotonic()
    with pytest.raises(Exception, match="the process that shared it has ended"):
        ray.get(made)
    with pytest.raises(Exception, match="the process that shared it has ended"):
        ray.get(stations[0].run.remote(lambda self, value: load(self, value[0]), made))
    assert time.monotonic() - began < _sharing.FETCH_S
