"""`put` and `Ref`: objects of Phalanx that live as long as Ray counts references to them.

    owner (the process that put)                     Ray                    borrowers: tasks, actors
      Ref ──► a Ray object ◄──────────── counts ─────────────────────────────── Ref, the same Ray object
                   │ its value, in this process
                   ▼
                 _Hold ──► ObjectRef: Phalanx's own count

When Ray's count is zero, Ray calls `garbage_collect` in the owner, and drops the hold there. If the owner dies,
its connection to the node ends, and its holds with it: Phalanx frees the object unless another process that
uses it has a hold of its own. That is what Ray does with objects of dead owners, too. Any thread.
"""

from __future__ import annotations

import ray
from ray._private import worker as _ray_worker

from phalanx import _values, exceptions
from phalanx._connection import DEFAULT
from phalanx._ref import ObjectRef
from phalanx._typing import TypeVar
from phalanx.ray import _arrays, _connecting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

T = TypeVar("T")
# Phalanx's own refs of the objects that this process owns, by the ids of the Ray objects that are counted.
_holds: dict[bytes, ObjectRef[Any]] = {}
# Ray's refs of the tasks that this process has submitted and that have not ended: Ray calls back at the end of a task only
# if a ref of it exists, and the program can have dropped the result.
unended: set[Any] = set()
# Ray's worker that counts them: another one after ray.shutdown and ray.init.
_counting_for: Any = None


class Ref(ObjectRef[T]):
    """The ref of an object of Phalanx whose lifetime Ray counts. Made by `phalanx.ray.put` and tasks.

    An `ObjectRef` for all functions of Phalanx. As an argument or a result of a task or a method it travels
    like Ray's own refs, at any depth. Ray does not replace it by the value: call ``ref.get()``, or
    `phalanx.ray.get`.
    """

    __slots__ = ("_counted", "_task")

    def __init__(self, object_id: bytes, cluster: str = "", *, client: Any = None, counted: Any = None) -> None:
        super().__init__(object_id, cluster, client=client)
        # Ray's ref that is counted, and, where the object is a task's result, that of the task's end.
        self._counted = counted
        self._task: Any = None

    @property
    def task(self) -> Any:
        """Ray's ref of the task or call whose result this is, for `ray.wait` and `ray.cancel`.

        None in processes that have not submitted it, and of other objects. Its value is not the result.
        """
        return self._task

    def _connected(self) -> Any:
        if self._client is not None and not self._client.ended and not _connecting.lost():
            return self._client
        return _connecting.client()

    def __reduce__(self) -> tuple[Any, ...]:
        if _values.collecting() is not None or self._counted is None:
            return super().__reduce__()  # the object that contains this ref holds it
        if _in_message_of_ray():
            return _received, (self._id, self._cluster, self._name, self._counted)
        # Ray does not see it (a closure, multiprocessing): Phalanx keeps the object on its way.
        self._hold(self._connected())
        return super().__reduce__()


def _received(object_id: bytes, cluster: str, name: tuple[str, str] | None, counted: Any) -> Ref[Any]:
    """Rebuild a ref from a message of Ray. Pickles name this function."""
    ref: Ref[Any] = Ref(object_id, cluster, counted=counted)
    if name is not None:
        ref._have_name(*name)
    return ref


def _in_message_of_ray() -> bool:
    """Return whether Ray is serialising a value on this thread, and counts the refs in it."""
    if not ray.is_initialized():
        return False
    worker: Any = _ray_worker.global_worker  # without types
    in_band: bool = worker.get_serialization_context().is_in_band_serialization()
    return in_band


def counted(ref: ObjectRef[T], by: Any = None) -> Ref[T]:
    """Return a ref to the same object that Ray counts. `ref` has a hold, which Ray's count keeps.

    `by` is the Ray object that is counted, which this process owns; None: a new one.
    """
    made = ray.put(None) if by is None else by
    worker: Any = _ray_worker.global_worker  # without types
    _begin_with(worker.core_worker)
    if not worker.core_worker.add_object_out_of_scope_callback(made, _release):
        raise exceptions.PhalanxError(f"Ray does not count {made} here: this process does not own it")
    # Ray cannot have called back, in its own thread, since `made` is a reference.
    _holds[made.binary()] = ref
    result: Ref[T] = Ref(ref._id, ref._cluster, client=ref._client, counted=made)
    if ref._name is not None:
        result._have_name(*ref._name)
    return result


def _begin_with(core_worker: Any) -> None:
    """Drop the holds and tasks of an earlier session of Ray, which calls back no more."""
    global _counting_for
    if _counting_for is not core_worker:
        _holds.clear()
        unended.clear()
        _counting_for = core_worker


def _release(counted_id: bytes) -> None:
    _holds.pop(counted_id, None)


def release_all() -> None:
    """Drop all holds and tasks, before Ray is shut down."""
    _begin_with(None)


def put(value: T, **options: Any) -> Ref[T]:
    """Put a value as an object of Phalanx, and return a ref that Ray counts.

    Parameters
    ----------
    value, options
        As in `phalanx.put`: `ref`, `keep`, `ttl`, `copies` and so on.

    Raises
    ------
    DisconnectedError
        This process is not in a Ray cluster, or Phalanx's node does not run.
    PhalanxError
        The errors of `phalanx.put`.
    """
    return counted(_connecting.client().put(_arrays.plain(value), **options))


def get(refs: ObjectRef[T] | Iterable[ObjectRef[T]], timeout: float | None = DEFAULT, **options: Any) -> Any:
    """Return the value of an object, or a list of values. Arguments and errors are those of `phalanx.get`."""
    client = _connecting.client()
    return client.get(refs if isinstance(refs, ObjectRef) else list(refs), timeout, **options)
