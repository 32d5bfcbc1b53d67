"""Values as objects: put, get and wait, with structures of trees and with exceptions of producers.

Joins the calls (`_calls`), the encoding (`_values`), the structures of large trees (`structures`)
and the producers' exceptions (`failures`). Has no state; any thread can use it. `Client` documents
the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from phalanx import _arguments, _calls, _native, _values, _waiting, exceptions
from phalanx._objects import failures, structures
from phalanx._native import lib
from phalanx._ref import ObjectRef, several

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._values.trees import TreeSpec
    from phalanx._waiting import Steps


def put(
    connection: Connection,
    value: Any,
    ref: ObjectRef | None,
    keep: bool | None,
    seconds: float | None,
    allow_pickle: bool,
    exist_ok: bool = True,
    stays: _native.Stay = _native.DEFAULT_STAY,
) -> Steps[ObjectRef]:
    """Put a value as an object; see `Client.put`."""
    encoded = _values.encode(value, allow_pickle=allow_pickle)
    # The structure and the value share one timeout.
    if encoded.structure is not None:
        deadline = _waiting.Deadline(seconds)
        structure = yield from structures.put(connection, encoded.structure, seconds)
        encoded.refs = [*encoded.refs, structure.id]
        seconds = deadline.left()
    return (yield from _calls.put(connection, encoded, ref, keep, seconds, exist_ok, stays))


def get(
    connection: Connection,
    refs: ObjectRef | Sequence[ObjectRef],
    seconds: float | None,
    copy: bool | None = None,
    out: Any = None,
    writable: object = None,
    allow_pickle: bool = True,
    on_lost: str = "raise",
    progress: bool = False,
) -> Steps[Any]:
    """Return the value of an object, or a list of values; see `Client.get`."""
    many = not isinstance(refs, ObjectRef)
    wanted: list[ObjectRef] = [refs] if isinstance(refs, ObjectRef) else several(refs, "get", or_one=True)
    if not wanted:
        return []
    if out is not None and many:
        raise exceptions.InvalidArgumentError("out= is for one object: give its ref, not a list")
    if on_lost not in ("raise", "wait"):
        raise exceptions.InvalidArgumentError(f"on_lost={on_lost!r}: 'raise' or 'wait'")
    call = _calls.get(connection, wanted, seconds, on_lost == "raise", free=_waiting.abandon)
    if progress:
        _show_progress(connection, wanted, seconds, on_lost == "raise")
    # The library keeps the deadline, and its error names the object that is missing.
    # Most Gets are small, so this is `failures.finish`, without its generator.
    try:
        yield _waiting.Finish(call, None, "Get", wanted[0]._id)
    except exceptions.PhalanxError as error:
        failure = yield from failures.raised(connection, error, wanted, allow_pickle)
        raise failure from failure.__cause__
    values = yield from values_of(connection, call, len(wanted), copy, out, writable, allow_pickle)
    return values if many else values[0]


def values_of(
    connection: Connection,
    call: Any,
    count: int,
    copy: bool | None = None,
    out: Any = None,
    writable: object = None,
    allow_pickle: bool = True,
) -> Steps[list[Any]]:
    """Return the values of a Get that has succeeded."""
    opened = _calls.views_of(connection, call, count)
    return (yield from opened_values(connection, opened, copy, out, writable, allow_pickle))


def opened_values(
    connection: Connection,
    opened: Sequence[_calls.Opened],
    copy: bool | None = None,
    out: Any = None,
    writable: object = None,
    allow_pickle: bool = True,
) -> Steps[list[Any]]:
    """Return the values of views."""
    # Decoding cannot wait, so it finds the structures here.
    found: dict[bytes, TreeSpec] = {}
    copied = 0
    for _, metadata, data in opened:
        is_view = copy is None and metadata.startswith(_values.AN_ARRAY)
        if is_view and out is None:
            continue
        copied += len(data)
        digest = _values.structure_elsewhere(metadata)
        if digest is not None and digest not in found:
            found[digest] = yield from structures.fetch(connection, digest)

    def find(_: Connection, digest: bytes) -> TreeSpec:
        return found[digest]

    # Decoding copies or unpickles these bytes, or maps private pages for them.
    if copied >= _native.OWN_FILE_BYTES:
        decode = partial(_calls.decoded, connection, opened, find, copy, out, writable, allow_pickle)
        return (yield _waiting.Work(lambda _: decode()))
    return _calls.decoded(connection, opened, find, copy, out, writable, allow_pickle)


def _show_progress(
    connection: Connection, refs: Sequence[ObjectRef], seconds: float | None, fail_if_lost: bool
) -> None:
    from phalanx._objects import streams

    calls: list[Any] = []
    try:
        calls.extend(_calls.get(connection, [ref], None, fail_if_lost) for ref in refs)
        streams.until_all_or_one_fails(calls, _waiting.Deadline(seconds))
    finally:
        for call in calls:
            # Only the bar needs these calls; the Get itself is another one.
            lib.phx_cancel(call)


def wait(
    connection: Connection,
    refs: Iterable[ObjectRef],
    num_returns: int,
    seconds: float | None,
    progress: bool = False,
) -> Steps[tuple[list[ObjectRef], list[ObjectRef]]]:
    """Wait until `num_returns` objects are on this node, or the timeout expires; see `Client.wait`."""
    wanted = several(refs, "wait")
    enough = _arguments.whole(num_returns, "num_returns")
    if enough > len(wanted):
        raise exceptions.InvalidArgumentError(f"num_returns={enough} of {len(wanted)} objects")

    def describe() -> str:
        return f"{enough} of {len(wanted)} objects"

    calls: list[Any] = []
    # With a timeout of 0 the node answers each Get at once: the object, or that the time is up.
    limit = 0.0 if seconds == 0 else None
    try:
        with connection._batch():
            calls.extend(_calls.get(connection, [ref], limit, free=_waiting.abandon) for ref in wanted)
        if limit is not None:
            yield _waiting.Some(calls, len(calls), None, describe)
            ended = [lib.phx_wait(call, 0) != _native.DEADLINE for call in calls]
        elif progress:
            from phalanx._objects import streams

            ended = streams.some(calls, enough, seconds, describe)
        else:
            ended = yield _waiting.Some(calls, enough, seconds, describe)
    finally:
        # Frees the calls, else the node would still fetch the objects of pending ones. They are not
        # cancelled here, because the cycle collector can free them before it ends this generator.
        calls.clear()
    done = [ref for ref, there in zip(wanted, ended) if there]
    return done, [ref for ref, there in zip(wanted, ended) if not there]


def scatter(
    connection: Connection, value: Any, refs: Sequence[ObjectRef], seconds: float | None
) -> Steps[None]:
    """Put the parts of an array; see `Client.scatter`."""
    import numpy as np

    wanted = several(refs, "scatter")
    if not wanted:
        raise exceptions.InvalidArgumentError("scatter: there are no refs for the parts")
    deadline = _waiting.Deadline(seconds)
    for part, ref in zip(np.array_split(np.asarray(value), len(wanted)), wanted):
        yield from put(connection, part, ref, None, deadline.left(), True, False)


def all_to_all(
    connection: Connection,
    outgoing: Iterable[tuple[ObjectRef, Any]],
    incoming: Sequence[ObjectRef],
    seconds: float | None,
) -> Steps[list[Any]]:
    """Put values and return others; see `Client.all_to_all`."""
    if isinstance(outgoing, dict):
        raise TypeError("all_to_all takes pairs of ref and value: outgoing.items() are those of a dict")
    wanted = several(incoming, "all_to_all")
    deadline = _waiting.Deadline(seconds)
    for ref, value in outgoing:
        yield from put(connection, value, ref, None, deadline.left(), True, False)
    values: list[Any] = yield from get(connection, wanted, deadline.left())
    return values
