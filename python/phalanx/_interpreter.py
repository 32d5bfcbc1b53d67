"""Refuses sub-interpreters, before cffi is imported: there it fails less clearly, works half-way, or breaks
the main interpreter's own import of it (3.12)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check() -> None:
    """Raise ImportError unless this is the main interpreter."""
    try:
        known: Any = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:
        return  # there are none
    if known.get_current() != known.get_main():
        raise ImportError(
            "phalanx cannot be imported in a sub-interpreter: use a thread of the main one, or a process",
            name="phalanx",
        )
