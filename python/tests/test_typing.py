"""The package is typed: the types that checkers see, and no public function without types."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
from unittest import mock

import pytest

import phalanx

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SAMPLE = pathlib.Path(__file__).parent / "typed" / "sample.py"


def _mypy(path: pathlib.Path, cache: pathlib.Path) -> subprocess.CompletedProcess[str]:
    package = pathlib.Path(phalanx.__file__).resolve().parent
    assert (package / "py.typed").exists()
    environment = dict(os.environ)
    if package.parent.name != "site-packages":
        environment["MYPYPATH"] = str(package.parent)
    flags = ["--strict", "--follow-imports=silent", f"--cache-dir={cache}"]
    return _ran([sys.executable, "-m", "mypy", *flags, str(path)], cache, environment)


def _pyright(
    path: pathlib.Path, folder: pathlib.Path, mode: str = "strict"
) -> subprocess.CompletedProcess[str]:
    """Check a file or folder; basedpyright is pyright from the Python package index."""
    included = str(path.relative_to(folder))
    settings = {"typeCheckingMode": mode, "enableTypeIgnoreComments": True, "include": [included]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(folder), "--pythonpath", sys.executable]
    return _ran(command, folder)


def _ran(
    command: list[str], folder: pathlib.Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder, check=False
    )


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_type_checkers_infer_the_types_of_the_guide(checker, tmp_path):
    pytest.importorskip(checker)
    check = _mypy if checker == "mypy" else _pyright
    text = _SAMPLE.read_text()
    program = tmp_path / "program.py"
    program.write_text(text)
    checked = check(program, tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # The sample has assertions to check.
    right = "assert_type(phalanx.contains(ref), bool)"
    assert right in text
    program.write_text(text.replace(right, "assert_type(phalanx.contains(ref), int)"))
    refused = check(program, tmp_path)
    assert refused.returncode == 1 and '"int"' in refused.stdout, refused.stdout + refused.stderr
    # Each of its wrong calls is an error, whose comment `type: ignore` hides.
    program.write_text(re.sub("  # type: ignore.*", "", text))
    refused = check(program, tmp_path)
    wrong = text[: text.index("def wrong_async(")].count("\n") + 2
    lines = {int(line) for line in re.findall(r"program\.py:(\d+):.* error: ", refused.stdout)}
    expected = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if number >= wrong and "type: ignore" in line
    }
    assert len(expected) > 10 and lines == expected, refused.stdout


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_the_examples_have_no_wrong_types(checker, tmp_path):
    """mypy checks them strictly. Pyright does not: NumPy's results have types that it knows in part only."""
    pytest.importorskip(checker)
    examples = sorted((_ROOT / "examples" / "python").glob("*.py"))
    for path in examples:
        shutil.copy(path, tmp_path)

    def check() -> subprocess.CompletedProcess[str]:
        if checker == "mypy":
            return _mypy(tmp_path, tmp_path)
        return _pyright(tmp_path, tmp_path, mode="standard")

    checked = check()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    broken = tmp_path / "quickstart.py"
    broken.write_text(broken.read_text() + "phalanx.put(1).get(timeout='soon')\n")
    refused = check()
    assert refused.returncode == 1 and "quickstart.py" in refused.stdout, refused.stdout + refused.stderr


def test_no_public_type_is_unknown(tmp_path):
    """Pyright reads every public signature and attribute from annotations, without inference."""
    pytest.importorskip("basedpyright")
    package = pathlib.Path(phalanx.__file__).resolve().parent
    if package.parent.name != "site-packages":
        pytest.skip("pyright verifies installed packages")
    # This pyright takes the environment from PATH.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    flags = ["--verifytypes", "phalanx", "--ignoreexternal"]
    verified = _ran([sys.executable, "-m", "basedpyright", *flags], tmp_path, {**os.environ, "PATH": path})
    assert "Type completeness score: 100%" in verified.stdout, verified.stdout + verified.stderr
    assert int(re.findall('Symbols exported by "phalanx": ([0-9]+)', verified.stdout)[0]) > 60


