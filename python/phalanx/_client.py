"""The client: the verbs on objects, over one connection.

The facade of the package: it documents the verbs, resolves default timeouts and calls the features.
No feature imports this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from phalanx import _broadcast, _calls, _native, _objects
from phalanx._objects import failures
from phalanx._collectives import Collectives
from phalanx._connection import DEFAULT
from phalanx._ref import ObjectRef, id_for, made_by, several
from phalanx._status import ObjectStatus
from phalanx._typing import TypeVar, overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    import concurrent.futures
    from datetime import timedelta
    from typing import Any

    from phalanx import _tools
    from phalanx._typing import Layout, OnLost, Writable
    from phalanx._writing import Draft

    T = TypeVar("T")
    Out = TypeVar("Out")


class Client(Collectives):
    """A connection to the node of this host.

    Any thread can use it. A child of fork cannot: its calls raise ClosedError, and the functions of
    the package connect again there. Values stay valid after the client is closed.

    Parameters
    ----------
    address
        "unix:PATH" or PATH of a node's socket. None: in a child process, the node of its parent;
        else ``PHALANX_ADDRESS``. If that is empty too, the client starts a private cluster, which
        ends with this process.
    timeout
        Seconds; the limit of every call without a timeout of its own. Default:
        ``PHALANX_TIMEOUT``; if that is empty, no limit.
    connect_timeout
        Seconds; None: no limit.
    capacity
        Bytes of memory of a private cluster's node: at least 1 MiB, or 0: the
        node's default.

    Raises
    ------
    DisconnectedError
        No node listens at the address, or the private cluster does not start.
    VersionError
        The node speaks another version of the protocol.
    AccessError
        The node belongs to another user.
    """

    def __repr__(self) -> str:
        return f"<phalanx.Client of {self._node} at {self._address}{' closed' * self._closed}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    # ---- refs

    def ref(self, name: str | None = None) -> ObjectRef[Any]:
        """Return a ref to an object that is not put yet: a new one, or the one with this name."""
        return made_by(self, name)

    # ---- writing

    def put(
        self,
        value: T,
        ref: ObjectRef[T] | None = None,
        keep: bool | None = None,
        *,
        exist_ok: bool = False,
        ttl: float | timedelta | None = None,
        copies: int | None = None,
        wait_for_copies: bool = False,
        scope: str | tuple[str, int] | None = None,
        timeout: float | None = DEFAULT,
        allow_pickle: bool = True,
    ) -> ObjectRef[T]:
        """Put a value as an object, and return its ref when the value is sealed on this node.

        Parameters
        ----------
        value
            Any value. Arrays, tensors, trees of them, bytes and text keep their own form; all other
            values are pickled.
        ref
            The ref of the object; None: a new one. If the object exists (a task that runs again), the
            object stays and this value is dropped.
        keep
            True: the object stays until `delete`, as named objects do. False: the object is freed
            when the last ref to it is gone. None: True for a named ref, else False. The object holds
            the refs inside the value.
        exist_ok
            For a named ref whose object exists. False: the put waits for the directory, and compares
            the value with the object; if they differ, it raises. True, and for refs without a name:
            only the size is compared, and on this node without waiting.
        ttl
            Time to live, in seconds or as a timedelta: when it has passed, the cluster deletes the
            object, as `delete` does, even if there are refs to it. It is counted from the creation of
            the object. An object that exists keeps its own. None: no limit.
        copies
            Keep copies on so many different hosts, as `replicate` does. An object that exists keeps its
            own number. None: the copy on this node.
        wait_for_copies
            True: the put returns when the copies are there, also if the object exists.
        scope
            The scope of the object, a name or ``(name, number)``: `end_scope` frees the object with all
            others of the scope. None: no scope.
        timeout
            Seconds to wait for memory if the node is full; for a named ref without `exist_ok`, also for
            the directory.
        allow_pickle
            Whether pickle can be used.

        Raises
        ------
        StoreFullError
            The node had no memory within `timeout`, or can never have enough.
        ObjectExistsError
            Another value exists under this named ref, or an object of another size under the ref.
        InvalidArgumentError
            The time to live is not positive, the number of copies not 1 to 64, or the name of the scope
            no UTF-8 without control characters of at most 255 bytes. (A `ValueError`, as
            `ObjectExistsError` is.)
        ObjectDeletedError
            The scope has ended.
        PickleRefusedError, TypeError
            The value cannot be put.
        """
        seconds = self._seconds(timeout)
        stays = _native.stay(ttl, copies, wait_for_copies, scope)
        return self._run(_objects.put(self, value, ref, keep, seconds, allow_pickle, exist_ok, stays))

    def keep(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> None:
        """Keep an object until `delete`, even if no ref to it is left.

        Raises
        ------
        ObjectDeletedError
            The object was never put, or it is gone.
        """
        self._run(_calls.keep(self, ref, self._seconds(timeout)))

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
    ) -> Draft:
        """Return a draft: an array in shared memory, which becomes an object without a copy.

        Parameters
        ----------
        shape, dtype, order
            As in `numpy.empty`.
        ref, keep, ttl, copies, wait_for_copies, scope, timeout
            As in `put`. The time to live is counted from this call on.

        Examples
        --------
        >>> with client.create((1000, 1000), "f4") as draft:
        ...     draft.array[:] = 1
        >>> client.get(draft.ref).sum()
        """
        from phalanx import _writing

        stays = _native.stay(ttl, copies, wait_for_copies, scope)
        steps = _writing.create(self, shape, dtype, ref, order, keep, self._seconds(timeout), stays)
        # The annotation is for editors, which do not find the type of a generator's result.
        draft: _writing.Draft = self._run(steps)
        return draft

    def set_exception(self, ref: ObjectRef, error: BaseException, *, timeout: float | None = DEFAULT) -> None:
        """Mark the object as failed; see `ObjectRef.set_exception`."""
        self._run(failures.set_exception(self, ref, error, self._seconds(timeout)))

    # ---- reading

    @overload
    def get(
        self,
        refs: ObjectRef[T],
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: None = ...,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
        progress: bool = ...,
    ) -> T: ...

    @overload
    def get(
        self,
        refs: ObjectRef,
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: Out,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
        progress: bool = ...,
    ) -> Out: ...

    @overload
    def get(
        self,
        refs: Sequence[ObjectRef[T]],
        timeout: float | None = ...,
        *,
        copy: bool | None = ...,
        out: None = ...,
        writable: Writable | None = ...,
        allow_pickle: bool = ...,
        on_lost: OnLost = ...,
        progress: bool = ...,
    ) -> list[T]: ...

    def get(
        self,
        refs: ObjectRef | Sequence[ObjectRef],
        timeout: float | None = DEFAULT,
        *,
        copy: bool | None = None,
        out: Any = None,
        writable: Writable | None = None,
        allow_pickle: bool = True,
        on_lost: OnLost = "raise",
        progress: bool = False,
    ) -> Any:
        """Return the value of an object, or a list of values. Blocks until the objects are here.

        Parameters
        ----------
        refs
            One ref, or several; several return a list of values in the same order.
        timeout
            Seconds. 0: only objects that are on this node already. None: no limit.
        copy
            True: return values that are writable throughout and belong to the caller. Costs private
            memory of the object's size and one pass over its bytes.
        out
            An array or tensor of the object's shape and dtype. The value is copied into it, and it is
            returned.
        writable
            "cow": arrays are private pages, which the kernel copies on the first write. Default:
            arrays are read-only views of shared memory, tensors have private pages.
        allow_pickle
            Whether pickled values can be read.
        on_lost
            "raise", or "wait": if every node that had the object is gone, wait until it is put again.
        progress
            Whether tqdm draws a bar of the objects that have arrived.

        Raises
        ------
        GetTimeoutError
            The object did not arrive in time.
        ObjectDeletedError, ObjectLostError
            The object is gone.
        StoreFullError
            This node has no memory for the object.
        Exception
            The exception of the producer (`ObjectRef.set_exception`).
        """
        return self._run(
            _objects.get(
                self, refs, self._seconds(timeout), copy, out, writable, allow_pickle, on_lost, progress
            )
        )

    async def get_async(self, ref: ObjectRef[T], timeout: float | None = DEFAULT) -> T:
        """Return the value of an object, awaited in the running event loop.

        Cancelling the task ends this wait only. Errors are those of `get`.
        """
        from phalanx import _asyncio

        value: T = await _asyncio.run(self, _objects.get(self, ref, self._seconds(timeout)))
        return value

    def future(self, ref: ObjectRef[T]) -> concurrent.futures.Future[T]:
        """Return a future of the object's value; see `ObjectRef.future`."""
        from phalanx import _futures

        return _futures.future_of(self, ref)

    def stream(
        self, ref: ObjectRef, nbytes: int = 1 << 20, timeout: float | None = DEFAULT
    ) -> Iterator[memoryview]:
        """Iterate over the bytes of an object, in order, while they arrive.

        The bytes are provisional until the iteration ends. Each piece is valid until the next one.

        Parameters
        ----------
        nbytes
            The size of the largest piece.
        timeout
            Seconds; the limit of the wait for each piece.

        Raises
        ------
        StreamVoidError
            The object was lost during the stream and a new generation replaced it: discard the pieces.
        GetTimeoutError, ObjectDeletedError
            As in `get`.
        """
        from phalanx._objects import streams

        return streams.pieces(self, ref, nbytes, self._seconds(timeout))

    # ---- waiting

    def wait(
        self,
        refs: Iterable[ObjectRef[T]],
        num_returns: int = 1,
        timeout: float | None = DEFAULT,
        *,
        progress: bool = False,
    ) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
        """Wait until `num_returns` of the objects are on this node, or the timeout expires.

        An object whose Get raises (it was deleted, its producer failed) counts as done. A timeout of 0
        returns what is on this node already. `progress` makes tqdm draw a bar.

        Returns
        -------
        done, pending : list of ObjectRef
            In the given order. `done` can have more than `num_returns` refs.
        """
        return self._run(_objects.wait(self, refs, num_returns, self._seconds(timeout), progress))

    def as_completed(
        self, refs: Iterable[ObjectRef[T]], timeout: float | None = DEFAULT, *, progress: bool = False
    ) -> Iterator[ObjectRef[T]]:
        """Iterate over the refs in the order in which their objects arrive on this node.

        `progress` makes tqdm draw a bar.

        Raises
        ------
        GetTimeoutError
            Not all objects arrived in time; the timeout starts with this call.
        """
        from phalanx._objects import streams

        return streams.as_completed(self, several(refs, "as_completed"), self._seconds(timeout), progress)

    # ---- moving

    def gather(self, refs: Sequence[ObjectRef[T]], timeout: float | None = DEFAULT) -> list[T]:
        """Return the values of objects in their order. Equivalent to `get` of a list."""
        return self.get(several(refs, "gather"), timeout)

    def scatter(self, value: Any, refs: Sequence[ObjectRef], timeout: float | None = DEFAULT) -> None:
        """Split an array evenly along its first axis and put the parts as `refs`, for others to get."""
        self._run(_objects.scatter(self, value, refs, self._seconds(timeout)))

    def all_to_all(
        self,
        outgoing: Iterable[tuple[ObjectRef, Any]],
        incoming: Sequence[ObjectRef[T]],
        timeout: float | None = DEFAULT,
    ) -> list[T]:
        """Put the outgoing values, and return the values of `incoming` in that order."""
        return self._run(_objects.all_to_all(self, outgoing, incoming, self._seconds(timeout)))

    # ---- managing

    def delete(self, refs: ObjectRef | Iterable[ObjectRef], timeout: float | None = DEFAULT) -> None:
        """Delete objects in the whole cluster.

        Later Gets raise ObjectDeletedError; values in use stay valid. Deleting an object twice is not
        an error.

        Raises
        ------
        ObjectDeletedError
            The object was never put.
        """
        self._run(_calls.delete(self, refs, self._seconds(timeout)))

    def contains(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> bool:
        """Return whether the cluster has a complete copy of the object."""
        return self._run(_calls.contains(self, ref, self._seconds(timeout)))

    def stat(self, ref: ObjectRef, timeout: float | None = DEFAULT) -> ObjectStatus:
        """Return the state of an object in the cluster."""
        return self._run(_calls.stat(self, ref, self._seconds(timeout)))

    def broadcast(
        self,
        ref: ObjectRef,
        nodes: str | Iterable[str] = "all",
        *,
        sticky: bool = False,
        timeout: float | None = None,
    ) -> _broadcast.Broadcast:
        """Make nodes fetch an object, relayed from node to node. Returns without waiting for the bytes.

        Parameters
        ----------
        nodes
            Names of nodes, or "all".
        sticky
            False: only nodes that are up now, and the name of an unknown node is an error. True: nodes
            of these names that join later get the object too, until `Broadcast.stop` or until the
            object is deleted or freed, even after this client has closed. A broadcast holds no ref:
            keep a ref, or put with ``keep=True``.
        timeout
            Seconds; the limit of the wait. The broadcast continues after the timeout.

        Examples
        --------
        >>> sent = phalanx.broadcast(weights, sticky=True)
        >>> sent.progress()
        Progress(nodes=8, complete=3, without_room=0, nbytes=3758096384, total_nbytes=8589934592, sticky=True)
        >>> sent.wait()
        8
        """
        return _broadcast.Broadcast(self, ref, nodes, sticky, timeout)

    def replicate(self, ref: ObjectRef, copies: int, timeout: float | None = None) -> int:
        """Keep copies of an object on several hosts; returns how many hosts have one.

        Waits until so many different hosts have a copy that is never evicted, or all hosts if there are
        fewer. Copies are made again on other hosts when nodes die, and more when nodes join, until the
        object is deleted or freed, even after this client has closed.

        Parameters
        ----------
        copies
            1 to 64; 1 keeps one copy.
        timeout
            Seconds; the limit of the wait. The copies are still made after the timeout.

        Raises
        ------
        GetTimeoutError
            The copies were not there within `timeout`.
        ObjectDeletedError
            The object was never put, or it is gone.
        StoreFullError
            No node on another host has room.
        """
        return self._run(_calls.replicate(self, ref, copies, self._seconds(timeout)))

    def end_scope(self, scope: str | tuple[str, int], timeout: float | None = DEFAULT) -> None:
        """End a scope, and all scopes with its name and smaller numbers: free their objects everywhere.

        Returns when every node that is in touch with the directory has dropped its copies. From then on,
        for ten minutes at least, puts into these scopes are refused. Values that were read stay valid.

        Parameters
        ----------
        scope
            A name or ``(name, number)``, as in `put`; a name alone has the number 0.

        Raises
        ------
        GetTimeoutError
            Not all shards have answered within `timeout`; call again.

        Examples
        --------
        >>> for step in range(steps):
        ...     part = client.put(gradients, scope=("job", step))
        ...     train(step)
        ...     client.end_scope(("job", step))
        """
        self._run(_calls.end_scope(self, scope, self._seconds(timeout)))

    def status(self) -> _tools.Status:
        """Return the state of the cluster, as ``phalanx status --json`` prints it.

        A dict with the shards, and the nodes with their memory and objects. A notebook shows a table.
        """
        from phalanx import _tools

        return _tools.status(self._directory, self._address)

    def tree(self, ref: ObjectRef) -> _tools.Tree:
        """Return a drawing of an object's copies and transfers, as ``phalanx describe`` draws it.

        In a notebook, ``tree(ref).follow()`` draws it again until the broadcast or reduction has ended.

        Raises
        ------
        ObjectDeletedError
            The object was never put, or it was deleted.
        """
        from phalanx import _tools

        return _tools.tree(self._directory, self._address, id_for(self, ref).hex())
