"""The code in the pages for newcomers: every block of Python or of a shell runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import select
import subprocess

import programs_support
import pytest
from programs_support import ROOT, Block, run_section, sections_of

_PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("tutorial", "recipes", "coming-from", "faq")),
]
# Large. Blocks that import one of these run where it is installed.
_OPTIONAL = ("joblib", "pandas", "pyarrow", "torch")


def _sections() -> list:
    return [
        pytest.param(blocks, id=f"{page.name}:{line}")
        for page in _PAGES
        for line, blocks in sections_of(page).items()
    ]


@pytest.mark.parametrize("blocks", _sections())
def test_section(blocks: list[Block]):
    imported = {name for block in blocks for name in re.findall(r"^import (\w+)", block.code, re.MULTILINE)}
    for name in imported.intersection(_OPTIONAL):
        pytest.importorskip(name)
    run_section(blocks)


def test_nothing_is_skipped():
    for page in _PAGES:
        fences = re.findall(r"^```(?:python|sh)$", page.read_text(), re.MULTILINE)
        assert fences and len(fences) == sum(len(blocks) for blocks in sections_of(page).values()), page


def test_a_page_that_times_out_leaves_no_process(monkeypatch, tmp_path):
    monkeypatch.setattr(programs_support, "_DEADLINE_S", 3)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    reader = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    daemon = f"(echo started; exec sleep 600) > {gate} &\nwait\n"
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            run_section([Block("sh", daemon)])
        assert os.read(reader, 100) == b"started\n"
        # The end of the file: no process has it open for writing.
        assert select.select([reader], [], [], 60)[0] and os.read(reader, 100) == b""
    finally:
        os.close(reader)
