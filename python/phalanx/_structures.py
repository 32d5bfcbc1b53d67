"""The structures of trees that are too large for metadata: objects of their own, named by their digest.

Such a tree's object has its leaves alone, so that it can be reduced, and holds its structure's object.
The result of a reduction has the same digest but holds nothing: for it the structure is kept.
"""

from __future__ import annotations

import contextlib
import weakref

from phalanx import _native, _values, exceptions
from phalanx._ref import ObjectRef

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._client import Client
    from phalanx._values.trees import TreeSpec

_NAME_SPACE = "phalanx/structures"
# Of a Get of one, which whoever waited for the tree does not expect to wait for.
_PATIENCE_S = 10.0
_MAX_KNOWN = 64
# By digest: what this process has put or read.
_known: dict[bytes, TreeSpec] = {}
# By client: the digests of those that it has kept.
_kept: weakref.WeakKeyDictionary[Client, set[bytes]] = weakref.WeakKeyDictionary()


def ref_of(client: Client, digest: bytes) -> ObjectRef:
    """Return the ref of a structure's object."""
    return ObjectRef(_native.id_from_name(_NAME_SPACE, digest.hex()), client.directory, client=client)


def _remember(spec: TreeSpec) -> None:
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[spec.digest] = spec


def put(client: Client, spec: TreeSpec, seconds: float | None) -> ObjectRef:
    """Put a structure; its ref, to be held until the tree's object holds it."""
    _remember(spec)
    return client.put(spec.to_bytes(), ref_of(client, spec.digest), timeout=seconds)


def find(client: Client, digest: bytes) -> TreeSpec:
    """Return a structure by its digest.

    Raises
    ------
    ObjectLostError
        It is gone.
    ValueFormatError
        What is there is another.
    """
    spec = _known.get(digest)
    if spec is not None:
        return spec
    ref = ref_of(client, digest)
    ref._named = True  # nothing is to be held
    try:
        text: Any = client.get(ref, timeout=_PATIENCE_S, allow_pickle=False)
    except exceptions.PhalanxError as error:
        raise exceptions.ObjectLostError(
            f"the structure of the tree, object {ref.hex()}, is gone: keep one of the trees that were reduced",
            ref.hex(),
            client.address,
        ) from error
    spec = _values.structure_of(text, digest)
    _remember(spec)
    return spec


def keep(client: Client, metadata: bytes, seconds: float | None) -> None:
    """Let the structure that an object's metadata names, if it does, stay for the result of a reduction."""
    digest = _values.structure_elsewhere(metadata)
    if digest is None:
        return
    kept = _kept.setdefault(client, set())
    if digest not in kept:
        ref = ref_of(client, digest)
        ref._named = True
        # Where it was deleted, readers of the result are told.
        with contextlib.suppress(exceptions.ObjectDeletedError):
            client.keep(ref, seconds)
            kept.add(digest)
