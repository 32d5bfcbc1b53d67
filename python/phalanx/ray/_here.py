"""Where this process is in Ray's cluster, and the few values that all of a cluster's processes share.

The values are in the key-value store of Ray's GCS: the secret of the Phalanx cluster and the address of its
directory. `here`, `address`, `head`, `nodes` and `draining` raise DisconnectedError if this process is in no Ray
cluster. Any thread.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections import namedtuple

import ray
from ray._private import state as _state
from ray._private import worker as _ray_worker
from ray.experimental import internal_kv

from phalanx import exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMESPACE = b"phalanx"
_PR_GET_CHILD_SUBREAPER = 37
_HEAD = "node:__internal_head__"


class Here(namedtuple("Here", "node ip raylet_socket session")):
    """This process's place: the id and the address of its Ray node, and two paths."""

    __slots__ = ()

    def raylet(self) -> int:
        """Return the process id of the raylet of this node: the process that listens at its socket."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.raylet_socket)
            credentials = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        if pid <= 0:
            raise exceptions.PhalanxError(
                f"the raylet of Ray's node {self.node} is not visible from here: it runs outside of this "
                "container. Start a Phalanx node beside it, and set PHALANX_ADDRESS"
            )
        return pid


def here() -> Here:
    """Return this process's place."""
    node = _worker().node
    return Here(
        node.node_id,
        node.node_ip_address,
        node.raylet_socket_name.removeprefix("unix:").removeprefix("//"),
        node.get_session_dir_path(),
    )


def head() -> str:
    """Return the id of Ray's head node."""
    for each in _alive():
        if _HEAD in each["Resources"]:
            found: str = each["NodeID"]
            return found
    raise exceptions.PhalanxError("Ray's cluster has no head node that is alive")


def address() -> str:
    """Return the address of the cluster's GCS."""
    _worker()
    found: str = ray.get_runtime_context().gcs_address
    return found


def nodes() -> list[str]:
    """Return the ids of Ray's nodes that are alive."""
    return [each["NodeID"] for each in _alive()]


def draining() -> set[str]:
    """Return the ids of Ray's nodes that drain: they take no tasks any more, and end soon."""
    _worker()
    return set(_state.state.get_draining_nodes())


def ends_orphans() -> bool:
    """Return whether the raylet ends what this process leaves behind when it ends.

    Ray then makes its workers, and the raylet, subreapers: they get the orphans among their descendants.
    """
    is_subreaper = ctypes.c_int()
    if ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_subreaper), 0, 0, 0) != 0:
        return False
    return bool(is_subreaper.value) and _ray_worker.global_worker.mode == ray.WORKER_MODE


def _alive() -> list[dict[str, Any]]:
    _worker()
    listed: Any = ray.nodes  # without types
    return [each for each in listed() if each["Alive"]]


def _worker() -> Any:
    global_worker = _ray_worker.global_worker
    if not ray.is_initialized() or global_worker.node is None:
        raise exceptions.DisconnectedError(
            "this process is not in a Ray cluster: call phalanx.ray.init() (or ray.init()) first. Drivers that "
            "are connected by ray:// have no node of their own: call Phalanx in tasks and actors there"
        )
    return global_worker


def shared(key: str) -> str | None:
    """Return a value of the cluster; None if there is none."""
    value = internal_kv._internal_kv_get(key.encode(), namespace=NAMESPACE)
    return None if value is None else value.decode()


def share(key: str, value: str, overwrite: bool = False) -> str:
    """Store a value for the whole cluster, and return what is stored.

    Without `overwrite` the first value stays: of several processes that store at once, all get the same one.
    """
    internal_kv._internal_kv_put(key.encode(), value.encode(), overwrite=overwrite, namespace=NAMESPACE)
    return value if overwrite else shared(key) or value


def temporary() -> str:
    """Return the folder of this user's daemons under Ray: short, since sockets have short paths."""
    return f"/tmp/phalanx-{os.getuid()}/ray"
