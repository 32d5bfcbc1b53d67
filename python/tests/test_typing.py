"""The package is typed: the types that checkers see, and no public function without types."""

from __future__ import annotations

import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import phalanx

_SAMPLE = pathlib.Path(__file__).parent / "typed" / "sample.py"


def _mypy(path: pathlib.Path, cache: pathlib.Path) -> subprocess.CompletedProcess[str]:
    package = pathlib.Path(phalanx.__file__).resolve().parent
    assert (package / "py.typed").exists()
    environment = dict(os.environ)
    if package.parent.name != "site-packages":
        environment["MYPYPATH"] = str(package.parent)
    flags = ["--strict", "--follow-imports=silent", f"--cache-dir={cache}"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *flags, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=cache,
        check=False,
    )


def test_type_checkers_infer_the_types_of_the_guide(tmp_path):
    pytest.importorskip("mypy")
    checked = _mypy(_SAMPLE, tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # The sample has assertions to check.
    text = _SAMPLE.read_text()
    other = tmp_path / "other.py"
    other.write_text(text.replace("assert_type(phalanx.contains(ref), bool)", "assert_type(phalanx.contains(ref), int)"))
    refused = _mypy(other, tmp_path)
    assert refused.returncode == 1 and 'not "int"' in refused.stdout, refused.stdout + refused.stderr


def _public(of: object, where: str) -> list[tuple[str, object]]:
    names = [name for name in vars(of) if not name.startswith("_") or name == "__init__"]
    return [(f"{where}.{name}", inspect.getattr_static(of, name)) for name in names]


def _bare(where: str, function: object) -> list[str]:
    """Return the untyped parameters of a function, and its return if that is untyped."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    bare = [
        f"{where}({name})"
        for index, (name, parameter) in enumerate(signature.parameters.items())
        if parameter.annotation is inspect.Parameter.empty and not (index == 0 and name in ("self", "cls"))
    ]
    returns = signature.return_annotation is not inspect.Signature.empty
    return bare if returns or where.endswith("__init__") else [*bare, f"{where} ->"]


def test_everything_public_has_types():
    bare: list[str] = []
    found = [(f"phalanx.{name}", getattr(phalanx, name)) for name in phalanx.__all__]
    for where, what in list(found):
        if inspect.isclass(what):
            for kind in what.__mro__:
                if kind.__module__.startswith("phalanx"):
                    found += _public(kind, f"{where}:{kind.__name__}")
    for where, what in found:
        inner = what.fget if isinstance(what, property) else getattr(what, "__func__", what)
        if inspect.isfunction(inner):
            bare += _bare(where, inner)
    assert len(found) > 60
    assert bare == []
