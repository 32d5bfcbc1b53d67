"""The tensor transport "phalanx" of Ray: `Array`s in results of actors and in `ray.put` travel by Phalanx.

    producer                          Ray (owner)                     consumer
      Array ─ put ─► object             │                               │
      ─ metadata: the object's ref ────►│── in the ref, or the task ───►│─ get: the object comes to this host
      hold until garbage_collect  ◄─────│ count is zero                 │  once, from the nearest copies

The producer's process holds the object. If it dies, its hold ends, as Ray loses the tensors of dead actors.
Ray calls the methods on several threads: `_lock` guards the tables.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import ray
from ray._private import ray_constants
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt import util
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from phalanx import exceptions
from phalanx._ref import ObjectRef
from phalanx.ray import _arrays, _connecting, _invoking
from phalanx.ray._arrays import Array

TYPE_CHECKING = False
if TYPE_CHECKING:
    import concurrent.futures
    from typing import Any

    from phalanx import Client

NAME = "PHALANX"
# Of Ray's limit for a transfer, which counts from the submission of the task. After it Ray's monitor stops
# the transfer, and dies itself if torch is not installed.
_SHARE_OF_LIMIT = 0.9
# How long the directory may take to answer before an array that lies in Phalanx is put again.
_KNOWN_S = 5.0


@dataclass
class Metadata(TensorTransportMetadata):
    """What consumers need: the ids of the objects, and their cluster's directory."""

    objects: tuple[bytes, ...] = ()
    cluster: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _described, (self.tensor_meta, self.tensor_device, self.objects, self.cluster)


def _described(*fields: Any) -> Metadata:
    """Rebuild metadata, in the owner and in each consumer, which is then registered. Pickles name this."""
    register()
    return Metadata(*fields)


@dataclass
class _Fetch(FetchRequest):
    """A fetch under way."""

    refs: list[ObjectRef[Any]] = field(default_factory=list)
    futures: list[concurrent.futures.Future[Any]] = field(default_factory=list)
    buffers: list[Any] | None = None

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()

    def __del__(self) -> None:
        self.cancel()  # Ray drops it if the fetch of another ref has failed


class Transport(TensorTransportManager):
    """Ray's interface; one per process, made at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by `_lock`: what was extracted, with the holds and their client, and the receives under way, by Ray's
        # ids.
        self._made: dict[str, tuple[Metadata, list[ObjectRef[Any]], Client]] = {}
        self._receiving: dict[str, _Fetch] = {}

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True  # otherwise Ray kills both actors

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Metadata:
        """Put the arrays, and return their refs. The same result for an id that Ray asks for again."""
        client = _connecting.client()
        with self._lock:
            known = self._made.get(obj_id)
        # With the node of an earlier client its objects have gone.
        if known is not None and known[2] is client:
            return known[0]
        refs = [
            _known(client, getattr(given, "_object", None)) or client.put(_arrays.value_of(given))
            for given in rdt_object
        ]
        made = Metadata(
            [(given.shape, given.dtype) for given in rdt_object],
            "cpu",
            tuple(ref.id for ref in refs),
            client.directory,
        )
        with self._lock:
            # Ids of an actor can come again after its restart, in another process.
            other = self._made.get(obj_id)
            if other is None or other[2] is not client:
                self._made[obj_id] = made, refs, client
                return made
        return other[0]

    def fetch_multiple_tensors(
        self, obj_id: str, metadata: Any, communicator: Any, target_buffers: list[Any] | None = None
    ) -> _Fetch:
        """Start to fetch all arrays, and return without waiting for them."""
        client = _connecting.client()
        refs: list[ObjectRef[Any]] = [
            ObjectRef(object_id, metadata.cluster, client=client) for object_id in metadata.objects
        ]
        return _Fetch(obj_id, [], refs, [client.future(ref) for ref in refs], target_buffers)

    def wait_fetch_complete(self, request: Any, timeout: float = -1) -> list[Any]:
        """Return the arrays; raise the built-in TimeoutError if they are not here in time."""
        import concurrent.futures

        until = None if timeout < 0 else time.monotonic() + timeout
        for index, (ref, future) in enumerate(zip(request.refs, request.futures)):
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                value = future.result(left)
            except concurrent.futures.TimeoutError:
                raise TimeoutError(f"{ref!r} has not arrived within {timeout:.0f} s") from None
            except concurrent.futures.CancelledError:
                raise TimeoutError(f"Ray has stopped the transfer of {ref!r}") from None
            if request.buffers is None:
                request.tensors.append(_arrays.received(ref, value))
            else:
                np.copyto(request.buffers[index], _arrays.received(ref, value))
                request.tensors.append(request.buffers[index])
        tensors: list[Any] = request.tensors
        return tensors

    def recv_multiple_tensors(
        self, obj_id: str, metadata: Any, communicator: Any, target_buffers: list[Any] | None = None
    ) -> list[Any]:
        request = self.fetch_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        with self._lock:
            self._receiving[obj_id] = request
        try:
            limit = ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS * _SHARE_OF_LIMIT
            return self.wait_fetch_complete(request, limit)
        finally:
            with self._lock:
                self._receiving.pop(obj_id, None)

    def send_multiple_tensors(self, *args: Any) -> None:
        raise TypeError("consumers fetch from Phalanx: Ray does not call this of a one-sided transport")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        """Drop the holds. Does not wait for anything."""
        with self._lock:
            dropped = self._made.pop(obj_id, None)
        del dropped  # outside of the lock

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        with self._lock:
            request = self._receiving.get(obj_id)
        if request is not None:
            request.cancel()


def _known(client: Client, ref: ObjectRef[Any] | None) -> ObjectRef[Any] | None:
    """Return the object of an array if it can be sent on: it exists, and the directory knows of this hold."""
    if ref is None or (ref._stored is not None and client in ref._held):
        return ref  # put by this client, which has held it from the start
    try:
        # The question follows the hold. Without it the producer's release could reach the directory first.
        return ref if client.contains(ref, _KNOWN_S) else None
    except exceptions.PhalanxError:
        return None  # the array has all of the bytes


def register() -> None:
    """Register the transport in this process, once."""
    # Threads of one worker can unpickle metadata at once.
    with contextlib.suppress(ValueError):
        if NAME not in util.transport_manager_info:
            util.register_tensor_transport(NAME, ["cpu"], Transport, Array)


def method(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make the arrays that a method of an actor returns travel by Phalanx; used as `ray.method` is.

    Arrays in the result, also in nested dicts, lists and tuples, are put in Phalanx and arrive as `Array`s; dense
    tensors of torch on the CPU arrive as tensors. Other values travel as before. Methods can be coroutines;
    `num_returns` is 1.

    Examples
    --------
    >>> @ray.remote
    ... class Worker:
    ...     @phalanx.ray.method
    ...     def weights(self):
    ...         return {"w": np.zeros(1000), "step": 3}
    """
    register()  # Ray looks for the name when it sees the decorator
    if function is None:
        return functools.partial(method, **options)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a generator, whose items Ray does not move by a transport")
    invocation = _invoking.invocation_of(function)
    # Ray reads its marks from the innermost function of a chain of wrappers.
    given = ray.method(tensor_transport=NAME, **options)(function)
    given.__ray_invocation_decorator__ = invocation
    if inspect.iscoroutinefunction(given):

        @functools.wraps(given)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return _arrays.sent(await given(*args, **kwargs))

    else:

        @functools.wraps(given)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return _arrays.sent(given(*args, **kwargs))

    return wrapper
