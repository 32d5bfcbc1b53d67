"""Lets the tests run from a checkout as well as against an installed package."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

if importlib.util.find_spec("phalanx") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
