"""Starts the Phalanx daemons of a Ray cluster: a directory and a supervisor on the head, a node on each of Ray's nodes.

The first process of a Ray node that needs a daemon starts its keeper (`_keeper`), under a lock; all others
find it. A daemon has a folder of its own, `/tmp/phalanx-UID/ray/NODE/{directory,supervisor,node}`:

    lock        held while a process looks for the daemon or starts it
    alive       held by the keeper for its whole life
    ready       the daemon's own line of JSON
    secret      the cluster's secret
    node.sock   the node's socket

Any process in Ray's cluster, any thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import logging
import os
import re
import secrets
import select
import subprocess
import sys
import threading
import time
from collections import namedtuple

import ray
from ray._common.utils import get_system_memory
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import phalanx
from phalanx import _arguments, _native, exceptions
from phalanx._typing import TypeVar
from phalanx.ray import _here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

T = TypeVar("T")

# The share of this machine's or its control group's memory, beside the 30 % of Ray's own object store.
SHARE = 0.3
# Bytes of the node of each host, instead of the share; `init(capacity=)` sets it for all workers of a job.
CAPACITY = "PHALANX_RAY_CAPACITY"
# How long a starter waits for a daemon, and for the head to start the directory.
_START_S = 20.0
_HEAD_S = 60.0
# How often a starter looks for what another one starts.
_LOOK_S = 0.05
# How long a node has to move what only it has to other nodes, after its raylet has ended.
_DRAIN_S = 10
_KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_keeper.py")
# What starts a program of this package, `_supervisor`, with the packages of the process that starts it.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from phalanx.ray import _supervisor
_supervisor.main()
"""
# Settings of Ray that its clients need, and none of a worker's.
_OF_RAY = re.compile("RAY_(AUTH|TLS|USE_TLS|TMPDIR|[a-z])")
# Which node of Phalanx's a user has set, and how to use it.
_OF_NODE = ("PHALANX_ADDRESS", "PHALANX_SECRET_FILE")
_logger = logging.getLogger("phalanx.ray")


# What the keeper does: see there. `raylet` is the descriptor of the raylet's process.
Order = namedtuple("Order", "role folder command log raylet leaves_within_s")


# The capacity that this driver has asked for; the workers of its job have it in their environment.
_asked: int | None = None


def ask_for(room: int | None) -> None:
    """Give the node that this process starts this capacity."""
    global _asked
    _asked = room


def capacity_asked() -> int | None:
    """Return the capacity that the program has set for all hosts; None: each host has its own."""
    given = _asked is not None or os.environ.get(CAPACITY)
    return capacity()[0] if given else None


def capacity() -> tuple[int, str]:
    """Return the bytes of this host's node, and how they were found, for people."""
    if _asked is not None:
        return _asked, "as asked for"
    given = os.environ.get(CAPACITY)
    if given:
        if not given.isdecimal():
            raise exceptions.InvalidArgumentError(
                f"{CAPACITY}={_arguments.shown(given)}: a number of bytes is expected, as 1073741824"
            )
        return int(given), f"as {CAPACITY} says"
    total = get_system_memory()
    return int(total * SHARE), f"{SHARE:.0%} of {total / (1 << 30):.1f} GiB"


def described(place: _here.Here) -> str:
    """Return what this host's node may use, for people."""
    room, how = capacity()
    ready = _ready(_folder(place, "node"))
    if ready is not None and ready["capacity_bytes"] != room:
        room, how = ready["capacity_bytes"], "as when it started"
    return f"this host's node may use {room / (1 << 30):.2f} GiB ({how}), beside Ray's object store"


def directory_flags(node: str) -> list[str] | None:
    """Return the flags of the ``phalanx`` command for the directory on this host; None if it does not run."""
    folder = _folder_of(node, "directory")
    ready = _ready(folder)
    if ready is None:
        return None
    return [f"--directory={ready['address']}", f"--secret-file={os.path.join(folder, 'secret')}"]


def node_socket(place: _here.Here) -> str:
    """Return the path of the socket of a Ray node's Phalanx node."""
    return os.path.join(_folder(place, "node"), "node.sock")


def node_process(place: _here.Here) -> int:
    """Return the process id of a Ray node's Phalanx node; raise ProcessLookupError if none is known."""
    ready = _ready(_folder(place, "node"))
    if ready is None:
        raise ProcessLookupError(f"no keeper runs in {_folder(place, 'node')}")
    pid: int = ready["process_id"]
    return pid


def secret_file(place: _here.Here) -> str:
    """Return the path of the file with the cluster's secret, for the ``phalanx`` command."""
    return os.path.join(_folder(place, "node"), "secret")


