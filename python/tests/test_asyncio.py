"""Awaiting refs: in the event loop, without threads."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import phalanx


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
    """A thread that waits drives the client; the loop is told all the same."""
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
        with pytest.raises(asyncio.CancelledError):
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


def test_async_with(client):
    async def main():
        async with phalanx.Client(client.address) as other:
            return await other.put("x")

    assert asyncio.run(main()) == "x"
