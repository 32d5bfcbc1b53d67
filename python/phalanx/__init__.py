"""Phalanx: a store of immutable objects for task runtimes on many machines, with collectives.

>>> import numpy as np
>>> import phalanx
>>> ref = phalanx.put(np.arange(10))
>>> phalanx.get(ref)
array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])

The functions here use one client per process. It connects at the first use: to
``PHALANX_ADDRESS``, or to a private cluster that ends with the process. Child processes use the
cluster of their parent. Use `Client` for several clusters at once.
NumPy, torch and cloudpickle are imported when a value first needs them.
"""

from __future__ import annotations

from phalanx import _release

_release.check()

from phalanx import exceptions
from phalanx._async_client import AsyncBroadcast, AsyncClient, AsyncDraft, AsyncReduction
from phalanx._broadcast import Broadcast, Progress
from phalanx._client import Client
from phalanx._collectives import Reduction
from phalanx._connection import DEFAULT
from phalanx._default import client as _default_client
from phalanx._default import init, shutdown
from phalanx._native import get_include, get_library
from phalanx._ref import ObjectRef
from phalanx._release import __version__
from phalanx._status import ObjectStatus
from phalanx._typing import TypeVar, overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta
    from typing import Any

    from phalanx._jobs import Member
    from phalanx._tools import Status, Tree
    from phalanx._typing import Layout, OnLost, Op, Order, Root, Writable
    from phalanx._writing import Draft

    T = TypeVar("T")
    Out = TypeVar("Out")

__all__ = [
    "AsyncBroadcast",
    "AsyncClient",
    "AsyncDraft",
    "AsyncReduction",
    "Broadcast",
    "Client",
    "ObjectRef",
    "ObjectStatus",
    "Progress",
    "Reduction",
    "__version__",
    "all_to_all",
    "allgather",
    "allreduce",
    "as_completed",
    "barrier",
    "broadcast",
    "contains",
    "create",
    "delete",
    "end_scope",
    "exceptions",
    "gather",
    "get",
    "get_include",
    "get_library",
    "init",
    "join",
    "keep",
    "open_reduction",
    "put",
    "reduce",
    "reduce_scatter",
    "reduced_from",
    "ref",
    "replicate",
    "scatter",
    "shutdown",
    "stat",
    "status",
    "tree",
    "wait",
]

# The calls of the default client. A test compares their signatures with those of `Client`.


def all_to_all(
    outgoing: Iterable[tuple[ObjectRef, Any]],
    incoming: Sequence[ObjectRef[T]],
    timeout: float | None = DEFAULT,
) -> list[T]:
    """Put the outgoing values, and return the values of `incoming` in that order."""
    return _default_client().all_to_all(outgoing, incoming, timeout)


def allgather(refs: Sequence[ObjectRef[T]], index: int, timeout: float | None = DEFAULT) -> list[T]:
    """Return the values of n tasks' objects; called by task `index` of the n."""
    return _default_client().allgather(refs, index, timeout)


def allreduce(
    refs: Sequence[ObjectRef[T]],
    op: Op = "sum",
    *,
    ref: ObjectRef[T],
    num_objects: int | None = None,
    order: Order = "arrival",
    dtype: Any = None,
    timeout: float | None = DEFAULT,
) -> T:
    """Reduce, and return the result. Every participant makes the same call and gets the same bits."""
    return _default_client().allreduce(
        refs, op, ref=ref, num_objects=num_objects, order=order, dtype=dtype, timeout=timeout
    )


def as_completed(
    refs: Iterable[ObjectRef[T]], timeout: float | None = DEFAULT, *, progress: bool = False
) -> Iterator[ObjectRef[T]]:
    """Iterate over the refs in the order in which their objects arrive on this node."""
    return _default_client().as_completed(refs, timeout, progress=progress)


def barrier(name: str, participants: int, index: int, timeout: float | None = DEFAULT) -> None:
    """Return when all `participants` have called it with the same name, each with its own index."""
    _default_client().barrier(name, participants, index, timeout)


def broadcast(
    ref: ObjectRef,
    nodes: str | Iterable[str] = "all",
    *,
    sticky: bool = False,
    timeout: float | None = None,
) -> Broadcast:
    """Make nodes fetch an object, relayed from node to node. Returns without waiting for the bytes."""
    return _default_client().broadcast(ref, nodes, sticky=sticky, timeout=timeout)


def contains(ref: ObjectRef, timeout: float | None = DEFAULT) -> bool:
    """Return whether the cluster has a complete copy of the object."""
    return _default_client().contains(ref, timeout)