def _completed(text: str) -> set[str]:
    """Return the names that an editor offers at the end of a program. The program does not run."""
    jedi = pytest.importorskip("jedi")
    return {found.name for found in jedi.Script("import phalanx\n" + text).complete()}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("phalanx.", {"put", "get", "reduce", "Client", "ObjectRef"}),
        ("phalanx.put(1).", {"get", "hex", "stream", "set_exception", "future"}),
        ("phalanx.reduce([phalanx.ref()]).", {"get", "hex"}),
        ("phalanx.reduce(", {"refs=", "op=", "num_objects=", "order=", "dtype=", "root=", "timeout="}),
        ("phalanx.init(", {"address=", "timeout=", "connect_timeout=", "capacity="}),
        ("phalanx.init().", {"put", "get", "reduce", "close", "address"}),
        ("phalanx.Client(", {"address=", "timeout=", "connect_timeout=", "capacity="}),
        ("phalanx.AsyncClient().", {"put", "get", "reduce", "as_completed", "broadcast"}),
        ("async def f():\n    (await phalanx.AsyncClient().put(1)).", {"get", "hex"}),
        ("phalanx.broadcast(phalanx.ref()).", {"wait", "progress", "stop"}),
        ("phalanx.stat(phalanx.ref()).", {"nbytes", "complete"}),
        ("phalanx.open_reduction([], dtype='f4').", {"add", "close", "wait", "ref"}),
        ("with phalanx.create(3, 'f4') as draft:\n    draft.", {"array", "publish", "seal"}),
        ("with phalanx.create(3, 'f4') as draft:\n    draft.array.", {"shape", "sum"}),
        ("phalanx.AsyncClient().create(3, 'f4').", {"array", "publish", "seal"}),
        ("phalanx.wait([phalanx.ref()])[0][0].", {"get", "hex"}),
        ("for ref in phalanx.as_completed([]):\n    ref.", {"get", "hex"}),
    ],
)
def test_editors_complete(text, names):
    assert names <= _completed(text)


def test_functions_have_the_signatures_and_help_of_the_client():
    """The functions of the package are written out, for editors. They equal the methods."""
    compared = 0
    for name in phalanx.__all__:
        verb, function = getattr(phalanx.Client, name, None), getattr(phalanx, name)
        if verb is None:
            continue
        compared += 1
        ours, theirs = inspect.signature(function), inspect.signature(verb)
        assert list(ours.parameters.values()) == list(theirs.parameters.values())[1:], name
        assert ours.return_annotation.split(".")[-1] == theirs.return_annotation.split(".")[-1], name
        assert inspect.getdoc(function) == inspect.getdoc(verb)
        # Editors read the docstring in the source, which has the first line.
        source = ast.parse(textwrap.dedent(inspect.getsource(function)))
        (written,) = source.body
        assert isinstance(written, ast.FunctionDef)
        assert ast.get_docstring(written) == inspect.getdoc(verb).splitlines()[0]
        assert pickle.loads(pickle.dumps(function)) is function
    assert compared > 20
    init, connect = inspect.signature(phalanx.init), inspect.signature(phalanx.Client.__init__)
    assert list(init.parameters.values()) == list(connect.parameters.values())[1:]


def test_functions_call_the_client_with_their_arguments(monkeypatch):
    """Each function passes each of its arguments to the parameter of the same name."""
    for name in phalanx.__all__:
        verb, function = getattr(phalanx.Client, name, None), getattr(phalanx, name)
        if verb is None:
            continue
        called = mock.create_autospec(phalanx.Client, instance=True)
        monkeypatch.setattr(phalanx, "_default_client", lambda called=called: called)
        arguments = {parameter: object() for parameter in inspect.signature(function).parameters}
        result = function(**arguments)
        ((args, kwargs),) = getattr(called, name).call_args_list
        assert inspect.signature(verb).bind(None, *args, **kwargs).arguments == {"self": None, **arguments}
        if inspect.signature(function).return_annotation != "None":
            assert result is getattr(called, name).return_value, name


def test_generic_refs_cost_no_import():
    assert str(phalanx.ObjectRef[int]) == "phalanx._ref.ObjectRef[int]"
    # Without `site`, whose hooks of other packages import modules.
    program = f"import sys; sys.path[:] = {sys.path!r}; import phalanx; print(*sys.modules)"
    loaded = _ran([sys.executable, "-S", "-c", program], pathlib.Path.cwd()).stdout.split()
    assert "phalanx" in loaded and not {"typing", "asyncio", "numpy", "inspect"} & set(loaded)


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
