"""The files of the package with which programs in C, and in languages that call C, are built."""

from __future__ import annotations

import os

from phalanx import _native


def get_include() -> str:
    """Return the folder to compile C programs with: ``#include "phalanx/c.h"`` with ``-I`` of it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_include")


def get_library() -> str:
    """Return the path of ``libphalanx.so`` with the C functions, to link or to load.

    It needs only the C library, and finds the executable of private clusters beside itself.
    A linked program finds it at run time by ``-Wl,-rpath,`` and its folder.
    """
    return os.path.join(_native.FOLDER, "libphalanx.so")
