"""The client of a process in Ray's cluster, which is the package's default client.

Any thread.
"""

from __future__ import annotations

import contextlib
import os
import threading

import phalanx
from phalanx import _default, exceptions
from phalanx.ray import _daemons, _here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phalanx import Client

_lock = threading.Lock()
# The Ray node that the default client was connected for, and the PHALANX_ADDRESS that `start_node` has set.
_connected_for: str | None = None
_set_address: str | None = None


def _given() -> str | None:
    """Return the address that the user has set; None: Phalanx starts the node."""
    given = os.environ.get("PHALANX_ADDRESS")
    return given if given != _set_address else None


def client() -> Client:
    """Return the default client, connected to the node of this host, which is started if need be.

    If PHALANX_ADDRESS is set, that node is used, and none is started.

    Raises
    ------
    DisconnectedError
        This process is not in a Ray cluster, or the daemons do not start; the message has the cause.
    GetTimeoutError
        The head of Ray's cluster has not started the directory.
    """
    global _connected_for
    if _given():
        return _default.client()
    place = _here.here()
    with _lock:
        if _connected_for == place.node:
            # The present client; or another one, if the program has closed that.
            with contextlib.suppress(exceptions.DisconnectedError):
                return phalanx.init(_daemons.node_socket(place))
        address = _daemons.ensure_node(place, may_ask_head=True)
        if _connected_for is not None:
            phalanx.shutdown()  # the client of an earlier cluster of this process
        made = phalanx.init(address)
        _connected_for = place.node
        return made


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
    global _connected_for
    with _lock:
        if _connected_for is not None:
            _connected_for = None
            phalanx.shutdown()
