"""Objects that are written in place, in shared memory: large puts, and drafts.

Owns the memory of objects until they are sealed or dropped. One thread at a time uses a writer or a
draft.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from phalanx import _native, _status, _values, _waiting, exceptions
from phalanx._native import ffi, lib
from phalanx._ref import ObjectRef, checked, id_for, made_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._typing import Array, Layout
    from phalanx._waiting import Steps


class _Writer:
    """The memory of an object that is not sealed yet. One thread at a time."""

    memory: memoryview

    def __init__(self, connection: Connection, nbytes: int, call: Any) -> None:
        """Take the memory of a Create that has succeeded."""
        self._connection = connection
        self._ptr = ffi.gc(_native.checked(lib.phx_result_writer(call)), lib.phx_writer_free)
        self.nbytes = nbytes
        self._looked_at: Any = lambda: None
        self._look()

    def publish(self, nbytes: int) -> None:
        if lib.phx_writer_publish(self._ptr, nbytes) != 0:
            raise _native.last_error(self._connection.address)

    def seal(self) -> Any:
        """Return the call that ends when the object is sealed.

        Raises
        ------
        PhalanxError
            The seal could not start. The writer is unchanged.
        """
        call = _waiting.owned(lib.phx_writer_seal(self._ptr, self._watched()), lib.phx_call_forget)
        if lib.phx_call_ended(call) and self._is_open():
            self._look()
            _waiting.finish(call, 0, "Seal", None, self._connection.address)
        return call

    def abort(self) -> None:
        """Drop the object.

        Raises
        ------
        PhalanxError
            The object is not dropped. The writer is unchanged.
        """
        if lib.phx_writer_abort(self._ptr, self._watched()) != 0:
            error = _native.last_error(self._connection.address)
            if self._is_open():
                self._look()
                raise error

    def _is_open(self) -> bool:
        # Publishing zero bytes changes nothing, and fails once the writer is sealed or aborted.
        return lib.phx_writer_publish(self._ptr, 0) != _native.PRECONDITION

    def _look(self) -> None:
        """Map the memory as `memory`, sharing the buffer of views that are still alive."""
        buffer = self._looked_at()
        if buffer is None:
            # Views of the memory keep the writer alive, because it owns the pages.
            pages = ffi.gc(lib.phx_writer_data(self._ptr), partial(_let_go, self._ptr))
            buffer = ffi.buffer(pages, self.nbytes)
            self._looked_at = weakref.ref(buffer)
        self.memory = memoryview(buffer)

    def _watched(self) -> int:
        """Release `memory`; returns 1 if views of it are still alive, else 0."""
        del self.memory
        return int(self._looked_at() is not None)


def _let_go(_writer: Any, _pages: Any) -> None:
    """Do nothing; the partial object that calls it owns the writer."""


def _create(
    connection: Connection,
    object_id: bytes,
    nbytes: int,
    metadata: bytes,
    seconds: float | None,
    owned: bool,
    refs: Sequence[bytes] = (),
    adopted: bool = False,
    stays: _native.Stay = _native.DEFAULT_STAY,
) -> Steps[Any]:
    """Wait until the node has the memory of an object. Returns the call, whose result is the writer."""
    options, _kept = _native.put_options(metadata, seconds, owned, refs, adopted, stays)
    call = _waiting.owned(lib.phx_create(connection._ptr, object_id, nbytes, options))
    yield _waiting.Finish(call, None, f"room for {nbytes} bytes", None)
    return call


def write(
    connection: Connection,
    object_id: bytes,
    encoded: Any,
    seconds: float | None,
    owned: bool,
    adopted: bool = False,
    stays: _native.Stay = _native.DEFAULT_STAY,
) -> Steps[Any]:
    """Write an encoded value as an object. Returns the call that ends when the object is sealed.

    `adopted`: the call ends when the directory has adopted the object, or knows another one.
    """
    call = yield from _create(
        connection, object_id, encoded.nbytes, encoded.metadata, seconds, owned, encoded.refs, adopted, stays
    )

    # Mapping, copying, sealing and unmapping a large object all take long, so all are one step.
    def work(step: _waiting.Work) -> Any:
        writer = _Writer(connection, encoded.nbytes, call)
        try:
            encoded.write_into(writer.memory)
            if step.cancelled:
                raise exceptions.CallCancelledError("the put was cancelled")
        except BaseException:
            with contextlib.suppress(exceptions.PhalanxError):  # freeing the writer drops the object
                writer.abort()
            raise
        return writer.seal()

    return (yield _waiting.Work(work))


def _unmapping(writer: _Writer, end: Callable[[], None]) -> Steps[None]:
    """Call a function that ends a writer, and unmaps its memory, which takes long if it is large."""
    if writer.nbytes < _native.OWN_FILE_BYTES:
        end()
    else:
        yield _waiting.Work(lambda _: end())


def create(
    connection: Connection,
    shape: int | tuple[int, ...],
    dtype: Any,
    ref: ObjectRef | None,
    order: Layout,
    keep: bool | None,
    seconds: float | None,
    stays: _native.Stay,
) -> Steps[Draft]:
    """Return a draft; see `Client.create`."""
    metadata, nbytes = _values.metadata_for(shape, dtype, order)
    target = made_by(connection) if ref is None else checked(ref)
    kept = target._named if keep is None else keep
    object_id = id_for(connection, target)
    call = yield from _create(connection, object_id, nbytes, metadata, seconds, not kept, stays=stays)
    return Draft(connection, target, metadata, _Writer(connection, nbytes, call), kept)


class Draft:
    """An array in shared memory that becomes an object when it is sealed.

    A ``with`` block seals the draft at its end, or drops it if the block raises. After that, writes to
    arrays over the memory go to a private copy. One thread at a time.

    Attributes
    ----------
    array : numpy.ndarray
        Writable, not initialised.
    ref : ObjectRef
        The ref of the object; others can wait for the object already.
    """

    ref: ObjectRef[Array]
    array: Array
    _writer: _Writer | None = None
    # The call of a seal that was interrupted; the next `seal` waits for it.
    _sealing: Any = None

    def __init__(
        self, client: Connection, ref: ObjectRef, metadata: bytes, writer: _Writer, keep: bool
    ) -> None:
        """Take the memory of `writer`; `create` is the call."""
        self.ref = ref
        self._metadata = metadata
        self._keep = keep
        self._connection = client
        self._writer = writer
        self._show(writer)

    def __repr__(self) -> str:
        state = "sealing" if self._sealing is not None else "sealed or dropped"
        if self._writer is not None:
            state = f"{self.array.dtype} {self.array.shape}, not sealed"
        return f"<phalanx.Draft of {self.ref!r}: {state}>"

    def _repr_html_(self) -> str:
        return _status.code(repr(self))

    def _show(self, writer: _Writer) -> None:
        self.array = _values.decode(self._metadata, writer.memory)

    def _open(self) -> _Writer:
        if self._writer is None:
            raise exceptions.ClosedError(
                f"the draft of {_native.shown(self.ref.id)} is sealed or dropped", self.ref.hex()
            )
        return self._writer

    def publish(self, nbytes: int) -> None:
        """Mark the first `nbytes` bytes of the memory as final: receivers can read them from now on.

        Raises
        ------
        ClosedError
            The draft is sealed or dropped.
        """
        self._open().publish(nbytes)

    @contextlib.contextmanager
    def _ending(self) -> Iterator[_Writer]:
        """Release the array, and restore it if the seal or drop fails."""
        writer = self._open()
        del self.array
        try:
            yield writer
        except exceptions.PhalanxError:
            self._show(writer)
            raise
        self._writer = None

    def seal(self) -> ObjectRef[Array]:
        """Seal the draft as an object, and return its ref.

        Raises
        ------
        StoreFullError
            Arrays over the memory are still alive, and there is no memory for their private copy. The
            draft is unchanged: release the arrays and seal again, or drop the draft.
        KeyboardInterrupt
            The wait was interrupted. Call `seal` again to continue it.
        """
        return self._connection._run(self._seal())

    def _seal(self) -> Steps[ObjectRef]:
        if self._sealing is None:
            yield from _unmapping(self._open(), self._begin_seal)
        try:
            yield _waiting.Finish(self._sealing, None, "Seal", self.ref._id, cancel=False)
        except exceptions.PhalanxError:
            self._sealing = None
            raise
        call, self._sealing = self._sealing, None
        if not self._keep:
            _waiting.taken(call)
            self.ref._counts_with(self._connection)
        return self.ref

    def _begin_seal(self) -> None:
        with self._ending() as writer:
            self._sealing = writer.seal()

    def drop(self) -> None:
        """Drop the draft: the object is not put. Does nothing if the draft is sealed or dropped.

        Raises
        ------
        StoreFullError
            As in `seal`.
        """
        self._connection._run(self._drop())

    def _drop(self) -> Steps[None]:
        if self._writer is not None:
            yield from _unmapping(self._writer, self._abort)
        elif self._sealing is not None:
            self._sealing = None  # freeing the call forgets its hold

    def _abort(self) -> None:
        with self._ending() as writer:
            writer.abort()

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection._run(self._leave(kind is not None))

    def _leave(self, failed: bool) -> Steps[None]:
        """End a block, which has raised if it `failed`."""
        if not failed:
            if self._writer is not None or self._sealing is not None:
                yield from self._seal()
            return
        try:
            yield from self._drop()
        except exceptions.PhalanxError as refused:
            # The exception of the block is more useful to the caller than this one.
            import logging

            logging.getLogger("phalanx").warning(
                "the draft of %s is still there: %s", _native.shown(self.ref.id), refused
            )
