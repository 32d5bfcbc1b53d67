"""Calls of a parameter server that are under way, and what they return.

A `TableCall` owns the library's call, freed with its last reference, and has the memory that the library writes until the
call has ended. What a call returns refers to that memory, or is a copy.

Functions and classes; any thread.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Generator
from functools import partial

from phalanx import _arguments, _native, _waiting, exceptions
from phalanx._native import ffi, lib
from phalanx._typing import Generic, TypeVar
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, Protocol

    from phalanx._connection import Connection
    from phalanx._typing import Array
    from phalanx._waiting import Steps

    T = TypeVar("T", default=Any)

    class Caller(Protocol):
        """What makes a `TableCall`: a `Worker`, or a server."""

        _connection: Connection

        def _forget(self, calls: list[Any]) -> None: ...
        def _error_of(self, error: exceptions.PhalanxError, table: bool = ...) -> exceptions.PhalanxError: ...

    class Reply(NamedTuple):
        """What a server answers to a request."""

        head: int
        body: bytes

    class PulledRows(NamedTuple):
        """Rows with lengths of their own."""

        values: Array
        lengths: Array

else:
    T = TypeVar("T")
    Reply = namedtuple("Reply", "head body")
    Reply.__doc__ = """What a server answers to a request: a number of 32 bits, and bytes."""
    PulledRows = namedtuple("PulledRows", "values lengths")
    PulledRows.__doc__ = """Rows with lengths of their own: an array of their elements, one row behind the other in the order of
    the keys, and an array of int64 of their lengths."""


def _release(_kept: Any, call: Any, _abandon: Any = _waiting.abandon) -> None:
    """End a call of the library, and free it; the memory is kept until then."""
    _abandon(call)


class TableCall(Generic[T]):
    """A call that is under way: what `Server.barrier` and the methods of `Worker` and `Table` return with ``wait=False``.

    ``call.wait()`` or ``await call`` returns the result. The call goes on without this handle, and without a task
    that awaits it. Any thread can use it.
    """

    def __init__(self, worker: Caller, what: str, result: Callable[[Any], T], table: bool = True) -> None:
        self._worker = worker
        self._what = what
        self._result = result
        self._table = table
        # The library's call, once it is made. The worker keeps the list, not this handle, which refers to the worker.
        self._calls: list[Any] = []

    def __repr__(self) -> str:
        state = "ended" if self._ended else "under way"
        return f"<phalanx.ps.TableCall {self._what}: {state}>"

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error, as far as this client knows."""
        # Without a thread of its own the client reads answers only when a call drives it.
        lib.phx_poll(self._worker._connection._ptr, 0)
        if not self._ended:
            return False
        self._worker._forget(self._calls)
        return True

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the call has ended, and return its result.

        Parameters
        ----------
        timeout
            Seconds, for this wait alone; None: no limit.

        Raises
        ------
        GetTimeoutError
            This wait took too long. The call goes on, and another wait is possible.
        PhalanxError
            The errors of `Table` and `Worker`.
        """
        return self._worker._connection._run(self._wait(_arguments.seconds_of(timeout)))

    def __await__(self) -> Generator[Any, None, T]:
        from phalanx import _asyncio

        return _asyncio.run(self._worker._connection, self._wait(None)).__await__()

    # ---- for the worker

    @property
    def _ended(self) -> bool:
        return bool(lib.phx_call_ended(self._calls[0]))

    def _begin(self, kept: Any, function: Any, *arguments: Any) -> None:
        """Make the call of the library, which writes to `kept`, or to nothing (None).

        An interrupt within the library's function is raised at the next step of the interpreter. So one step makes the
        call and stores its handle, with the memory: without a handle the library would write into memory that can be
        freed.
        """
        free = lib.phx_call_free if kept is None else partial(_release, kept)
        owned = partial(ffi.gc, destructor=free)
        self._calls.extend(map(owned, filter(None, map(function, *zip(arguments)))))
        if not self._calls:
            raise _native.last_error(self._worker._connection.address)

    def _cancel(self) -> None:
        for call in self._calls:
            lib.phx_cancel(call)

    def _check(self) -> None:
        """Raise the error of a call that was refused at once."""
        if self._ended and lib.phx_wait(self._calls[0], 0) != 0:
            raise self._worker._error_of(_native.last_error(self._worker._connection.address), self._table)

    def _wait(self, seconds: float | None) -> Steps[T]:
        try:
            # A waiter that ends must not cancel the call: another one can wait for it.
            yield Finish(self._calls[0], seconds, self._what, None, cancel=False)
        except exceptions.PhalanxError as error:
            if not self._ended:
                raise
            self._worker._forget(self._calls)
            raise self._worker._error_of(error, self._table) from None
        self._worker._forget(self._calls)
        return self._result(self._calls[0])


def nothing(_call: Any) -> None:
    """The result of a call that returns nothing."""


def reply_of(call: Any) -> Reply:
    """The result of a request."""
    head, body, size = ffi.new("int32_t*"), ffi.new("void**"), ffi.new("uint64_t*")
    if lib.phx_result_reply(call, head, body, size) != 0:
        raise _native.last_error()
    return Reply(head[0], ffi.buffer(body[0], size[0])[:] if size[0] else b"")


def pulled_of(dtype: Any) -> Callable[[Any], PulledRows]:
    """The result of one pull of rows with lengths: each wait for it has the same arrays."""
    made: list[PulledRows] = []

    def result(call: Any) -> PulledRows:
        if not made:
            made.append(_pulled(call, dtype))
        return made[0]

    return result


def _pulled(call: Any, dtype: Any) -> PulledRows:
    import numpy as np

    lengths, count = ffi.new("uint32_t**"), ffi.new("size_t*")
    values, size = ffi.new("void**"), ffi.new("uint64_t*")
    if lib.phx_ps_pulled(call, lengths, count, values, size) != 0:
        raise _native.last_error()
    if count[0] == 0:
        return PulledRows(np.empty(0, dtype), np.empty(0, np.int64))
    # Numbers that a program can subtract from each other.
    copy = np.frombuffer(ffi.buffer(lengths[0], 4 * count[0]), np.uint32).astype(np.int64)
    if size[0] == 0:
        return PulledRows(np.empty(0, dtype), copy)
    # The elements are not copied: the array keeps the library's call, whose memory they are.
    owned = ffi.gc(values[0], partial(_let_go, call))
    return PulledRows(np.frombuffer(ffi.buffer(owned, size[0]), dtype), copy)


def _let_go(_call: Any, _values: Any) -> None:
    """Of an array that is freed: the call is freed with its last reference."""
