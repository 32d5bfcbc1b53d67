"""The ps-lite of BytePS over ZeroMQ, from the source package of BytePS, for comparison with libps and tables."""

import pathlib
import subprocess

from benchmarks import source_packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = "byteps==0.2.5.post15"
SHA256 = "9d6a3c5be4c4b5a172739744bb32725c433f9a9f63794e1885e7376ff4eea99f"
LIBRARY = "libps.a"
SOURCES = ("van", "postoffice", "customer")


def folder():
    """The folder include of ps-lite and its library, once set_up() has ended."""
    return source_packages.folder("ps-lite", PACKAGE)


def is_set_up():
    return (folder() / LIBRARY).exists()


def set_up():
    """Downloads the package by pip and compiles the library of ps-lite with the flags of its own Makefile, which would build ZeroMQ, too."""
    if is_set_up():
        return
    with source_packages.unpacked(PACKAGE, SHA256, {"MAKEFLAGS": "-n"}) as work:
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
