"""`ObjectStatus`, the state of an object in the cluster, and the HTML in which notebooks show states.

Nothing here asks a node.
"""

from __future__ import annotations

from phalanx._native import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


def code(text: str) -> str:
    """Return one line of HTML."""
    import html

    return f"<code>{html.escape(text)}</code>"


def table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return an HTML table with a title above its rows."""
    import html

    def cells(kind: str, row: Sequence[object]) -> str:
        return "".join(f"<{kind}>{html.escape(str(cell))}</{kind}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    heading = f"<tr>{cells('th', head)}</tr>" if head else ""
    return f"<table><caption>{html.escape(title)}</caption>{heading}{body}</table>"


def size(nbytes: int) -> str:
    """Return a number of bytes as the ``phalanx`` command prints it."""
    value, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{nbytes} B" if units[0] == "B" else f"{value:.2f} {units[0]}"


class ObjectStatus:
    """The state of an object in the cluster, as `Client.stat` returns it.

    Attributes
    ----------
    known : bool
        A Put has started or finished.
    deleted : bool
        The object existed, and was deleted or freed.
    complete, local : bool
        A complete copy is in the cluster; on this client's node.
    nbytes : int
        The size in bytes; 0 if it is not known.
    complete_copies, partial_copies : int
        Numbers of nodes.
    waiting : int
        The number of nodes that wait for the object.
    conflicts : int
        The number of dropped Puts of another size under this id.
    owned : bool
        The object is freed when the last ref to it is gone.
    holders : int
        The number of nodes that have refs to the object.
    copies_wanted, copies_there : int
        The hosts on which copies are kept (`Client.replicate`; 0: on no number of them), and how many
        have one.
    sticky : bool
        Nodes that join later get a copy (`Client.broadcast`).
    ttl : float or None
        The seconds that are left of the time to live; None if the object has none.
    metadata : bytes
        The metadata, as the store has it.
    name, name_space : str or None
        The name from which the id was derived, and its namespace. None: the object has no name, or
        only programs that did not know it have used the object.
    """

    __slots__ = (
        "complete",
        "complete_copies",
        "conflicts",
        "copies_there",
        "copies_wanted",
        "deleted",
        "holders",
        "known",
        "local",
        "metadata",
        "name",
        "name_space",
        "nbytes",
        "owned",
        "partial_copies",
        "sticky",
        "ttl",
        "waiting",
    )

    def __init__(self, status: Any) -> None:
        self.known: bool = bool(status.known)
        self.deleted: bool = bool(status.deleted)
        self.complete: bool = bool(status.complete)
        self.local: bool = bool(status.local)
        self.nbytes: int = status.size
        self.complete_copies: int = status.complete_copies
        self.partial_copies: int = status.partial_copies
        self.waiting: int = status.waiting
        self.conflicts: int = status.conflicts
        self.owned: bool = bool(status.owned)
        self.holders: int = status.holders
        self.copies_wanted: int = status.copies_wanted
        self.copies_there: int = status.copies_there
        self.sticky: bool = bool(status.sticky)
        self.ttl: float | None = None if status.ttl < 0 else status.ttl / 1e9
        self.metadata: bytes = ffi.buffer(status.metadata, status.metadata_size)[:]
        self.name: str | None = None
        self.name_space: str | None = None
        if status.name_size:
            self.name = ffi.buffer(status.name, status.name_size)[:].decode()
            self.name_space = ffi.buffer(status.name_space, status.name_space_size)[:].decode()

    def _fields(self) -> list[tuple[str, str]]:
        # Metadata has up to 4 KiB.
        fields = [(name, repr(getattr(self, name))) for name in sorted(self.__slots__) if name != "metadata"]
        return [*fields, ("metadata", f"<{len(self.metadata)} bytes>")]

    def __repr__(self) -> str:
        return f"ObjectStatus({', '.join(f'{name}={value}' for name, value in self._fields())})"

    def _repr_html_(self) -> str:
        return table("ObjectStatus", self._fields())
