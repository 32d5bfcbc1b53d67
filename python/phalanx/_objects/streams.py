"""Iterators over arrivals: the bytes of one object, and objects one after the other. Bars of arrivals.

An iterator owns its stream or its calls, and cancels them when it ends or is dropped. tqdm draws the
bars and is imported for the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx import _arguments, _calls, _native, _waiting, exceptions
from phalanx._native import PENDING, ffi, lib
from phalanx._ref import ObjectRef, id_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from phalanx._connection import Connection

    _T = TypeVar("_T")


def _patiently(step: Any, patience: _waiting.Patience, node: str) -> None:
    """Repeat a library step that has a timeout, until it succeeds, fails, or the patience is used up."""
    while True:
        left = patience.slice()
        code = step(left)
        if code == 0:
            return
        if code != _native.DEADLINE or left == 0:
            raise _native.error_of(code, _native.text(lib.phx_error()), node)


def pieces(
    connection: Connection, ref: ObjectRef, nbytes: int, seconds: float | None
) -> Iterator[memoryview]:
    """Iterate over an object's bytes; see `Client.stream`."""
    nbytes = _arguments.whole(nbytes, "nbytes", 1, 1 << 62)
    object_id = id_for(connection, ref)
    opened = ffi.new("phx_stream**")

    def describe() -> str:
        return f"the stream of {_native.shown(ref.id)}"

    def open_it(left: int) -> int:
        return lib.phx_stream_open(connection._ptr, object_id, left, opened)

    _patiently(open_it, _waiting.Patience(seconds, describe), connection.address)
    stream = ffi.gc(opened[0], lib.phx_stream_free)
    data, size = ffi.new("const char**"), ffi.new("size_t*")

    def next_piece(left: int) -> int:
        return lib.phx_stream_next(stream, nbytes, left, data, size)

    while True:
        _patiently(next_piece, _waiting.Patience(seconds, describe), connection.address)
        if size[0] == 0:
            return
        # Yields a copy: if the stream becomes void, its pages can belong to another object.
        yield memoryview(bytes(ffi.buffer(data[0], size[0])))


def as_completed(
    connection: Connection, refs: list[ObjectRef], seconds: float | None, progress: bool
) -> Iterator[ObjectRef]:
    """Iterate over refs in the order in which their objects arrive; see `Client.as_completed`."""
    coming = _completed(connection, refs, _waiting.Deadline(seconds))
    if not progress:
        return coming
    return counted(bar(len(refs)), coming)


def _completed(
    connection: Connection, refs: list[ObjectRef], deadline: _waiting.Deadline
) -> Iterator[ObjectRef]:
    pending = list(refs)
    # One list for all waits: `clear` must take the calls from the frames of an exception, too. They are
    # freed and not cancelled here, because the cycle collector can free them before it ends this
    # generator.
    calls: list[Any] = []
    try:
        calls.extend(_calls.get(connection, [ref], None, free=_waiting.abandon) for ref in refs)
        while pending:
            ended = _waiting.some(calls, 1, deadline.left(), lambda: f"one of {len(pending)} objects")
            if not any(ended):
                raise exceptions.GetTimeoutError(
                    f"{len(pending)} of {len(refs)} objects are not there within {deadline.seconds} s",
                    pending[0].hex(),
                    connection.address,
                )
            there = [ref for ref, has_ended in zip(pending, ended) if has_ended]
            pending = [ref for ref, has_ended in zip(pending, ended) if not has_ended]
            calls[:] = [call for call, has_ended in zip(calls, ended) if not has_ended]
            yield from there
    finally:
        calls.clear()


# ---- bars


def bar(total: int) -> Any:
    """Return a bar of tqdm.

    Raises
    ------
    ImportError
        tqdm is not installed.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "progress=True draws its bar with tqdm, which is not installed: pip install 'phalanx[progress]'",
            name="tqdm",
        ) from error
    return tqdm(total=total, desc="phalanx", unit=" objects")


def counted(shown: Any, items: Iterable[_T]) -> Iterator[_T]:
    """Iterate, and advance a bar by one for each item. The bar closes when the iteration ends or fails."""
    with shown:
        for item in items:
            shown.update()
            yield item


def some(calls: list[Any], count: int, seconds: float | None, describe: _waiting.Describe) -> list[bool]:
    """Like `_waiting.some`, and show how many of the `count` calls have ended."""
    deadline = _waiting.Deadline(seconds)
    with bar(count) as shown:
        ended = _waiting.some(calls, 0, 0, describe)
        while True:
            there = sum(ended)
            shown.update(min(there, count) - shown.n)
            if there >= count:
                return ended
            ended = _waiting.some(calls, there + 1, deadline.left(), describe)
            # No new call ended, so the timeout expired.
            if sum(ended) == there:
                return ended


def until_all_or_one_fails(calls: list[Any], deadline: _waiting.Deadline) -> None:
    """Show how many calls have ended, until all have, one fails, or the timeout expires."""
    pending = calls
    with bar(len(calls)) as shown:
        while pending:
            ended = _waiting.some(pending, 1, deadline.left(), lambda: f"{len(calls)} objects")
            there = [call for call, has_ended in zip(pending, ended) if has_ended]
            shown.update(len(there))
            if not there or any(lib.phx_wait(call, 0) not in (0, PENDING) for call in there):
                return
            pending = [call for call, has_ended in zip(pending, ended) if not has_ended]
