"""What producers raise: from `set_exception` to whoever gets the object.

The reason that the cluster keeps for an object nobody will put is a text of at most 1,024 bytes. It says
what happened; behind a mark it has the traceback and the pickled exception, or, if they are too long, the id of an object
that has them, which stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from phalanx import _native, exceptions
from phalanx._ref import ObjectRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._client import Client

CODE = 2  # Unknown
_MARK = " \x1f"
_OBJECT = "object "
_MAX_TEXT = 900
_MAX_SAID = 200
# No digit of base85.
_BETWEEN = ","
# For the object that has a long one.
_PATIENCE_S = 10.0


def encode(client: Client, ref: ObjectRef, error: BaseException) -> bytes:
    """Return the reason for an exception, putting what does not fit into it."""
    import base64
    import pickle
    import traceback

    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    said = said.encode()[:_MAX_SAID].decode("utf-8", "ignore")
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    pickled = b""
    # What ends a program or a task must not end those of who reads it.
    if isinstance(error, Exception):
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)
        except Exception:  # whatever its own reduction raises
            pickled = b""
    parts = (trace.encode("utf-8", "replace"), pickled)
    packed = _BETWEEN.join(base64.b85encode(part).decode() for part in parts)
    text = said + _MARK + packed
    if len(text.encode()) > _MAX_TEXT:
        place = ObjectRef(_native.random_id(), ref._cluster)
        text = said + _MARK + _OBJECT + client.put(packed, place, keep=True).hex()
    return text.encode()


def raised(
    client: Client,
    error: exceptions.PhalanxError,
    refs: Sequence[ObjectRef],
    allow_pickle: bool = True,
) -> Exception:
    """Return what a Get that failed shall raise: the producer's own exception if it was that, and may be
    unpickled."""
    said, mark, packed = error.message.partition(_MARK)
    if not mark:
        return error
    import base64
    import pickle

    original: Any = None
    fallback = exceptions.ProducerError(said, error.ref, error.node)
    try:
        if packed.startswith(_OBJECT):
            place = ObjectRef.from_hex(packed[len(_OBJECT) :][:40])
            place._named = True  # nothing is to be held
            packed = client.get(place, timeout=_PATIENCE_S, allow_pickle=False)
        trace, pickled = map(base64.b85decode, packed.split(_BETWEEN))
    except Exception:  # it is gone, or none of ours
        return fallback
    if allow_pickle and pickled:
        with contextlib.suppress(Exception):  # a class that is not here
            original = pickle.loads(pickled)
    result = original if isinstance(original, Exception) else fallback
    cause = exceptions.RemoteTraceback(trace.decode("utf-8", "replace"))
    # Past a __setattr__ of the class's own.
    BaseException.__cause__.__set__(result, cause)  # type: ignore[attr-defined]
    return result
