"""Results of the ``phalanx`` command as values: the cluster's state and drawings of trees.

Runs the packaged command in a process of its own for each result; uses no connection.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import subprocess
from functools import partial

from phalanx import _arguments, _native, _status, exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Exit codes, as in docs/operations.md.
_TIMED_OUT = 4
_KINDS: dict[int, type[exceptions.PhalanxError]] = {
    3: exceptions.ObjectDeletedError,
    _TIMED_OUT: exceptions.GetTimeoutError,
    5: exceptions.DisconnectedError,
}
_PATIENCE_S = 60.0


class Status(dict[str, "Any"]):
    """The state of a cluster, a dict. A notebook shows its nodes as a table."""

    def _repr_html_(self) -> str:
        head = ("node", "address", "used", "capacity", "copies", "pulls", "pushes", "heard")
        rows = [
            (
                node["name"],
                node["address"],
                _status.size(node["used_bytes"]),
                _status.size(node["capacity_bytes"]),
                node["copies"],
                node["pulls"],
                node["pushes"],
                f"{node['last_heard_s']:.1f} s ago",
            )
            for node in self["nodes"]
        ]
        shards = self["shards"]
        answering = sum(shard["ok"] for shard in shards)
        title = f"{len(rows)} nodes, {answering} of {len(shards)} shards, {self['objects']} objects"
        return _status.table(title, rows, head)


class Tree:
    """A drawing of an object's copies and transfers, or of a reduction's slots.

    ``str(tree)`` is the text; a notebook shows it as a picture. ``tree.data`` is the same as a dict.
    """

    def __init__(
        self, text: str, data: dict[str, Any], updates: Callable[[float | None, float], Iterator[Tree]]
    ) -> None:
        self.data = data
        self._text = text
        self._updates = updates

    @property
    def under_way(self) -> bool:
        """Whether the object was not put yet, or was being written, sent or reduced."""
        data = self.data
        if data["deleted"]:
            return False
        return bool(
            data["reduction"] or data["partial_copies"] or data["waiting"] or not data["complete_copies"]
        )

    def follow(self, timeout: float | None = None, interval: float = 0.2) -> Tree:
        """Draw the tree in a notebook, again and again in the same place, while something is under way.

        Blocks meanwhile; interrupt the cell to stop. Returns the last drawing.

        Parameters
        ----------
        timeout
            Seconds; None: no limit.
        interval
            Seconds between two drawings.

        Raises
        ------
        ImportError
            IPython is not installed.
        DisconnectedError
            The directory does not answer.
        """
        seconds = _arguments.seconds_of(timeout)
        if not interval > 0:
            raise exceptions.InvalidArgumentError(f"interval={interval}: more than 0 seconds are expected")
        try:
            from IPython.display import display
        except ImportError as error:
            raise ImportError(
                "follow() draws with IPython, which is not installed: pip install ipython", name="IPython"
            ) from error
        shown = display(self, display_id=True)
        tree = self
        if tree.under_way:
            with contextlib.closing(self._updates(seconds, interval)) as updates:
                for tree in updates:
                    if shown is not None:  # None: the program runs outside IPython
                        shown.update(tree)
                    if not tree.under_way:
                        break
        return tree

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


def _environment() -> dict[str, str]:
    # The flags name the cluster. The variable could name another one.
    return {k: v for k, v in os.environ.items() if k != "PHALANX_ADDRESS"}


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            [_native.EXECUTABLE, *command],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise exceptions.GetTimeoutError(f"phalanx {command[0]}: no answer within {_PATIENCE_S} s") from None
    if done.returncode != 0:
        raise _error_of(command[0], done.returncode, done.stderr)
    return done.stdout


def _error_of(command: str, code: int, said: str) -> exceptions.PhalanxError:
    kind = _KINDS.get(code, exceptions.PhalanxError)
    said = _text_of(said.strip()) or f"phalanx {command}: exit {code}"
    if said.endswith("(PERMISSION_DENIED)"):
        kind = exceptions.AccessError
    return kind(said)


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


def status(directory: str, node: str) -> Status:
    """Return the result of ``phalanx status --json``; `node` is the address of the client's node."""
    return Status(json.loads(_run("status", "--json", *_where(directory, node))))


def tree(directory: str, node: str, object_id: str) -> Tree:
    """Return the result of ``phalanx describe`` of an object."""
    where = _where(directory, node)
    data = json.loads(_run("describe", object_id, "--json", *where))
    return _drawn(directory, node, object_id, data)


def _drawn(directory: str, node: str, object_id: str, data: dict[str, Any]) -> Tree:
    text = _run("describe", object_id, *_where(directory, node))
    return Tree(text, data, partial(_updates, directory, node, object_id))


def _updates(
    directory: str, node: str, object_id: str, timeout: float | None, interval: float
) -> Iterator[Tree]:
    """Draw an object again in intervals, until the timeout expires."""
    flags = ["--follow", "--json", f"--interval={int(interval * 1000)}ms"]
    if timeout is not None:
        flags.append(f"--timeout={int(timeout * 1000)}ms")
    following = subprocess.Popen(
        [_native.EXECUTABLE, "describe", object_id, *flags, *_where(directory, node)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    )
    with following:
        try:
            assert following.stdout is not None and following.stderr is not None
            for line in following.stdout:
                yield _drawn(directory, node, object_id, json.loads(line))
            code = following.wait()
            if code not in (0, _TIMED_OUT):
                raise _error_of("describe", code, following.stderr.read())
        finally:
            following.kill()
