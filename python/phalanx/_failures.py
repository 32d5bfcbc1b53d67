"""What producers raise: from `set_exception` to whoever gets the object.

The reason that the cluster keeps for an object nobody will put is a text of at most 1,024 bytes. It says
what happened; behind a mark it has the pickled exception, or, if that is too long, the id of an object
that is it.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import _native, exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._client import Client
    from phalanx._ref import ObjectRef

CODE = 2  # Unknown
_MARK = " \x1f"
_OBJECT = "object "
_MAX_TEXT = 900
_MAX_SAID = 200


def encode(client: Client, ref: ObjectRef, error: BaseException) -> bytes:
    """Return the reason for an exception, putting what does not fit into it."""
    import base64
    import pickle
    import traceback

    said = "".join(traceback.format_exception_only(type(error), error)).strip()
    said = said.encode()[:_MAX_SAID].decode("utf-8", "ignore")
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickle.dumps((error, trace))
        pickle.loads(pickled)
    except Exception:  # whatever its own reduction raises
        pickled = pickle.dumps((None, trace))
    text = said + _MARK + base64.b85encode(pickled).decode()
    if len(text.encode()) > _MAX_TEXT:
        text = said + _MARK + _OBJECT + client.put(pickled, _place_of(ref), keep=True).hex()
    return text.encode()


def _place_of(ref: ObjectRef) -> ObjectRef:
    """Return the ref of the object that has a long exception; the same for a task that is run again."""
    from phalanx._ref import ObjectRef

    return ObjectRef(_native.random_id(), ref._cluster)


def raised(client: Client, error: exceptions.PhalanxError, refs: Sequence[ObjectRef]) -> BaseException:
    """Return what a Get that failed shall raise: the producer's own exception if it was that."""
    said, mark, packed = error.message.partition(_MARK)
    if not mark:
        return error
    import base64
    import pickle

    fallback = exceptions.ProducerError(said, error.ref, error.node)
    try:
        if packed.startswith(_OBJECT):
            from phalanx._ref import ObjectRef

            pickled = client.get(ObjectRef.from_hex(packed[len(_OBJECT) :][:40]), timeout=10)
        else:
            pickled = base64.b85decode(packed)
        original, trace = pickle.loads(pickled)
    except Exception:  # a class that is not here, or an object that is gone
        return fallback
    result: Any = fallback if original is None else original
    result.__cause__ = exceptions.RemoteTraceback(trace)
    return result
