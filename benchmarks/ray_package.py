"""Ray from PyPI, in its own environment, for comparison with Phalanx."""

import os
import pathlib
import subprocess
import sys

from benchmarks.records import BadInput

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEELS = ["ray==2.60.0", "numpy<3"]


def cache_folder():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "phalanx/peers"


def environment():
    return cache_folder() / WHEELS[0].replace("==", "-")


def is_set_up():
    return (environment() / "bin/ray").exists()


def set_up():
    if is_set_up():
        return
    place = environment()
    cache_folder().mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    subprocess.run([str(place / "bin/pip"), "install", "--quiet"] + WHEELS, check=True)


def interpreter():
    return str(environment() / "bin/python")


def set_up_package():
    """Installs Ray, and the newest wheel of the package beside it."""
    wheels = sorted((ROOT / "dist").glob("phalanx-*.whl"), key=os.path.getmtime)
    if not wheels:
        raise BadInput("there is no dist/phalanx-*.whl; scripts/wheel builds it")
    set_up()
    install = [interpreter(), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"{wheels[-1]}"], check=True)
    # The same version can have been rebuilt.
    subprocess.run([*install, "--force-reinstall", "--no-deps", f"{wheels[-1]}"], check=True)
