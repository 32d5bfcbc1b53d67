"""Refuses sub-interpreters before cffi is imported.

In a sub-interpreter cffi fails with an unclear error, works only partly, or breaks its own import in
the main interpreter (3.12).
"""

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
        return  # this Python has no sub-interpreters
    if known.get_current() != known.get_main():
        raise ImportError(
            "phalanx cannot be imported in a sub-interpreter: use a thread of the main one, or a process",
            name="phalanx",
        )
