"""The ps-lite of BytePS over ZeroMQ, from the source package of BytePS, for comparison with libps and tables."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from benchmarks.ray_package import cache_folder
from benchmarks.records import BadInput

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = "byteps==0.2.5.post15"
SHA256 = "9d6a3c5be4c4b5a172739744bb32725c433f9a9f63794e1885e7376ff4eea99f"
LIBRARY = "libps.a"
SOURCES = ("van", "postoffice", "customer")


def folder():
    """The folder include of ps-lite and its library, once set_up() has ended."""
    return cache_folder() / ("ps-lite-of-" + PACKAGE.replace("==", "-"))


def is_set_up():
    return (folder() / LIBRARY).exists()


def check_hash(archive, wanted):
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != wanted:
        raise BadInput(f"{archive.name} has the SHA-256 {found}, not {wanted}")


def set_up():
    """Downloads the package by pip and compiles the library of ps-lite with the flags of its own Makefile, which would build ZeroMQ, too."""
    if is_set_up():
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        work = pathlib.Path(place)
        subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
        # pip asks the package for its name. Without -n that would compile all of BytePS.
        subprocess.run([str(work / "venv/bin/pip"), "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                        "--dest", str(work), PACKAGE], check=True, env=dict(os.environ, MAKEFLAGS="-n"))
        (archive,) = work.glob("byteps-*.tar.gz")
        check_hash(archive, SHA256)
        with tarfile.open(archive) as tar:
            tar.extractall(work)
        (sources,) = work.glob("byteps-*/3rdparty/ps-lite")
        made = work / "made"
        made.mkdir()
        for name in SOURCES:
            subprocess.run(["g++", "-std=c++14", "-msse2", "-fPIC", "-O3", "-finline-functions", f"-I{sources / 'include'}", "-c",
                            str(sources / "src" / f"{name}.cc"), "-o", str(work / f"{name}.o")], check=True)
        subprocess.run(["ar", "rcs", str(made / LIBRARY), *(str(work / f"{name}.o") for name in SOURCES)], check=True)
        (sources / "include").rename(made / "include")
        made.rename(folder())


def headers():
    """Those of this tree, which have most of what a program for ps-lite is made of."""
    return sorted((ROOT / "include/ps").rglob("*.h"))


def flags_of(library):
    """The same for libps.so of this tree, at its place."""
    return [f"-I{ROOT / 'include'}"], [str(library), f"-Wl,-rpath,{library.parent}"]


def flags():
    """The options with which a program of ps-lite is compiled, and those with which it is linked."""
    return [f"-isystem{folder() / 'include'}"], [str(folder() / LIBRARY), "-lzmq"]
