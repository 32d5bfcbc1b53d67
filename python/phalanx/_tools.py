"""Results of the ``phalanx`` command as values: the cluster's state and drawings of trees.

Runs the packaged command in a process of its own for each result; uses no connection.
"""

from __future__ import annotations

import html
import json
import os
import subprocess

from phalanx import _native, exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Exit codes, as in docs/operations.md.
_KINDS: dict[int, type[exceptions.PhalanxError]] = {
    3: exceptions.ObjectDeletedError,
    4: exceptions.GetTimeoutError,
    5: exceptions.DisconnectedError,
}
_PATIENCE_S = 60.0


class Tree:
    """A drawing of an object's copies and transfers, or of a reduction's slots.

    ``str(tree)`` is the text; a notebook shows it as a picture. ``tree.data`` is the same as a dict.
    """

    def __init__(self, text: str, data: dict[str, Any]) -> None:
        self.data = data
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_svg_(self) -> str:
        lines = self._text.splitlines()
        height, width = 18, 8.5
        rows = "".join(
            f'<text x="8" y="{(row + 1) * height}">{html.escape(line)}</text>'
            for row, line in enumerate(lines)
        )
        across = 16 + width * max(map(len, lines), default=0)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:.0f}" '
            f'height="{(len(lines) + 1) * height}" font-family="monospace" font-size="14" '
            f'xml:space="preserve">{rows}</svg>'
        )


def _run(*command: str) -> str:
    # The flags name the cluster. The variable could name another one.
    environment = {k: v for k, v in os.environ.items() if k != "PHALANX_ADDRESS"}
    try:
        done = subprocess.run(
            [_native.EXECUTABLE, *command],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise exceptions.GetTimeoutError(f"phalanx {command[0]}: no answer within {_PATIENCE_S} s") from None
    if done.returncode != 0:
        kind = _KINDS.get(done.returncode, exceptions.PhalanxError)
        said = _text_of(done.stderr.strip()) or f"phalanx {command[0]}: exit {done.returncode}"
        if said.endswith("(PERMISSION_DENIED)"):
            kind = exceptions.AccessError
            said += "; PHALANX_SECRET_FILE, or PHALANX_SECRET, is where it is looked for"
        raise kind(said)
    return done.stdout


def _text_of(error: str) -> str:
    """Return the text of an error, which is a JSON object if ``--json`` was given."""
    if not error.startswith("{"):
        return error
    parts = json.loads(error)
    return f"phalanx {parts['command']}: {parts['error']} ({parts['code']})"


def _where(directory: str, node: str) -> list[str]:
    """Return the flags of a cluster: its directory, and the secret that `phalanx up` wrote beside the
    socket of the node."""
    secret = os.path.join(os.path.dirname(node.removeprefix("unix:")), "secret")
    flags = [f"--directory={directory}"]
    return [*flags, f"--secret-file={secret}"] if os.access(secret, os.R_OK) else flags


def status(directory: str, node: str) -> dict[str, Any]:
    """Return the result of ``phalanx status --json``; `node` is the address of the client's node."""
    return json.loads(_run("status", "--json", *_where(directory, node)))


def tree(directory: str, node: str, object_id: str) -> Tree:
    """Return the result of ``phalanx describe`` of an object."""
    where = _where(directory, node)
    return Tree(_run("describe", object_id, *where), json.loads(_run("describe", object_id, "--json", *where)))
