"""The version of this release, and what it cannot run in. src/common/release.h has the same version.

`check` refuses sub-interpreters, and the source of the package, before cffi is imported.

In a sub-interpreter cffi fails with an unclear error, works only partly, or breaks its own import in
the main interpreter (3.12). The source has no library; Python finds it, and not the installed package,
if it is started in the folder of the source.
"""

from __future__ import annotations

import importlib.util
import os
import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check() -> None:
    """Raise ImportError unless this is the main interpreter, and the package is built."""
    # The tools of the documentation read the source, with a module of their own in its place.
    if importlib.util.find_spec("phalanx._abi") is None:
        folder = os.path.dirname(os.path.abspath(__file__))
        raise ImportError(
            f"{folder} is the source of phalanx, without its library: start Python in another folder, with "
            "the package installed (scripts/wheel, then pip install dist/phalanx-*.whl)",
            name="phalanx",
        )
    try:
        known: Any = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:
        return  # this Python has no sub-interpreters
    if known.get_current() != known.get_main():
        raise ImportError(
            "phalanx cannot be imported in a sub-interpreter: use a thread of the main one, or a process",
            name="phalanx",
        )
