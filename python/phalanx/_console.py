"""The ``phalanx`` command that comes with the package."""

from __future__ import annotations

import os
import sys

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")


def main() -> None:
    """Replace this process with the packaged executable."""
    executable = os.path.join(_FOLDER, "phalanx")
    os.execv(executable, [executable, *sys.argv[1:]])
