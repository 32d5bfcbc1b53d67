"""Ray from PyPI, in its own environment, for comparison with Phalanx."""

import os
import pathlib
import subprocess
import sys

WHEELS = ["ray==2.60.0", "numpy<3"]


def cache_folder():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "phalanx/peers"


def environment():
    return cache_folder() / WHEELS[0].replace("==", "-")


def set_up():
    place = environment()
    if (place / "bin/ray").exists():
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    subprocess.run([str(place / "bin/pip"), "install", "--quiet"] + WHEELS, check=True)
