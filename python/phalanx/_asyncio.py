"""Calls of a client as futures of an event loop, without a thread.

The loop watches two descriptors while calls are pending: the client's, to drive the client, and a
queue's, to learn which calls have ended, whichever thread drove them. The loop owns the pending
calls through its readers, so a closed loop frees and cancels them. A connection has one bridge for
each loop:

connection ──► bridge ┄┄(weak)┄┄► pending ──► futures ──► loop
                 ▲                   ▲                     │
                 └───────────────────┴── readers ◄─────────┘
"""

from __future__ import annotations

import asyncio
import weakref
from functools import partial

from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection


class _Pending(dict[int, "tuple[asyncio.Future[None], Any]"]):
    """Futures and their calls, by tag. Freeing this dict cancels the calls of a closed loop."""


def _nothing() -> None:
    """Stand in for a weak reference whose target is gone."""


class Bridge:
    """A client's calls in one event loop. Loop thread only."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._queue = ffi.gc(lib.phx_queue_new(), lib.phx_queue_free)
        self._fds = (lib.phx_client_fd(client), lib.phx_queue_fd(self._queue))
        if min(self._fds) < 0:
            raise OSError("no descriptor is left for the event loop to watch")
        self._pending: Any = _nothing
        self._tag = 0

    def watch(self, call: Any) -> asyncio.Future[None]:
        """Return a future that ends with None when the call ends. Cancelling it cancels the call."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        pending = self._pending()
        if pending is None:
            pending = _Pending()
            self._pending = weakref.ref(pending)
            loop.add_reader(self._fds[0], self._drive, pending)
            loop.add_reader(self._fds[1], self._collect, pending)
        self._tag += 1
        pending[self._tag] = (future, call)
        future.add_done_callback(partial(self._drop, self._tag, call))
        lib.phx_call_notify(call, self._queue, self._tag)
        # The answer can be here already, because the request itself set it off.
        self._drive(pending)
        return future

    def _drive(self, pending: _Pending) -> None:
        lib.phx_poll(self._client, 0)
        self._collect(pending)

    def _collect(self, pending: _Pending) -> None:
        tags = ffi.new("uint64_t[64]")
        while taken := lib.phx_queue_take(self._queue, tags, 64):
            for tag in tags[0:taken]:
                # The future of a call that was cancelled meanwhile has left `pending`.
                entry = pending.pop(tag, None)
                if entry is not None and not entry[0].done():
                    entry[0].set_result(None)
        self._rest(pending)

    def _drop(self, tag: int, call: Any, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            return
        # The call holds the object for its waiter until it is cancelled.
        lib.phx_cancel(call)
        pending = self._pending()
        if pending is not None:
            pending.pop(tag, None)
            self._rest(pending)

    def _rest(self, pending: _Pending) -> None:
        """Stop watching the descriptors if nothing is pending, so that an idle loop does not wake."""
        if pending or self._pending() is not pending:
            return
        self._pending = _nothing
        loop = asyncio.get_running_loop()
        for fd in self._fds:
            loop.remove_reader(fd)


def bridge_of(connection: Connection) -> Bridge:
    """Return the bridge of a connection in the running event loop."""
    loop = asyncio.get_running_loop()
    with connection._lock:
        if connection._bridges is None:
            connection._bridges = weakref.WeakKeyDictionary()
        bridge = connection._bridges.get(loop)
        if bridge is None:
            bridge = connection._bridges[loop] = Bridge(connection._ptr)
        return bridge
