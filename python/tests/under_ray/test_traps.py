"""What Ray's tensor transports do not do in Ray 2.60, and what to do instead: the table of docs/ray.md.

Phalanx cannot change these errors, because Ray raises them before it calls a transport; but calls of methods with
`phalanx.ray.method` take refs by keyword.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import ray
from ray._private import ray_constants

import phalanx.ray
from phalanx.ray import _invoking

# Of a transfer, where a test waits for the limit; by default 60 s.
LIMIT_S = 1.0
pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def made(stations):
    """A result that travels by the transport, and the actor that uses it."""
    ref = stations[0].produce.remote(lambda self: np.full(10, 4))
    ray.get(ref)
    return ref


def total(self, value):
    return int(value.sum())


def limit_transfers(_, seconds):
    """Set the limit of this process's transfers, and return what it was."""
    before = ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS
    ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS = seconds
    return before


def test_by_keyword_a_ref_does_not_arrive(stations, made):
    before = ray.get(stations[1].run.remote(limit_transfers, LIMIT_S))
    with pytest.raises(TimeoutError, match=f"after {LIMIT_S}"):
        ray.get(stations[1].run.remote(lambda self, *, value: int(value.sum()), value=made))
    assert ray.get(stations[1].run.remote(limit_transfers, before)) == LIMIT_S
    assert ray.get(stations[1].run.remote(total, made)) == 40
    # Objects of phalanx.ray.put can be keywords.
    ref = phalanx.ray.put(np.full(10, 4))
    assert ray.get(stations[1].run.remote(lambda self, *, value: int(value.get().sum()), value=ref)) == 40


def test_methods_with_the_transport_take_refs_by_keyword(stations, made):
    total = stations[1].total.remote
    assert ray.get(total(first=made)) == ray.get(total(made, second=0)) == 40
    assert ray.get(total(made, second=made)) == ray.get(total(second=made, first=made)) == 80
    # Arrays that the actor has made are there: Ray moves nothing.
    own = stations[1].produce.remote(lambda self: np.full(10, 5))
    assert ray.get(total(1, last=own)) == 51


def test_keywords_without_refs_stay_keywords():
    calls = _invoking.invocation_of(lambda self, first, second=0: None)(lambda *given: given)
    assert calls((), {"first": 1, "second": 2}) == ([], {"first": 1, "second": 2})


def test_the_decorator_of_a_users_invocation_is_kept():
    def mine(invocation):
        return lambda args, kwargs: ("mine", invocation(args, kwargs))

    def method(self, first):
        pass

    method.__ray_invocation_decorator__ = mine
    given = phalanx.ray.method(method).__ray_invocation_decorator__
    assert given(lambda args, kwargs: args)((1,), {}) == ("mine", [1])


def test_phalanxs_own_calls_name_the_remedy(stations, made):
    with pytest.raises(TypeError, match=r"task\.remote\(\[ref\]\)"):
        phalanx.ray.task(total).remote(None, made)
    with pytest.raises(TypeError, match="by position"):
        phalanx.ray.call(stations[1], "total", first=made)
    assert phalanx.ray.call(stations[1], "total", made).get(timeout=60) == 40
    assert phalanx.ray.call(stations[0], "total", first=made).get(timeout=60) == 40, "the actor that has made it"


def test_a_task_takes_a_ref_in_a_list(made):
    impatient = {"env_vars": {"RAY_rdt_fetch_fail_timeout_milliseconds": "1000"}}
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(ray.remote(runtime_env=impatient)(lambda value: int(value.sum())).remote(made))
    assert ray.get(ray.remote(lambda values: int(ray.get(values[0]).sum())).remote([made])) == 40


def test_a_ref_in_a_list_is_got_before_it_is_sent(stations):
    first = ray.remote(lambda values: int(ray.get(values[0]).sum()))
    with pytest.raises(NotImplementedError, match="metadata is not available"):
        for _ in range(100):  # until Ray has not heard of the result
            early = stations[0].produce.remote(lambda self: np.full(10, 4))
            first.remote([early])
    ray.get(early)  # ray.wait can be too early
    assert ray.get(first.remote([early])) == 40


def test_await_does_not_end(made, monkeypatch):
    # Not even after Ray's limit. Until that it blocks a thread of Ray's, and with it other transfers.
    monkeypatch.setattr(ray_constants, "RDT_FETCH_FAIL_TIMEOUT_SECONDS", LIMIT_S)

    async def awaited():
        await asyncio.wait_for(made, LIMIT_S + 2)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(awaited())

    monkeypatch.undo()

    async def in_a_thread():
        return await asyncio.to_thread(ray.get, made)

    assert int(asyncio.run(in_a_thread()).sum()) == 40


def test_a_plain_array_is_not_put_by_the_transport():
    lost = ray.put(np.ones(3), _tensor_transport="phalanx")
    with pytest.raises(AssertionError, match="No metadata found"):
        ray.get(lost)
    put = ray.put(phalanx.ray.array(np.ones(3)), _tensor_transport="phalanx")
    assert ray.get(put).sum() == 3


def test_an_actor_with_no_method_of_the_transport_can_receive(made):
    """It needs a thread for this: without one, now and then its method waits where its array would be received."""
    plain = ray.remote(enable_tensor_transport=True)(type("Plain", (), {"total": total, "ready": lambda self: None})).remote()
    ray.get(plain.ready.remote())  # Ray's limit counts from the call, also while the actor starts
    assert ray.get(plain.total.remote(made)) == 40
