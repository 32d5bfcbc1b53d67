"""The examples, and the samples in the guide and the package's README. Each runs unchanged, in its own
interpreter and private cluster."""

from __future__ import annotations

import os
import pathlib
import re

import pytest
from programs_support import ROOT, run

# The size of the dict of shared_dict.py.
_MIB = os.environ.get("PHALANX_TEST_MIB", "64")
_EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))
_NOTEBOOKS = sorted((ROOT / "examples" / "python").glob("*.ipynb"))
_PAGES = (ROOT / "docs" / "python.md", ROOT / "python" / "README.md")
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _samples() -> list:
    found = []
    for page in _PAGES:
        text = page.read_text()
        for block in _FENCE.finditer(text):
            line = text.count("\n", 0, block.start()) + 2
            found.append(pytest.param(block[1], id=f"{page.name}:{line}"))
    return found


# Runs the cells of a notebook as a kernel does; prints the last value of each, and the number of pictures.
_KERNEL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

pictures = 0
shell = InteractiveShell.instance()
with open(sys.argv[1]) as file:
    cells = json.load(file)["cells"]
for cell in cells:
    if cell["cell_type"] == "code":
        ran = shell.run_cell("".join(cell["source"]), store_history=True)
        ran.raise_error()
        shown, _ = shell.display_formatter.format(ran.result)
        pictures += shown.get("image/svg+xml", "").startswith("<svg")
print("pictures", pictures)
"""


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.name)
def test_notebook(path, tmp_path, monkeypatch):
    pytest.importorskip("IPython")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    kernel = tmp_path / "kernel.py"
    kernel.write_text(_KERNEL)
    # Warnings of IPython itself are not ours to fix.
    assert "pictures 1" in run(kernel, path, warnings="default")
    assert f"`{path.name}`" in (path.parent / "README.md").read_text()


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.name)
def test_example(path):
    if "_torch" in path.name:
        pytest.importorskip("torch", reason="torch is not installed")
    assert run(path, *([_MIB] if path.name == "shared_dict.py" else []))
    assert f"`{path.name}`" in (path.parent / "README.md").read_text()
    assert len(path.read_text().splitlines()) < 125


@pytest.mark.parametrize("code", _samples())
def test_sample(code, tmp_path):
    program = tmp_path / "sample.py"
    program.write_text(code)
    run(program)


def test_nothing_is_skipped():
    assert len(_EXAMPLES) >= 3
    fences = [page.read_text().count("```python") for page in _PAGES]
    assert len(_samples()) == sum(fences) and min(fences) > 0


def test_the_quick_start_is_the_same_everywhere():
    quick_start = (ROOT / "examples" / "python" / "quickstart.py").read_text().split('"""\n\n', 1)[1]
    for page in _PAGES:
        assert quick_start in page.read_text(), page


def test_every_test_of_the_failure_table_exists():
    source = "".join(path.read_text() for path in pathlib.Path(__file__).parent.rglob("test_*.py"))
    table = _PAGES[0].read_text().partition("| case | exception |")[2]
    named = re.findall(r"`(test_\w+)`", table)
    assert named
    for name in named:
        assert f"def {name}(" in source, name
