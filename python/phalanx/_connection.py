"""A connection to the node of this host: the library's handle, and the state that all calls share.

Owns the handle, the addresses, the default timeout and the list of this process's connections.
Every feature takes a Connection as its first argument. This module imports no feature, and knows
ids of objects, not refs.

Threads: any thread can use a connection. `_lock` protects `_futures`, `_bridges` and `_workers`.
Fork: the handle works only in the process that made it; in a child every call raises ClosedError. A
fork can copy a lock that is held, so the child replaces the locks (`_after_fork`).
"""

from __future__ import annotations

import os
import threading
import weakref

from phalanx import _arguments, _inheritance, _native, _waiting, exceptions
from phalanx._native import ffi, lib, nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")

# The default of a timeout argument, because None already means "no limit".
DEFAULT: Any = ...
_MAX_CAPACITY = (1 << 63) - 1


def address_of(address: str | os.PathLike[str] | None) -> str:
    """Return a caller's address as text; empty for None."""
    path = os.fspath(address) if isinstance(address, os.PathLike) else address
    return "" if path is None else _arguments.utf8(path, "address").decode()


class Connection:
    """The base class of `Client`, which documents the parameters and the public attributes."""

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = DEFAULT,
        connect_timeout: float | None = 10.0,
        capacity: int = 0,
    ) -> None:
        self._closed = True  # __init__ can raise before it connects
        self._offered = False
        self._timeout = _timeout_setting() if timeout is DEFAULT else _arguments.seconds_of(timeout)
        patience = nanos(_arguments.seconds_of(connect_timeout, "connect_timeout"))
        room = _arguments.whole(capacity, "capacity", most=_MAX_CAPACITY)
        address = address_of(address)
        received = None if address else _inheritance.received()
        if received is not None:
            address = received.address
        spelled = ffi.new("char[]", address.encode())
        executable = ffi.new("char[]", _native.EXECUTABLE.encode())
        options = ffi.new("phx_connect_options*", (spelled, executable, patience, room))
        where = address or os.environ.get("PHALANX_ADDRESS")
        node = f"unix:{where.removeprefix('unix:')}" if where else None
        try:
            self._ptr = ffi.gc(_native.checked(lib.phx_connect(options), node), lib.phx_client_free)
        except exceptions.DisconnectedError as error:
            if received is None or not received.private:
                raise
            raise exceptions.DisconnectedError(
                f"{error}; this process has the address from process {received.pid}, and a private cluster ends "
                "with the process that started it: keep that one running, or set PHALANX_ADDRESS (empty: a "
                "private cluster of this process)",
                None,
                node,
            ) from None
        self._closed = False
        self._address = _native.text(lib.phx_client_address(self._ptr))
        if not where:
            _inheritance.offer(self._address, private=True)
        self._node = _native.text(lib.phx_client_node(self._ptr))
        self._directory = _native.text(lib.phx_client_directory(self._ptr))
        self._lock = threading.Lock()
        # `_futures` and `_asyncio` set these at their first use. A weak table in those modules would
        # leak: the driver of futures refers to its connection.
        self._futures: Any = None
        self._bridges: Any = None
        self._workers: Any = None
        _connections[id(self)] = self

    @property
    def address(self) -> str:
        """ "unix:PATH" of the node's socket."""
        return self._address

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node

    @property
    def directory(self) -> str:
        """The address of the cluster's directory, as ``phalanx --directory`` takes it."""
        return self._directory

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Whether the client is unusable here: `closed` or `forked`."""
        return self._closed or self.forked

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that made the client; calls then raise ClosedError."""
        return bool(lib.phx_client_forked(self._ptr))

    def close(self) -> None:
        """Close the connection. Pending calls fail with ClosedError; values stay valid. Idempotent."""
        if not self._closed:
            self._withdraw()
            self._closed = True
            lib.phx_close(self._ptr)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a client cannot be pickled: a child process uses the functions of the package, or makes a client of"
            " its own, phalanx.Client(client.address); refs can be pickled"
        )

    # ---- for the features

    def _offer(self) -> None:
        """Offer this address to child processes until the connection is closed."""
        self._offered = True
        _inheritance.offer(self._address, private=False)

    def _withdraw(self) -> None:
        if self._offered:
            self._offered = False
            _inheritance.withdraw()

    def _seconds(self, timeout: float | None) -> float | None:
        """Return the limit of a call in seconds; None: no limit."""
        return self._timeout if timeout is DEFAULT else _arguments.seconds_of(timeout)

    def _batch(self) -> Batch:
        """Return a context within which requests are queued; its end sends them together."""
        return Batch(self._ptr)

    def _run(self, steps: _waiting.Steps[_T]) -> _T:
        """Return the result of a call's steps; block in each."""
        try:
            step = next(steps)
            while True:
                try:
                    result = step.block(self._address)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as stop:
            return stop.value


class Batch:
    """The context of `Connection._batch`."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> None:
        lib.phx_batch_begin(self._client)

    def __exit__(self, *_: object) -> None:
        lib.phx_batch_end(self._client)


_connections: weakref.WeakValueDictionary[int, Connection] = weakref.WeakValueDictionary()


def _after_fork() -> None:
    """Replace locks that a thread of the parent can have held at the fork."""
    for made in _connections.valuerefs():
        connection = made()
        if connection is None:
            continue
        connection._lock = threading.Lock()
        if connection._futures is not None:
            connection._futures.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def of_cluster(directory: str) -> Connection | None:
    """Return a usable connection of this process to a cluster; None if there is none."""
    for made in _connections.valuerefs():  # a copy: other threads can be connecting
        connection = made()
        if connection is not None and connection._directory == directory and not connection.ended:
            return connection
    return None


def _timeout_setting() -> float | None:
    spelled = os.environ.get("PHALANX_TIMEOUT", "")
    try:
        seconds = float(spelled) if spelled else None
    except ValueError:
        raise exceptions.InvalidArgumentError(
            f"PHALANX_TIMEOUT={spelled!r} is no number of seconds"
        ) from None
    return _arguments.seconds_of(seconds, "PHALANX_TIMEOUT")
