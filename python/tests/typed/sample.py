"""The types that checkers infer: `assert_type` fails if a checker infers another type. Not run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import numpy as np
from typing_extensions import assert_type

import phalanx
from phalanx import exceptions


def default_client() -> None:
    client = phalanx.init(capacity=1 << 20)
    assert_type(client, phalanx.Client)
    ref = phalanx.put(np.ones(3))
    assert_type(ref, phalanx.ObjectRef)
    assert_type(phalanx.ref(), phalanx.ObjectRef)
    assert_type(phalanx.ObjectRef.from_name("model"), phalanx.ObjectRef)
    phalanx.get(ref, timeout=3, writable="cow")
    phalanx.get([ref, ref], copy=True)
    assert_type(phalanx.wait([ref], num_returns=1), tuple[list[phalanx.ObjectRef], list[phalanx.ObjectRef]])
    assert_type(phalanx.as_completed([ref]), Iterator[phalanx.ObjectRef])
    assert_type(phalanx.contains(ref), bool)
    assert_type(phalanx.reduce([ref], op=np.add), phalanx.ObjectRef)
    sent = phalanx.broadcast(ref, ["n1", "n2"], sticky=True)
    assert_type(sent, phalanx.Broadcast)
    assert_type(sent.wait(timeout=1), int)
    assert_type(sent.done, bool)
    assert_type(sent.progress(), phalanx.Progress)
    assert_type(sent.progress().without_room, int)
    sent.stop()
    assert_type(phalanx.status(), dict[str, Any])
    assert_type(str(phalanx.tree(ref)), str)
    phalanx.delete(ref)
    phalanx.delete([ref])


def own_client() -> None:
    with phalanx.Client("unix:/run/phalanx/node.sock") as client:
        assert_type(client, phalanx.Client)
        with client.create((2, 3), "f4") as draft:
            draft.array[:] = 1
        assert_type(draft.ref, phalanx.ObjectRef)
        assert_type(client.future(draft.ref), concurrent.futures.Future[Any])
        growing = client.open_reduction([draft.ref], dtype=np.float32)
        growing.add([client.ref()])
        growing.close()
        assert_type(growing.ref, phalanx.ObjectRef)
        assert_type(client.reduced_from(growing.ref), list[phalanx.ObjectRef])


async def awaited(ref: phalanx.ObjectRef) -> None:
    await ref
    async with phalanx.Client() as client:
        assert_type(client, phalanx.Client)
        await client.get_async(ref, timeout=1)
        assert_type(await client.broadcast(ref), int)


def errors(ref: phalanx.ObjectRef) -> None:
    try:
        phalanx.get(ref, timeout=0)
    except exceptions.GetTimeoutError as error:
        as_builtin: TimeoutError = error
        assert_type(error.ref, str | None)
        print(as_builtin, error.node)


def wrong(ref: phalanx.ObjectRef) -> None:
    phalanx.get("name")  # type: ignore[arg-type]
    phalanx.put(1, "name")  # type: ignore[arg-type]
    phalanx.wait([ref], timeout="1 s")  # type: ignore[arg-type]
    phalanx.reduce(ref)  # type: ignore[arg-type]
    phalanx.broadcast(ref, 3)  # type: ignore[arg-type]
    phalanx.open(ref)  # type: ignore[attr-defined]
