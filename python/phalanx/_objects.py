"""Values as objects: put, get and wait, with structures of trees and with exceptions of producers.

Joins the calls (`_calls`), the encoding (`_values`), the structures of large trees (`_structures`)
and the producers' exceptions (`_failures`). Has no state; any thread can use it. `Client` documents
the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import _calls, _failures, _structures, _values, _waiting, exceptions
from phalanx._native import lib
from phalanx._ref import ObjectRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection


def put(
    connection: Connection,
    value: Any,
    ref: ObjectRef | None,
    keep: bool | None,
    seconds: float | None,
    allow_pickle: bool,
    exist_ok: bool = True,
) -> ObjectRef:
    """Put a value as an object; see `Client.put`."""
    encoded = _values.encode(value, allow_pickle=allow_pickle)
    # The structure and the value share one timeout.
    if encoded.structure is not None:
        deadline = _waiting.Deadline(seconds)
        structure = _structures.put(connection, encoded.structure, seconds)
        encoded.refs = [*encoded.refs, structure.id]
        seconds = deadline.left()
    return _calls.put(connection, encoded, ref, keep, seconds, exist_ok)


def get(
    connection: Connection,
    refs: ObjectRef | Sequence[ObjectRef],
    seconds: float | None,
    copy: bool | None,
    out: Any,
    writable: object,
    allow_pickle: bool,
    on_lost: str,
    progress: bool,
) -> Any:
    """Return the value of an object, or a list of values; see `Client.get`."""
    many = not isinstance(refs, ObjectRef)
    wanted: Sequence[ObjectRef] = list(refs) if many else [refs]
    if not wanted:
        return []
    if out is not None and many:
        raise exceptions.InvalidArgumentError("out= is for one object")
    if on_lost not in ("raise", "wait"):
        raise exceptions.InvalidArgumentError(f"on_lost={on_lost!r}: 'raise' or 'wait'")
    call = _calls.get(connection, wanted, seconds, on_lost == "raise")
    if progress:
        _show_progress(connection, wanted, seconds, on_lost == "raise")
    # The library keeps the deadline, and its error names the object that is missing.
    _failures.finish(connection, call, None, "Get", wanted[0], wanted, allow_pickle)
    values = _calls.values_of(
        connection, call, len(wanted), _structures.find, copy, out, writable, allow_pickle
    )
    return values if many else values[0]


def _show_progress(
    connection: Connection, refs: Sequence[ObjectRef], seconds: float | None, fail_if_lost: bool
) -> None:
    from phalanx import _progress

    calls: list[Any] = []
    try:
        calls.extend(_calls.get(connection, [ref], None, fail_if_lost) for ref in refs)
        _progress.until_all_or_one_fails(calls, _waiting.Deadline(seconds))
    finally:
        for call in calls:
            # Only the bar needs these calls; the Get itself is another one.
            lib.phx_cancel(call)


async def get_async(connection: Connection, ref: ObjectRef, seconds: float | None) -> Any:
    """Return the value of an object, awaited in the running event loop; see `Client.get_async`."""
    call = _calls.get(connection, [ref], seconds, free=_waiting.abandon)
    await _calls.ended(connection, call)
    try:
        connection._finish(call, 0, "Get", ref._id)
    except exceptions.PhalanxError as error:
        failure = await _failures.raised_async(connection, error, [ref])
        raise failure from failure.__cause__
    return _calls.values_of(connection, call, 1, _structures.find)[0]


def wait(
    connection: Connection,
    refs: Sequence[ObjectRef],
    num_returns: int,
    seconds: float | None,
    progress: bool = False,
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """Wait until `num_returns` objects are on this node, or the timeout expires; see `Client.wait`."""
    if not 0 <= num_returns <= len(refs):
        raise exceptions.InvalidArgumentError(f"num_returns={num_returns} of {len(refs)} objects")
    calls: list[Any] = []
    try:
        calls.extend(_calls.get(connection, [ref], None) for ref in refs)
        some = _waiting.some
        if progress:
            from phalanx import _progress

            some = _progress.some
        ended = some(calls, num_returns, seconds, lambda: f"{num_returns} of {len(refs)} objects")
    finally:
        # Without this, the node would still fetch the objects of pending calls.
        for call in calls:
            lib.phx_cancel(call)
    done = [ref for ref, there in zip(refs, ended) if there]
    return done, [ref for ref, there in zip(refs, ended) if not there]
