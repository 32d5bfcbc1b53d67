"""Exceptions of producers: from `set_exception` to every reader of the object.

The cluster keeps a failure reason of at most 1,024 bytes for an object that will not be put. The
reason begins with the error text. After a mark it has the pickled exception and the end of the
traceback, as far as they fit. If they do not fit, an object of its own has all of it, and the
reason has the id of that object. This object lives as long as the failed ref, or as a ref whose Get
failed, and for at least one minute. After that, readers get the part that is in the reason.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from phalanx import _arguments, _calls, _native, _values, _waiting, exceptions
from phalanx._native import ffi, lib, nanos
from phalanx._ref import ObjectRef, id_for
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._waiting import Steps

_MARK = " \x1f"
# Behind the mark: the body, compressed, in base 85; then the id of the object with the whole body.
_PACKED = re.compile(r"([^ ]+)( [0-9a-f]{40})? ")
_MAX_TEXT = 900
_MAX_SAID = 200
# The limit of a Put and a Get of an object with a long reason.
_PATIENCE_S = 10.0


def set_exception(
    connection: Connection, ref: ObjectRef, error: BaseException, seconds: float | None
) -> Steps[None]:
    """Mark an object as failed; see `ObjectRef.set_exception`."""
    deadline = _waiting.Deadline(seconds)
    object_id = id_for(connection, ref)
    if not isinstance(error, BaseException):
        spelled = f"{error.__name__}(...)" if isinstance(error, type) else f"RuntimeError({error!r})"
        raise TypeError(f"set_exception takes an exception, not {_arguments.shown(error)}: write {spelled}")
    message = yield from _encode(connection, ref, error, deadline)
    seconds = deadline.left()
    call = _waiting.owned(
        lib.phx_fail(connection._ptr, object_id, _native.UNKNOWN, message, len(message), nanos(seconds))
    )
    yield Finish(call, seconds, "set_exception", object_id)


def _encode(
    connection: Connection, ref: ObjectRef, error: BaseException, deadline: _waiting.Deadline
) -> Steps[bytes]:
    """Return the reason for an exception. Puts a second object if the exception does not fit."""
    import pickle
    import traceback

    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    said = said.encode()[:_MAX_SAID].decode("utf-8", "ignore")
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    trace = trace.encode("utf-8", "replace")
    pickled = b""
    # SystemExit and CancelledError end a program or a task here. They must not end those of a
    # reader.
    if isinstance(error, Exception):
        try:
            # An exception that pickles need not unpickle: readers get the text then, so it is tried
            # here.
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # whatever its own reduction raises
            pickled = b""
    ref._reason = None
    room = _MAX_TEXT - len((said + _MARK).encode())
    packed = _packed(pickled, trace) + " "
    if len(packed) > room:
        place = yield from _put(connection, ref, _body(pickled, trace), deadline)
        packed = _fitting(pickled, trace, room - len(place)) + place
    return (said + _MARK + packed).encode()


def _put(connection: Connection, ref: ObjectRef, body: bytes, deadline: _waiting.Deadline) -> Steps[str]:
    """Put the body of a long reason. Returns the end of the reason, which names the object."""
    left = deadline.left()
    try:
        seconds = _PATIENCE_S if left is None else min(left, _PATIENCE_S)
        place = yield from _calls.put(connection, _values.encode(body), None, None, seconds)
    # A full node must not hide the failure: the short reason is enough for readers.
    except exceptions.StoreFullError:
        return " "
    ref._reason = place
    # Keeps the object for a minute for readers that come after this process or the ref is gone.
    lib.phx_transit(connection._ptr, place.id, ffi.new("char[24]"))
    return f" {place.hex()} "


def _body(pickled: bytes, trace: bytes) -> bytes:
    return b"%d " % len(pickled) + pickled + trace


def _packed(pickled: bytes, trace: bytes) -> str:
    import base64
    import zlib

    return base64.b85encode(zlib.compress(_body(pickled, trace))).decode()


def _fitting(pickled: bytes, trace: bytes, room: int) -> str:
    """Return the parts that fit into `room`: the exception first, then the end of the traceback."""
    for kept in (pickled, b""):
        end = trace
        while len(packed := _packed(kept, end)) > room and end:
            # The innermost frames are at the end, so the front is cut.
            end = end[len(end) // 2 + 1 :]
        if len(packed) <= room:
            break
    return packed


def finish(
    connection: Connection,
    call: Any,
    seconds: float | None,
    what: str,
    ref: ObjectRef | None,
    sources: Sequence[ObjectRef],
    allow_pickle: bool = True,
    cancel: bool = True,
) -> Steps[None]:
    """Wait as `Finish` does; raise the exception of a producer of the sources, if it failed."""
    try:
        yield Finish(call, seconds, what, None if ref is None else ref._id, cancel)
    except exceptions.PhalanxError as error:
        failure = yield from raised(connection, error, sources, allow_pickle)
        raise failure from failure.__cause__


def raised(
    connection: Connection,
    error: exceptions.PhalanxError,
    refs: Sequence[ObjectRef],
    allow_pickle: bool = True,
) -> Steps[Exception]:
    """Return the exception of a failed Get: the producer's own, if there is one and pickle is allowed."""
    whole = _fetch(connection, error, refs)
    if whole is not None:
        with contextlib.suppress(exceptions.PhalanxError):  # the object is gone
            yield Finish(whole, None, "what was raised", None)
    return _rebuilt(connection, error, whole, allow_pickle)


def _fetch(connection: Connection, error: exceptions.PhalanxError, refs: Sequence[ObjectRef]) -> Any:
    """Return the Get of the whole body; None if the reason has all of it."""
    found = _PACKED.match(error.message.partition(_MARK)[2])
    if found is None or found[2] is None:
        return None
    place = ObjectRef.from_hex(found[2].strip())
    call = _calls.get(connection, [place], _PATIENCE_S, free=_waiting.abandon)
    # Assigned after the Get holds the object: the ref that this replaces can be the last one.
    for ref in refs:
        if ref.hex() == error.ref:
            ref._reason = place
    return call


def _rebuilt(
    connection: Connection, error: exceptions.PhalanxError, whole: Any, allow_pickle: bool
) -> Exception:
    said, _, packed = error.message.partition(_MARK)
    found = _PACKED.match(packed)
    if found is None:
        return error
    original: Any = None
    fallback = exceptions.ProducerError(said, error.ref, error.node)
    try:
        pickled, trace = _parts(connection, whole, found[1])
    except Exception:  # the text only looks like a reason of this package
        return fallback
    if allow_pickle and pickled:
        import pickle

        with contextlib.suppress(Exception):  # the class cannot be imported here
            original = pickle.loads(pickled)
    result = original if isinstance(original, Exception) else fallback
    cause = exceptions.RemoteTraceback(trace.decode("utf-8", "replace"))
    # The class can define a __setattr__ that refuses the attribute.
    BaseException.__cause__.__set__(result, cause)  # type: ignore[attr-defined]
    return result


def _parts(connection: Connection, whole: Any, packed: str) -> tuple[bytes, bytes]:
    """Return the pickled exception and the traceback: whole, or the part that fits into the reason."""
    body: bytes = b""
    if whole is not None and lib.phx_wait(whole, 0) == 0:
        body = _calls.values_of(connection, whole, 1, None, allow_pickle=False)[0]
    else:
        import base64
        import zlib

        body = zlib.decompress(base64.b85decode(packed))
    nbytes, _, rest = body.partition(b" ")
    return rest[: int(nbytes)], rest[int(nbytes) :]
