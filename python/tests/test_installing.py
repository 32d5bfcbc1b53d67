"""Installs the wheel where none of its build dependencies can be reached."""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# The shared objects of the packages that scripts/setup installs for the build.
_LIBRARIES = (
    "absl_* address_sorting cares crypto fmt gpr grpc* hwy* jemalloc protobuf* protoc re2 spdlog "
    "ssl upb xxhash"
).split()
# Run in a mount namespace of its own.
_MASK = """
set -e
mount -t tmpfs none /usr/include
for library in "$@"; do mount --bind "$EMPTY" "$library"; done
exec "$PYTHON" "$PROGRAM" "$@"
"""
_PROGRAM = """
import ctypes, os, subprocess, sys

assert os.listdir("/usr/include") == []
for library in sys.argv[1:]:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        assert "file too short" in str(error), error
    else:
        raise AssertionError(f"{library} is still there")
fresh = os.environ["FRESH"]
pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", f"--python={fresh}/bin/python"]
subprocess.run([*pip, "install", "--no-index", os.environ["WHEEL"]], check=True)
subprocess.run([*pip, "check"], check=True)
subprocess.run([f"{fresh}/bin/phalanx", "--help"], check=True, stdout=subprocess.DEVNULL)
code = "import phalanx, sys; assert phalanx.__file__.startswith(sys.prefix), phalanx.__file__"
subprocess.run([f"{fresh}/bin/python", "-c", code], check=True)
subprocess.run([f"{fresh}/bin/python", "-W", "error", os.environ["QUICK_START"]], check=True)
print("ran")
"""


def _namespace() -> list[str]:
    """Return the command that makes a mount namespace."""
    for command in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        probe = [*command, "mount", "-t", "tmpfs", "none", "/usr/include"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("mount namespaces are not permitted here")


def _wheel() -> pathlib.Path:
    """Return the wheel that the package under test was installed from."""
    origin = importlib.metadata.distribution("phalanx").read_text("direct_url.json")
    if origin is None:
        pytest.skip("the package under test was not installed from a file")
    wheel = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(json.loads(origin)["url"]).path))
    if not wheel.is_file():
        pytest.skip(f"{wheel}, which was installed, is gone")
    return wheel


def _environment_with(packages: list[str], folder: pathlib.Path) -> None:
    """Make an environment with only these packages of the environment that runs the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (place,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        distribution = importlib.metadata.distribution(package)
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        assert tops, package
        for top in tops:
            (place / top).symlink_to(str(distribution.locate_file(top)))


def test_what_pip_brings_is_enough(tmp_path):
    """A program that puts no array works with the packages that the wheel requires, and no others."""
    required = importlib.metadata.requires("phalanx")
    if required is None:
        pytest.skip("the package under test was not installed")
    names = [re.match(r"[\w-]+", each)[0] for each in required if "extra ==" not in each]
    # pycparser is required by cffi.
    _environment_with(["phalanx", *names, "pycparser"], tmp_path / "fresh")
    code = "import phalanx; print(phalanx.get(phalanx.put({'a': [1, 2.5, 'text', None]})))"
    python = tmp_path / "fresh" / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "{'a': [1, 2.5, 'text', None]}\n"), done.stderr


def test_without_the_build_libraries(tmp_path):
    namespace, wheel = _namespace(), _wheel()
    patterns = [f"/usr/lib/*-linux-gnu/lib{name}.so*" for name in _LIBRARIES]
    libraries = {os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)}
    _environment_with(["cffi", "cloudpickle", "numpy", "pycparser"], tmp_path / "fresh")
    (tmp_path / "program.py").write_text(_PROGRAM)
    (tmp_path / "empty").touch()
    guide = (_ROOT / "docs" / "python.md").read_text().partition("## Quick start")[2]
    quick_start = re.search(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert quick_start is not None
    (tmp_path / "quickstart.py").write_text(quick_start[1])
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "PROGRAM": str(tmp_path / "program.py"),
        "EMPTY": str(tmp_path / "empty"),
        "FRESH": str(tmp_path / "fresh"),
        "WHEEL": str(wheel),
        "QUICK_START": str(tmp_path / "quickstart.py"),
    }
    done = subprocess.run(
        [*namespace, "bash", "-c", _MASK, "bash", *sorted(libraries)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ran"
