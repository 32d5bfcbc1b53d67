"""The original Rabit, with its tracker, from the source package of XGBoost 0.90, for comparison with sessions.

Releases of XGBoost after 1.2 have a Rabit that does not recover.
"""

import subprocess

from benchmarks import source_packages

PACKAGE = "xgboost==0.90"
SHA256 = "d69f90d61a63e8889fd39a31ad00c629bac1ca627f8406b9b6d4594c9e29ab84"
LIBRARY = "rabit/lib/librabit.a"


def folder():
    """The folders rabit and dmlc-core of the package, once set_up() has ended."""
    return source_packages.folder("rabit", PACKAGE)


def is_set_up():
    return (folder() / LIBRARY).exists()


def set_up():
    """Downloads the package by pip and compiles the library of Rabit, with the flags of its own Makefile."""
    if is_set_up():
        return
    with source_packages.unpacked(PACKAGE, SHA256, {"MAKEFLAGS": "-n", "XGBOOST_BUILD_DOC": "1"}) as work:
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
