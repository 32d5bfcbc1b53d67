"""HTML of the package's objects for notebooks. Nothing here asks a node."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
