"""Watches Ray's nodes from the head: those that come get a Phalanx node, those that drain are drained.

A program of its own, which runs beside the directory and is kept as that is (`_daemons`, `_keeper`). It asks Ray's
GCS once a second, and is no driver: nothing of it runs in Ray, but for the moments of a start.

    GCS ──► a node has come, or the head's daemons have ended ──► starter, a driver for some seconds ──► short tasks
        └─► a node drains ──► ``phalanx drain``, once per look: the directory has what only that node has copied

Two programs: ``watch`` is the supervisor, ``start`` the starter, a child process for each start. One thread.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import ray
from ray import _raylet
from ray._private import state as _state

from phalanx import _tools, exceptions
from phalanx.ray import _daemons, _here, _hook, _starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_logger = logging.getLogger("phalanx.ray.supervisor")
_of_raylet: Any = _raylet  # without types
# Between two looks, and how long GCS may take for an answer.
_LOOK_S = 1.0
_ANSWER_S = 5.0
# How long a daemon of this host may be absent: one that starts takes less.
_ABSENT_S = 5.0
# After a start on a node that has failed: the first pause, which doubles, and after how many the node is left alone.
_PAUSE_S = 5.0
_MOST_TRIES = 6
# A starter that takes longer is ended. It waits for its tasks, and before that for a driver's connection.
_STARTER_S = _starting.START_S + 60.0
# The most nodes of one starter; the next one takes the others.
_MOST_STARTS = 100
# How often the log says why a draining node still has objects alone.
_REPORT_S = 30.0
# Names of this kind are not shown among a cluster's activities.
_NAMESPACE = "_ray_internal_phalanx"
_PR_SET_PDEATHSIG = 1
_ALIVE = 0  # ray.core.generated.gcs_pb2.GcsNodeInfo.ALIVE


class Absent:
    """Which nodes have no Phalanx node yet, and when to try again to start one."""

    def __init__(self) -> None:
        self._tries: dict[str, tuple[int, float]] = {}

    def due(self, nodes: set[str], now: float) -> list[str]:
        """Return those of the nodes whose pause is over, in the order of their names."""
        return sorted(node for node in nodes if self._tries.get(node, (0, now))[1] <= now)

    def failed(self, nodes: set[str], now: float) -> list[str]:
        """Note that a start on these nodes has failed; return those that are not tried again."""
        for node in nodes:
            tries = self._tries.get(node, (0, now))[0] + 1
            pause = _PAUSE_S * 2 ** (tries - 1) if tries < _MOST_TRIES else float("inf")
            self._tries[node] = tries, now + pause
        return sorted(node for node in nodes if self._tries[node][0] >= _MOST_TRIES)

    def forget(self, nodes: set[str]) -> None:
        for node in nodes:
            self._tries.pop(node, None)


class Supervisor:
    """Owns the starter under way. `gcs` and `state` are Ray's clients of its GCS."""

    def __init__(self, gcs: Any, state: Any, order: dict[str, Any]) -> None:
        self._gcs = gcs
        self._state = state
        self._order = order
        self._known: set[str] = set()
        self._ready: set[str] = set()
        self._absent = Absent()
        # When all daemons of this host have last been seen to run; None: not yet looked.
        self._whole: float | None = None
        # The starter under way, its nodes, and when it is ended.
        self._starter: tuple[subprocess.Popen[bytes], list[str], float] | None = None
        # When the log has last said something of a draining node.
        self._draining: dict[str, float] = {}

    def step(self, now: float) -> None:
        """Look at Ray's nodes once, and do what is to be done."""
        listed = self._gcs.get_all_node_info(timeout=_ANSWER_S)
        alive = {node.hex() for node, info in listed.items() if info.state == _ALIVE}
        draining = alive & self._state.get_draining_nodes().keys()
        self._absent.forget(self._known - alive)
        self._ready &= alive
        self._known = alive
        self._start(alive - draining, now)
        self._drain(draining, now)

    # ---- starts

    def _start(self, nodes: set[str], now: float) -> None:
        if self._starter is not None and not self._has_ended(now):
            return
        broken = self._broken(now)
        wanted = nodes - self._ready | broken
        self._absent.forget(nodes - wanted)
        due = self._absent.due(wanted, now)[:_MOST_STARTS]
        if broken.intersection(due):
            _logger.warning("daemons of this host have ended with their keepers: they are started again")
        if not due:
            return
        try:
            started = _started(_daemons.program("start", {**self._order, "nodes": due, "parent": os.getpid()}))
        except OSError as error:
            # The interpreter has gone, as that of a job's own environment does.
            self._failed(set(due), now)
            _logger.warning("no starter runs: %s", error)
        else:
            self._starter = started, due, now + _STARTER_S

    def _broken(self, now: float) -> set[str]:
        """Return this host's node if a daemon of its own has ended with its keeper, and not just starts."""
        here = self._order["node"]
        roles = ["directory"] if os.environ.get("PHALANX_ADDRESS") else ["directory", "node"]
        if self._whole is None or all(_daemons.runs(here, role) for role in roles):
            self._whole = now
        return {here} if now >= self._whole + _ABSENT_S else set()

    def _has_ended(self, now: float) -> bool:
        assert self._starter is not None
        process, nodes, until = self._starter
        if process.poll() is None:
            if now < until:
                return False
            process.kill()
            process.wait()
            _logger.warning("the start of Phalanx on %s was ended: it took more than %.0f s", nodes, _STARTER_S)
        self._starter = None
        failed = _said(process, nodes)
        self._ready |= set(nodes) - failed
        self._failed(failed, now)
        return True

    def _failed(self, nodes: set[str], now: float) -> None:
        given_up = self._absent.failed(nodes, now)
        if given_up:
            _logger.warning(
                "Phalanx has not started on %s in %d tries, and now does so at its first use there",
                given_up,
                _MOST_TRIES,
            )

    # ---- nodes that leave

    def _drain(self, nodes: set[str], now: float) -> None:
        for node in sorted(nodes - self._draining.keys()):
            _logger.warning("Ray drains %s: what only it has in Phalanx is copied to other nodes", node)
        self._draining = {node: self._draining.get(node, now) for node in nodes}
        where = _daemons.directory_flags(self._order["node"])
        for node in sorted(nodes):
            # At each look, since a new session of the node with the directory ends a drain.
            left = "the directory does not run" if where is None else _drained(node, where)
            if left and now >= self._draining[node] + _REPORT_S:
                self._draining[node] = now
                _logger.warning("Ray drains %s: %s", node, left)