def ensure_directory(place: _here.Here, may_ask_head: bool) -> str | None:
    """Return the address of the cluster's directory; None if it does not run, and this is not the head.

    On the head it is started. Elsewhere, with `may_ask_head`, a task on the head starts it.
    """
    on_head = place.node == _here.head()
    known = _here.shared("directory")
    if not on_head:
        return known or (_ask_head() if may_ask_head else None)
    address: str = _directory_at(place, known)["address"]
    _supervise(place)
    # Also after the head has been replaced: the store can outlive it.
    return known if known == address else _here.share("directory", address, overwrite=True)


def _directory_at(place: _here.Here, known: str | None) -> dict[str, Any]:
    """Return what the directory of this host says about itself; started at its known address, if it has one."""
    start = functools.partial(_ensure_daemon, place, "directory", leaves_within_s=0)
    if known is not None and known.startswith(_listen(place.ip)[:-1]):
        # Where the nodes look for it, if its keeper was killed.
        with contextlib.suppress(exceptions.DisconnectedError):
            return start(["--listen=" + known])
    return start(["--listen=" + _listen(place.ip)])


def _supervise(place: _here.Here) -> None:
    """Start the supervisor on the head. Without it Phalanx works, but for nodes that come and go."""
    order = {"address": _here.address(), "node": place.node, "capacity": capacity_asked()}
    try:
        _ensure(place, "supervisor", program("watch", order), leaves_within_s=0)
    except (exceptions.PhalanxError, OSError):
        _logger.exception("Phalanx's supervisor does not start: Ray nodes that come later get Phalanx at its first use")


def program(what: str, order: dict[str, Any]) -> list[str]:
    """Return the command of a program of `_supervisor`."""
    packages = [os.path.abspath(each) for each in sys.path]
    return [sys.executable, "-c", _PROGRAM, json.dumps(packages), what, json.dumps(order)]


def runs(node: str, role: str) -> bool:
    """Return whether a daemon of a Ray node on this machine runs, or its keeper starts it again."""
    return _ready(_folder_of(node, role)) is not None


def ensure_node(place: _here.Here, may_ask_head: bool) -> str | None:
    """Return the address of this host's node, started if need be; None as of `ensure_directory`."""
    socket = node_socket(place)
    # On the head, where its folder is, the directory can have ended with its keeper.
    if os.path.isdir(_folder(place, "directory")):
        if not (runs(place.node, "directory") and runs(place.node, "supervisor")):
            ensure_directory(place, may_ask_head)
    if _ready(_folder(place, "node")) is not None:
        return f"unix:{socket}"
    directory = ensure_directory(place, may_ask_head)
    if directory is None:
        return None
    room, _ = capacity()
    on_head = place.node == _here.head()
    options = [
        f"--directory={directory}",
        "--listen=" + _listen(place.ip),
        f"--name={place.node}",
        f"--socket={socket}",
        f"--capacity={room}",
        f"--drain-timeout={_DRAIN_S}s",
    ]
    # With the head all of Ray's cluster ends, and the directory: there is nothing to save.
    _ensure_daemon(place, "node", options, leaves_within_s=0 if on_head else _DRAIN_S + 5)
    return f"unix:{socket}"


def _listen(ip: str) -> str:
    return f"[{ip}]:0" if ":" in ip else f"{ip}:0"


def _ask_head() -> str:
    """Have a task on the head start the directory, and return its address."""
    start = ray.remote(**pinned_to(_here.head()))(_directory_here)
    try:
        address: str = ray.get(start.remote(), timeout=_HEAD_S)
        return address
    except ray.exceptions.GetTimeoutError:
        raise exceptions.GetTimeoutError(
            f"the head of Ray's cluster has not started Phalanx's directory within {_HEAD_S:.0f} s: is the "
            "package phalanx installed there, and can a worker start?"
        ) from None


