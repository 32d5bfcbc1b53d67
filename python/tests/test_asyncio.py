"""Awaiting refs in the event loop without threads, with asyncio's loop and uvloop's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
from failures_support import raises

import phalanx
from phalanx import _calls


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def _kind_of_loop(request):
    if request.param == "uvloop":
        asyncio.set_event_loop_policy(pytest.importorskip("uvloop").EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


def test_await(client):
    async def main():
        ref = client.ref()
        asyncio.get_running_loop().call_later(0.02, client.put, "soon", ref)
        return await ref

    assert asyncio.run(main()) == "soon"


def test_many_at_once_and_from_another_thread(client):
    refs = [client.ref() for _ in range(200)]

    async def main():
        waiting = asyncio.gather(*(client.get_async(ref) for ref in refs))
        writer = threading.Thread(target=lambda: [client.put(i, r) for i, r in enumerate(refs)])
        writer.start()
        values = await asyncio.wait_for(waiting, 60)
        writer.join()
        return values

    assert asyncio.run(main()) == list(range(200))


def test_blocking_calls_beside_the_loop(client):
    """The event loop learns that a call has ended even if a waiting thread drives the client."""
    ref, other = client.ref(), client.ref()

    async def main():
        blocked = asyncio.get_running_loop().run_in_executor(None, client.get, other)
        waiting = asyncio.ensure_future(client.get_async(ref))
        await asyncio.sleep(0)
        client.put(1, ref)
        assert await asyncio.wait_for(waiting, 60) == 1
        client.put(2, other)
        assert await blocked == 2

    asyncio.run(main())


def test_cancelling_drops_this_waiter_alone(client):
    ref = client.ref()

    async def main():
        first = asyncio.ensure_future(client.get_async(ref))
        second = asyncio.ensure_future(client.get_async(ref))
        await asyncio.sleep(0)
        first.cancel()
        with raises(asyncio.CancelledError):
            await first
        client.put(np.ones(3), ref)
        return await asyncio.wait_for(second, 60)

    assert asyncio.run(main()).sum() == 3


def test_errors(client):
    ref = client.ref()
    ref.set_exception(LookupError("none"))

    async def main():
        with pytest.raises(LookupError):
            await ref
        with pytest.raises(TimeoutError):
            await client.get_async(client.ref(), timeout=0.05)

    asyncio.run(main())


def test_a_long_exception_does_not_stop_the_loop(client, monkeypatch):
    """The loop fetches a long exception as it fetches the object: other tasks can make it arrive."""
    ref, late, bodies = client.ref(), client.ref(), []

    def put_later(connection, encoded, *args):
        bodies.append(bytes(encoded.buffer))
        return late
        yield  # as `put`, this is a generator of steps

    monkeypatch.setattr(_calls, "put", put_later)
    ref.set_exception(LookupError(os.urandom(4096)))
    monkeypatch.undo()

    async def main():
        waiting = asyncio.ensure_future(client.get_async(ref))
        asyncio.get_running_loop().call_later(0.05, client.put, bodies[0], late)
        with pytest.raises(LookupError):
            await waiting

    asyncio.run(main())


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_closed_loop_is_freed(client, how):
    ref, told = client.ref(), []

    def begin():
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        task = loop.create_task(client.get_async(ref))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0))
        if how == "cancelled":
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        loop.close()
        return weakref.ref(loop)

    loop = begin()
    gc.collect()
    until = time.monotonic() + 60
    while client.stat(ref).waiting:
        assert time.monotonic() < until, "nobody waits for it, and the node does not know"
    client.put("late", ref)
    assert client.get(ref) == "late"
    assert loop() is None and told == []

    async def main():
        return await ref

    assert asyncio.run(main()) == "late"


def test_a_coroutine_can_be_closed_while_its_draft_is_sealed(client, monkeypatch):
    """As the event loop's end closes it: a closed coroutine can await nothing."""
    sealable = threading.Event()

    async def fill(draft):
        async with draft:
            draft.array[:] = 2

    async def main():
        draft = await phalanx.AsyncClient.of(client).create(1 << 18, "f8")
        with concurrent.futures.ThreadPoolExecutor(1) as workers:
            monkeypatch.setattr(draft._connection, "_workers", workers)
            workers.submit(sealable.wait)
            filling = fill(draft)
            filling.send(None)  # up to the wait for the worker that seals it
            try:
                filling.close()
            finally:
                sealable.set()
        monkeypatch.undo()
        return (await client.get_async(await draft.seal())).sum()

    assert asyncio.run(main()) == 2 << 18


def test_async_with(client):
    async def main():
        async with phalanx.Client(client.address) as other:
            return await other.put("x")

    assert asyncio.run(main()) == "x"