def _drained(node: str, where: list[str]) -> str:
    """Have what only a node has copied to others. Return what is left and why; "" if nothing is."""
    try:
        said = json.loads(_tools._run("drain", node, "--detach", "--json", *where))
    except exceptions.PhalanxError as error:
        return str(error)
    left: int = said["objects_left"]
    return f"only it has {left} objects; {said['message']}" if left else ""


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a child process."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def _said(process: subprocess.Popen[bytes], nodes: list[str]) -> set[str]:
    """Return the nodes of which a starter that has ended has not said that Phalanx runs there."""
    assert process.stdout is not None
    with process.stdout as said:
        lines = said.read().splitlines()
    return set(json.loads(lines[-1])) if process.returncode == 0 and lines else set(nodes)


def watch(order: dict[str, Any]) -> None:
    """Supervise until the keeper ends this process, with the raylet."""
    made: Any = _state.GlobalState  # without types
    state = made()
    state._initialize_global_state(
        _of_raylet.GcsClientOptions.create(
            order["address"], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=True
        )
    )
    supervisor = Supervisor(_of_raylet.GcsClient(address=order["address"]), state, order)
    # For the keeper, and only now: a supervisor that cannot import or connect has not started.
    print(json.dumps({"address": "", "process_id": os.getpid()}), flush=True)
    clock = threading.Event()
    while True:
        try:
            supervisor.step(time.monotonic())
        except Exception:
            _logger.exception("a look at Ray's nodes has failed; the next one follows")
        clock.wait(_LOOK_S)


def start(order: dict[str, Any]) -> None:
    """Start the daemons of this host that do not run, and nodes on Ray's nodes. Prints on which it has failed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:
        return  # the supervisor has ended before that
    environment = {"env_vars": {_daemons.CAPACITY: str(order["capacity"])}} if order["capacity"] else None
    _daemons.ask_for(order["capacity"])
    ray.init(
        order["address"],
        namespace=_NAMESPACE,
        runtime_env=environment,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        ensure = _daemons.ensure_directory if os.environ.get("PHALANX_ADDRESS") else _daemons.ensure_node
        ensure(_here.here(), may_ask_head=True)
        failed = _starting.start_on(_starting.absent_of(order["nodes"]))
        for node, cause in failed.items():
            _logger.warning("Phalanx does not start on Ray's node %s: %s", node, cause)
    finally:
        _hook.shutdown()
    print(json.dumps(sorted(failed)), flush=True)


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    what, order = sys.argv[1], json.loads(sys.argv[2])
    {"watch": watch, "start": start}[what](order)