def create(
    shape: int | tuple[int, ...],
    dtype: Any,
    ref: ObjectRef | None = None,
    *,
    order: Layout = "C",
    keep: bool | None = None,
    ttl: float | timedelta | None = None,
    copies: int | None = None,
    wait_for_copies: bool = False,
    scope: str | tuple[str, int] | None = None,
    timeout: float | None = DEFAULT,
) -> Draft:
    """Return a draft: an array in shared memory, which becomes an object without a copy."""
    return _default_client().create(
        shape,
        dtype,
        ref,
        order=order,
        keep=keep,
        ttl=ttl,
        copies=copies,
        wait_for_copies=wait_for_copies,
        scope=scope,
        timeout=timeout,
    )


def delete(refs: ObjectRef | Iterable[ObjectRef], timeout: float | None = DEFAULT) -> None:
    """Delete objects in the whole cluster."""
    _default_client().delete(refs, timeout)


def end_scope(scope: str | tuple[str, int], timeout: float | None = DEFAULT) -> None:
    """End a scope, and all scopes with its name and smaller numbers: free their objects everywhere."""
    _default_client().end_scope(scope, timeout)


def gather(refs: Sequence[ObjectRef[T]], timeout: float | None = DEFAULT) -> list[T]:
    """Return the values of objects in their order. Equivalent to `get` of a list."""
    return _default_client().gather(refs, timeout)


@overload
def get(
    refs: ObjectRef[T],
    timeout: float | None = ...,
    *,
    copy: bool | None = ...,
    out: None = ...,
    writable: Writable | None = ...,
    allow_pickle: bool = ...,
    on_lost: OnLost = ...,
    progress: bool = ...,
) -> T: ...


@overload
def get(
    refs: ObjectRef,
    timeout: float | None = ...,
    *,
    copy: bool | None = ...,
    out: Out,
    writable: Writable | None = ...,
    allow_pickle: bool = ...,
    on_lost: OnLost = ...,
    progress: bool = ...,
) -> Out: ...


@overload
def get(
    refs: Sequence[ObjectRef[T]],
    timeout: float | None = ...,
    *,
    copy: bool | None = ...,
    out: None = ...,
    writable: Writable | None = ...,
    allow_pickle: bool = ...,
    on_lost: OnLost = ...,
    progress: bool = ...,
) -> list[T]: ...


def get(
    refs: ObjectRef | Sequence[ObjectRef],
    timeout: float | None = DEFAULT,
    *,
    copy: bool | None = None,
    out: Any = None,
    writable: Writable | None = None,
    allow_pickle: bool = True,
    on_lost: OnLost = "raise",
    progress: bool = False,
) -> Any:
    """Return the value of an object, or a list of values. Blocks until the objects are here."""
    return _default_client().get(
        refs,  # type: ignore[arg-type]
        timeout,
        copy=copy,
        out=out,
        writable=writable,
        allow_pickle=allow_pickle,
        on_lost=on_lost,
        progress=progress,
    )


def join(
    job: str | None = None,
    task: str | None = None,
    world: int | None = None,
    role: str | None = None,
    *,
    rank: int | None = None,
    timeout: float | None = 60.0,
    client: Client | None = None,
) -> Member:
    """Make this process a task of a job. Returns at once when the directory has answered.

    What is left out is what ``phalanx launch`` has set for this task: ``PHALANX_JOB``,
    ``PHALANX_TASK``, ``PHALANX_WORLD`` and ``PHALANX_ROLE`` ("worker" without it). The other tasks can
    come later: `Member.wait_world` waits for them.

    Parameters
    ----------
    job
        The name of the job: tasks that name the same one work together.
    task
        The name of this task within the job and the role. A task that joins again has the same rank
        and the next life, and an earlier life of it ends.
    world
        The number of tasks of the role, the same for all of them.
    role
        Tasks of different roles have ranks of their own.
    rank
        The rank that the task must have. None: that of its name (3 for worker3) if it is free, else
        the least free one.
    timeout
        Seconds; None: no limit.
    client
        The connection. None: that of the functions of this package.

    Raises
    ------
    InvalidArgumentError
        An argument is missing, or contradicts what other tasks of the job have said.
    StoreFullError
        Every rank has had a task with another name, or the directory has too many jobs.
    GetTimeoutError
        The directory has not answered in time.
    """
    from phalanx import _jobs

    return _jobs.join(client or _default_client(), job, task, world, role, rank, timeout)


