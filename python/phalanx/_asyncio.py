"""Calls of a client as futures of an event loop, without a thread.

The loop watches two descriptors while calls are pending: the client's, to drive it, and a queue's, to
learn which calls have ended, whichever thread drove them.
"""

from __future__ import annotations

import asyncio
import weakref

from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Bridge:
    """A client's calls in one event loop. Used on the loop's thread alone."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = weakref.ref(loop)
        self._queue = ffi.gc(lib.phx_queue_new(), lib.phx_queue_free)
        self._fds = (lib.phx_client_fd(client), lib.phx_queue_fd(self._queue))
        if min(self._fds) < 0:
            raise OSError("no descriptor is left for the event loop to watch")
        self._pending: dict[int, tuple[asyncio.Future, Any]] = {}
        self._tag = 0

    def watch(self, call: Any) -> asyncio.Future:
        """Return a future that ends, with None, when the call has ended. Cancelling it cancels the call."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._pending:
            loop.add_reader(self._fds[0], self._drive)
            loop.add_reader(self._fds[1], self._collect)
        self._tag += 1
        self._pending[self._tag] = (future, call)
        future.add_done_callback(_cancel_with(call))
        lib.phx_call_notify(call, self._queue, self._tag)
        # What a request has set off may be here already.
        self._drive()
        return future

    def _drive(self) -> None:
        lib.phx_poll(self._client, 0)
        self._collect()

    def _collect(self) -> None:
        tags = ffi.new("uint64_t[64]")
        while taken := lib.phx_queue_take(self._queue, tags, 64):
            for tag in tags[0:taken]:
                entry = self._pending.pop(tag, None)
                if entry is not None and not entry[0].done():
                    entry[0].set_result(None)
        loop = self._loop()
        if not self._pending and loop is not None and not loop.is_closed():
            for fd in self._fds:
                loop.remove_reader(fd)


def _cancel_with(call: Any) -> Any:
    def cancel(future: asyncio.Future) -> None:
        if future.cancelled():
            lib.phx_cancel(call)

    return cancel
