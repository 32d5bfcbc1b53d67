"""The backend "phalanx" of `ray.util.collective`: its operations as calls of a Phalanx group.

A Ray group is a job of Phalanx, and its processes are the members. An actor that Ray restarts joins again, with
the next life of its rank. Ray makes a group at the first operation, under a lock of its own; the operations of a
group come from one thread, as those of Phalanx's groups do.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque

import numpy as np
import ray
from ray.util.collective import backend_registry
from ray.util.collective.collective_group.base_collective_group import BaseGroup

import phalanx
from phalanx import _arguments, exceptions
from phalanx._ref import ObjectRef
from phalanx.ray import _connecting, _here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx import _jobs
    from phalanx._typing import OnLoss

NAME = "PHALANX"
_OPS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
_DEFAULT_TIMEOUT_S = 30.0
# A `send` of more bytes puts an object. A member's message has at most 1 MiB.
_MAX_MESSAGE_BYTES = 256 << 10
# How long an object of a `send` stays if the receiver does not take it.
_UNTAKEN_S = 600
# How often a `recv` looks whether the sender lives.
_LOOK_S = 0.2
# Keys in Ray's store: how many groups of a name were destroyed.
_GENERATION = "group/"
_INLINE, _OBJECT = b"\0", b"\1"
_options: dict[str, Any] = {"on_loss": "fail", "timeout": _DEFAULT_TIMEOUT_S}


def group_options(*, on_loss: OnLoss = "fail", timeout: float | None = _DEFAULT_TIMEOUT_S) -> None:
    """Set the options of groups that this process joins from now on; the same in all members.

    Parameters
    ----------
    on_loss
        What an operation does when a member dies: "fail" raises `MemberUnavailableError` until Ray has
        restarted it, "wait" waits for that, "exclude" goes on without it. See `phalanx.join`'s groups.
    timeout
        Seconds of each operation; None: no limit.
    """
    if on_loss not in ("fail", "wait", "exclude"):
        raise exceptions.InvalidArgumentError(
            f"on_loss={_arguments.shown(on_loss)}: 'fail', 'wait' or 'exclude' is expected"
        )
    _options.update(on_loss=on_loss, timeout=_arguments.seconds_of(timeout))


def register() -> None:
    """Register the backend in this process, once."""
    # Threads of one worker can register at once.
    with contextlib.suppress(ValueError):
        if not backend_registry._global_registry.is_registered(NAME):
            backend_registry.register_collective_backend(NAME, Group)


class Group(BaseGroup):
    """One process's part of a Ray group. All operations are in place, and end within the group's timeout.

    Raises
    ------
    MemberUnavailableError
        A member has died, with ``on_loss="fail"``; or the root, or the sender of a `recv`, has.
    GetTimeoutError
        The timeout has passed; the message names the missing ranks.
    InvalidArgumentError, TypeError
        The members differ in an operation, or an array cannot be used.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._timeout: float | None = _options["timeout"]
        self._client = _connecting.client()
        self._key, self._generation = _generation_of(group_name, world_size)
        self._member = phalanx.join(
            f"ray/{group_name[:64]}/{self._key}/{self._generation}",
            f"rank{rank}",
            world_size,
            "worker",
            rank=rank,
            timeout=self._timeout,
            client=self._client,
        )
        self._made = self._member.group(**_options)
        self._complete = False
        # Messages of ranks that no `recv` has asked for yet, by rank.
        self._early: dict[int, deque[bytes]] = {}

    @classmethod
    def backend(cls) -> str:
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        """Leave the group: the others see that this member left. A later group of the name is another one."""
        if int(_here.shared(_GENERATION + self._key) or 0) <= self._generation:
            _here.share(_GENERATION + self._key, str(self._generation + 1), overwrite=True)
        self._member.leave()

    @property
    def _group(self) -> _jobs.Group:
        """The calls of the group. At the first one every rank has joined, so that none counts as dead."""
        if not self._complete:
            self._member.wait_world(self._timeout)
            self._complete = True
        return self._made

    # ---- collectives

    def allreduce(self, tensor: list[Any], allreduce_options: Any = None) -> None:
        op = _op_of(allreduce_options)  # at once: Ray passes its class, which the next call changes
        self._group.allreduce(tensor[0], op)

    def reduce(self, tensor: list[Any], reduce_options: Any = None) -> None:
        root = 0 if reduce_options is None else reduce_options.root_rank
        self._group.reduce(tensor[0], _op_of(reduce_options), root)

    def broadcast(self, tensor: list[Any], broadcast_options: Any = None) -> None:
        self._group.broadcast(tensor[0], 0 if broadcast_options is None else broadcast_options.root_rank)

    def barrier(self, barrier_options: Any = None) -> None:
        self._group.barrier()

    def allgather(self, tensor_list: list[Any], tensor: list[Any], allgather_options: Any = None) -> None:
        for out, part in zip(tensor_list[0], self._group.allgather(tensor[0])):
            out[...] = part

    def reducescatter(
        self, tensor: list[Any], tensor_list: list[Any], reducescatter_options: Any = None
    ) -> None:
        stacked = np.stack([np.asarray(part) for part in tensor_list[0]])
        part = self._group.reduce_scatter(stacked, _op_of(reducescatter_options))
        _array_of(tensor[0])[...] = part.reshape(tensor[0].shape)

    # ---- one member to another

    def send(self, tensor: list[Any], send_options: Any) -> None:
        array = np.ascontiguousarray(_array_of(tensor[0]))
        if array.nbytes <= _MAX_MESSAGE_BYTES:
            message = _INLINE + array.tobytes()
        else:
            # The receiver deletes it. Until then no ref is needed: this call does not wait for the receiver.
            message = _OBJECT + self._client.put(array, keep=True, ttl=_UNTAKEN_S).id
        self._member.send(send_options.dst_rank, message, timeout=self._timeout)

    def recv(self, tensor: list[Any], recv_options: Any) -> None:
        source = recv_options.src_rank
        message = self._message_of(source)
        out = _array_of(tensor[0])
        if message[:1] == _OBJECT:
            ref: ObjectRef[Any] = ObjectRef(message[1:], self._client.directory, client=self._client)
            array = self._client.get(ref, self._timeout).reshape(-1).view(np.uint8)
            self._client.delete(ref, self._timeout)
        else:
            array = np.frombuffer(message, np.uint8, offset=1)
        if array.nbytes != out.nbytes:
            raise exceptions.InvalidArgumentError(
                f"recv from rank {source} of group {self.group_name}: {array.nbytes} bytes were sent, but the "
                f"tensor has {out.nbytes}"
            )
        out[...] = array.view(out.dtype).reshape(out.shape)

    def _message_of(self, source: int) -> bytes:
        """Return the next message of a rank; those of others wait for their own `recv`."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._early.get(source):
            try:
                message = self._member.receive(_LOOK_S)
            except exceptions.GetTimeoutError:
                state = self._member.members()[source].state
                if state in ("died", "left"):
                    raise exceptions.MemberUnavailableError(
                        f"recv: rank {source} of group {self.group_name} has {state}"
                    ) from None
                if until is not None and time.monotonic() > until:
                    raise exceptions.GetTimeoutError(
                        f"recv: rank {source} of group {self.group_name} has sent nothing within "
                        f"{self._timeout:.0f} s; it is {state}"
                    ) from None
            else:
                self._early.setdefault(message.rank, deque()).append(message.data)
        return self._early[source].popleft()


def _op_of(options: Any) -> Any:
    return "sum" if options is None else _OPS[options.reduceOp.name]


def _array_of(tensor: Any) -> Any:
    """Return a tensor's memory as an array."""
    return tensor if isinstance(tensor, np.ndarray) else tensor.numpy()


def _generation_of(group_name: str, world_size: int) -> tuple[str, int]:
    """Return a key of a group's name, and how many groups of that name were destroyed.

    Both are the same in all processes of the group, and in their next lives. A group that
    `create_collective_group` declares has an actor of its own, and so a key of its own.
    """
    try:
        declared = ray.get_actor(f"info_{group_name}")._actor_id.hex()
    except ValueError:
        declared = ""
    job = ray.get_runtime_context().get_job_id()
    spelled = f"{job}/{group_name}/{world_size}/{declared}"
    key = hashlib.sha256(spelled.encode()).hexdigest()[:24]
    return key, int(_here.shared(_GENERATION + key) or 0)
