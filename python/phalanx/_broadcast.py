"""Broadcasts: nodes fetch an object before a task there gets it, also nodes that join later.

Owns `Broadcast`, the handle of one broadcast, and `Progress`, its state at one moment. The cluster
continues a broadcast without its handle.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from phalanx import _arguments, _native, _status, _waiting, exceptions
from phalanx._native import ffi, lib, nanos
from phalanx._ref import ObjectRef, id_for
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._waiting import Steps


def names_of(nodes: str | Iterable[str]) -> tuple[bytes, int]:
    """Return node names joined as the library takes them, and their number."""
    if isinstance(nodes, (bytes, dict)) or not hasattr(type(nodes), "__iter__"):
        raise TypeError(f"nodes={_arguments.shown(nodes)}: \"all\", a name or a list of names is expected")
    names = ["*"] if nodes == "all" else [nodes] if isinstance(nodes, str) else list(nodes)
    spelled = [_arguments.utf8(name, "nodes") for name in names]
    if any(b"\0" in name for name in spelled):
        raise exceptions.InvalidArgumentError("a node's name has no zero byte")
    return b"".join(name + b"\0" for name in spelled), len(spelled)


class Progress:
    """The state of a broadcast, as `Broadcast.progress` returns it.

    Attributes
    ----------
    nodes : int
        Connected nodes that are to have the object.
    complete : int
        Those of them that have all of it.
    without_room : int
        Those of them that have no memory for it now, or have not accepted it.
    nbytes, total_nbytes : int
        Bytes that have arrived on these nodes together, and the bytes to arrive in all.
    sticky : bool
        Whether nodes that join later get the object too.
    """

    __slots__ = ("complete", "nbytes", "nodes", "sticky", "total_nbytes", "without_room")

    def __init__(self, progress: Any) -> None:
        self.nodes: int = progress.nodes
        self.complete: int = progress.complete
        self.without_room: int = progress.without_room
        self.nbytes: int = progress.bytes
        self.total_nbytes: int = progress.total_bytes
        self.sticky: bool = bool(progress.sticky)

    def __repr__(self) -> str:
        return (
            f"Progress(nodes={self.nodes}, complete={self.complete}, without_room={self.without_room}, "
            f"nbytes={self.nbytes}, total_nbytes={self.total_nbytes}, sticky={self.sticky})"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("nodes", f"{self.complete} of {self.nodes} complete"),
            ("bytes", f"{_status.size(self.nbytes)} of {_status.size(self.total_nbytes)}"),
            ("without room", self.without_room),
            ("sticky", self.sticky),
        ]
        return _status.table("Progress of a broadcast", rows)


class Broadcast:
    """A broadcast that has started (`Client.broadcast`); ``await broadcast`` waits for it.

    The broadcast continues when this handle is dropped. Any thread can use it.

    Attributes
    ----------
    ref : ObjectRef
        The ref of the object.
    """

    def __init__(
        self,
        client: Connection,
        ref: ObjectRef,
        nodes: str | Iterable[str],
        sticky: bool,
        timeout: float | None,
    ) -> None:
        self.ref = ref
        self._connection = client
        self._names, self._count = names_of(nodes)
        self._call = _waiting.owned(
            lib.phx_broadcast(
                client._ptr,
                id_for(client, ref),
                self._names,
                self._count,
                bool(sticky),
                nanos(client._seconds(timeout)),
            )
        )

    def __repr__(self) -> str:
        names = ", ".join(self._names.decode().split("\0")[:-1])
        nodes = "all nodes" if names == "*" else names or "no nodes"
        state = "ended" if lib.phx_call_ended(self._call) else "under way"
        return f"<phalanx.Broadcast of {self.ref!r} to {nodes}: {state}>"

    def _repr_html_(self) -> str:
        return _status.code(repr(self))

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error, as far as this client knows."""
        # Without a thread of its own the client reads answers only when a call drives it.
        lib.phx_poll(self._connection._ptr, 0)
        return bool(lib.phx_call_ended(self._call))

    def wait(self, timeout: float | None = None) -> int:
        """Wait until every node that was connected at the start has the object or is gone.

        Returns
        -------
        int
            The number of nodes that have the object.

        Raises
        ------
        GetTimeoutError
            The timeout expired. The broadcast continues, and another wait is possible.
        StoreFullError
            Some nodes have not accepted the object; the message names them.
        ObjectDeletedError, ObjectLostError
            The object was never put, or it is gone.
        InvalidArgumentError
            The broadcast is not sticky, and no node has one of the names.
        """
        return self._connection._run(self._wait(timeout))

    def __await__(self) -> Generator[Any, None, int]:
        from phalanx import _asyncio

        return _asyncio.run(self._connection, self._wait(None)).__await__()

    def _wait(self, timeout: float | None) -> Steps[int]:
        # A waiter that ends must not cancel the call: other waiters can share it.
        seconds = self._connection._seconds(timeout)
        yield Finish(self._call, seconds, "broadcast", self.ref._id, cancel=False)
        number = ffi.new("int64_t*")
        if lib.phx_result_number(self._call, number) != 0:
            raise _native.last_error(self._connection._address)
        return int(number[0])

    def progress(self, timeout: float | None = 30.0) -> Progress:
        """Return the progress of the broadcast on the nodes that are connected now.

        Raises
        ------
        ObjectDeletedError
            The object is gone.
        """
        return self._connection._run(self._progress(timeout))

    def _progress(self, timeout: float | None) -> Steps[Progress]:
        connection = self._connection
        object_id, seconds = id_for(connection, self.ref), connection._seconds(timeout)
        call = _waiting.owned(
            lib.phx_broadcast_progress_of(
                connection._ptr, object_id, self._names, self._count, nanos(seconds)
            )
        )
        yield Finish(call, seconds, "progress of the broadcast", object_id)
        progress = ffi.new("phx_broadcast_progress*")
        if lib.phx_result_progress(call, progress) != 0:
            raise _native.last_error(connection._address)
        return Progress(progress)

    def stop(self, timeout: float | None = 30.0) -> None:
        """Stop sending the object to nodes that join later. Transfers under way continue.

        Raises
        ------
        ObjectDeletedError
            The object is gone.
        """
        self._connection._run(self._stop(timeout))

    def _stop(self, timeout: float | None) -> Steps[None]:
        connection = self._connection
        object_id, seconds = id_for(connection, self.ref), connection._seconds(timeout)
        call = _waiting.owned(lib.phx_broadcast_stop(connection._ptr, object_id, nanos(seconds)))
        yield Finish(call, seconds, "stopping the broadcast", object_id)
