"""Structures of trees that do not fit into metadata: objects of their own, named by their digest.

The object of such a tree has leaves only, so that it can be reduced, and holds the object of its
structure. The result of a reduction has the same digest and holds nothing, so the reduction keeps
the structure.

Owns two caches: the structures that this process knows, and those that each connection has kept.
"""

from __future__ import annotations

import contextlib
import weakref

from phalanx import _calls, _native, _values, _waiting, exceptions
from phalanx._objects import failures
from phalanx._ref import ObjectRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._values.trees import TreeSpec
    from phalanx._waiting import Steps

_NAME_SPACE = "phalanx/structures"
# The longest Get of a structure. The caller has waited for its tree already.
_PATIENCE_S = 10.0
_MAX_KNOWN = 64
# By digest: the structures that this process has put or read.
_known: dict[bytes, TreeSpec] = {}
# By connection: the digests of the structures that it has kept.
_kept: weakref.WeakKeyDictionary[Connection, set[bytes]] = weakref.WeakKeyDictionary()


def ref_of(connection: Connection, digest: bytes) -> ObjectRef:
    """Return the ref of a structure's object."""
    object_id = _native.id_from_name(_NAME_SPACE, digest.hex())
    return ObjectRef(object_id, connection.directory, client=connection)


def _remember(spec: TreeSpec) -> None:
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[spec.digest] = spec


def put(connection: Connection, spec: TreeSpec, seconds: float | None) -> Steps[ObjectRef]:
    """Put a structure. The returned ref must live until the tree's object holds the structure."""
    _remember(spec)
    encoded = _values.encode(spec.to_bytes())
    return (yield from _calls.put(connection, encoded, ref_of(connection, spec.digest), None, seconds))


def find(connection: Connection, digest: bytes, seconds: float | None = None) -> TreeSpec:
    """Return a structure by its digest; blocks until it is here, for `seconds` at most."""
    return connection._run(fetch(connection, digest, seconds))


def fetch(connection: Connection, digest: bytes, seconds: float | None = None) -> Steps[TreeSpec]:
    """Return a structure by its digest; waits for `seconds` at most.

    Raises
    ------
    ObjectLostError
        The object of the structure is gone.
    ValueFormatError
        The object has another digest.
    """
    spec = _known.get(digest)
    if spec is not None:
        return spec
    ref = ref_of(connection, digest)
    ref._named = True  # a named ref takes no hold
    try:
        limit = _PATIENCE_S if seconds is None else min(seconds, _PATIENCE_S)
        call = _calls.get(connection, [ref], limit, free=_waiting.abandon)
        yield from failures.finish(connection, call, None, "Get", ref, [ref], allow_pickle=False)
        text: Any = _calls.values_of(connection, call, 1, None, allow_pickle=False)[0]
    except exceptions.PhalanxError as error:
        raise exceptions.ObjectLostError(
            f"the structure of the tree, object {ref.hex()}, is gone: keep one of the trees that were reduced",
            ref.hex(),
            connection.address,
        ) from error
    spec = _values.structure_of(text, digest)
    _remember(spec)
    return spec


def keep(connection: Connection, metadata: bytes, seconds: float | None) -> Steps[None]:
    """Keep the structure that this metadata names, if there is one, for the result of a reduction."""
    digest = _values.structure_elsewhere(metadata)
    if digest is None:
        return
    kept = _kept.setdefault(connection, set())
    if digest not in kept:
        ref = ref_of(connection, digest)
        ref._named = True
        # If the structure was deleted, the readers of the result get the error.
        with contextlib.suppress(exceptions.ObjectDeletedError):
            yield from _calls.keep(connection, ref, seconds)
            kept.add(digest)
