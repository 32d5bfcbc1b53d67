"""The client for event loops: the verbs of `Client` as coroutines.

The calls are the same steps as those of `Client`, which `_asyncio` awaits. No feature imports this
module.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Sequence

from phalanx import _broadcast, _calls, _collectives, _native, _objects, exceptions
from phalanx._objects import failures
from phalanx._client import Client
from phalanx._connection import DEFAULT
from phalanx._ref import ObjectRef, made_by, several
from phalanx._typing import Generic, TypeVar, overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from datetime import timedelta
    from typing import Any

    from phalanx._collectives import Reduction
    from phalanx._connection import Connection
    from phalanx._status import ObjectStatus
    from phalanx._tools import Status, Tree
    from phalanx._typing import Array, Layout, OnLost, Op, Order, Root, Writable
    from phalanx._waiting import Steps
    from phalanx._writing import Draft

    T = TypeVar("T", default=Any)
    Out = TypeVar("Out")
    Result = TypeVar("Result")
else:
    T = TypeVar("T")


async def _run(connection: Connection, steps: Steps[Result]) -> Result:
    # Imports asyncio, which a program without an event loop does not need.
    from phalanx import _asyncio

    return await _asyncio.run(connection, steps)


class AsyncBroadcast:
    """A broadcast that has started (`AsyncClient.broadcast`); ``await broadcast`` waits for it.

    The broadcast continues when this handle is dropped, or when a task that waits is cancelled.

    Attributes
    ----------
    ref : ObjectRef
        The ref of the object.
    """

    ref: ObjectRef

    def __init__(self, broadcast: _broadcast.Broadcast) -> None:
        self.ref = broadcast.ref
        self._broadcast = broadcast
        self._connection = broadcast._connection

    def __repr__(self) -> str:
        return repr(self._broadcast).replace("Broadcast", "AsyncBroadcast", 1)

    def __await__(self) -> Generator[Any, None, int]:
        return self.wait().__await__()

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error, as far as this client knows."""
        return self._broadcast.done

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until the nodes have the object; as `Broadcast.wait`."""
        return await _run(self._connection, self._broadcast._wait(timeout))

    async def progress(self, timeout: float | None = 30.0) -> _broadcast.Progress:
        """Return the progress on the nodes that are connected now; as `Broadcast.progress`."""
        return await _run(self._connection, self._broadcast._progress(timeout))

    async def stop(self, timeout: float | None = 30.0) -> None:
        """Stop sending the object to nodes that join later; as `Broadcast.stop`."""
        await _run(self._connection, self._broadcast._stop(timeout))


class AsyncReduction(Generic[T]):
    """An open reduction (`AsyncClient.open_reduction`); ``await reduction`` waits for its result.

    The reduction continues when this handle is dropped, or when a task that waits is cancelled.

    Attributes
    ----------
    ref : ObjectRef
        The ref of the result.
    """

    ref: ObjectRef[T]

    def __init__(self, reduction: Reduction[T]) -> None:
        self.ref = reduction.ref
        self._reduction = reduction
        self._connection = reduction._connection

    def __repr__(self) -> str:
        return repr(self._reduction).replace("Reduction", "AsyncReduction", 1)

    def __await__(self) -> Generator[Any, None, ObjectRef[T]]:
        return self.wait().__await__()

    async def add(self, refs: ObjectRef[T] | Iterable[ObjectRef[T]], timeout: float | None = 30.0) -> None:
        """Add sources; as `Reduction.add`."""
        await _run(self._connection, self._reduction._add(refs, timeout))

    async def close(self, timeout: float | None = 30.0) -> ObjectRef[T]:
        """Close the reduction to new sources, and return its ref; as `Reduction.close`."""
        return await _run(self._connection, self._reduction._close(timeout))

    async def wait(self, timeout: float | None = None) -> ObjectRef[T]:
        """Wait until the result is committed, and return its ref; as `Reduction.wait`."""
        return await _run(self._connection, self._reduction._wait(timeout))


class AsyncDraft:
    """A draft whose calls are coroutines (`AsyncClient.create`).

    ``async with client.create(...) as draft`` seals the draft at the end of the block, or drops it if the
    block raises; ``draft = await client.create(...)`` leaves both to the caller. One task at a time.
    """

    def __init__(self, connection: Connection, steps: Steps[Draft]) -> None:
        self._connection = connection
        self._steps = steps
        self._made: Draft | None = None

    def __repr__(self) -> str:
        if self._made is None:
            return "<phalanx.AsyncDraft, not created yet>"
        return repr(self._made).replace("Draft", "AsyncDraft", 1)

    async def _create(self) -> AsyncDraft:
        if self._made is None:
            # A creation that was cancelled or has failed has ended its steps.
            if self._steps.gi_frame is None:
                raise exceptions.ClosedError("the draft was not created: its creation was cancelled or failed")
            self._made = await _run(self._connection, self._steps)
        return self

    def __await__(self) -> Generator[Any, None, AsyncDraft]:
        return self._create().__await__()

    async def __aenter__(self) -> AsyncDraft:
        return await self._create()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await _run(self._connection, self._draft._leave(kind is not None))
        # A coroutine that is closed can await nothing: the draft is dropped when it is freed.
        except (exceptions.PhalanxError, GeneratorExit):
            raise
        except BaseException:  # cancelled while it is sealed
            await _run(self._connection, self._draft._leave(True))
            raise

    @property
    def _draft(self) -> Draft:
        if self._made is None:
            raise exceptions.ClosedError(
                "the draft is not created yet: use `async with client.create(...)`, or await it"
            )
        return self._made

    @property
    def array(self) -> Array:
        """The array: writable, not initialised. There is none after the draft is sealed or dropped."""
        return self._draft.array

    @property
    def ref(self) -> ObjectRef[Array]:
        """The ref of the object. Others can wait for the object already."""
        return self._draft.ref

    def publish(self, nbytes: int) -> None:
        """Mark the first `nbytes` bytes as final: receivers can read them from now on; as `Draft.publish`."""
        self._draft.publish(nbytes)

    async def seal(self) -> ObjectRef[Array]:
        """Seal the draft as an object, and return its ref; as `Draft.seal`.

        If the task is cancelled, call `seal` again to continue, or `drop`.
        """
        return await _run(self._connection, self._draft._seal())

    async def drop(self) -> None:
        """Drop the draft: the object is not put; as `Draft.drop`."""
        await _run(self._connection, self._draft._drop())


class AsyncClient:
    """A client whose calls are coroutines: none of them blocks the event loop.

    Parameters, calls, results and errors are those of `Client`. Connect by ``async with`` or `connect`.
    Any thread and any event loop can use the client. Waits use no thread; a worker thread copies values
    of 1 MiB and more.

    A cancelled task ends with CancelledError, and its call ends so:

    - A cancelled `put` drops its object, unless the object was sealed already. While a worker copies,
      the task ends after the copy.
    - Waits for objects end for this task only.
    - A cancelled `AsyncDraft.seal` can be repeated; `async with client.create(...)` drops its draft.
    - A reduction or broadcast that has started continues in the cluster, as after the end of its caller.

    Encoding and decoding by pickle runs in the thread of the event loop for values below 1 MiB, and
    encoding always does.

    See Also
    --------
    Client : Documents the arguments and errors.

    Examples
    --------
    >>> async with phalanx.AsyncClient() as client:
    ...     parts = await asyncio.gather(*[client.put(np.ones(3)) for _ in range(4)])
    ...     total = await client.get(await client.reduce(parts))
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = DEFAULT,
        connect_timeout: float | None = 10.0,
        capacity: int = 0,
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._capacity = capacity
        self._made: Client | None = None

    @classmethod
    def of(cls, client: Client) -> AsyncClient:
        """Return a client for event loops that shares the connection of `client`. Closing one closes both."""
        shared = cls(client.address)
        shared._made = client
        return shared

    def __repr__(self) -> str:
        if self._made is None:
            return f"<phalanx.AsyncClient of {self._address or 'the default address'}, not connected>"
        return repr(self._made).replace("Client", "AsyncClient", 1)

    # ---- the connection

    async def connect(self) -> AsyncClient:
        """Connect, unless this client is connected or closed already. Returns this client.

        Raises
        ------
        DisconnectedError, VersionError, AccessError
            As `Client`.
        """
        import asyncio

        if self._made is None:
            # Starting a private cluster takes a while. A connection of a cancelled task is closed when it is
            # freed.
            made = await asyncio.to_thread(
                Client,
                self._address,
                timeout=self._timeout,
                connect_timeout=self._connect_timeout,
                capacity=self._capacity,
            )
            # Another task can have connected meanwhile.
            if self._made is None:
                self._made = made
            else:
                made.close()
        return self

    async def aclose(self) -> None:
        """Close the connection. Pending calls fail with ClosedError; values stay valid. Idempotent."""
        if self._made is not None:
            self._made.close()

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    @property
    def _client(self) -> Client:
        if self._made is None:
            raise exceptions.ClosedError(
                "not connected: use `async with client`, or `await client.connect()`"
            )
        return self._made

    @property
    def address(self) -> str:
        """ "unix:PATH" of the node's socket."""
        return self._client.address

    @property
    def node(self) -> str:
        """The node's name."""
        return self._client.node

    @property
    def directory(self) -> str:
        """The address of the cluster's directory, as ``phalanx --directory`` takes it."""
        return self._client.directory

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._made is not None and self._made.closed

    # ---- objects

    def ref(self, name: str | None = None) -> ObjectRef[Any]:
        """Return a ref to an object that is not put yet; as `Client.ref`."""
        return made_by(self._client, name)

    async def put(
        self,
        value: Result,
        ref: ObjectRef[Result] | None = None,
        keep: bool | None = None,
        *,
        exist_ok: bool = False,
        ttl: float | timedelta | None = None,
        copies: int | None = None,
        wait_for_copies: bool = False,
        scope: str | tuple[str, int] | None = None,
        timeout: float | None = DEFAULT,
        allow_pickle: bool = True,
    ) -> ObjectRef[Result]:
        """Put a value as an object, and return its ref; as `Client.put`.

        The value must not change before the call ends.
        """
        client = self._client
        seconds = client._seconds(timeout)
        stays = _native.stay(ttl, copies, wait_for_copies, scope)
        put = _objects.put(client, value, ref, keep, seconds, allow_pickle, exist_ok, stays)
        return await _run(client, put)

    async def keep(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> None:
        """Keep an object until `delete`; as `Client.keep`."""
        await _run(self._client, _calls.keep(self._client, ref, self._client._seconds(timeout)))

    def create(
        self,
        shape: int | tuple[int, ...],
        dtype: Any,
        ref: ObjectRef | None = None,
        *,
        order: Layout = "C",
        keep: bool | None = None,
        ttl: float | timedelta | None = None,
        copies: int | None = None,
        wait_for_copies: bool = False,
        scope: str | tuple[str, int] | None = None,
        timeout: float | None = DEFAULT,
    ) -> AsyncDraft:
        """Return a draft, for ``async with`` or ``await``; as `Client.create`.

        Examples
        --------
        >>> async with client.create((1000, 1000), "f4") as draft:
        ...     draft.array[:] = 1
        >>> (await client.get(draft.ref)).sum()
        """
        from phalanx import _writing

        client = self._client
        seconds = client._seconds(timeout)
        stays = _native.stay(ttl, copies, wait_for_copies, scope)
        steps = _writing.create(client, shape, dtype, ref, order, keep, seconds, stays)
        return AsyncDraft(client, steps)

    async def set_exception(
        self, ref: ObjectRef, error: BaseException, *, timeout: float | None = DEFAULT
    ) -> None:
        """Mark the object as failed; as `ObjectRef.set_exception`."""
        client = self._client
        await _run(client, failures.set_exception(client, ref, error, client._seconds(timeout)))

    @overload
    async def get(
        self,
        refs: ObjectRef[Result],
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: None = ...,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
    ) -> Result: ...

    @overload
    async def get(
        self,
        refs: ObjectRef,
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: Out,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
    ) -> Out: ...

    @overload
    async def get(
        self,
        refs: Sequence[ObjectRef[Result]],
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: None = ...,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
    ) -> list[Result]: ...

    async def get(
        self,
        refs: ObjectRef | Sequence[ObjectRef],
        timeout: float | None = DEFAULT,
        *,
        copy: bool | None = None,
        out: Any = None,
        writable: Writable | None = None,
        allow_pickle: bool = True,
        on_lost: OnLost = "raise",
    ) -> Any:
        """Return the value of an object, or a list of values; as `Client.get`."""
        client = self._client
        steps = _objects.get(
            client, refs, client._seconds(timeout), copy, out, writable, allow_pickle, on_lost
        )
        return await _run(client, steps)

    async def wait(
        self, refs: Iterable[ObjectRef[Result]], num_returns: int = 1, timeout: float | None = DEFAULT
    ) -> tuple[list[ObjectRef[Result]], list[ObjectRef[Result]]]:
        """Wait until `num_returns` of the objects are on this node; as `Client.wait`."""
        client = self._client
        return await _run(client, _objects.wait(client, refs, num_returns, client._seconds(timeout)))

    def as_completed(
        self, refs: Iterable[ObjectRef[Result]], timeout: float | None = DEFAULT
    ) -> AsyncIterator[ObjectRef[Result]]:
        """Iterate over the refs in the order in which their objects arrive; for ``async for``.

        Arguments and errors are those of `Client.as_completed`.
        """
        from phalanx import _asyncio

        return _asyncio.as_completed(self._client, several(refs, "as_completed"), self._client._seconds(timeout))

    async def delete(self, refs: ObjectRef | Iterable[ObjectRef], timeout: float | None = DEFAULT) -> None:
        """Delete objects in the whole cluster; as `Client.delete`."""
        await _run(self._client, _calls.delete(self._client, refs, self._client._seconds(timeout)))

    async def contains(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> bool:
        """Return whether the cluster has a complete copy of the object."""
        return await _run(self._client, _calls.contains(self._client, ref, self._client._seconds(timeout)))

    async def replicate(self, ref: ObjectRef, copies: int, timeout: float | None = None) -> int:
        """Keep copies of an object on several hosts, and return how many have one; as `Client.replicate`."""
        return await _run(
            self._client, _calls.replicate(self._client, ref, copies, self._client._seconds(timeout))
        )

    async def end_scope(self, scope: str | tuple[str, int], timeout: float | None = DEFAULT) -> None:
        """End a scope, and free its objects everywhere; as `Client.end_scope`."""
        await _run(self._client, _calls.end_scope(self._client, scope, self._client._seconds(timeout)))

    async def stat(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> ObjectStatus:
        """Return the state of an object in the cluster."""
        return await _run(self._client, _calls.stat(self._client, ref, self._client._seconds(timeout)))

    def broadcast(
        self,
        ref: ObjectRef,
        nodes: str | Iterable[str] = "all",
        *,
        sticky: bool = False,
        timeout: float | None = None,
    ) -> AsyncBroadcast:
        """Make nodes fetch an object; as `Client.broadcast`.

        ``await client.broadcast(ref)`` waits until the nodes have the object, and returns their number.
        """
        return AsyncBroadcast(self._client.broadcast(ref, nodes, sticky=sticky, timeout=timeout))

    # ---- reductions and collectives

    async def reduce(
        self,
        refs: Sequence[ObjectRef[Result]],
        op: Op = "sum",
        *,
        num_objects: int | None = None,
        order: Order = "arrival",
        dtype: Any = None,
        ref: ObjectRef[Result] | None = None,
        root: Root = "caller",
        timeout: float | None = DEFAULT,
    ) -> ObjectRef[Result]:
        """Reduce objects into one, and return its ref when it is committed; as `Client.reduce`."""
        client = self._client
        return await _run(
            client, _collectives.reduce(client, refs, op, num_objects, order, dtype, ref, root, timeout)
        )

    async def open_reduction(
        self,
        refs: Sequence[ObjectRef[Result]],
        op: Op = "sum",
        *,
        dtype: Any,
        num_objects: int | None = None,
        ref: ObjectRef[Result] | None = None,
        timeout: float | None = DEFAULT,
    ) -> AsyncReduction[Result]:
        """Start a reduction that accepts more sources until it is closed; as `Client.open_reduction`."""
        client = self._client
        steps = _collectives.open_reduction(client, refs, op, dtype, num_objects, ref, timeout)
        return AsyncReduction(await _run(client, steps))

    async def allreduce(
        self,
        refs: Sequence[ObjectRef[Result]],
        op: Op = "sum",
        *,
        ref: ObjectRef[Result],
        num_objects: int | None = None,
        order: Order = "arrival",
        dtype: Any = None,
        timeout: float | None = DEFAULT,
    ) -> Result:
        """Reduce, and return the result, the same bits for every participant; as `Client.allreduce`."""
        client = self._client
        value: Result = await _run(
            client, _collectives.allreduce(client, refs, op, ref, num_objects, order, dtype, timeout)
        )
        return value

    async def reduce_scatter(
        self,
        refs: Sequence[ObjectRef],
        targets: Sequence[ObjectRef],
        index: int,
        op: Op = "sum",
        *,
        dtype: Any = None,
        timeout: float | None = DEFAULT,
    ) -> Any:
        """Reduce part `index` of all sources, and return it as a flat array; as `Client.reduce_scatter`."""
        client = self._client
        return await _run(
            client, _collectives.reduce_scatter(client, refs, targets, index, op, dtype, timeout)
        )

    async def reduced_from(
        self, ref: ObjectRef[Result], timeout: float | None = DEFAULT
    ) -> list[ObjectRef[Result]]:
        """Return the sources of a result, in the order in which they were folded."""
        client = self._client
        return await _run(client, _collectives.reduced_from(client, ref, client._seconds(timeout)))

    async def allgather(
        self, refs: Sequence[ObjectRef[Result]], index: int, timeout: float | None = DEFAULT
    ) -> list[Result]:
        """Return the values of n tasks' objects, around a ring; as `Client.allgather`."""
        client = self._client
        return await _run(client, _collectives.allgather(client, refs, index, client._seconds(timeout)))

    async def gather(
        self, refs: Sequence[ObjectRef[Result]], timeout: float | None = DEFAULT
    ) -> list[Result]:
        """Return the values of objects in their order. Equivalent to `get` of a list."""
        return await self.get(several(refs, "gather"), timeout)

    async def scatter(self, value: Any, refs: Sequence[ObjectRef], timeout: float | None = DEFAULT) -> None:
        """Split an array evenly along its first axis and put the parts as `refs`; as `Client.scatter`."""
        client = self._client
        await _run(client, _objects.scatter(client, value, refs, client._seconds(timeout)))

    async def all_to_all(
        self,
        outgoing: Iterable[tuple[ObjectRef, Any]],
        incoming: Sequence[ObjectRef[Result]],
        timeout: float | None = DEFAULT,
    ) -> list[Result]:
        """Put the outgoing values, and return the values of `incoming` in that order."""
        client = self._client
        return await _run(client, _objects.all_to_all(client, outgoing, incoming, client._seconds(timeout)))

    async def barrier(
        self, name: str, participants: int, index: int, timeout: float | None = DEFAULT
    ) -> None:
        """Return when all participants have called it; as `Client.barrier`."""
        client = self._client
        await _run(client, _collectives.barrier(client, name, participants, index, client._seconds(timeout)))

    # ---- the cluster

    async def status(self) -> Status:
        """Return the state of the cluster; as `Client.status`."""
        import asyncio

        return await asyncio.to_thread(self._client.status)

    async def tree(self, ref: ObjectRef) -> Tree:
        """Return a drawing of an object's copies and transfers; as `Client.tree`."""
        import asyncio

        return await asyncio.to_thread(self._client.tree, ref)
