"""The code in docs/ray.md, whose blocks are one program: it runs unchanged. So does an example without a cluster given."""

from __future__ import annotations

import json
import pathlib
import re

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_PAGE = _ROOT / "docs" / "ray.md"
_EXAMPLE = _ROOT / "examples" / "ray" / "async_sgd.py"


def test_the_program_in_the_guide_runs(run_program):
    blocks = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    printed, _ = run_program("-c", "\n\n".join(blocks), RAY_ADDRESS="local")  # not the cluster of other tests
    assert "6.0\n" in printed


def test_an_example_starts_a_cluster_of_its_own(run_program):
    printed, _ = run_program(_EXAMPLE, "--megabytes=1", "--gradient-seconds=0.01", "--steps=10")
    record = json.loads(printed)
    assert (record["variant"], record["k"], record["workers"]) == ("k-of-n", 2, 4) and record["off_a_serial_run"] < 1e-3


def test_the_guide_names_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", _PAGE.read_text()))
    here = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    assert len(named) > 5 and all(f"def {name}(" in here for name in named)
