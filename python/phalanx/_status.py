"""What the cluster knows of an object."""

from __future__ import annotations

from phalanx._native import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ObjectStatus:
    """What the cluster knows of an object; as `Client.stat` found it.

    Attributes
    ----------
    known : bool
        Somebody put it or began to.
    deleted : bool
        It was there and was deleted, or freed.
    complete, local : bool
        A complete copy is in the cluster; on this client's node.
    nbytes : int
        Its size; 0 when it is not known.
    complete_copies, partial_copies : int
        On how many nodes.
    waiting : int
        Nodes that wait for it.
    conflicts : int
        Puts of another size under this id that were dropped.
    owned : bool
        It is freed when nobody refers to it.
    holders : int
        Nodes on which somebody refers to it.
    sticky : bool
        Nodes that come later get a copy (`Client.broadcast`).
    metadata : bytes
        As the store has it.
    """

    __slots__ = (
        "complete",
        "complete_copies",
        "conflicts",
        "deleted",
        "holders",
        "known",
        "local",
        "metadata",
        "nbytes",
        "owned",
        "partial_copies",
        "sticky",
        "waiting",
    )

    def __init__(self, status: Any) -> None:
        self.known = bool(status.known)
        self.deleted = bool(status.deleted)
        self.complete = bool(status.complete)
        self.local = bool(status.local)
        self.nbytes: int = status.size
        self.complete_copies: int = status.complete_copies
        self.partial_copies: int = status.partial_copies
        self.waiting: int = status.waiting
        self.conflicts: int = status.conflicts
        self.owned = bool(status.owned)
        self.holders: int = status.holders
        self.sticky = bool(status.sticky)
        self.metadata: bytes = ffi.buffer(status.metadata, status.metadata_size)[:]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.__slots__))
        return f"ObjectStatus({fields})"