def pinned_to(node: str) -> dict[str, Any]:
    """Return the options of a task that runs on one of Ray's nodes, and needs none of its resources."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": there, "max_retries": 3}


def _directory_here() -> str:
    address = ensure_directory(_here.here(), may_ask_head=False)
    assert address is not None  # on the head it is started
    return address


def _folder(place: _here.Here, role: str) -> str:
    return _folder_of(place.node, role)


def _folder_of(node: str, role: str) -> str:
    # The first digits are enough for the few nodes of one machine, and keep the socket's path short.
    return os.path.join(_here.temporary(), node[:24], role)


def _ready(folder: str) -> dict[str, Any] | None:
    """Return what the daemon of a folder says about itself; None if its keeper does not run."""
    try:
        with open(os.path.join(folder, "ready")) as file, open(os.path.join(folder, "alive")) as alive:
            try:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                ready: dict[str, Any] = json.load(file)
                return ready
    except (OSError, ValueError):
        pass
    return None


def _make(folder: str) -> None:
    """Make a folder below /tmp, and those above it, for this user alone."""
    made = "/tmp"
    for name in os.path.relpath(folder, made).split("/"):
        made = os.path.join(made, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(made, 0o700)
        if os.lstat(made).st_uid != os.getuid():
            raise exceptions.AccessError(f"{made} belongs to another user: Phalanx's sockets cannot be there")


def _took(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _until(condition: Callable[[], T]) -> T:
    """Return what a condition returns as soon as that is true, or after `_START_S`."""
    until, clock = time.monotonic() + _START_S, threading.Event()
    while True:
        found = condition()
        if found or time.monotonic() > until:
            return found
        clock.wait(_LOOK_S)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made if it does not exist. Raises DisconnectedError if another has it."""
    _make(folder)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _until(lambda: _took(lock)):
            raise exceptions.DisconnectedError(
                f"another process has held the lock of {folder} for {_START_S:.0f} s, as one that starts a daemon "
                "does: it may have been stopped"
            )
        yield
    finally:
        os.close(lock)


def _ensure_daemon(place: _here.Here, role: str, options: list[str], leaves_within_s: int) -> dict[str, Any]:
    """Return what a daemon says about itself; start it if it does not run."""
    secret = os.path.join(_folder(place, role), "secret")
    command = [_native.EXECUTABLE, role, "--json", f"--secret-file={secret}", *options]
    return _ensure(place, role, command, leaves_within_s)


def _ensure(place: _here.Here, role: str, command: list[str], leaves_within_s: int) -> dict[str, Any]:
    folder = _folder(place, role)
    # First, so that no folder is made for a raylet that has ended.
    raylet = os.pidfd_open(place.raylet())
    try:
        with _locked(folder):
            return _ready(folder) or _start(_order(place, role, command, raylet, leaves_within_s))
    finally:
        os.close(raylet)


def _order(
    place: _here.Here, role: str, command: list[str], raylet: int, leaves_within_s: int
) -> Order:
    """Return the order for a keeper, after writing the secret into the daemon's folder."""
    if _here.ends_orphans():
        raise exceptions.PhalanxError(
            "Ray ends every process that a worker of this host leaves behind "
            "(RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper), so workers cannot start Phalanx's "
            f"{role}: run `python -m phalanx.ray` on each host after `ray start`"
        )
    folder = _folder(place, role)
    secret = os.path.join(folder, "secret")
    # Renamed, so that a daemon that starts meanwhile reads all of it.
    with open(os.open(f"{secret}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(_here.share("secret", secrets.token_hex(32)))
    os.replace(f"{secret}.new", secret)
    log = os.path.join(place.session, "logs", f"phalanx-{role}-{place.node[:12]}.log")
    return Order(role, folder, command, log, raylet, leaves_within_s)


def _environment(role: str) -> dict[str, str]:
    """Return a daemon's environment: nothing of the worker's settings, nor a library loaded into every process.

    The supervisor's has what clients of Ray need, and the node that the user has set for this host, if any.
    """
    others = ("PHALANX_", "RAY_", "__RAY_", "LD_PRELOAD", "PYTHON")
    made = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    if role == "supervisor":
        made.update((name, value) for name, value in os.environ.items() if _OF_RAY.match(name))
        # A worker has set its own to what `ensure_node` returns.
        if not os.environ.get("PHALANX_ADDRESS", "").startswith(f"unix:{_here.temporary()}/"):
            made.update((name, os.environ[name]) for name in _OF_NODE if name in os.environ)
    return made


def _start(order: Order) -> dict[str, Any]:
    """Start a keeper, and return what its daemon says when it is ready; or that of the keeper that runs already."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", _KEEPER, json.dumps(order._asdict())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[order.raylet],
        env=_environment(order.role),
        start_new_session=True,
        cwd="/",
    )
    assert keeper.stdout is not None
    with keeper.stdout as said:
        answers = select.poll()
        answers.register(said, select.POLLIN)
        line = said.readline().decode() if answers.poll(_START_S * 1000) else ""
    keeper.wait()
    word, _, text = line.rstrip("\n").partition(" ")
    if word == "READY":
        ready: dict[str, Any] = json.loads(text)
        return ready
    if word == "OTHER":
        found = _until(lambda: _ready(order.folder))
        if found is not None:
            return found
        text = f"another keeper runs in {order.folder}, and its daemon is not ready after {_START_S:.0f} s"
        word = "ERROR"
    cause = (text if word == "ERROR" else line) or f"no answer within {_START_S:.0f} s"
    raise exceptions.DisconnectedError(f"Phalanx's {order.role} does not start: {cause}; its log is {order.log}")
