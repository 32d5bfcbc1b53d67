"""All other values: a pickle stream and its buffers in one object.

Payload: a table with one pair (offset, length) of 64-bit numbers for each buffer; the stream; the
buffers, each at a multiple of 64 bytes, with zeros between. Metadata: flags, the length of the
stream, the number of buffers; and, for errors of reductions, the reason why the value was pickled.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle

from phalanx._values import reducers
from phalanx._values._wire import (
    HAS_REASON,
    HAS_TENSORS,
    PICKLE,
    Collecting,
    Encoded,
    Reader,
    aligned,
    copy_bytes,
    malformed,
    pack_head,
    short,
    write_parts,
)

if TYPE_CHECKING:
    from phalanx._values._wire import Part

_BODY = struct.Struct("<BQI")
_ENTRY = struct.Struct("<QQ")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that moves the bytes of arrays and tensors out of its stream."""

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.has_tensors = False

    def reducer_override(self, obj: Any) -> Any:
        reducer = reducers.reducer_for(type(obj))
        if reducer is not None:
            reduced = reducer(obj)
            if reduced is not None:
                self.has_tensors |= reducer is reducers.reduce_tensor
                return reduced
        return super().reducer_override(obj)


def encode(value: Any, why: str) -> Encoded:
    """Pickle a value, which has no form of its own because of `why`. Raises the errors of pickle."""
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    with Collecting() as refs:
        pickler = _Pickler(stream, buffers)
        pickler.dump(value)
    views = [buffer.raw() for buffer in buffers]
    stream_view = memoryview(stream.getvalue())
    at = len(views) * _ENTRY.size
    parts: list[Part] = [(at, stream_view.nbytes, _copier_of(stream_view))]
    at += stream_view.nbytes
    table = bytearray()
    for view in views:
        at = aligned(at)
        table += _ENTRY.pack(at, view.nbytes)
        parts.append((at, view.nbytes, _copier_of(view)))
        at += view.nbytes
    parts.insert(0, (0, len(table), _copier_of(memoryview(table))))
    flags = HAS_REASON | (HAS_TENSORS if pickler.has_tensors else 0)
    body = _BODY.pack(flags, stream_view.nbytes, len(views))
    metadata = pack_head(PICKLE) + body + short(why)
    # Without buffers the stream is the whole payload, and needs no copy.
    whole = None if views else stream_view
    return Encoded(metadata, at, whole, lambda target: write_parts(target, parts), refs)


def _copier_of(source: memoryview) -> Callable[[memoryview], None]:
    return lambda target: copy_bytes(target, source, source.nbytes)


def _parse(metadata: bytes) -> tuple[int, int, str]:
    """Return the length of the stream, the number of buffers, and the reason for the pickle."""
    reader = Reader(metadata)
    flags, stream_length, count = reader.unpack(_BODY)
    reason = reader.rest() if flags & HAS_REASON else b""
    reader.end()
    return stream_length, count, reason.decode("utf-8", "replace")


def reason_of(metadata: bytes) -> str:
    """Return why the value was pickled; empty if the metadata does not have the reason."""
    return _parse(metadata)[2]


def has_buffers(metadata: bytes) -> bool:
    """Whether parts of the value are views of the object."""
    return _parse(metadata)[1] > 0


def decode(metadata: bytes, data: memoryview) -> Any:
    """Unpickle a value; its buffers are views of `data`.

    Raises
    ------
    ValueFormatError
        The frame is corrupt, or the stream is incomplete. Other errors come from the value.
    """
    stream_length, count, _ = _parse(metadata)
    begin = count * _ENTRY.size
    end = begin + stream_length
    if end > data.nbytes:
        raise malformed(
            f"{count} buffers and a stream of {stream_length} bytes in {data.nbytes} bytes"
        )
    buffers = [
        _slice(data, offset, length, end) for offset, length in _ENTRY.iter_unpack(data[:begin])
    ]
    try:
        return pickle.loads(data[begin:end], buffers=buffers)
    except (pickle.UnpicklingError, EOFError) as error:
        raise malformed(f"the pickle stream is corrupt: {error}") from error


def _slice(data: memoryview, offset: int, length: int, floor: int) -> memoryview:
    if offset < floor or offset + length > data.nbytes:
        raise malformed(f"a buffer of {length} bytes at {offset} of {data.nbytes}")
    return data[offset : offset + length]
