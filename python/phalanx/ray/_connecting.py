"""The client of a process in Ray's cluster, which is the package's default client.

Any thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading

import phalanx
from phalanx import _default, exceptions
from phalanx.ray import _daemons, _here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phalanx import Client



class _Process:
    """A process of this host, which can have ended."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))


_lock = threading.Lock()
# The Ray node that the default client was connected for, the process of Phalanx's node there, and the
# PHALANX_ADDRESS that `start_node` has set.
_connected_for: str | None = None
_daemon: _Process | None = None
_set_address: str | None = None


def _given() -> str | None:
    """Return the address that the user has set; None: Phalanx starts the node."""
    given = os.environ.get("PHALANX_ADDRESS")
    return given if given != _set_address else None


def lost() -> bool:
    """Return whether the node has ended that the default client is connected to: the client stays unusable."""
    daemon = _daemon
    return daemon is not None and daemon.has_ended()


def client() -> Client:
    """Return the default client, connected to the node of this host, which is started if need be.

    After the node's end a new client is made, which is connected to the node that runs instead.

    If PHALANX_ADDRESS is set, that node is used, and none is started.

    Raises
    ------
    DisconnectedError
        This process is not in a Ray cluster, or the daemons do not start; the message has the cause.
    GetTimeoutError
        The head of Ray's cluster has not started the directory.
    """
    global _connected_for, _daemon
    if _given():
        return _default.client()
    place = _here.here()
    with _lock:
        if _connected_for == place.node and not lost():
            # The present client; or another one, if the program has closed that.
            with contextlib.suppress(exceptions.DisconnectedError):
                return phalanx.init(_daemons.node_socket(place))
        if _connected_for is not None:
            phalanx.shutdown()  # the client of a node that has ended, or of an earlier cluster of this process
            _connected_for, _daemon = None, None
        address = _daemons.ensure_node(place, may_ask_head=True)
        # Before the connection: of a node that is replaced meanwhile the client is taken for lost, and made anew.
        _daemon = _process_of(place)
        made = phalanx.init(address)
        _connected_for = place.node
        return made


def _process_of(place: _here.Here) -> _Process:
    try:
        return _Process(_daemons.node_process(place))
    except ProcessLookupError:
        raise exceptions.DisconnectedError(
            f"Phalanx's node of this host has just ended, and its keeper starts it again: {place.node}"
        ) from None


def start_node() -> None:
    """Start the node of this host, if the directory runs or this is the head; connect at the first use.

    For workers: PHALANX_ADDRESS becomes that of the node, also for the worker's children.
    """
    global _set_address
    if _given():
        return
    address = _daemons.ensure_node(_here.here(), may_ask_head=False)
    if address is not None:
        _set_address = os.environ["PHALANX_ADDRESS"] = address
        share_secret()


def share_secret() -> None:
    """Let the ``phalanx`` command, and `phalanx.status` with it, find the cluster's secret from this process."""
    os.environ["PHALANX_SECRET_FILE"] = _daemons.secret_file(_here.here())


def disconnect() -> None:
    """Close the default client if it belongs to Ray's cluster."""
    global _connected_for, _daemon
    with _lock:
        if _connected_for is not None:
            _connected_for, _daemon = None, None
            phalanx.shutdown()
