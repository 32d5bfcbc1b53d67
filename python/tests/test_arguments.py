"""Mistakes in calls: each error names the argument and the remedy, in blocking calls and in coroutines."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import inspect
import pickle

import numpy as np
import pytest

import phalanx
from phalanx import exceptions

# The calls that take a time limit, with their other arguments.
LIMITED = {
    "put": lambda ref: (1,),
    "get": lambda ref: (ref,),
    "wait": lambda ref: ([ref],),
    "as_completed": lambda ref: ([ref],),
    "create": lambda ref: (3, "f4"),
    "keep": lambda ref: (ref,),
    "delete": lambda ref: (ref,),
    "contains": lambda ref: (ref,),
    "stat": lambda ref: (ref,),
    "set_exception": lambda ref: (phalanx.ref(), ValueError()),
    "stream": lambda ref: (ref,),
    "broadcast": lambda ref: (ref,),
    "replicate": lambda ref: (ref, 2),
    "end_scope": lambda ref: ("limits",),
    "reduce": lambda ref: ([ref],),
    "open_reduction": lambda ref: ([ref],),
    "allreduce": lambda ref: ([ref],),
    "reduce_scatter": lambda ref: ([ref], [phalanx.ref()], 0),
    "reduced_from": lambda ref: (ref,),
    "allgather": lambda ref: ([ref], 0),
    "gather": lambda ref: ([ref],),
    "scatter": lambda ref: (np.ones(2), [phalanx.ref()]),
    "all_to_all": lambda ref: ([], [ref]),
    "barrier": lambda ref: ("limits", 1, 0),
    "get_async": lambda ref: (ref,),
}
OPTIONS = {"open_reduction": {"dtype": "f8"}, "allreduce": {"ref": None}}


def called(client, verb: str, *arguments, **options):
    """Return the result of a blocking call, or of a coroutine or an iterator to its end."""

    async def awaited(result):
        if inspect.isasyncgen(result):
            return [each async for each in result]
        return await result

    async def made():
        result = getattr(client, verb)(*arguments, **options)
        awaitable = inspect.isawaitable(result) and not isinstance(result, phalanx.ObjectRef)
        return await awaited(result) if awaitable or inspect.isasyncgen(result) else result

    result = asyncio.run(made())
    return list(result) if inspect.isgenerator(result) else result


@pytest.fixture(params=["blocking", "coroutines"])
def caller(client, request):
    return client if request.param == "blocking" else phalanx.AsyncClient.of(client)


def test_every_call_with_a_limit_is_in_the_table():
    limited = {
        name
        for name, verb in inspect.getmembers(phalanx.Client, inspect.isfunction)
        if not name.startswith("_") and "timeout" in inspect.signature(verb).parameters
    }
    assert limited == set(LIMITED)


@pytest.mark.parametrize("verb", sorted(LIMITED))
def test_limits_are_numbers_of_seconds(caller, client, verb):
    if not hasattr(caller, verb):
        pytest.skip("blocking only")
    ref = client.put(np.ones(2))
    options = {k: phalanx.ref() if v is None else v for k, v in OPTIONS.get(verb, {}).items()}
    for wrong, kind, words in (
        ("5s", TypeError, "timeout='5s': a number of seconds"),
        (datetime.timedelta(seconds=1), TypeError, "timeout.total_seconds()"),
        ([1], TypeError, "a number of seconds"),
        (-1, exceptions.InvalidArgumentError, "timeout=-1: 0 or more seconds"),
        (float("nan"), exceptions.InvalidArgumentError, "timeout=nan"),
    ):
        with pytest.raises(kind) as caught:
            called(caller, verb, *LIMITED[verb](ref), timeout=wrong, **options)
        assert words in str(caught.value)


@pytest.mark.parametrize("limit", [60, np.float32(60), np.int64(60), decimal.Decimal(60), 1e300, float("inf"), 10**400])
def test_limits_can_have_any_type_of_number(caller, client, limit):
    ref = client.put(7)
    assert called(caller, "get", ref, limit) == 7
    assert called(caller, "wait", [ref], 1, limit) == ([ref], [])
    assert called(caller, "as_completed", [ref], limit) == [ref]


def test_limits_of_clients_and_handles(client, monkeypatch):
    for options in ({"timeout": "5s"}, {"connect_timeout": "5s"}):
        with pytest.raises(TypeError, match="timeout='5s': a number of seconds"):
            phalanx.Client(client.address, **options)
    monkeypatch.setenv("PHALANX_TIMEOUT", "-1")
    with pytest.raises(exceptions.InvalidArgumentError, match=r"PHALANX_TIMEOUT=-1\.0"):
        phalanx.Client(client.address)
    ref = client.put(np.ones(2))
    growing, sent = client.open_reduction([ref], dtype="f8"), client.broadcast(ref)
    calls = [sent.wait, sent.progress, sent.stop, growing.wait, growing.close, lambda limit: growing.add([], limit)]
    for call in [*calls, client.tree(ref).follow]:
        with pytest.raises(TypeError, match="timeout='5s': a number of seconds"):
            call("5s")
    growing.close()


MISTAKES = {
    "put": (1, "weights"),
    "get": ("weights",),
    "wait": ("weights",),
    "as_completed": ("weights",),
    "delete": ("weights",),
    "keep": ("weights",),
    "stat": ("weights",),
    "contains": ("weights",),
    "tree": ("weights",),
    "broadcast": ("weights",),
    "reduce": (["weights"],),
    "gather": ("weights",),
    "scatter": (np.ones(2), ["weights"]),
}


@pytest.mark.parametrize("verb", MISTAKES)
def test_a_name_where_a_ref_is_expected(caller, verb):
    with pytest.raises(TypeError) as caught:
        called(caller, verb, *MISTAKES[verb])
    assert "phalanx.ref('weights')" in str(caught.value) and "ObjectRef" in str(caught.value)


@pytest.mark.parametrize("verb", ["wait", "as_completed", "reduce", "gather", "allreduce", "open_reduction"])
def test_one_ref_where_a_list_is_expected(caller, client, verb):
    options = {"ref": phalanx.ref()} if verb == "allreduce" else OPTIONS.get(verb, {})
    with pytest.raises(TypeError, match=rf"{verb.removeprefix('open_').replace('reduction', 'reduce')} .*\[ref\]"):
        called(caller, verb, client.put(1), **options)


def test_values_where_refs_are_expected(caller, client):
    ref = client.put(np.ones(2))
    for arguments, words in (
        (("get", 5), "phalanx.put(value)"),
        (("get", None), "an ObjectRef or a list of them"),
        (("get", ref, ref), "several refs as one list"),
        (("get", {"a": ref}), "list(refs.values())"),
        (("get", [[ref]]), "give each ref itself"),
        (("get", ref.hex()), "ObjectRef.from_hex"),
        (("reduce", [np.ones(2)]), "phalanx.put(value)"),
        (("wait", None), "a list of ObjectRefs, not None"),
        (("all_to_all", {ref: 1}, []), "outgoing.items()"),
        (("broadcast", ref, 3), "a name or a list of names"),
        (("broadcast", ref, {"n0": 1}), "a name or a list of names"),
        (("broadcast", ref, [3]), "nodes=3: text"),
        (("set_exception", client.ref(), "failed"), "RuntimeError('failed')"),
        (("set_exception", client.ref(), ValueError), "ValueError(...)"),
        (("wait", [ref], "1"), "num_returns='1': a whole number"),
        (("allgather", [ref], "0"), "index='0': a whole number"),
        (("barrier", 3, 1, 0), "name=3: text"),
        (("barrier", "mistakes", 1.0, 0), "participants=1.0"),
        (("ref", 123), "name=123: text"),
    ):
        with pytest.raises(TypeError) as caught:
            called(caller, *arguments)
        assert words in str(caught.value)


def test_numbers_out_of_range(caller, client):
    ref = client.put(np.ones(2))
    for arguments, words in (
        (("allgather", [ref], -1), "index=-1"),
        (("barrier", "mistakes", 1, -1), "index=-1"),
        (("barrier", "mistakes", 0, 0), "participants=0"),
        (("reduce_scatter", [ref], [client.ref()], -1), "index=-1"),
        (("scatter", np.ones(2), []), "no refs for the parts"),
        (("ref", "\ud800"), "UTF-8 cannot encode"),
    ):
        with pytest.raises(exceptions.InvalidArgumentError) as caught:
            called(caller, *arguments)
        assert words in str(caught.value)
    with pytest.raises(exceptions.InvalidArgumentError, match="num_objects=0"):
        called(caller, "reduce", [ref], num_objects=0)


def test_refs_and_clients_of_wrong_arguments(client, tmp_path):
    for make, words in (
        (lambda: phalanx.ObjectRef("x" * 20), r"phalanx\.ref\(name\)"),
        (lambda: phalanx.ObjectRef.from_hex(5), "text=5"),
        (lambda: phalanx.ObjectRef.from_name("a", 5), "name_space=5"),
        (lambda: phalanx.Client(1234), "address=1234"),
        (lambda: phalanx.Client(capacity="1GB"), "capacity='1GB'"),
        (lambda: phalanx.create(3.5, "f4"), r"shape 3\.5"),
        (lambda: pickle.dumps(client), r"phalanx\.Client\(client\.address\)"),
    ):
        with pytest.raises(TypeError, match=words):
            make()
    with pytest.raises(exceptions.DisconnectedError, match="no node listens"):
        phalanx.Client(tmp_path / "absent")  # a path of pathlib is a path
    with pytest.raises(exceptions.InvalidArgumentError, match=rf"not to {tmp_path}.*shutdown"):
        phalanx.init(tmp_path)
    with phalanx.create(np.int64(3), "f4") as draft:
        draft.array[:] = 1


def test_nothing_is_deleted_if_one_of_several_is_no_ref(caller, client):
    ref = client.put(1)
    with pytest.raises(TypeError):
        called(caller, "delete", [ref, "weights"])
    assert client.contains(ref)
