"""The types that checkers infer: `assert_type` fails if a checker infers another type. Not run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import assert_type

import phalanx
import phalanx.ps
import phalanx.spmd
from phalanx import exceptions

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

Floats = phalanx.ObjectRef[list[float]]


def default_client() -> None:
    client = phalanx.init(capacity=1 << 20)
    assert_type(client, phalanx.Client)
    phalanx.init("unix:/run/phalanx/node.sock", timeout=None, connect_timeout=1.5)
    ref = phalanx.put([1.5, 2.5])
    assert_type(ref, phalanx.ObjectRef[list[float]])
    assert_type(phalanx.put([1.5], ttl=timedelta(minutes=1)), Floats)
    assert_type(phalanx.stat(phalanx.put(1, ttl=0.5)).ttl, float | None)
    assert_type(phalanx.ref(), phalanx.ObjectRef)
    assert_type(phalanx.ref(), phalanx.ObjectRef[Any])
    assert_type(phalanx.ObjectRef.from_name("model"), phalanx.ObjectRef)
    assert_type(phalanx.get(ref, timeout=3, writable="cow"), list[float])
    assert_type(phalanx.get([ref, ref], copy=True, on_lost="wait"), list[list[float]])
    assert_type(phalanx.get(ref, out=np.ones(2, np.float32)), np.ndarray[tuple[int], np.dtype[np.float32]])
    assert_type(ref.get(timeout=1, copy=True), list[float])
    assert_type(phalanx.wait([ref], num_returns=1), tuple[list[Floats], list[Floats]])
    assert_type(phalanx.as_completed([ref]), Iterator[Floats])
    assert_type(phalanx.contains(ref), bool)
    assert_type(phalanx.reduce([ref], op=np.add, order="fixed"), Floats)
    total: Floats = phalanx.ref()
    assert_type(phalanx.allreduce([ref], "mean", ref=total), list[float])
    assert_type(phalanx.allgather([ref], 0), list[list[float]])
    late: phalanx.ObjectRef[str] = phalanx.ref()
    assert_type(phalanx.get(late), str)
    untyped: phalanx.ObjectRef = late  # a bare ObjectRef is an ObjectRef[Any]
    assert_type(phalanx.get([untyped]), list[Any])
    sent = phalanx.broadcast(ref, ["n1", "n2"], sticky=True)
    assert_type(sent, phalanx.Broadcast)
    assert_type(sent.wait(timeout=1), int)
    assert_type(sent.done, bool)
    assert_type(sent.progress(), phalanx.Progress)
    assert_type(sent.progress().without_room, int)
    sent.stop()
    cluster: dict[str, Any] = phalanx.status()
    print(cluster["nodes"])
    assert_type(str(phalanx.tree(ref)), str)
    phalanx.delete(ref)
    phalanx.delete([ref])


def own_client() -> None:
    with phalanx.Client("unix:/run/phalanx/node.sock") as client:
        assert_type(client, phalanx.Client)
        with client.create((2, 3), "f4") as draft:
            draft.array[:] = 1
        assert_type(draft.ref, phalanx.ObjectRef[np.ndarray[Any, np.dtype[Any]]])
        assert_type(client.future(client.put("x")), concurrent.futures.Future[str])
        growing = client.open_reduction([draft.ref], dtype=np.float32)
        growing.add([client.ref()])
        growing.close()
        assert_type(growing.wait(), phalanx.ObjectRef[np.ndarray[Any, np.dtype[Any]]])
        assert_type(client.reduced_from(client.put(1)), list[phalanx.ObjectRef[int]])


async def awaited(ref: phalanx.ObjectRef[int]) -> None:
    assert_type(await ref, int)
    async with phalanx.Client() as client:
        assert_type(client, phalanx.Client)
        assert_type(await client.get_async(ref, timeout=1), int)
        assert_type(await client.broadcast(ref), int)


async def async_client(ref: Floats) -> None:
    async with phalanx.AsyncClient(timeout=3) as client:
        assert_type(client, phalanx.AsyncClient)
        assert_type(await client.put(1), phalanx.ObjectRef[int])
        assert_type(await client.get(ref), list[float])
        assert_type(await client.get([ref], copy=True), list[list[float]])
        assert_type(await client.wait([ref]), tuple[list[Floats], list[Floats]])
        async for arrived in client.as_completed([ref]):
            assert_type(arrived, Floats)
        assert_type(await client.reduce([ref], "max"), Floats)
        assert_type(await client.allreduce([ref], ref=ref), list[float])
        assert_type(await client.contains(ref), bool)
        assert_type(await client.broadcast(ref), int)
        sent = client.broadcast(ref, "n1")
        assert_type(await sent.progress(), phalanx.Progress)
        async with client.create((2, 3), "f4") as draft:
            assert_type(draft, phalanx.AsyncDraft)
            draft.array[:] = 1
        draft = await client.create(3, "f4")
        assert_type(await draft.seal(), phalanx.ObjectRef[np.ndarray[Any, np.dtype[Any]]])
        growing = await client.open_reduction([ref], dtype=[1.0, 2.0])
        await growing.add(ref)
        assert_type(await growing, Floats)
        assert_type(phalanx.AsyncClient.of(phalanx.init()), phalanx.AsyncClient)


def groups() -> None:
    with phalanx.join("train", world=4) as member:
        group = member.group("wait", timeout=1.5)
        weights = {"w": np.ones(2, np.float32)}
        assert_type(group.allreduce(weights, np.add), dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]])
        call = group.reduce(weights, "max", 1, wait=False)
        assert_type(call.wait(timeout=1), dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]])
        assert_type(call.done, bool)
        assert_type(group.allgather(weights["w"]), Any)
        assert_type(group.calls + group.members_of_last_call + group.rank + group.world, int)


async def awaited_group(member: Any) -> None:
    group = phalanx.join().group()
    assert_type(await group.broadcast([1.5], 2, wait=False), list[float])
    await group.barrier(wait=False)


def sessions(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    with phalanx.spmd.join("train", world=4, peer_timeout=60.0) as session:
        assert_type(session, phalanx.spmd.Session)
        assert_type(session.load(), tuple[int, Any])
        assert_type(session.load(local=True), tuple[int, Any, Any])
        assert_type(session.allreduce(values, np.add, out=values), Any)
        assert_type(session.allreduce(prepare=lambda: values, shape=(2, 3), dtype="f4"), Any)
        assert_type(session.allreduce({"a": 1}, lambda into, other: into | other), Any)
        call = session.allreduce_async(values)
        assert_type(call, phalanx.spmd.SessionCall[Any])
        assert_type(call.done, bool)
        assert_type(session.allgather(values), list[Any])
        session.checkpoint({"w": values}, [1, 2])
        assert_type(session.rank + session.life + session.version + session.seq + session.stats.repeated, int)
        assert_type(session.stats.recovery, float)


def add(keys: Any, grads: Any, rows: Any) -> None:
    rows += grads


def replace(keys: Array, grads: list[Array], rows: list[Array]) -> None:
    rows[:] = grads


def parameter_server() -> None:
    with phalanx.ps.server("fit", world=2) as server:
        server.table("w", keys=10, width=3, dtype=np.float32, sync="ssp", staleness=2, update=add)
        server.table("n", sync="asp", split="hash", update="add", dtype="i64")
        server.table("lists", lengths=True, width=64, update=replace)
        server.on_request(lambda request: (request.head, request.body))
        assert_type(server.barrier(), None)
        assert_type(server.barrier("all", wait=False), phalanx.ps.TableCall[None])
        server.run()
        assert_type(server.describe(), str)


def parameter_worker(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    with phalanx.ps.worker("fit", world=4, peer_timeout=60.0) as worker:
        table = worker.table("w")
        assert_type(table, phalanx.ps.Table)
        assert_type(table.push([1, 2], values, wait=False), phalanx.ps.TableCall[None])
        assert_type(table.pull(range(3), out=values), Any)
        assert_type(table.push([1, 2], values, [1, 2], wait=False), phalanx.ps.TableCall[None])
        assert_type(table.push_pull([1], [values], lengths=None, wait=False), phalanx.ps.TableCall[Any])
        pulled: phalanx.ps.PulledRows = table.pull([1])
        assert_type(pulled.values, Array)
        assert_type(table.spec.lengths, bool)
        assert_type(table.pull_dense(wait=False).wait(timeout=1), Any)
        assert_type(table.clocks.own + table.clocks.least + table.spec.keys + worker.rank, int)
        assert_type(worker.request(0, 1, b"a"), phalanx.ps.Reply)
        assert_type(worker.table("own", lambda keys: keys % np.uint64(2)), phalanx.ps.Table)
        assert_type(worker.barrier("all", epoch=3, timeout=1.5), None)
        assert_type(worker.barrier(wait=False), phalanx.ps.TableCall[None])
        assert_type(worker.request(0, wait=False).wait().body, bytes)


async def awaited_table(table: phalanx.ps.Table) -> None:
    await table.push_dense(np.ones(3), wait=False)
    assert_type(await table.push_pull([1], np.ones(1), wait=False), Any)


def errors(ref: phalanx.ObjectRef) -> None:
    try:
        phalanx.get(ref, timeout=0)
    except exceptions.GetTimeoutError as error:
        as_builtin: TimeoutError = error
        assert_type(error.ref, str | None)
        print(as_builtin, error.node)


async def wrong_async(ref: phalanx.ObjectRef[int]) -> None:
    client = phalanx.AsyncClient()
    await client.reduce([ref], "plus")  # type: ignore[arg-type]
    await client.get(ref, progress=True)  # type: ignore[call-overload]
    client.put(1).hex()  # type: ignore[attr-defined]
    await phalanx.join().group().barrier()  # type: ignore[misc]
    phalanx.join().group("ignore")  # type: ignore[arg-type]
    phalanx.join().group().allreduce(np.ones(2), "plus")  # type: ignore[call-overload]
    await phalanx.ps.worker().table("w").push([1], np.ones(1))  # type: ignore[misc]
    phalanx.ps.server().table("w", sync="sync")  # type: ignore[arg-type]
    phalanx.spmd.join("job", client="unix:node")  # type: ignore[arg-type]
    phalanx.spmd.join().allreduce_async(np.ones(2), "plus")  # type: ignore[arg-type]


def wrong(ref: phalanx.ObjectRef[int]) -> None:
    phalanx.get("name")  # type: ignore[arg-type]
    phalanx.get(ref, on_lost="ignore")  # type: ignore[call-overload]
    phalanx.get(ref, writable="yes")  # type: ignore[call-overload]
    phalanx.put(1, "name")  # type: ignore[arg-type]
    phalanx.wait([ref], timeout="1 s")  # type: ignore[arg-type]
    phalanx.reduce(ref)  # type: ignore[arg-type]
    phalanx.reduce([ref], "plus")  # type: ignore[arg-type]
    phalanx.reduce([ref], order="random")  # type: ignore[arg-type]
    phalanx.init(timeout="1 s")  # type: ignore[arg-type]
    phalanx.init(memory=1 << 30)  # type: ignore[call-arg]
    phalanx.broadcast(ref, 3)  # type: ignore[arg-type]
    phalanx.open(ref)  # type: ignore[attr-defined]
    needs_text: phalanx.ObjectRef[str] = ref  # type: ignore[assignment]
    print(needs_text)
