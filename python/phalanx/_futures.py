"""concurrent.futures for objects, which one thread of each connection fulfils.

Owns the driver of each connection, which the connection refers to. Its thread runs only while
futures are pending.
"""

from __future__ import annotations

import concurrent.futures
import select
import threading

from phalanx import _calls
from phalanx._objects import failures, structures
from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._ref import ObjectRef


class Driver:
    """Drives a client in a thread while futures are pending, and fulfils them in that thread.

    Any thread can call `add`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._queue = ffi.gc(lib.phx_queue_new(), lib.phx_queue_free)
        self._fds = (lib.phx_client_fd(connection._ptr), lib.phx_queue_fd(self._queue))
        if min(self._fds) < 0:
            raise OSError("no descriptor is left for futures")
        self._pending: dict[int, tuple[concurrent.futures.Future[Any], ObjectRef, Any]] = {}
        self._tag = 0
        self._running = False

    def add(self, ref: ObjectRef, call: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def cancel(done: concurrent.futures.Future[Any]) -> None:
            if done.cancelled():
                lib.phx_cancel(call)

        future.add_done_callback(cancel)
        with self._lock:
            self._tag += 1
            self._pending[self._tag] = (future, ref, call)
            lib.phx_call_notify(call, self._queue, self._tag)
            # The thread ends when nothing is pending, so that a program without futures has no
            # extra thread.
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="phalanx-futures", daemon=True).start()
        return future

    def after_fork(self) -> None:
        """In a child, replace a lock that a thread of the parent can have held at the fork."""
        self._lock = threading.Lock()

    def _run(self) -> None:
        tags = ffi.new("uint64_t[64]")
        watched = select.poll()
        for fd in self._fds:
            watched.register(fd, select.POLLIN)
        while True:
            taken = lib.phx_queue_take(self._queue, tags, 64)
            for tag in tags[0:taken]:
                _fulfil(self._connection, *self._pending.pop(tag))
            if taken:
                continue
            # `add` starts a thread if `_running` is false, so both change under the lock.
            with self._lock:
                if not self._pending:
                    self._running = False
                    return
            # Polls both descriptors, because another thread can drive the client and end the call.
            watched.poll()
            lib.phx_poll(self._connection._ptr, 0)


def _fulfil(
    connection: Connection, future: concurrent.futures.Future[Any], ref: ObjectRef, call: Any
) -> None:
    """Set the result or exception of a future from its call, which has ended."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        connection._run(failures.finish(connection, call, 0, "Get", ref, [ref]))
        value = _calls.values_of(connection, call, 1, structures.find)[0]
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)


def future_of(connection: Connection, ref: ObjectRef) -> concurrent.futures.Future[Any]:
    """Return a future of an object's value; see `ObjectRef.future`."""
    call = _calls.get(connection, [ref], None)
    if lib.phx_call_ended(call):
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        _fulfil(connection, future, ref, call)
        return future
    with connection._lock:
        if connection._futures is None:
            connection._futures = Driver(connection)
    return connection._futures.add(ref, call)
