"""Source packages from PyPI of programs in C++ that are compared with Phalanx."""

import contextlib
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from benchmarks.ray_package import cache_folder
from benchmarks.records import BadInput


def folder(kind, package):
    """Where what is made of a package stays."""
    return cache_folder() / f"{kind}-of-{package.replace('==', '-')}"


@contextlib.contextmanager
def unpacked(package, sha256, variables):
    """A folder in which the package is unpacked. It is removed at the end."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        work = pathlib.Path(place)
        subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
        # pip asks the package for its name. Without these variables that would compile all of it.
        subprocess.run([str(work / "venv/bin/pip"), "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                        "--dest", str(work), package], check=True, env=dict(os.environ, **variables))
        (archive,) = work.glob(package.partition("==")[0] + "-*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != sha256:
            raise BadInput(f"{archive.name} has the SHA-256 {found}, not {sha256}")
        with tarfile.open(archive) as tar:
            tar.extractall(work)
        yield work
