"""The examples of a parameter server, under `phalanx launch`: the bits of the serial replay with BSP, also when servers
and workers are killed, and its loss with SSP and ASP."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from programs_support import ROOT

import phalanx
from phalanx import _native

FOLDER = ROOT / "examples" / "ps"
DEATHS = ("server:1,3,0@push", "worker:2,6,0@push")


def run(command):
    """Run a program, and return the lines that it prints, and its errors."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines(), ended.stderr


def launch(example, *arguments, deaths=()):
    """Run an example with two servers and three workers, and return its line."""
    words = [sys.executable, str(FOLDER / example), *arguments]
    fail = (f"--fail={death}" for death in deaths)
    flags = ["--servers=2", "--workers=3", f"--restarts={len(deaths)}", "--no-prefix", *fail]
    (line,), errors = run([_native.EXECUTABLE, "launch", *flags, "--", *words])
    assert errors.count("ended by signal 9") == len(deaths), errors
    assert f"`{example}`" in (FOLDER / "README.md").read_text()
    return line


def serial(example, *arguments):
    (line,), _ = run([sys.executable, str(FOLDER / example), "--serial=3", *arguments])
    return line


def number(line, name):
    """Return a number of the line, such as that behind "loss"."""
    return float(re.search(f"{name} ([0-9.]+)", line)[1])


def check_loss(example, *arguments, name, expected, syncs):
    """The loss is within a hundredth of that with BSP."""
    for sync in syncs:
        line = launch(example, *arguments, f"--sync={sync}")
        assert line.startswith(f"{sync}: ")
        assert number(line, name) == pytest.approx(number(expected, name), rel=0.01)


def test_logistic_regression():
    pytest.importorskip("sklearn")
    arguments = ["--clocks=100"]
    expected = serial("logistic.py", *arguments)
    assert launch("logistic.py", *arguments, deaths=DEATHS) == expected
    assert number(expected, "accuracy") >= 0.95
    check_loss("logistic.py", *arguments, name="loss", expected=expected, syncs=["ssp", "asp"])


def test_logistic_regression_of_several_classes():
    pytest.importorskip("sklearn")
    arguments = ["--data=digits", "--clocks=50"]
    assert launch("logistic.py", *arguments, deaths=DEATHS) == serial("logistic.py", *arguments)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="one Python is enough for what takes seconds")
@pytest.mark.parametrize(("kind", "clocks"), [([], 40), (["--embedding"], 60)])
def test_which_language_is_a_word(kind, clocks):
    arguments = [*kind, "--words=10000", "--batch=500", f"--clocks={clocks}"]
    expected = serial("language.py", *arguments)
    assert launch("language.py", *arguments, deaths=DEATHS) == expected
    assert number(expected, "accuracy") >= 0.95


def test_without_lists_of_words_the_packages_are_named(tmp_path):
    """In a program of its own, whose lists are elsewhere."""
    pytest.importorskip("numpy")
    program = f"import language; language.LISTS = {{'{tmp_path}/list': 'wamerican'}}; language.load(1)"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert f"there is no {tmp_path}/list: install the package wamerican" in ended.stderr


def test_kmeans():
    pytest.importorskip("sklearn")
    pytest.importorskip("PIL")
    arguments = ["--every=8", "--clocks=25"]
    expected = serial("kmeans.py", *arguments)
    assert launch("kmeans.py", *arguments, deaths=DEATHS) == expected
    check_loss("kmeans.py", *arguments, name="distance", expected=expected, syncs=["asp"])
