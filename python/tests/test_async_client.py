"""AsyncClient: the verbs of Client as coroutines, on asyncio's loop and uvloop's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from failures_support import raises

import phalanx
from phalanx import _asyncio, _objects, _values, exceptions

MIB = 1 << 20
# Blocking calls have no coroutine: they are for threads, or draw bars.
_BLOCKING = {"close", "future", "get_async", "stream"}


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def _kind_of_loop(request):
    if request.param == "uvloop":
        asyncio.set_event_loop_policy(pytest.importorskip("uvloop").EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(None)


@pytest.fixture
def aio(client) -> phalanx.AsyncClient:
    return phalanx.AsyncClient.of(client)


@contextlib.asynccontextmanager
async def heartbeat():
    """Count the turns of the loop, as the last item of a list.

    A call that blocks leaves one turn or two. The number is a fraction of the milliseconds that the call
    takes on a busy machine, where the longest time between two turns proves nothing.
    """
    turns = [0]

    async def beat():
        while True:
            await asyncio.sleep(0.001)
            turns[-1] += 1

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0.005)
    turns.append(0)
    try:
        yield turns
    finally:
        beating.cancel()


# ---- the verbs


def test_it_has_every_verb_of_the_client_with_its_arguments():
    compared = 0
    for name, verb in inspect.getmembers(phalanx.Client, inspect.isfunction):
        if name.startswith("_") or name in _BLOCKING:
            continue
        compared += 1
        ours = inspect.signature(getattr(phalanx.AsyncClient, name))
        theirs = inspect.signature(verb)
        wanted = [parameter for parameter in theirs.parameters.values() if parameter.name != "progress"]
        untyped = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in wanted]
        assert [
            parameter.replace(annotation=inspect.Parameter.empty) for parameter in ours.parameters.values()
        ] == untyped, name
        assert inspect.getdoc(getattr(phalanx.AsyncClient, name))
    assert compared > 20
    connect = inspect.signature(phalanx.AsyncClient).parameters.values()
    assert list(connect) == list(inspect.signature(phalanx.Client).parameters.values())


def test_objects(aio):
    async def main():
        ref = await aio.put({"w": np.arange(3.0)})
        assert (await aio.get(ref))["w"].sum() == 3
        assert await aio.get([ref, await aio.put("x")], copy=True) != []
        out = np.empty(4)
        assert await aio.get(await aio.put(np.arange(4.0)), out=out) is out and out.sum() == 6
        assert await aio.contains(ref) and (await aio.stat(ref)).complete
        await aio.keep(ref)
        await aio.delete(ref)
        assert not await aio.contains(ref)
        with pytest.raises(exceptions.ObjectDeletedError):
            await aio.get(ref)
        failed = aio.ref()
        await aio.set_exception(failed, LookupError("x" * 5000))
        with pytest.raises(LookupError, match="x{5000}"):
            await aio.get(failed)
        assert (await aio.status())["nodes"]
        assert str(await aio.tree(await aio.put(1)))
        left = (await aio.stat(await aio.put(1, ttl=60))).ttl
        assert left is not None and 50 < left <= 60
        named = aio.ref("async/objects")
        await aio.put(7, named)
        assert await named == 7
        await aio.delete([named])

    asyncio.run(main())


@pytest.mark.parametrize("size", [16, MIB])
def test_drafts(aio, size):
    async def main():
        later = aio.ref()
        unmade = aio.create((size,), "f8", later)
        assert "not created" in repr(unmade)
        for early in (lambda: unmade.array, unmade.seal, lambda: unmade.publish(8)):
            with pytest.raises(exceptions.ClosedError, match="async with client.create"):
                await early()
        async with unmade as draft:
            assert draft is unmade and draft.ref == later
            array = draft.array
            array[:] = 2
            draft.publish(8 * size)
        array[0] = 100  # goes to a private copy
        assert (await later).sum() == 2 * size and array.sum() == 2 * size + 98
        with pytest.raises(exceptions.ClosedError):
            await draft.seal()
        draft = await aio.create(size, "f8", order="F", timeout=60)
        assert await draft is draft
        draft.array[:] = 3
        ref = await draft.seal()
        assert (await aio.get(ref)).sum() == 3 * size
        dropped = await aio.create(size, "f8")
        await dropped.drop()
        await dropped.drop()
        with pytest.raises(ZeroDivisionError):
            async with aio.create(size, "f8") as failed:
                1 / 0  # noqa: B018
        for each in (dropped, failed):
            assert not (await aio.stat(each.ref)).complete
        with pytest.raises(exceptions.StoreFullError):
            await aio.create(1 << 40, "u1")

    asyncio.run(main())


def test_waiting(aio):
    async def main():
        refs = [aio.ref() for _ in range(3)]
        waiting = asyncio.ensure_future(aio.wait(refs, 2, timeout=60))
        came = aio.as_completed(refs, timeout=60)
        await aio.put(1, refs[1])
        assert await came.__anext__() == refs[1]
        assert not waiting.done()
        await aio.put(0, refs[0])
        assert await came.__anext__() == refs[0]
        assert await waiting == (refs[:2], refs[2:])
        assert await aio.wait(refs, 3, timeout=0.05) == (refs[:2], refs[2:])
        assert await aio.wait(refs[2:], timeout=0) == ([], refs[2:])
        assert await aio.wait([], 0) == ([], [])
        await aio.put(2, refs[2])
        assert [ref async for ref in came] == [refs[2]]
        assert [ref async for ref in aio.as_completed([])] == []
        assert {ref async for ref in aio.as_completed(refs, timeout=0.5)} == set(refs)
        with raises(exceptions.GetTimeoutError, after=0.05, match="2 of 3 objects"):
            async for _ in aio.as_completed([refs[0], aio.ref(), aio.ref()], timeout=0.05):
                pass

    asyncio.run(main())


def test_a_wait_counts_objects_that_arrive_while_it_begins(aio, client, monkeypatch):
    refs = [client.ref() for _ in range(3)]
    watch = _asyncio.Bridge.watch

    def later(bridge, call, cancel=True):
        future = watch(bridge, call, cancel)
        # The calls of the other refs end before they are watched.
        client.put(1, refs[1], exist_ok=True)
        client.put(2, refs[2], exist_ok=True)
        client.get(refs[1:])
        return future

    async def main():
        monkeypatch.setattr(_asyncio.Bridge, "watch", later)
        assert await aio.wait(refs, 2, timeout=60) == (refs[1:], refs[:1])
        waiting = asyncio.ensure_future(aio.wait(refs, 3))
        await asyncio.sleep(0)
        client.put(0, refs[0])
        assert await asyncio.wait_for(waiting, 60) == (refs, [])

    begun = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun < 30


def test_reductions(aio):
    async def main():
        sources = [aio.ref() for _ in range(3)]
        waiting = asyncio.ensure_future(aio.reduce(sources, timeout=60))
        for i, ref in enumerate(sources):
            await aio.put({"w": np.full(4, i, np.float32)}, ref)
        total = await waiting
        assert list((await total)["w"]) == [3] * 4
        assert set(await aio.reduced_from(total)) == set(sources)
        shared = aio.ref()
        same = await asyncio.gather(*[aio.allreduce(sources, ref=shared, timeout=60) for _ in range(3)])
        assert all(list(value["w"]) == [3] * 4 for value in same)
        growing = await aio.open_reduction([sources[0]], dtype={"w": np.ones(4, np.float32)})
        await growing.add(sources[1:])
        assert await growing.close() == growing.ref
        assert list((await aio.get(await growing))["w"]) == [3] * 4
        assert await growing.wait(timeout=60) == growing.ref

        flat = [await aio.put(np.arange(4.0)) for _ in range(2)]
        targets = [aio.ref(), aio.ref()]
        parts = await asyncio.gather(*[aio.reduce_scatter(flat, targets, i) for i in range(2)])
        assert np.concatenate(parts).tolist() == [0, 2, 4, 6]
        assert [value.sum() for value in await aio.allgather(flat, 0)] == [6, 6]
        assert len(await aio.gather(flat)) == 2
        pieces = [aio.ref(), aio.ref()]
        await aio.scatter(np.arange(4), pieces)
        assert [list(value) for value in await aio.gather(pieces)] == [[0, 1], [2, 3]]
        sent = aio.ref()
        assert await aio.all_to_all([(sent, "x")], [sent]) == ["x"]
        await asyncio.gather(*[aio.barrier(f"async/{sent.hex()}", 2, i, timeout=60) for i in range(2)])

    asyncio.run(main())


def test_broadcasts(nodes):
    clients, _, _ = nodes

    async def main():
        aio = phalanx.AsyncClient.of(clients[0])
        ref = await aio.put(np.ones(MIB))
        assert await aio.broadcast(ref, timeout=60) == 3
        absent = aio.broadcast(ref, ["n0", "absent"], sticky=False)
        with pytest.raises(exceptions.InvalidArgumentError, match="no node is called absent"):
            await absent
        sticky = aio.broadcast(ref, sticky=True)
        assert await sticky.wait(timeout=60) == 3 and sticky.done
        assert (await sticky.progress()).complete == 3
        await sticky.stop()
        assert not (await sticky.progress()).sticky
        assert all(
            [np.all(value == 1) for value in [await phalanx.AsyncClient.of(c).get(ref) for c in clients]]
        )

    asyncio.run(main())


# ---- the loop ticks


def test_a_blocking_reduce_does_not_stop_the_loop(aio, client):
    async def main():
        sources = [await aio.put(np.ones(8)), aio.ref()]
        late = threading.Timer(1.0, client.put, [np.ones(8), sources[1]])
        async with heartbeat() as turns:
            late.start()
            value = await aio.allreduce(sources, ref=aio.ref(), timeout=60)
        assert value.sum() == 16 and turns[-1] > 20
        # The heartbeat sees a call that does block.
        late = threading.Timer(1.0, client.put, [np.ones(8), aio.ref()])
        async with heartbeat() as turns:
            late.start()
            client.wait([late.args[1]], timeout=60)
        assert turns[-1] < 3

    asyncio.run(main())


@pytest.fixture
def small(cluster):
    """A client of a node of 64 MiB."""
    cluster.start_shards()
    daemon = cluster.start_node("n0", capacity="64MiB")
    cluster.wait_for_nodes(1)
    with phalanx.Client(daemon.client_address) as made:
        yield made


@pytest.mark.parametrize("nbytes", [40 * MIB, 1000], ids=["large", "small"])
def test_a_put_that_waits_for_memory_does_not_stop_the_loop(small, nbytes):
    async def main():
        aio = phalanx.AsyncClient.of(small)
        full = [await aio.put(np.ones(20 * MIB, np.uint8)) for _ in range(3)]
        with contextlib.suppress(exceptions.StoreFullError):
            while True:
                full.append(await aio.put(np.ones(nbytes if nbytes < MIB else MIB - 1, np.uint8), timeout=0))
        late = threading.Timer(1.0, small.delete, [full])
        async with heartbeat() as turns:
            late.start()
            begun = time.monotonic()
            ref = await aio.put(np.full(nbytes, 3, np.uint8), timeout=60)
            took = time.monotonic() - begun
        assert took > 0.9 and turns[-1] > 20
        late.join()
        assert (await aio.get(ref))[-1] == 3

    asyncio.run(main())


def test_a_copy_of_a_gigabyte_does_not_stop_the_loop(cluster):
    cluster.start_shards()
    daemon = cluster.start_node("n0", capacity="1100MiB")
    cluster.wait_for_nodes(1)

    async def main():
        async with phalanx.AsyncClient(daemon.client_address) as aio:
            value = np.ones(1 << 30, np.uint8)
            # Two or three steps of a blocking copy would leave as many turns. The kernel shares two
            # cores among the threads that copy and this one.
            async with heartbeat() as turns:
                ref = await aio.put(value)
            assert turns[-1] > 10
            value[:] = 0
            async with heartbeat() as turns:
                await aio.get(ref, out=value)
            assert turns[-1] > 10
            assert value[0] == value[-1] == 1

    asyncio.run(main())


def test_a_structure_that_is_fetched_does_not_stop_the_loop(nodes):
    """The structure of a large tree is an object of its own: the loop fetches it, too."""
    clients, _, _ = nodes
    tree = {f"leaf {random.random()} {i}": np.full(3, i) for i in range(500)}
    ref = clients[0].put(tree)
    (digest,) = [_values.structure_elsewhere(clients[0].stat(ref).metadata)]
    assert digest is not None

    async def main():
        aio = phalanx.AsyncClient.of(clients[1])
        _objects.structures._known.clear()
        text = clients[0].get(_objects.structures.ref_of(clients[0], digest), copy=True)
        clients[0].delete(_objects.structures.ref_of(clients[0], digest))
        waiting = asyncio.ensure_future(aio.get(ref))
        with pytest.raises(exceptions.ObjectLostError, match="structure"):
            await waiting
        again = phalanx.AsyncClient.of(clients[2])
        restored = _objects.structures.ref_of(clients[0], digest)
        clients[0].put(text, restored, keep=True)
        got = await again.get(ref)
        assert list(got) == list(tree) and got[next(iter(tree))].sum() == 0

    asyncio.run(main())


# ---- cancelling


def test_cancelling_a_put_that_waits_for_memory(small):
    async def main():
        aio = phalanx.AsyncClient.of(small)
        full = await aio.put(np.ones(50 * MIB, np.uint8))
        refs = [aio.ref() for _ in range(5)]
        puts = [asyncio.ensure_future(aio.put(np.ones(20 * MIB, np.uint8), ref)) for ref in refs]
        await asyncio.sleep(0.05)
        for put in puts[1:]:
            put.cancel()
        done = await asyncio.gather(*puts[1:], return_exceptions=True)
        assert [type(error) for error in done] == [asyncio.CancelledError] * 4
        await aio.delete(full)
        assert await puts[0] == refs[0]
        # None of the cancelled ones has taken the memory.
        await aio.put(np.ones(40 * MIB, np.uint8), timeout=60)
        assert [(await aio.stat(ref)).known for ref in refs] == [True] + [False] * 4

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_a_put_that_copies(small, monkeypatch, times):
    """The task ends after the copy, and the object is dropped: no worker writes into memory of others."""
    begun, go_on = threading.Event(), threading.Event()
    original = _values.Encoded.write_into

    def slow(encoded, target):
        begun.set()
        assert go_on.wait(60)
        original(encoded, target)

    async def main():
        aio = phalanx.AsyncClient.of(small)
        ref = aio.ref()
        monkeypatch.setattr(_values.Encoded, "write_into", slow)
        put = asyncio.ensure_future(aio.put(np.ones(40 * MIB, np.uint8), ref, keep=True))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        for _ in range(times):
            put.cancel()
            await asyncio.sleep(0.01)
        assert not put.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await put
        monkeypatch.undo()
        assert not (await aio.stat(ref)).complete
        await aio.put(np.full(40 * MIB, 2, np.uint8), ref, timeout=60)
        assert (await aio.get(ref)).min() == 2

    asyncio.run(main())


def test_a_put_that_is_cancelled_late_leaves_nothing(small):
    """Puts that are cancelled at any time free their memory: hundreds fit into a node of 64 MiB."""

    async def main():
        aio = phalanx.AsyncClient.of(small)
        turns = 0
        kept = []  # programs keep tasks and errors, which must not keep memory of the node
        for size in (1000, 100_000, 4 * MIB):
            for turn in range(60):
                put = asyncio.ensure_future(aio.put(np.ones(size, np.uint8), timeout=60))
                for _ in range(turn % 12):
                    await asyncio.sleep(0)
                put.cancel()
                (result,) = await asyncio.gather(put, return_exceptions=True)
                assert isinstance(result, (asyncio.CancelledError, phalanx.ObjectRef)), result
                turns += 1
                if isinstance(result, asyncio.CancelledError):
                    kept.append((put, result))
                del result, put
        gc.collect()
        assert turns == 180
        # All of the memory is free again.
        await aio.put(np.ones(60 * MIB, np.uint8), timeout=60)

    asyncio.run(main())


def test_a_draft_whose_creation_was_cancelled_says_so(small):
    async def main():
        aio = phalanx.AsyncClient.of(small)
        kept = await aio.put(np.ones(40 * MIB, np.uint8), timeout=60)
        draft = aio.create(40 * MIB, np.uint8, timeout=60)  # waits for memory
        making = asyncio.ensure_future(draft._create())
        await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        with pytest.raises(exceptions.ClosedError, match="cancelled or failed"):
            await draft
        del kept

    asyncio.run(main())


def test_a_draft_that_is_cancelled_leaves_nothing(small):
    """Drafts that are cancelled while they wait for memory, are written, or are sealed."""

    async def fill(aio, size, drafts):
        async with aio.create(size, np.uint8, timeout=60) as draft:
            drafts.append(draft)
            draft.array[:] = 7
            await asyncio.sleep(0)

    async def main():
        aio = phalanx.AsyncClient.of(small)
        kept = []  # programs keep tasks and errors, which must not keep memory of the node
        for size in (1000, 4 * MIB):
            for turn in range(60):
                drafts = []
                filling = asyncio.ensure_future(fill(aio, size, drafts))
                end = time.monotonic() + turn * 50e-6
                while time.monotonic() < end and not filling.done():
                    await asyncio.sleep(0)
                filling.cancel()
                (error,) = await asyncio.gather(filling, return_exceptions=True)
                if error is None:
                    assert (await aio.get(drafts[0].ref)).min() == 7
                else:
                    assert isinstance(error, asyncio.CancelledError), error
                    assert all("sealed or dropped" in repr(draft) for draft in drafts)
                    # The frames of `fill` keep its draft, and so the ref.
                    if not drafts:
                        kept.append((filling, error))
        assert kept
        del error, filling
        drafts.clear()
        gc.collect()
        # All of the memory is free again.
        await aio.put(np.ones(60 * MIB, np.uint8), timeout=60)

    asyncio.run(main())


def test_a_seal_that_is_cancelled_can_be_repeated(nodes):
    clients, daemons, _ = nodes

    async def main():
        aio = phalanx.AsyncClient.of(clients[0])
        draft = await aio.create(10, "f8")
        draft.array[:] = 2
        daemons[0].signal(signal.SIGSTOP)
        sealing = asyncio.ensure_future(draft.seal())
        await asyncio.sleep(0.01)
        sealing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sealing
        with pytest.raises(exceptions.ClosedError):
            draft.publish(8)
        daemons[0].signal(signal.SIGCONT)
        assert (await aio.get(await draft.seal())).sum() == 20

    asyncio.run(main())


def test_cancelling_waits(aio, client):
    async def main():
        refs = [aio.ref() for _ in range(3)]

        async def over():
            async for _ in aio.as_completed(refs):
                raise AssertionError

        waits = [
            aio.wait(refs, 3),
            aio.get(refs),
            over(),
            aio.get(refs[0], timeout=600),
            aio.wait(refs, 1, 600),
        ]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        until = time.monotonic() + 60
        while client.stat(refs[0]).waiting != 1:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in done} == {asyncio.CancelledError}
        # The node learns that nothing waits.
        while client.stat(refs[0]).waiting:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_cancelling_a_wait_whose_objects_are_here(aio, client):
    """The loop can hear of the last object in the turn in which the task is cancelled."""

    async def main():
        failures = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: failures.append(context))
        for _ in range(5):
            refs = [aio.ref(), aio.ref()]
            waiting = asyncio.ensure_future(aio.wait(refs, 2))
            await asyncio.sleep(0.005)
            for ref in refs:
                client.put(1, ref)
            client.get(refs)
            loop.call_later(0, waiting.cancel)  # after the readers of this turn
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.sleep(0)
        assert failures == []

    asyncio.run(main())


def test_leaving_as_completed_ends_its_waits(aio, client):
    async def main():
        refs = [await aio.put(1), aio.ref()]
        async for ref in aio.as_completed(refs):
            assert ref == refs[0]
            break
        del ref
        gc.collect()
        until = time.monotonic() + 60
        while client.stat(refs[1]).waiting:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_cancelling_a_reduce_detaches_it(aio):
    async def main():
        sources = [await aio.put(np.ones(3)), aio.ref()]
        target = aio.ref()
        task = asyncio.ensure_future(aio.reduce(sources, ref=target))
        until = time.monotonic() + 60
        # The directory draws a reduction from its start on.
        while True:
            with contextlib.suppress(exceptions.ObjectDeletedError):
                await aio.tree(target)
                break
            assert time.monotonic() < until
        task.cancel()
        with raises(asyncio.CancelledError):
            await task
        await aio.put(np.ones(3), sources[1])
        assert (await aio.get(target, timeout=60)).sum() == 6

    asyncio.run(main())


def test_cancelling_a_waiter_of_a_broadcast_or_reduction_leaves_the_others(aio):
    async def main():
        late = aio.ref()
        growing = await aio.open_reduction([late], dtype=np.float64)
        await growing.close()
        waiters = [asyncio.ensure_future(growing.wait()) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiters[0].cancel()
        with raises(exceptions.GetTimeoutError, after=0.05):
            await growing.wait(timeout=0.05)
        await aio.put(np.ones(2), late)
        assert await asyncio.wait_for(asyncio.gather(*waiters[1:]), 60) == [growing.ref] * 2
        assert waiters[0].cancelled() and (await aio.get(growing.ref)).sum() == 2

    asyncio.run(main())


def test_a_thousand_gets_with_cancellations(aio, client):
    refs = [client.ref() for _ in range(1000)]
    chosen = random.Random(7).sample(range(1000), 300)

    async def main():
        tasks = [asyncio.ensure_future(aio.get(ref, timeout=60)) for ref in refs]
        await asyncio.sleep(0)
        writer = threading.Thread(target=lambda: [client.put(i, ref) for i, ref in enumerate(refs)])
        writer.start()
        for index in chosen:
            tasks[index].cancel()
            await asyncio.sleep(0)
        values = await asyncio.gather(*tasks, return_exceptions=True)
        writer.join()
        for index, value in enumerate(values):
            assert value == index or (index in chosen and isinstance(value, asyncio.CancelledError))
        assert await aio.get(refs) == list(range(1000))

    asyncio.run(main())


# ---- errors


def _calls_that_fail(client):
    deleted, failed, absent = client.put(1), client.ref(), client.ref()
    client.delete(deleted)
    client.set_exception(failed, LookupError("no data"))
    numbers, texts = client.put(np.ones(3)), client.put("text")
    named, large = client.ref("async/errors"), client.ref("async/errors/large")
    client.put("value", named, exist_ok=True)
    client.put(np.zeros(MIB), large, exist_ok=True)
    return {
        "deleted": ("get", [deleted], {}),
        "of_many": ("get", [[numbers, deleted]], {}),
        "producer": ("get", [failed], {}),
        "timeout": ("get", [absent], {"timeout": 0.05}),
        "negative": ("get", [absent], {"timeout": -1}),
        "no_ref": ("get", ["name"], {}),
        "pickle": ("get", [client.put({1, 2})], {"allow_pickle": False}),
        "out": ("get", [numbers], {"out": np.ones(4)}),
        "on_lost": ("get", [numbers], {"on_lost": "never"}),
        "put_pickle": ("put", [{1, 2}], {"allow_pickle": False}),
        "put_exists": ("put", [np.ones(9), numbers], {}),
        "put_name": ("put", ["other", named], {}),
        "put_large_name": ("put", [np.ones(MIB), large], {}),
        "put_full": ("put", [np.ones(1 << 26), client.ref()], {"timeout": 0}),
        "wait_count": ("wait", [[numbers], 2], {}),
        "keep": ("keep", [absent], {}),
        "delete": ("delete", [absent], {}),
        "tree": ("tree", [absent], {}),
        "reduce_nothing": ("reduce", [[]], {}),
        "reduce_text": ("reduce", [[texts]], {}),
        "reduce_op": ("reduce", [[numbers], "plus"], {}),
        "reduce_twice": ("reduce", [[numbers, numbers]], {}),
        "reduce_differ": ("reduce", [[numbers, texts]], {}),
        "reduce_late": ("reduce", [[absent]], {"timeout": 0.05}),
        "reduce_late_dtype": ("reduce", [[absent]], {"timeout": 0.05, "dtype": "f64"}),
        "reduce_failed": ("reduce", [[failed]], {}),
        "reduced_from": ("reduced_from", [absent], {}),
        "barrier": ("barrier", ["name", 2, 7], {}),
    }


def _plain(text: str) -> str:
    return "".join(character for character in text if not character.isdigit())


def test_errors_are_those_of_the_blocking_calls(aio, client):
    async def caught(verb, args, kwargs):
        try:
            await getattr(aio, verb)(*args, **kwargs)
        except Exception as error:
            return error
        raise AssertionError

    for case, (verb, args, kwargs) in _calls_that_fail(client).items():
        with pytest.raises(Exception) as blocking:
            getattr(client, verb)(*args, **kwargs)
        error = asyncio.run(caught(verb, args, kwargs))
        assert type(error) is type(blocking.value), (case, error)
        # Digits are times, and ids of the results of reductions.
        if not verb.startswith("reduce"):
            assert _plain(str(error)) == _plain(str(blocking.value)), case
        assert getattr(error, "node", None) == getattr(blocking.value, "node", None), case
        if isinstance(error.__cause__, exceptions.RemoteTraceback):
            assert str(error.__cause__) == str(blocking.value.__cause__)


def test_closing(client):
    async def main():
        aio = phalanx.AsyncClient(client.address, timeout=60)
        assert "not connected" in repr(aio) and not aio.closed
        for call in (lambda: aio.put(1), lambda: aio.get(client.ref()), lambda: aio.barrier("b", 1, 0)):
            with pytest.raises(exceptions.ClosedError, match="async with"):
                await call()
        with pytest.raises(exceptions.ClosedError, match="connect"):
            aio.ref()
        await aio.aclose()
        connected = await asyncio.gather(*[aio.connect() for _ in range(4)])
        assert (
            all(each is aio for each in connected) and aio.node == client.node and client.address in repr(aio)
        )
        view = await aio.get(await aio.put(np.ones(3)))
        waits = [aio.get(aio.ref()), aio.wait([aio.ref()]), aio.reduce([aio.ref()], dtype="f64")]
        pending = asyncio.gather(*waits, return_exceptions=True)
        await asyncio.sleep(0.01)
        await aio.aclose()
        await aio.aclose()
        ended = await asyncio.wait_for(pending, 60)
        assert isinstance(ended[0], exceptions.ClosedError) and isinstance(ended[2], exceptions.ClosedError)
        assert aio.closed and view.sum() == 3
        with pytest.raises(exceptions.ClosedError):
            await aio.put(1)
        async with phalanx.AsyncClient(client.address) as other:
            assert await other.get(await other.put("x")) == "x"
        assert other.closed
        with raises(exceptions.DisconnectedError):
            await phalanx.AsyncClient("/nowhere/node.sock").connect()

    asyncio.run(main())


def test_a_dead_node(nodes):
    clients, daemons, _ = nodes

    async def main():
        aio = phalanx.AsyncClient.of(clients[0])
        waits = [aio.get(aio.ref()), aio.reduce([aio.ref()], dtype="f64"), aio.wait([aio.ref()], timeout=60)]
        pending = asyncio.gather(*waits, return_exceptions=True)
        await asyncio.sleep(0.05)
        daemons[0].kill()
        ended = await asyncio.wait_for(pending, 60)
        assert isinstance(ended[0], exceptions.DisconnectedError)
        assert isinstance(ended[1], exceptions.DisconnectedError)
        with pytest.raises(exceptions.DisconnectedError):
            await aio.put(np.ones(4 * MIB))

    asyncio.run(main())


def test_loops_of_several_threads_share_a_client(aio):
    values: dict[int, list] = {}

    def work(thread: int) -> None:
        async def main():
            refs = await asyncio.gather(*[aio.put(np.full(300_000, thread * 100 + i)) for i in range(5)])
            total = await aio.reduce(refs)
            values[thread] = [value[-1] for value in await aio.get([*refs, total])]

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        own = [i * 100 + k for k in range(5)]
        assert values[i] == [*own, sum(own)]


def test_a_child_of_fork_cannot_use_it(aio):
    async def main():
        await aio.put(np.ones(MIB))  # a worker thread exists
        child = os.fork()
        if child == 0:
            code = 1
            try:
                await aio.put(np.ones(MIB))
            except exceptions.ClosedError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    asyncio.run(main())
