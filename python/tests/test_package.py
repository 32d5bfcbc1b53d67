"""The content of the package: dependencies of the library and the executable, exports, versions, docstrings."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import sysconfig

import pytest

import phalanx
import phalanx.ps
import phalanx.spmd
from phalanx import _native

LIBRARY = os.path.join(_native.FOLDER, "libphalanx.so")
ALLOWED = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "libpthread.so.0",
    "libdl.so.2",
}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", [LIBRARY, _native.EXECUTABLE])
def test_needs_the_c_library_alone(path):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "-d", path)))
    assert needed <= ALLOWED
    versions = re.findall(r"GLIBC_2\.(\d+)", _output("objdump", "-T", path))
    assert max(map(int, versions)) <= 34


def test_exports_its_functions_alone():
    symbols = _output("nm", "-D", "--defined-only", LIBRARY).splitlines()
    exported = {line.split()[-1] for line in symbols if line.split()[1] in "TDBRVWiu"}
    assert exported and all(name.startswith("phx_") for name in exported)


def test_versions_agree():
    assert phalanx.__version__ == importlib.metadata.version("phalanx")
    assert phalanx.__version__ == _native.text(_native.lib.phx_version())


def test_the_source_is_refused_with_the_remedy():
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-B", "-c", "import phalanx"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=60, check=False)
    refused = done.stderr.splitlines()[-1]
    assert refused.startswith("ImportError: ") and "scripts/wheel" in refused, done.stderr


def test_command():
    assert "phalanx" in _output(_native.EXECUTABLE, "--help")
    assert "phalanx" in _output(os.path.join(sysconfig.get_path("scripts"), "phalanx"), "--help")


def test_manual_pages_and_completions_are_installed():
    share = os.path.join(sysconfig.get_path("data"), "share")
    script = _output(_native.EXECUTABLE, "completion", "bash")
    with open(os.path.join(share, "bash-completion", "completions", "phalanx")) as file:
        assert file.read() == script
    assert os.path.exists(os.path.join(share, "zsh", "site-functions", "_phalanx"))
    assert os.path.exists(os.path.join(share, "fish", "vendor_completions.d", "phalanx.fish"))
    answers = _output(_native.EXECUTABLE, "completion", "bash", "--", "")
    commands = [answer.split("\t")[0] for answer in answers.splitlines()]
    assert "put" in commands
    pages = {"phalanx.1", *(f"phalanx-{command}.1" for command in commands)}
    assert set(os.listdir(os.path.join(share, "man", "man1"))) >= pages
    with open(os.path.join(share, "man", "man1", "phalanx-put.1")) as file:
        assert file.read() == _output(_native.EXECUTABLE, "help", "--man", "put")


def test_everything_public_is_documented():
    for name in phalanx.__all__:
        value = getattr(phalanx, name)
        if not isinstance(value, str):
            assert inspect.getdoc(value), name
    sessions = (phalanx.spmd.Session, phalanx.spmd.SessionCall)
    servers = [value for name in phalanx.ps.__all__ if inspect.isclass(value := getattr(phalanx.ps, name))]
    for kind in (phalanx.Client, phalanx.ObjectRef, *sessions, *servers):
        assert inspect.getdoc(kind), kind.__name__
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{kind.__name__}.{name}"
