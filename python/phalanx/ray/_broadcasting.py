"""`broadcast`: Ray's nodes get objects before tasks there use them. Any thread."""

from __future__ import annotations

from collections.abc import Iterable

import ray
from ray._private import worker as _ray_worker

from phalanx import _arguments, exceptions
from phalanx._ref import ObjectRef
from phalanx.ray import _connecting, _here, _starting, _transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx import Broadcast

# How long the owner of a result may take to hear what it consists of, after the end of its task.
_METADATA_S = 10.0


def broadcast(
    refs: Any, nodes: str | Iterable[str] = "all", *, sticky: bool = False, timeout: float | None = None
) -> Any:
    """Make Ray's nodes fetch objects, relayed from node to node. Returns without waiting for the bytes.

    Starts Phalanx's node on those of Ray's nodes where it does not run yet, which takes a worker a second.

    Parameters
    ----------
    refs
        A ref, or a list of refs: of `phalanx.ray.put`, of tasks, or Ray's own refs of values that travel by the
        transport "phalanx".
    nodes
        "all", or ids of Ray's nodes (``ray.nodes()[i]["NodeID"]``).
    sticky
        Whether Ray nodes that are added later get the objects, too, when Phalanx's node starts there.
    timeout
        Seconds of each broadcast, and until the task of a ref of Ray's own has ended; None: no limit.

    Returns
    -------
    phalanx.Broadcast, or a list of them
        In the order of `refs`; for Ray's own ref of several arrays, one for each.

    Raises
    ------
    InvalidArgumentError
        `nodes` has an id that no node of Ray's has that is alive, or that of a draining one where Phalanx does not run.
    GetTimeoutError
        Phalanx's node has not started on one of Ray's nodes, or the task of a ref of Ray's own has not ended.
    """
    client = _connecting.client()
    alive = _here.nodes()
    draining = _here.draining()
    if nodes == "all":
        wanted = [node for node in alive if node not in draining]
    else:
        wanted = [nodes] if isinstance(nodes, str) else list(nodes)
        unknown = sorted(set(wanted) - set(alive))
        if unknown:
            raise exceptions.InvalidArgumentError(
                f"nodes={_arguments.shown(unknown)}: Ray has no such node that is alive; their ids are {alive}"
            )
    absent = _starting.absent_of(wanted)
    leaving = sorted(draining.intersection(absent))
    if leaving:
        raise exceptions.InvalidArgumentError(
            f"nodes={_arguments.shown(leaving)}: Ray drains these, so Phalanx cannot be started there; leave them out"
        )
    failed = _starting.start_on(absent)
    if failed:
        raise exceptions.GetTimeoutError(f"Phalanx's node does not run on all of Ray's nodes: {failed}")
    several = isinstance(refs, (list, tuple))
    found = [each for ref in (refs if several else [refs]) for each in _objects_of(ref, timeout)]
    made: list[Broadcast] = [
        client.broadcast(ref, nodes if nodes == "all" else wanted, sticky=sticky, timeout=timeout)
        for ref in found
    ]
    return made if several or len(made) != 1 else made[0]


def _objects_of(ref: Any, timeout: float | None) -> list[ObjectRef[Any]]:
    """Return the objects of Phalanx that a ref stands for."""
    if isinstance(ref, ObjectRef):
        return [ref]
    if not isinstance(ref, ray.ObjectRef):
        raise TypeError(f"broadcast takes refs, not {_arguments.shown(ref)}")
    manager = _ray_worker.global_worker.rdt_manager
    if not manager.is_managed_object(ref.hex()):
        raise TypeError(
            f"{ref} lies in Ray's own store. Put the value with phalanx.ray.put, or with "
            'ray.put(array, _tensor_transport="phalanx"), or return it from a method with phalanx.ray.method'
        )
    # The end of the task is known before what it has made.
    if not ray.wait([ref], fetch_local=False, timeout=timeout)[0]:
        raise exceptions.GetTimeoutError(f"the task of {ref} has not ended within {timeout:.0f} s")
    metadata = manager.wait_for_tensor_transport_metadata(ref.hex(), _METADATA_S)
    if not isinstance(metadata, _transport.Metadata):
        raise TypeError(f"{ref} does not travel by Phalanx, or its task has failed: ray.get it to see why")
    return [ObjectRef(object_id, metadata.cluster) for object_id in metadata.objects]