def keep(ref: ObjectRef, timeout: float | None = DEFAULT) -> None:
    """Keep an object until `delete`, even if no ref to it is left."""
    _default_client().keep(ref, timeout)


def open_reduction(
    refs: Sequence[ObjectRef[T]],
    op: Op = "sum",
    *,
    dtype: Any,
    num_objects: int | None = None,
    ref: ObjectRef[T] | None = None,
    timeout: float | None = DEFAULT,
) -> Reduction[T]:
    """Start a reduction that accepts more sources until it is closed. Arguments are those of `reduce`."""
    return _default_client().open_reduction(
        refs, op, dtype=dtype, num_objects=num_objects, ref=ref, timeout=timeout
    )


def put(
    value: T,
    ref: ObjectRef[T] | None = None,
    keep: bool | None = None,
    *,
    exist_ok: bool = False,
    ttl: float | timedelta | None = None,
    copies: int | None = None,
    wait_for_copies: bool = False,
    scope: str | tuple[str, int] | None = None,
    timeout: float | None = DEFAULT,
    allow_pickle: bool = True,
) -> ObjectRef[T]:
    """Put a value as an object, and return its ref when the value is sealed on this node."""
    return _default_client().put(
        value,
        ref,
        keep,
        exist_ok=exist_ok,
        ttl=ttl,
        copies=copies,
        wait_for_copies=wait_for_copies,
        scope=scope,
        timeout=timeout,
        allow_pickle=allow_pickle,
    )


def reduce(
    refs: Sequence[ObjectRef[T]],
    op: Op = "sum",
    *,
    num_objects: int | None = None,
    order: Order = "arrival",
    dtype: Any = None,
    ref: ObjectRef[T] | None = None,
    root: Root = "caller",
    timeout: float | None = DEFAULT,
) -> ObjectRef[T]:
    """Reduce objects into one. Returns its ref when the result is committed."""
    return _default_client().reduce(
        refs, op, num_objects=num_objects, order=order, dtype=dtype, ref=ref, root=root, timeout=timeout
    )


def reduce_scatter(
    refs: Sequence[ObjectRef],
    targets: Sequence[ObjectRef],
    index: int,
    op: Op = "sum",
    *,
    dtype: Any = None,
    timeout: float | None = DEFAULT,
) -> Any:
    """Reduce part `index` of all sources into ``targets[index]``, and return it as a flat array."""
    return _default_client().reduce_scatter(refs, targets, index, op, dtype=dtype, timeout=timeout)


def reduced_from(ref: ObjectRef[T], timeout: float | None = DEFAULT) -> list[ObjectRef[T]]:
    """Return the sources of a result, in the order in which they were folded."""
    return _default_client().reduced_from(ref, timeout)


def ref(name: str | None = None) -> ObjectRef[Any]:
    """Return a ref to an object that is not put yet: a new one, or the one with this name."""
    return _default_client().ref(name)


def replicate(ref: ObjectRef, copies: int, timeout: float | None = None) -> int:
    """Keep copies of an object on several hosts; returns how many hosts have one."""
    return _default_client().replicate(ref, copies, timeout)


def scatter(value: Any, refs: Sequence[ObjectRef], timeout: float | None = DEFAULT) -> None:
    """Split an array evenly along its first axis and put the parts as `refs`, for others to get."""
    _default_client().scatter(value, refs, timeout)


def stat(ref: ObjectRef, timeout: float | None = DEFAULT) -> ObjectStatus:
    """Return the state of an object in the cluster."""
    return _default_client().stat(ref, timeout)


def status() -> Status:
    """Return the state of the cluster, as ``phalanx status --json`` prints it."""
    return _default_client().status()


def tree(ref: ObjectRef) -> Tree:
    """Return a drawing of an object's copies and transfers, as ``phalanx describe`` draws it."""
    return _default_client().tree(ref)


def wait(
    refs: Iterable[ObjectRef[T]],
    num_returns: int = 1,
    timeout: float | None = DEFAULT,
    *,
    progress: bool = False,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Wait until `num_returns` of the objects are on this node, or the timeout expires."""
    return _default_client().wait(refs, num_returns, timeout, progress=progress)


def _document() -> None:
    """Copy the full docstrings of `Client` for help(); the first lines above are for editors."""
    for name in __all__:
        verb, function = getattr(Client, name, None), globals()[name]
        if verb is not None:
            function.__doc__ = verb.__doc__


_document()
