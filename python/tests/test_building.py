"""C programs, built with nothing but the package and a compiler."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import phalanx

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_GUIDE = _ROOT / "docs" / "python.md"
_DEADLINE_S = 120


def test_the_commands_of_the_guide_build_and_run_the_example(tmp_path):
    """With this environment's Python as `python3`."""
    shutil.copy(_ROOT / "examples" / "c" / "quickstart.c", tmp_path)
    transcript = _GUIDE.read_text().split("### C programs")[1].split("```")[1].splitlines()[1:]
    commands = [line[2:] for line in transcript if line.startswith("$ ")]
    printed = [line for line in transcript if not line.startswith("$ ")]
    assert len(commands) == 4 and len(printed) == 1
    script = "\n".join(['python3() { "$PYTHON" "$@"; }', *commands])
    # The program must find the executable of its private cluster by itself.
    environment = {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=environment | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, printed[0] + "\n", "")


def test_the_library_is_found_by_its_name_once_it_is_loaded():
    """A library that was linked with it, and that Python loads, then uses the same copy."""
    already = ctypes.CDLL("libphalanx.so", mode=os.RTLD_NOLOAD)
    already.phx_version.restype = ctypes.c_char_p
    assert already.phx_version().decode() == phalanx.__version__


def test_the_header_is_that_of_the_library():
    folder = pathlib.Path(phalanx.get_include(), "phalanx")
    header = (folder / "c.h").read_text() + (folder / "c_ps.h").read_text()
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", phalanx.get_library()], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in exported.splitlines() if " phx_" in line}
    assert len(names) > 60
    assert [name for name in names if f"{name}(" not in header] == []
