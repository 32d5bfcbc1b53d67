"""Sphinx's configuration of the site, which scripts/docs builds from the pages of the whole tree."""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

project = "Phalanx"
extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
root_doc = "README"
# By name: a checkout can have environments and build folders, which have pages of their own.
FOLDERS = ["benchmarks", "docs", "examples", "python", "src", "tests"]
include_patterns = ["*.md", "docs/site/*.rst", *(f"{folder}/**.md" for folder in FOLDERS)]
exclude_patterns = ["**/.*", "**/build", "**/venv"]
highlight_language = "none"
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "fixed_sidebar": False}
html_title = "Phalanx"
toc_object_entries_show_parents = "hide"
html_show_sourcelink = False
html_copy_source = False
# Headings down to this level are anchors, as on GitHub.
myst_heading_anchors = 4

# The docstrings are read without the compiled library.
autodoc_mock_imports = ["phalanx._abi", "phalanx._native"]
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
napoleon_google_docstring = False
default_role = "autolink"

breathe_projects = {"phalanx": os.environ["PHALANX_HEADERS_XML"]}
breathe_default_project = "phalanx"

# The side bar. A page that is in none of these lists is an error.
NAVIGATION = {
    "Begin": ["docs/tutorial", "docs/recipes", "docs/coming-from", "docs/ps-lite", "docs/faq"],
    "Guides": [
        "docs/python",
        "docs/client",
        "docs/collectives",
        "docs/lifetime",
        "docs/jobs",
        "docs/parameter-server",
        "docs/ray",
        "docs/operations",
    ],
    "Reference": ["docs/site/python", "docs/site/cpp", "docs/site/c", "CHANGELOG"],
    "Inside": [
        "docs/how-it-works",
        "docs/architecture",
        "docs/protocol",
        "docs/data-plane",
        "docs/memory",
        "docs/performance",
        "docs/benchmarks",
        "docs/simulation",
        "CONTRIBUTING",
    ],
}
# Pages below another one, by that one.
BELOW = {
    "docs/recipes": ["/examples/**"],
    "docs/architecture": ["/python/**", "/src/**", "/tests/**", "/benchmarks/**"],
}


def add_navigation(app, name, source):
    """Append the lists of pages below a page to its text, which is that of the repository."""
    lists = NAVIGATION if name == root_doc else {"Folders": BELOW.get(name)}
    for caption, pages in lists.items():
        if pages:
            lines = [":hidden:", ":glob:", f":caption: {caption}", "", *pages]
            source[0] += "\n".join(["\n```{toctree}", *lines, "```\n"])


def link_folders(app, name, source):
    """Make links to folders lead to their READMEs, as the browsers of repositories do."""
    here = (ROOT / name).parent
    source[0] = re.sub(
        r"\]\(([\w./-]+)\)",
        lambda link: f"]({link[1]}/README.md)" if (here / link[1] / "README.md").exists() else link[0],
        source[0],
    )


def setup(app):
    app.connect("source-read", add_navigation)
    app.connect("source-read", link_folders)
