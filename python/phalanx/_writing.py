"""Objects that are written where they will lie: large puts, and drafts."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial

from phalanx import _native, _values, _waiting, exceptions
from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from phalanx._client import Client
    from phalanx._ref import ObjectRef


class _Writer:
    """An object's memory, and its end."""

    def __init__(
        self,
        client: Client,
        object_id: bytes,
        nbytes: int,
        metadata: bytes,
        seconds: float | None,
        owned: bool,
        refs: Sequence[bytes] = (),
    ) -> None:
        self._client = client
        options = client._put_options(metadata, seconds, owned, refs)
        call = _waiting.owned(lib.phx_create(client._ptr, object_id, nbytes, options))
        _waiting.finish(call, None, lambda: f"room for {nbytes} bytes", client.address)
        self._ptr = ffi.gc(_native.checked(lib.phx_result_writer(call)), lib.phx_writer_free)
        # Whoever still looks at the memory keeps the writer.
        pages = ffi.gc(lib.phx_writer_data(self._ptr), partial(_let_go, self._ptr))
        buffer = ffi.buffer(pages, nbytes)
        self._looked_at = weakref.ref(buffer)
        self.memory = memoryview(buffer)

    def publish(self, nbytes: int) -> None:
        if lib.phx_writer_publish(self._ptr, nbytes) != 0:
            raise _native.last_error(self._client.address)

    def seal(self) -> Any:
        """Return the call that ends when the object is sealed."""
        return _waiting.owned(lib.phx_writer_seal(self._ptr, self._watched()))

    def abort(self) -> None:
        if lib.phx_writer_abort(self._ptr, self._watched()) != 0:
            raise _native.last_error(self._client.address)

    def _watched(self) -> int:
        """Let go of the memory; 1 when somebody else still looks at it."""
        del self.memory
        return int(self._looked_at() is not None)


def _let_go(_writer: Any, _pages: Any) -> None:
    """The writer is freed with the last reference to it."""


def write(client: Client, object_id: bytes, encoded: Any, seconds: float | None, owned: bool) -> Any:
    """Write an encoded value as an object; the call that ends when it is sealed."""
    writer = _Writer(client, object_id, encoded.nbytes, encoded.metadata, seconds, owned, encoded.refs)
    try:
        encoded.write_into(writer.memory)
    except BaseException:
        writer.abort()
        raise
    return writer.seal()


class Draft:
    """An array in shared memory that becomes an object when it is sealed.

    Leaving a ``with`` block seals it, or drops it when the block raised. What is written afterwards to
    arrays that still look at it goes to a private copy.

    Attributes
    ----------
    array : numpy.ndarray
        Writable, not initialised.
    ref : ObjectRef
        Of the object; others can wait for it already.
    """

    def __init__(
        self,
        client: Client,
        shape: int | tuple[int, ...],
        dtype: Any,
        ref: ObjectRef | None,
        order: str,
        keep: bool | None,
        seconds: float | None,
    ) -> None:
        metadata, nbytes = _values.metadata_for(shape, dtype, order)
        self.ref = client.ref() if ref is None else ref
        self._keep = self.ref._named if keep is None else keep
        self._client = client
        self._writer: _Writer | None = _Writer(
            client, client._checked(self.ref), nbytes, metadata, seconds, not self._keep
        )
        self.array = _values.decode(metadata, self._writer.memory)

    def _open(self) -> _Writer:
        if self._writer is None:
            raise exceptions.ClosedError(
                f"the draft of {self.ref.hex()} is sealed or dropped", self.ref.hex()
            )
        return self._writer

    def publish(self, nbytes: int) -> None:
        """Say that the first `nbytes` bytes in memory are final: receivers may have them now."""
        self._open().publish(nbytes)

    def seal(self) -> ObjectRef:
        """Make it an object; its ref."""
        writer, self._writer = self._open(), None
        del self.array
        self._client._finish(writer.seal(), None, "Seal", self.ref)
        if not self._keep:
            self.ref._counts_with(self._client)
        return self.ref

    def drop(self) -> None:
        """Give it up: the object is not put. Does nothing when it is sealed or dropped."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            del self.array
            writer.abort()

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.drop()
        elif self._writer is not None:
            self.seal()
