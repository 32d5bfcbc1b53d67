"""The original Rabit, with its tracker, from the source package of XGBoost 0.90, for comparison with sessions.

Releases of XGBoost after 1.2 have a Rabit that does not recover.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from benchmarks.ray_package import cache_folder

PACKAGE = "xgboost==0.90"
LIBRARY = "rabit/lib/librabit.a"


def folder():
    """The folders rabit and dmlc-core of the package, once set_up() has ended."""
    return cache_folder() / ("rabit-of-" + PACKAGE.replace("==", "-"))


def is_set_up():
    return (folder() / LIBRARY).exists()


def set_up():
    """Downloads the package by pip and compiles the library of Rabit, with the flags of its own Makefile."""
    if is_set_up():
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        work = pathlib.Path(place)
        subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
        # pip asks the package for its name. Without these two that would compile all of XGBoost.
        subprocess.run([str(work / "venv/bin/pip"), "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                        "--dest", str(work), PACKAGE],
                       check=True, env=dict(os.environ, MAKEFLAGS="-n", XGBOOST_BUILD_DOC="1"))
        (archive,) = work.glob("xgboost-*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(work)
        (sources,) = work.glob("xgboost-*/xgboost")
        subprocess.run(["make", "--silent", "-C", str(sources / "rabit"), LIBRARY.removeprefix("rabit/")], check=True)
        made = work / "made"
        made.mkdir()
        for name in ("rabit", "dmlc-core"):
            (sources / name).rename(made / name)
        made.rename(folder())


def flags():
    """The options with which a program of Rabit is compiled, and those with which it is linked."""
    includes = [f"-isystem{folder() / name}" for name in ("rabit/include", "dmlc-core/include")]
    return includes, [str(folder() / LIBRARY)]


def tracker_program(address, world):
    """A Python program that prints the tracker's port and gives `world` ranks their places; the tracker's own needs an older Python."""
    return f"""import sys
sys.path.insert(0, {str(folder() / "dmlc-core/tracker")!r})
from dmlc_tracker.tracker import RabitTracker
tracker = RabitTracker(hostIP={address!r}, nslave={world})
print(tracker.port, flush=True)
tracker.accept_slaves({world})
"""
