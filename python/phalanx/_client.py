"""The client: put, get, wait and manage objects."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence

from phalanx import (
    _broadcast,
    _collectives,
    _failures,
    _native,
    _structures,
    _values,
    _waiting,
    exceptions,
)
from phalanx._native import ffi, lib, nanos
from phalanx._ref import ObjectRef, reading
from phalanx._status import ObjectStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    import concurrent.futures
    from types import TracebackType
    from typing import Any

    from phalanx import _tools
    from phalanx._writing import Draft

_values.use_copier(_native.copy)

# The default of a timeout argument, because None already means "no limit".
_DEFAULT: Any = ...
_LOOPBACKS = ("127.", "localhost:", "[::1]:")


class Client(_collectives.Collectives):
    """A connection to the node of this host.

    Any thread can use it. A child of fork cannot: its calls raise ClosedError, and the functions of
    the package connect again there. Values stay valid after the client is closed.

    Parameters
    ----------
    address
        "unix:PATH" or PATH of a node's socket. None: ``PHALANX_ADDRESS``. If that is empty too,
        the client starts a private cluster, which ends with this process.
    timeout
        Seconds; the limit of every call without a timeout of its own. Default:
        ``PHALANX_TIMEOUT``; if that is empty, no limit.
    connect_timeout
        Seconds.
    capacity
        Bytes of memory of a private cluster's node; 0: the node's default.

    Raises
    ------
    DisconnectedError
        No node listens at the address, or the private cluster does not start.
    VersionError
        The node speaks another version of the protocol.
    AccessError
        The node belongs to another user.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout: float | None = _DEFAULT,
        connect_timeout: float = 10.0,
        capacity: int = 0,
    ) -> None:
        self._closed = True  # __init__ can raise before it connects
        self._timeout = _timeout_setting() if timeout is _DEFAULT else timeout
        spelled = ffi.new("char[]", (address or "").encode())
        executable = ffi.new("char[]", _native.EXECUTABLE.encode())
        options = ffi.new("phx_connect_options*", (spelled, executable, nanos(connect_timeout), capacity))
        where = address or os.environ.get("PHALANX_ADDRESS")
        node = f"unix:{where.removeprefix('unix:')}" if where else None
        self._ptr = ffi.gc(_native.checked(lib.phx_connect(options), node), lib.phx_client_free)
        self._closed = False
        self._address = _native.text(lib.phx_client_address(self._ptr))
        self._node = _native.text(lib.phx_client_node(self._ptr))
        self._directory = _native.text(lib.phx_client_directory(self._ptr))
        self._lock = threading.Lock()
        self._futures: Any = None
        self._bridges: Any = None
        _clients[id(self)] = self

    # ---- about it

    @property
    def address(self) -> str:
        """ "unix:PATH" of the node's socket."""
        return self._address

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node

    @property
    def directory(self) -> str:
        """The address of the cluster's directory, as ``phalanx --directory`` takes it."""
        return self._directory

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Whether the client is unusable here: `closed` or `forked`."""
        return self._closed or self.forked

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the client; calls then raise ClosedError."""
        return bool(lib.phx_client_forked(self._ptr))

    def __repr__(self) -> str:
        return f"<phalanx.Client of {self._node} at {self._address}{' closed' * self._closed}>"

    def close(self) -> None:
        """Close the connection. Pending calls fail with ClosedError; values stay valid. Idempotent."""
        if not self._closed:
            self._closed = True
            lib.phx_close(self._ptr)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    # ---- refs

    def ref(self, name: str | None = None) -> ObjectRef:
        """Return a ref to an object that is not put yet: a new one, or the one with this name."""
        made = _native.random_id() if name is None else _native.id_from_name("default", name)
        ref = ObjectRef(made, self._directory, client=self)
        ref._named = name is not None
        ref._hold(self)
        return ref

    def _checked(self, ref: ObjectRef) -> bytes:
        """Return the id of a ref; raise ForeignRefError if the ref is of another cluster."""
        if type(ref) is not ObjectRef and not isinstance(ref, ObjectRef):
            raise TypeError(f"an ObjectRef is wanted, not a {type(ref).__name__}")
        theirs = ref._cluster
        # One directory can have several spellings, so only addresses that cannot be aliases are an
        # error.
        if theirs and theirs != self._directory and _tells_clusters_apart(theirs, self._directory):
            raise exceptions.ForeignRefError(
                f"{ref!r} belongs to the cluster of {theirs}, this client to that of {self._directory}",
                ref.hex(),
                self._address,
            )
        if self not in ref._held:
            ref._hold(self)
        return ref._id

    def _ids(self, refs: Sequence[ObjectRef]) -> bytes:
        return b"".join([self._checked(ref) for ref in refs])

    def _seconds(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is _DEFAULT else timeout

    def _finish(
        self,
        call: Any,
        seconds: float | None,
        what: str,
        ref: ObjectRef | None,
        cancel: bool = True,
    ) -> None:
        def describe() -> str:
            return f"{what} of {ref.hex()}" if ref is not None else what

        _waiting.finish(call, seconds, describe, self._address, cancel)

    # ---- writing

    def put(
        self,
        value: Any,
        ref: ObjectRef | None = None,
        keep: bool | None = None,
        *,
        timeout: float | None = _DEFAULT,
        allow_pickle: bool = True,
    ) -> ObjectRef:
        """Put a value as an object, and return its ref when the value is sealed on this node.

        Parameters
        ----------
        value
            Any value. Arrays, tensors, trees of them, bytes and text keep their own form; all other
            values are pickled.
        ref
            The ref of the object; None: a new one. If the object exists with the same size (a task
            that runs again), the object stays and this value is dropped.
        keep
            True: the object stays until `delete`, as named objects do. False: the object is freed
            when the last ref to it is gone. None: True for a named ref, else False. The object holds
            the refs inside the value.
        timeout
            Seconds to wait for memory if the node is full.
        allow_pickle
            Whether pickle can be used.

        Raises
        ------
        StoreFullError
            The node had no memory within `timeout`, or can never have enough.
        ObjectExistsError
            An object of another size exists under this ref.
        PickleRefusedError, TypeError
            The value cannot be put.
        """
        encoded = _values.encode(value, allow_pickle=allow_pickle)
        seconds = self._seconds(timeout)
        # The structure and the value share one timeout.
        if encoded.structure is not None:
            deadline = _waiting.Deadline(seconds)
            structure = _structures.put(self, encoded.structure, seconds)
            encoded.refs = [*encoded.refs, structure.id]
            seconds = deadline.left()
        if ref is None:
            # A new ref takes no hold before the put: the put itself returns one.
            ref = ObjectRef(_native.random_id(), self._directory, client=self)
            object_id = ref._id
        else:
            object_id = self._checked(ref)
            ref._reason = None
        keep = ref._named if keep is None else keep
        # The library copies an object without a file of its own. A larger one is written in place.
        if encoded.nbytes < _native.OWN_FILE_BYTES:
            source = encoded.buffer
            if source is None:
                source = bytearray(encoded.nbytes)
                encoded.write_into(memoryview(source))
            options, _kept = _native.put_options(encoded.metadata, seconds, not keep, encoded.refs)
            with _native.bytes_of(source) as data:
                call = _waiting.owned(lib.phx_put(self._ptr, object_id, data, encoded.nbytes, options))
        else:
            from phalanx import _writing

            call = _writing.write(self, object_id, encoded, seconds, not keep)
        self._finish(call, None, "Put", ref)
        if not keep:
            ref._counts_with(self)
        return ref

    def keep(self, ref: ObjectRef, timeout: float | None = _DEFAULT) -> None:
        """Keep an object until `delete`, even if no ref to it is left.

        Raises
        ------
        ObjectDeletedError
            The object was never put, or it is gone.
        """
        seconds = self._seconds(timeout)
        call = _waiting.owned(lib.phx_keep(self._ptr, self._checked(ref), nanos(seconds)))
        self._finish(call, seconds, "keep", ref)

    def create(
        self,
        shape: int | tuple[int, ...],
        dtype: Any,
        ref: ObjectRef | None = None,
        *,
        order: str = "C",
        keep: bool | None = None,
        timeout: float | None = _DEFAULT,
    ) -> Draft:
        """Return a draft: an array in shared memory, which becomes an object without a copy.

        Parameters
        ----------
        shape, dtype, order
            As in `numpy.empty`.
        ref, keep, timeout
            As in `put`.

        Examples
        --------
        >>> with client.create((1000, 1000), "f4") as draft:
        ...     draft.array[:] = 1
        >>> client.get(draft.ref).sum()
        """
        from phalanx import _writing

        return _writing.Draft(self, shape, dtype, ref, order, keep, self._seconds(timeout))

    def set_exception(
        self, ref: ObjectRef, error: BaseException, *, timeout: float | None = _DEFAULT
    ) -> None:
        """Mark the object as failed; see `ObjectRef.set_exception`."""
        deadline = _waiting.Deadline(self._seconds(timeout))
        object_id = self._checked(ref)
        message = _failures.encode(self, ref, error, deadline)
        seconds = deadline.left()
        call = _waiting.owned(
            lib.phx_fail(self._ptr, object_id, _failures.CODE, message, len(message), nanos(seconds))
        )
        self._finish(call, seconds, "set_exception", ref)

    # ---- reading

    def get(
        self,
        refs: ObjectRef | Sequence[ObjectRef],
        timeout: float | None = _DEFAULT,
        *,
        copy: bool | None = None,
        out: Any = None,
        writable: object = None,
        allow_pickle: bool = True,
        on_lost: str = "raise",
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
            True: return writable copies that belong to the caller.
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
        many = not isinstance(refs, ObjectRef)
        wanted: Sequence[ObjectRef] = list(refs) if many else [refs]
        if not wanted:
            return []
        if out is not None and many:
            raise exceptions.InvalidArgumentError("out= is for one object")
        if on_lost not in ("raise", "wait"):
            raise exceptions.InvalidArgumentError(f"on_lost={on_lost!r}: 'raise' or 'wait'")
        seconds = self._seconds(timeout)
        call = self._get_call(wanted, seconds, on_lost == "raise")
        try:
            if progress:
                self._show_progress(wanted, seconds, on_lost == "raise")
            # The library keeps the deadline, and its error names the object that is missing.
            self._finish(call, None, "Get", wanted[0])
        except exceptions.PhalanxError as error:
            failure = _failures.raised(self, error, wanted, allow_pickle)
            raise failure from failure.__cause__
        values = self._values_of(call, len(wanted), copy, out, writable, allow_pickle)
        return values if many else values[0]

    def _get_call(
        self,
        refs: Sequence[ObjectRef],
        seconds: float | None,
        fail_if_lost: bool = True,
        free: Any = lib.phx_call_free,
    ) -> Any:
        return _waiting.owned(
            lib.phx_get(
                self._ptr, self._ids(refs), len(refs), 0, (1 << 64) - 1, fail_if_lost, nanos(seconds)
            ),
            free,
        )

    def _show_progress(self, refs: Sequence[ObjectRef], seconds: float | None, fail_if_lost: bool) -> None:
        from phalanx import _progress

        calls: list[Any] = []
        try:
            calls.extend(self._get_call([ref], None, fail_if_lost) for ref in refs)
            _progress.until_all_or_one_fails(calls, _waiting.Deadline(seconds))
        finally:
            for call in calls:
                # Only the bar needs these calls; the Get itself is another one.
                lib.phx_cancel(call)

    def _values_of(
        self,
        call: Any,
        count: int,
        copy: bool | None = None,
        out: Any = None,
        writable: object = None,
        allow_pickle: bool = True,
    ) -> list[Any]:
        """Return the values of a Get that has succeeded."""
        views = ffi.new("phx_view[]", count)
        if lib.phx_result_views(call, 0, count, views) != 0:
            raise _native.last_error(self._address)
        # Every view gets its owner before the first decode, because a decode that raises would leak
        # the rest.
        owned = [_native.view_bytes(view) for view in views]
        opened = [(view, _metadata(view), data) for view, data in zip(views, owned)]
        if out is not None:
            _, metadata, data = opened[0]
            _values.copy_into(metadata, data, out)
            return [out]
        as_it_is = copy is None and not writable
        return [
            _values.decode_array(metadata, data)
            if as_it_is and metadata.startswith(_values.AN_ARRAY)
            else self._value(view, metadata, data, copy, writable, allow_pickle)
            for view, metadata, data in opened
        ]

    def _value(
        self,
        view: Any,
        metadata: bytes,
        data: memoryview,
        copy: bool | None,
        writable: object,
        allow_pickle: bool,
    ) -> Any:
        private = writable == "cow"
        if copy is None and (private or _values.wants_private_pages(metadata)):
            data = _native.private_bytes(view, data)
        # Arrays beside tensors in one tree stay read-only, although the tensors make all pages
        # private.
        how = None if private else False if writable is None else writable
        with reading(self):
            return _values.decode(
                metadata, data, copy=copy, writable=how, allow_pickle=allow_pickle, find=self._structure
            )

    def _structure(self, digest: bytes) -> Any:
        return _structures.find(self, digest)

    async def get_async(self, ref: ObjectRef, timeout: float | None = _DEFAULT) -> Any:
        """Return the value of an object, awaited in the running event loop.

        Cancelling the task ends this wait only. Errors are those of `get`.
        """
        call = self._get_call([ref], self._seconds(timeout), free=_waiting.abandon)
        await self._ended(call)
        try:
            self._finish(call, 0, "Get", ref)
        except exceptions.PhalanxError as error:
            failure = await _failures.raised_async(self, error, [ref])
            raise failure from failure.__cause__
        return self._values_of(call, 1)[0]

    async def _ended(self, call: Any) -> None:
        """Wait in the running event loop until a call has ended, with or without an error."""
        if lib.phx_wait(call, 0) == _native.PENDING:
            await self._bridge().watch(call)

    def _bridge(self) -> Any:
        import asyncio

        from phalanx import _asyncio

        loop = asyncio.get_running_loop()
        with self._lock:
            if self._bridges is None:
                self._bridges = weakref.WeakKeyDictionary()
            bridge = self._bridges.get(loop)
            if bridge is None:
                bridge = self._bridges[loop] = _asyncio.Bridge(self._ptr)
            return bridge

    def future(self, ref: ObjectRef) -> concurrent.futures.Future[Any]:
        """Return a future of the object's value; see `ObjectRef.future`."""
        from phalanx import _futures

        call = self._get_call([ref], None)
        if lib.phx_call_ended(call):
            return _futures.fulfilled(self, ref, call)
        with self._lock:
            if self._futures is None:
                self._futures = _futures.Driver(self)
        return self._futures.add(ref, call)

    def stream(
        self, ref: ObjectRef, nbytes: int = 1 << 20, timeout: float | None = _DEFAULT
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
        from phalanx import _streams

        return _streams.pieces(self, ref, nbytes, self._seconds(timeout))

    # ---- waiting

    def wait(
        self,
        refs: Iterable[ObjectRef],
        num_returns: int = 1,
        timeout: float | None = _DEFAULT,
        *,
        progress: bool = False,
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Wait until `num_returns` of the objects are on this node, or the timeout expires.

        An object whose Get raises (it was deleted, its producer failed) counts as done. `progress` makes
        tqdm draw a bar.

        Returns
        -------
        done, pending : list of ObjectRef
            In the given order. `done` can have more than `num_returns` refs.
        """
        wanted = list(refs)
        if not 0 <= num_returns <= len(wanted):
            raise exceptions.InvalidArgumentError(f"num_returns={num_returns} of {len(wanted)} objects")
        seconds = self._seconds(timeout)
        calls: list[Any] = []
        try:
            calls.extend(self._get_call([ref], None) for ref in wanted)
            some = _waiting.some
            if progress:
                from phalanx import _progress

                some = _progress.some
            ended = some(calls, num_returns, seconds, lambda: f"{num_returns} of {len(wanted)} objects")
        finally:
            # Without this, the node would still fetch the objects of pending calls.
            for call in calls:
                lib.phx_cancel(call)
        done = [ref for ref, there in zip(wanted, ended) if there]
        return done, [ref for ref, there in zip(wanted, ended) if not there]

    def as_completed(
        self, refs: Iterable[ObjectRef], timeout: float | None = _DEFAULT, *, progress: bool = False
    ) -> Iterator[ObjectRef]:
        """Iterate over the refs in the order in which their objects arrive on this node.

        `progress` makes tqdm draw a bar.

        Raises
        ------
        GetTimeoutError
            Not all objects arrived in time; the timeout starts with this call.
        """
        from phalanx import _streams

        wanted = list(refs)
        coming = _streams.completed(self, wanted, _waiting.Deadline(self._seconds(timeout)))
        if not progress:
            return coming
        from phalanx import _progress

        return _progress.counted(_progress.bar(len(wanted)), coming)

    # ---- managing

    def delete(self, refs: ObjectRef | Iterable[ObjectRef], timeout: float | None = _DEFAULT) -> None:
        """Delete objects in the whole cluster.

        Later Gets raise ObjectDeletedError; values in use stay valid. Deleting an object twice is not
        an error.

        Raises
        ------
        ObjectDeletedError
            The object was never put.
        """
        seconds = self._seconds(timeout)
        wanted = [refs] if isinstance(refs, ObjectRef) else list(refs)
        # All deletes are in flight before the first wait.
        calls = [
            _waiting.owned(lib.phx_delete(self._ptr, self._checked(ref), nanos(seconds))) for ref in wanted
        ]
        for ref, call in zip(wanted, calls):
            self._finish(call, seconds, "Delete", ref)

    def contains(self, ref: ObjectRef, timeout: float | None = _DEFAULT) -> bool:
        """Return whether the cluster has a complete copy of the object."""
        return self._number(lib.phx_contains, ref, timeout, "contains") == 1

    def _number(self, verb: Any, ref: ObjectRef, timeout: float | None, what: str) -> int:
        seconds = self._seconds(timeout)
        call = _waiting.owned(verb(self._ptr, self._checked(ref), nanos(seconds)))
        self._finish(call, seconds, what, ref)
        number = ffi.new("int64_t*")
        if lib.phx_result_number(call, number) != 0:
            raise _native.last_error(self._address)
        return number[0]

    def stat(self, ref: ObjectRef, timeout: float | None = _DEFAULT) -> ObjectStatus:
        """Return the state of an object in the cluster."""
        seconds = self._seconds(timeout)
        call = _waiting.owned(lib.phx_stat(self._ptr, self._checked(ref), nanos(seconds)))
        self._finish(call, seconds, "stat", ref)
        status = ffi.new("phx_object_status*")
        if lib.phx_result_status(call, status) != 0:
            raise _native.last_error(self._address)
        return ObjectStatus(status)

    def prefetch(
        self,
        ref: ObjectRef,
        nodes: str | Sequence[str] = "all",
        timeout: float | None = _DEFAULT,
    ) -> int:
        """Make nodes fetch copies, relayed as in a broadcast, and return without waiting for the bytes.

        Parameters
        ----------
        nodes
            Names of nodes, or "all".

        Returns
        -------
        int
            The number of nodes that were asked to fetch the object.
        """
        packed, count = _broadcast.names_of(nodes)

        def verb(client: Any, object_id: bytes, timeout_ns: int) -> Any:
            return lib.phx_prefetch(client, object_id, packed, count, timeout_ns)

        return self._number(verb, ref, timeout, "prefetch")

    def broadcast(
        self,
        ref: ObjectRef,
        nodes: str | Sequence[str] = "all",
        *,
        sticky: bool = True,
        timeout: float | None = None,
    ) -> _broadcast.Broadcast:
        """Make nodes fetch an object, relayed from node to node. Returns without waiting for the bytes.

        Parameters
        ----------
        nodes
            Names of nodes, or "all".
        sticky
            True: nodes of these names that join later get the object too, until `Broadcast.stop` or
            until the object is deleted or freed, even after this client has closed. A broadcast holds
            no ref: keep a ref, or put with ``keep=True``. False: the name of an unknown node is an
            error.
        timeout
            Seconds; the limit of the wait. The broadcast continues after the timeout.

        Examples
        --------
        >>> sent = phalanx.broadcast(weights)
        >>> sent.progress()
        Progress(nodes=8, complete=3, without_room=0, nbytes=3758096384, total_nbytes=8589934592, sticky=True)
        >>> sent.wait()
        8
        """
        return _broadcast.Broadcast(self, ref, nodes, sticky, timeout)

    def status(self) -> dict[str, Any]:
        """Return the state of the cluster, as ``phalanx status --json`` prints it.

        It has the shards, and the nodes with their memory and objects.
        """
        from phalanx import _tools

        return _tools.status(self._directory, self._address)

    def tree(self, ref: ObjectRef) -> _tools.Tree:
        """Return a drawing of an object's copies and transfers, as ``phalanx describe`` draws it.

        Raises
        ------
        ObjectDeletedError
            The object was never put, or it was deleted.
        """
        from phalanx import _tools

        return _tools.tree(self._directory, self._address, ref.hex())


def _metadata(view: Any) -> bytes:
    return ffi.buffer(view.metadata, view.metadata_size)[:] if view.metadata_size else b""


_clients: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()


def _after_fork() -> None:
    """Replace locks that a thread of the parent can have held at the fork."""
    for made in _clients.valuerefs():
        client = made()
        if client is None:
            continue
        client._lock = threading.Lock()
        if client._futures is not None:
            client._futures.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def of_cluster(directory: str) -> Client | None:
    """Return a usable client of this process for a cluster; None if there is none."""
    for made in _clients.valuerefs():  # a copy: other threads can be connecting
        client = made()
        if client is not None and client._directory == directory and not client.ended:
            return client
    return None


def _timeout_setting() -> float | None:
    spelled = os.environ.get("PHALANX_TIMEOUT", "")
    try:
        return float(spelled) if spelled else None
    except ValueError:
        raise exceptions.InvalidArgumentError(
            f"PHALANX_TIMEOUT={spelled!r} is no number of seconds"
        ) from None


def _tells_clusters_apart(one: str, other: str) -> bool:
    """Whether two spellings of directories certainly mean different clusters.

    Two loopback addresses do; a directory that other hosts reach can have several names.
    """
    return any(spelled.startswith(_LOOPBACKS) for spelled in (one, other))
