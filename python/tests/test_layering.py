"""The modules of the package import each other without a cycle, in functions and for types too."""

from __future__ import annotations

import ast
import pathlib

import pytest

import phalanx

_PACKAGE = pathlib.Path(phalanx.__file__).parent
_README = pathlib.Path(__file__).resolve().parents[1] / "phalanx" / "README.md"
# The facade, and the modules that build on it, as phalanx.spmd does. No feature can import them; phalanx.ray is a
# program beside them.
_TOP = ("phalanx", "phalanx._async_client", "phalanx._client", "phalanx._default")


def _modules(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the files of a package by the names of their modules."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def _imports(folder: pathlib.Path) -> dict[str, set[str]]:
    """Return the modules of a package that each of its modules imports, anywhere in its file."""
    modules = _modules(folder)
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} has a relative import, which this test does not resolve"
                # "from a import b" imports a.b if that is a module, else it reads a name of a.
                paths = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[name].update(path if path in modules else str(node.module) for path in paths)
        graph[name] &= modules.keys()
    return graph


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a cycle in the order of their imports; empty if there is none."""
    finished: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished:
            return []
        for imported in sorted(graph[name]):
            if cycle := visit(imported, [*path, name]):
                return cycle
        finished.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def test_no_module_imports_itself_through_others():
    graph = _imports(_PACKAGE)
    assert len(graph) > 30 and "phalanx._native" in graph["phalanx._connection"]
    assert _cycle(graph) == []


def test_imports_point_down_in_the_drawing():
    """The rows of modules in the README are in the order of their imports."""
    rows = [line.split() for line in _README.read_text().split("```")[1].splitlines()]
    row_of = {name.strip("/"): row for row, names in enumerate(rows) for name in names}
    # The folder _values has one place; the cycle test covers its modules.
    graph: dict[str, set[str]] = {}
    for name, imports in _imports(_PACKAGE).items():
        of = [(path.split(".") + ["__init__"])[1] for path in (name, *imports)]
        graph.setdefault(of[0], set()).update(of[1:])
    upward = [
        (name, imported)
        for name, imports in graph.items()
        for imported in imports - {name}
        if row_of[imported] <= row_of[name]
    ]
    assert upward == []


def test_no_feature_imports_the_facade():
    importers = {
        name
        for name, imports in _imports(_PACKAGE).items()
        if imports & set(_TOP) and not name.startswith("phalanx.ray")
    }
    modules = {"phalanx._async_client", "phalanx._default", "phalanx.ps", "phalanx.rabit", "phalanx.spmd"}
    assert importers == {"phalanx", *modules}


@pytest.mark.parametrize(
    "back",
    [
        "from pack import above",
        "import pack.above",
        "def use():\n    from pack.above import name",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from pack.above import name",
        "from pack import name",
    ],
)
def test_the_search_finds_a_cycle(tmp_path, back):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("from pack import above\nname = 1\n")
    (folder / "above.py").write_text("from pack.below import name\n")
    (folder / "below.py").write_text("import os\nname = 1\n")
    assert _cycle(_imports(folder)) == []
    (folder / "below.py").write_text(f"name = 1\n{back}\n")
    assert set(_cycle(_imports(folder))) >= {"pack.above", "pack.below"}
