"""Runs programs that the documentation shows, as a reader runs them: with this package, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import phalanx

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Longer than any program takes on a slow machine.
_DEADLINE_S = 120
_FILE = re.compile(r"# ([\w.]+\.\w+)\n")
# What a shell does around the blocks of a section. The programs that it left in the background end with it.
_SHELL = """set -euo pipefail
trap 'kill -9 $(jobs -p) 2>/dev/null || true; wait' EXIT
"""
# A shell reports a program that a block killed.
_KILLED = re.compile(r"^bash: line \d+: +\d+ Killed .*\n", re.MULTILINE)


def run(path: pathlib.Path, *args: object, warnings: str = "error") -> str:
    """Run a Python program, and return its output."""
    command = [sys.executable, "-X", "faulthandler", "-W", warnings, str(path), *map(str, args)]
    return _output_of(command, path.parent)


def _output_of(command: list[str], folder: pathlib.Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
    where = str(pathlib.Path(phalanx.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment["PATH"]])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **variables},
        cwd=folder,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=_DEADLINE_S)
    finally:
        # The daemons that a shell started outlive it if it is killed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 0, output + errors
    # An exception of a thread is printed there.
    assert _KILLED.sub("", errors) == "", errors
    return output


class Block:
    """A fenced block of a page. If a `text` block follows it, `expected` is its output."""

    def __init__(self, language: str, code: str) -> None:
        self.language = language
        self.code = code
        self.expected: str | None = None
        named = _FILE.match(code)
        self.file = named[1] if named and language == "python" else None

    def check(self, output: str) -> None:
        """Compare with the output."""
        assert self.expected in (None, output), f"printed:\n{output}\nthe page has:\n{self.expected}"


def sections_of(page: pathlib.Path) -> dict[int, list[Block]]:
    """Return the blocks of Python and of a shell in each section that has some, by the line of its heading."""
    sections: dict[int, list[Block]] = {}
    heading, language, code, newest = 1, None, "", None
    for number, line in enumerate(page.read_text().splitlines(keepends=True), 1):
        if language is None and line.startswith("```"):
            language, code = line.strip("`\n"), ""
        elif language is None and line.startswith("#"):
            heading, newest = number, None
        elif language is not None and line != "```\n":
            code += line
        elif language is not None:
            if language == "text" and newest is not None:
                newest.expected = code
            newest = Block(language, code) if language in ("python", "sh") else None
            if newest is not None:
                sections.setdefault(heading, []).append(newest)
            language = None
    return sections


def run_section(blocks: list[Block]) -> None:
    """Run the blocks of a section, in a folder of their own.

    A block of Python is a program of its own; one that begins with the name of a file becomes that
    file, for the blocks of a shell, which are one script. Daemons find a free port and a socket of
    their own.
    """
    with _folder() as folder:
        for block in blocks:
            if block.file is not None:
                (folder / block.file).write_text(block.code)
        for block in blocks:
            if block.language == "python" and block.file is None:
                program = folder / "program.py"
                program.write_text(block.code)
                block.check(run(program))
        shell = [block for block in blocks if block.language == "sh"]
        for block in blocks:
            used = block.file is None or any(block.file in other.code for other in shell)
            assert used, f"no block of a shell uses {block.file}"
        if not shell:
            return
        mark = "\x1d"
        script = _SHELL + f"printf '{mark}'\n".join(block.code for block in shell)
        settings = folder / "phalanx.toml"
        address = f"127.0.0.1:{_free_port()}"
        settings.write_text(
            f'directory = ["{address}"]\n[directory]\nlisten = "{address}"\nlog-level = "off"\n'
            '[node]\ncapacity = "128MiB"\nlog-level = "off"\n'
        )
        output = _output_of(
            ["bash", "-c", script], folder, PHALANX_CONFIG=str(settings), XDG_RUNTIME_DIR=str(folder)
        )
        outputs = output.split(mark)
        assert len(outputs) == len(shell), output
        for block, printed in zip(shell, outputs):
            block.check(printed)


@contextlib.contextmanager
def _folder() -> Iterator[pathlib.Path]:
    # The path of a socket is short.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="phx-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
