"""Iterators over arrivals: the bytes of one object, and objects one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx import _native, _waiting, exceptions
from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._client import Client
    from phalanx._ref import ObjectRef

_DEADLINE = 4


def _patiently(step: Any, patience: _waiting.Patience, node: str) -> None:
    """Repeat a library step that has a timeout, until it succeeds, fails, or the patience is used up."""
    while True:
        left = patience.slice()
        code = step(left)
        if code == 0:
            return
        if code != _DEADLINE or left == 0:
            raise _native.error_of(code, _native.text(lib.phx_error()), node)


def pieces(client: Client, ref: ObjectRef, nbytes: int, seconds: float | None) -> Iterator[memoryview]:
    """Iterate over an object's bytes; see `Client.stream`."""
    if nbytes < 1:
        raise exceptions.InvalidArgumentError(f"pieces of {nbytes} bytes")
    object_id = client._checked(ref)
    opened = ffi.new("phx_stream**")

    def describe() -> str:
        return f"the stream of {ref.hex()}"

    def open_it(left: int) -> int:
        return lib.phx_stream_open(client._ptr, object_id, left, opened)

    _patiently(open_it, _waiting.Patience(seconds, describe), client.address)
    stream = ffi.gc(opened[0], lib.phx_stream_free)
    data, size = ffi.new("const char**"), ffi.new("size_t*")

    def next_piece(left: int) -> int:
        return lib.phx_stream_next(stream, nbytes, left, data, size)

    while True:
        _patiently(next_piece, _waiting.Patience(seconds, describe), client.address)
        if size[0] == 0:
            return
        # Yields a copy: if the stream becomes void, its pages can belong to another object.
        yield memoryview(bytes(ffi.buffer(data[0], size[0])))


def completed(client: Client, refs: list[ObjectRef], deadline: _waiting.Deadline) -> Iterator[ObjectRef]:
    """Iterate over refs in the order in which their objects arrive; see `Client.as_completed`."""
    pending: list[tuple[ObjectRef, Any]] = []
    try:
        pending.extend((ref, client._get_call([ref], None)) for ref in refs)
        while pending:
            calls = [call for _, call in pending]
            ended = _waiting.some(calls, 1, deadline.left(), lambda: f"one of {len(calls)} objects")
            if not any(ended):
                raise exceptions.GetTimeoutError(
                    f"{len(pending)} of {len(refs)} objects are not there within {deadline.seconds} s",
                    pending[0][0].hex(),
                    client.address,
                )
            there = [ref for (ref, _), has_ended in zip(pending, ended) if has_ended]
            pending = [entry for entry, has_ended in zip(pending, ended) if not has_ended]
            yield from there
    finally:
        for _, call in pending:
            lib.phx_cancel(call)
