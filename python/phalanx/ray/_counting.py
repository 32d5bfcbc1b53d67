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

import contextlib

import ray
from ray._private import worker as _ray_worker
from ray.experimental import TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt import util
from ray.experimental.rdt.rdt_manager import RDTSource

from phalanx import _values
from phalanx._connection import DEFAULT
from phalanx._ref import ObjectRef
from phalanx._typing import TypeVar
from phalanx.ray import _arrays, _connecting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

T = TypeVar("T")
NAME = "PHALANX_REF"


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


class _Hold:
    """The value of the Ray object that is counted: the hold on the object of Phalanx."""

    __slots__ = ("ref",)

    def __init__(self, ref: ObjectRef[Any]) -> None:
        self.ref = ref


def counted(ref: ObjectRef[T]) -> Ref[T]:
    """Return a ref to the same object that Ray counts. `ref` has a hold, which goes to Ray."""
    register()
    made = ray.put(_Hold(ref), _tensor_transport=NAME)
    # Ray frees what an actor has put by a task in a concurrency group that most actors lack. What the driver
    # or a task has put it frees in the owner itself, which is right here: nothing but a hold is dropped.
    manager: Any = _ray_worker.global_worker.rdt_manager
    known = manager.get_rdt_metadata(made.hex())
    manager.set_rdt_metadata(made.hex(), known._replace(src_actor=RDTSource.DRIVER))
    result: Ref[T] = Ref(ref._id, ref._cluster, client=ref._client, counted=made)
    if ref._name is not None:
        result._have_name(*ref._name)
    return result


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


def register() -> None:
    """Register the transport that holds objects, once."""
    # Threads of one worker can put at once.
    with contextlib.suppress(ValueError):
        if NAME not in util.transport_manager_info:
            util.register_tensor_transport(NAME, ["cpu"], Counting, _Hold)


class Counting(TensorTransportManager):
    """Moves nothing: Ray's store keeps the hold until the count is zero."""

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        return TensorTransportMetadata([((), None) for _ in rdt_object], "cpu")

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> Any:
        raise _unreadable()

    def recv_multiple_tensors(self, *args: Any, **options: Any) -> Any:
        raise _unreadable()

    def send_multiple_tensors(self, *args: Any) -> None:
        raise _unreadable()

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        """Do nothing: Ray drops the hold after this call."""

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Do nothing: there are no transfers."""


def _unreadable() -> TypeError:
    return TypeError("this Ray object only counts references to an object of Phalanx: use ref.get()")
