"""What producers raise: from `set_exception` to whoever gets the object.

The reason that the cluster keeps for an object nobody will put is a text of at most 1,024 bytes. It says
what happened; behind a mark it has as much as fits of the pickled exception and of the end of the traceback.
What does not fit is in an object of its own, whose id the reason has. That one lives as long as the ref that was
failed, or one whose object somebody tried to get, and for a minute in any case: afterwards readers have what
fitted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from phalanx import _native, _waiting, exceptions
from phalanx._native import ffi, lib
from phalanx._ref import ObjectRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._client import Client

CODE = 2  # Unknown
_MARK = " \x1f"
# Behind the mark: the body, compressed, in base 85; and the id of the object that has all of it.
_PACKED = re.compile(r"([^ ]+)( [0-9a-f]{40})? ")
_MAX_TEXT = 900
_MAX_SAID = 200
# For the object that has a long one.
_PATIENCE_S = 10.0


def encode(client: Client, ref: ObjectRef, error: BaseException, deadline: _waiting.Deadline) -> bytes:
    """Return the reason for an exception, putting what does not fit into it."""
    import pickle
    import traceback

    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    said = said.encode()[:_MAX_SAID].decode("utf-8", "ignore")
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    trace = trace.encode("utf-8", "replace")
    pickled = b""
    # What ends a program or a task must not end those of who reads it.
    if isinstance(error, Exception):
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # whatever its own reduction raises
            pickled = b""
    ref._reason = None
    room = _MAX_TEXT - len((said + _MARK).encode())
    packed = _packed(pickled, trace) + " "
    if len(packed) > room:
        place = _put(client, ref, _body(pickled, trace), deadline)
        packed = _fitting(pickled, trace, room - len(place)) + place
    return (said + _MARK + packed).encode()


def _put(client: Client, ref: ObjectRef, body: bytes, deadline: _waiting.Deadline) -> str:
    """Put what a reason has no room for; how the reason ends that names it."""
    left = deadline.left()
    try:
        place = client.put(body, timeout=_PATIENCE_S if left is None else min(left, _PATIENCE_S))
    except exceptions.StoreFullError:
        return " "
    ref._reason = place
    # For who asks when this process or the ref is gone.
    lib.phx_transit(client._ptr, place.id, ffi.new("char[24]"))
    return f" {place.hex()} "


def _body(pickled: bytes, trace: bytes) -> bytes:
    return b"%d " % len(pickled) + pickled + trace


def _packed(pickled: bytes, trace: bytes) -> str:
    import base64
    import zlib

    return base64.b85encode(zlib.compress(_body(pickled, trace))).decode()


def _fitting(pickled: bytes, trace: bytes, room: int) -> str:
    """Return what fits: rather the exception than the traceback, of which the end says most."""
    for kept in (pickled, b""):
        end = trace
        while len(packed := _packed(kept, end)) > room and end:
            end = end[len(end) // 2 + 1 :]
        if len(packed) <= room:
            break
    return packed


def raised(
    client: Client,
    error: exceptions.PhalanxError,
    refs: Sequence[ObjectRef],
    allow_pickle: bool = True,
) -> Exception:
    """Return what a Get that failed shall raise: the producer's own exception if it was that, and may be
    unpickled."""
    whole = _fetch(client, error, refs)
    if whole is not None:
        with contextlib.suppress(exceptions.PhalanxError):  # it is gone
            client._finish(whole, None, "what was raised", None)
    return _rebuilt(client, error, whole, allow_pickle)


async def raised_async(
    client: Client, error: exceptions.PhalanxError, refs: Sequence[ObjectRef], allow_pickle: bool = True
) -> Exception:
    """As `raised`, waiting in the running event loop."""
    whole = _fetch(client, error, refs)
    if whole is not None:
        await client._ended(whole)
    return _rebuilt(client, error, whole, allow_pickle)


def _fetch(client: Client, error: exceptions.PhalanxError, refs: Sequence[ObjectRef]) -> Any:
    """Return the call that gets all of what a producer raised; None when the reason has it."""
    found = _PACKED.match(error.message.partition(_MARK)[2])
    if found is None or found[2] is None:
        return None
    place = ObjectRef.from_hex(found[2].strip())
    call = client._get_call([place], _PATIENCE_S, free=_waiting.abandon)
    # Only now does `place` count: the one it replaces may have been the last.
    for ref in refs:
        if ref.hex() == error.ref:
            ref._reason = place
    return call


def _rebuilt(client: Client, error: exceptions.PhalanxError, whole: Any, allow_pickle: bool) -> Exception:
    said, _, packed = error.message.partition(_MARK)
    found = _PACKED.match(packed)
    if found is None:
        return error
    original: Any = None
    fallback = exceptions.ProducerError(said, error.ref, error.node)
    try:
        pickled, trace = _parts(client, whole, found[1])
    except Exception:  # none of ours
        return fallback
    if allow_pickle and pickled:
        import pickle

        with contextlib.suppress(Exception):  # a class that is not here
            original = pickle.loads(pickled)
    result = original if isinstance(original, Exception) else fallback
    cause = exceptions.RemoteTraceback(trace.decode("utf-8", "replace"))
    # Past a __setattr__ of the class's own.
    BaseException.__cause__.__set__(result, cause)  # type: ignore[attr-defined]
    return result


def _parts(client: Client, whole: Any, packed: str) -> tuple[bytes, bytes]:
    """Return the pickled exception and the traceback: all of it, or what fitted into the reason."""
    body: bytes = b""
    if whole is not None and lib.phx_wait(whole, 0) == 0:
        body = client._values_of(whole, 1, allow_pickle=False)[0]
    else:
        import base64
        import zlib

        body = zlib.decompress(base64.b85decode(packed))
    nbytes, _, rest = body.partition(b" ")
    return rest[: int(nbytes)], rest[int(nbytes) :]
