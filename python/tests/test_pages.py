"""The code in the pages for newcomers: every block of Python or of a shell runs, and prints what the page says."""

from __future__ import annotations

import re

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
