"""The code in docs/ray.md, whose blocks are one program, and in examples/ray: it runs unchanged."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_PAGE = _ROOT / "docs" / "ray.md"
_EXAMPLE = _ROOT / "examples" / "ray" / "async_sgd.py"


def test_the_program_in_the_guide_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
    environment.pop("RAY_rdt_fetch_fail_timeout_milliseconds", None)  # as users have it
    environment["RAY_ADDRESS"] = "local"  # not the cluster of other tests
    done = subprocess.run(
        [sys.executable, "-c", "\n\n".join(blocks)],
        capture_output=True,
        text=True,
        timeout=150,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6.0\n" in done.stdout


@pytest.mark.parametrize("transport", ["phalanx", "ray"])
def test_the_example_takes_the_steps_of_a_serial_run(transport):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
    done = subprocess.run(
        [sys.executable, _EXAMPLE, "--transport", transport, "--megabytes=1", "--gradient-seconds=0.01", "--steps=10"],
        capture_output=True,
        text=True,
        timeout=150,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["transport"] == transport


def test_the_guide_names_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", _PAGE.read_text()))
    here = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    assert len(named) > 5 and all(f"def {name}(" in here for name in named)
