"""Steps of calls in an event loop, without a thread for waits.

The loop watches two descriptors while calls are pending: the client's, to drive the client, and a
queue's, to learn which calls have ended, whichever thread drove them. The loop owns the pending
calls through its readers, so a closed loop frees and cancels them. A connection has one bridge for
each loop:

connection ──► bridge ┄┄(weak)┄┄► pending ──► futures ──► loop
                 ▲                   ▲                     │
                 └───────────────────┴── readers ◄─────────┘

Large copies (`_waiting.Work`) would stop the loop, so worker threads of the connection make them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import traceback
import weakref
from collections.abc import AsyncIterator
from functools import partial

from phalanx import _calls, _waiting, exceptions
from phalanx._native import PENDING, ffi, lib
from phalanx._waiting import Finish, Some, Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from phalanx._connection import Connection
    from phalanx._ref import ObjectRef
    from phalanx._waiting import Step, Steps

    _T = TypeVar("_T")

# The most copies of one connection at the same time. The library uses several threads for each.
_WORKERS = 2


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

    def watch(self, call: Any, cancel: bool = True) -> asyncio.Future[None]:
        """Return a future that ends with None when the call ends.

        Cancelling the future cancels the call, unless `cancel` is false.
        """
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
        future.add_done_callback(partial(self._drop, self._tag, call, cancel))
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

    def _drop(self, tag: int, call: Any, cancel: bool, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            return
        # The call holds the object for its waiter until it is cancelled.
        if cancel:
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


# ---- steps


async def run(connection: Connection, steps: Steps[_T]) -> _T:
    """Return the result of a call's steps; await each in the running event loop.

    If the task is cancelled, the step is cancelled, and the steps raise CancelledError.
    """
    try:
        return await _driven(connection, steps)
    except asyncio.CancelledError as error:
        # A program can keep the error (`asyncio.gather` returns it), and the error keeps the frames below.
        # Their calls hold objects and memory of the node until they are freed.
        traceback.clear_frames(error.__traceback__)
        raise


async def _driven(connection: Connection, steps: Steps[_T]) -> _T:
    try:
        step = next(steps)
        while True:
            try:
                result = await _ended(connection, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        return stop.value


async def _ended(connection: Connection, step: Step) -> Any:
    if isinstance(step, Finish):
        return await _finish(connection, step)
    if isinstance(step, Some):
        return await _some(connection, step)
    return await _work(connection, step)


async def _finish(connection: Connection, step: Finish) -> None:
    if lib.phx_wait(step.call, 0) == PENDING and step.seconds != 0:
        ended = bridge_of(connection).watch(step.call, step.cancel)
        try:
            await _within(ended, step.seconds)
        finally:
            _unwatch(ended)
    step.check(connection.address)


async def _some(connection: Connection, step: Some) -> list[bool]:
    enough = asyncio.get_running_loop().create_future()
    missing = step.count - lib.phx_wait_some(
        ffi.new("phx_call*[]", step.calls), len(step.calls), step.count, 0
    )
    watched: list[asyncio.Future[None]] = []

    def count(_: asyncio.Future[None]) -> None:
        nonlocal missing
        missing -= 1
        # A cancelled task leaves the callbacks that the loop has scheduled already.
        if missing == 0 and not enough.done():
            enough.set_result(None)

    if missing > 0 and step.seconds != 0:
        bridge = bridge_of(connection)
        # Counted again: `watch` drives the client, which can end calls that are not watched yet. The
        # callbacks of those that are watched run in a later turn of the loop.
        missing = step.count
        try:
            for call in step.calls:
                if lib.phx_call_ended(call):
                    missing -= 1
                else:
                    watched.append(bridge.watch(call, cancel=False))
                    watched[-1].add_done_callback(count)
            if missing > 0:
                await _within(enough, step.seconds)
        finally:
            for future in watched:
                future.remove_done_callback(count)
                _unwatch(future)
    return [bool(lib.phx_call_ended(call)) for call in step.calls]


def _unwatch(future: asyncio.Future[None]) -> None:
    # A closed loop has freed its pending calls, and runs no callbacks.
    if not future.get_loop().is_closed():
        future.cancel()


async def _within(future: asyncio.Future[None], seconds: float | None) -> None:
    """Wait until a future ends or the time is up."""
    if seconds is None:
        await future
    else:
        await asyncio.wait((future,), timeout=seconds)


async def _work(connection: Connection, step: Work) -> Any:
    with connection._lock:
        if connection._workers is None:
            connection._workers = concurrent.futures.ThreadPoolExecutor(_WORKERS, "phalanx-copies")
    # The function can decode a value, whose code sees the context of its task.
    job = connection._workers.submit(contextvars.copy_context().run, step.function, step)
    done = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # The thread cannot be stopped, and uses memory of the object and of the caller.
        step.cancelled = True
        while not job.cancel() and not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError:  # cancelled again: the wait is the same
                continue
        if done.done() and not done.cancelled():
            done.exception()  # the task ends by the cancellation, not by an error of the function
        raise


def as_completed(
    connection: Connection, refs: list[ObjectRef[_T]], seconds: float | None
) -> AsyncIterator[ObjectRef[_T]]:
    """Iterate over refs in the order in which their objects arrive; see `AsyncClient.as_completed`."""
    return _completed(connection, refs, _waiting.Deadline(seconds))


async def _completed(
    connection: Connection, refs: list[ObjectRef[_T]], deadline: _waiting.Deadline
) -> AsyncIterator[ObjectRef[_T]]:
    bridge = bridge_of(connection)
    arrived: asyncio.Queue[int | None] = asyncio.Queue()
    pending: dict[int, asyncio.Future[None]] = {}
    left = deadline.left()
    timer = left and asyncio.get_running_loop().call_later(left, arrived.put_nowait, None)
    try:
        for index, ref in enumerate(refs):
            pending[index] = bridge.watch(_calls.get(connection, [ref], None, free=_waiting.abandon))
            pending[index].add_done_callback(partial(_arrive, arrived, index))
        if left == 0:
            arrived.put_nowait(None)
        while pending:
            index = await arrived.get()
            if index is None:
                raise exceptions.GetTimeoutError(
                    f"{len(pending)} of {len(refs)} objects are not there within {deadline.seconds} s",
                    refs[next(iter(pending))].hex(),
                    connection.address,
                )
            del pending[index]
            yield refs[index]
    finally:
        if timer:
            timer.cancel()
        for future in pending.values():
            _unwatch(future)


def _arrive(arrived: asyncio.Queue[int | None], index: int, _: asyncio.Future[None]) -> None:
    arrived.put_nowait(index)
