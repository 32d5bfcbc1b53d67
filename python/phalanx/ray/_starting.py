"""Starts Phalanx's nodes on Ray's nodes, by a short task of no CPUs on each. Any thread of a driver or a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import ray

from phalanx import _tools, exceptions
from phalanx.ray import _connecting, _daemons, _here

# How long a Ray node has to start its Phalanx node. A worker takes a second to start, and more on a busy host.
START_S = 60.0
# The nodes of Ray on which Phalanx's node has started, as far as this process knows. A keeper starts it again there.
_started: set[str] = set()


def absent_of(nodes: Iterable[str]) -> list[str]:
    """Return those of Ray's nodes of which neither this process nor the directory knows that Phalanx has started."""
    client = _connecting.client()
    wanted = list(nodes)
    if not _started.issuperset(wanted):
        # Without an answer more is started than need be, which does nothing.
        with contextlib.suppress(exceptions.PhalanxError):
            _started.update(each["name"] for each in _tools.status(client.directory, client.address)["nodes"])
    return [node for node in wanted if node not in _started]


def start_on(absent: Iterable[str]) -> dict[str, str]:
    """Return when Phalanx's node runs on each of these nodes of Ray; the failures, by node.

    Nodes that end meanwhile are no failures.
    """
    starting = {ray.remote(**_daemons.pinned_to(node))(_node_here).remote(): node for node in absent}
    ready, late = ray.wait(list(starting), num_returns=len(starting), timeout=START_S) if starting else ([], [])
    failed = {starting[ref]: f"it has not started within {START_S:.0f} s" for ref in late}
    for ref in late:
        ray.cancel(ref)
    for ref in ready:
        try:
            ray.get(ref)
            _started.add(starting[ref])
        except ray.exceptions.RayError as error:
            failed[starting[ref]] = str(error)
    alive = set(_here.nodes()) if failed else set()
    return {node: cause for node, cause in failed.items() if node in alive}


def _node_here() -> None:
    """Start the node of this host, or use the one that the user has set; return when the directory knows it."""
    client = _connecting.client()
    client.contains(client.ref(), timeout=START_S)
