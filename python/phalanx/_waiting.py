"""Interruptible waits for calls of the library, with deadlines and a log line for long waits.

Works on the library's calls alone and has no state: connections, refs and values are above it.

A call of the package that waits is written once, as a generator of its steps. `Connection._run` drives
the generator and blocks in each step; `_asyncio.run` awaits each step in an event loop. A driver sends
the result of a step into the generator, or throws its error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from functools import partial

from phalanx._native import DEADLINE, PENDING, error_of, ffi, lib, shown, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    _T = TypeVar("_T")
    Step: TypeAlias = "Finish | Some | Work"
    Steps: TypeAlias = Generator[Step, Any, _T]

# The longest delay of Ctrl-C: the interpreter runs signal handlers only between calls.
_SLICE_S = 0.05
# The interval after which a wait logs the object it waits for.
NOTICE_S = 30.0

Describe = Callable[[], str]


class Deadline:
    """One time limit for all steps of a call. None: no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds that are left; None: no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


class Patience:
    """The time that a wait can still take, cut into slices so that signals are handled between them.

    Parameters
    ----------
    seconds
        None: no limit.
    describe
        Returns the subject of the wait, for the log.
    """

    def __init__(self, seconds: float | None, describe: Describe) -> None:
        now = time.monotonic()
        self._until = None if seconds is None else now + seconds
        self._notice = now + NOTICE_S
        self._describe = describe
        self._main = threading.current_thread() is threading.main_thread()

    def slice(self) -> int:
        """Return the length of the next slice in nanoseconds; 0 if the time is up."""
        now = time.monotonic()
        if now >= self._notice:
            self._notice = now + NOTICE_S
            import logging

            logging.getLogger("phalanx").warning("still waiting for %s", self._describe())
        # Signal handlers run on the main thread only; other threads need no short slices.
        seconds = _SLICE_S if self._main else self._notice - now
        if self._until is not None:
            seconds = min(seconds, self._until - now)
        return max(0, int(seconds * 1e9))


def owned(call: Any, free: Any = lib.phx_call_free) -> Any:
    """Return a call that is freed with its last reference; raise the last error if it is NULL."""
    if call == ffi.NULL:
        raise error_of(lib.phx_error_code(), text(lib.phx_error()))
    return ffi.gc(call, free)


def taken(call: Any) -> Any:
    """Return a call for normal freeing, once a ref counts its hold; it was to be forgotten before."""
    ffi.gc(call, None)
    return ffi.gc(call, lib.phx_call_free)


def abandon(call: Any, _cancel: Any = lib.phx_cancel, _free: Any = lib.phx_call_free) -> None:
    """Cancel a call that has not ended, and free it."""
    _cancel(call)
    _free(call)


def _described(what: str, object_id: bytes | None) -> str:
    return what if object_id is None else f"{what} of {shown(object_id)}"


def finish(
    call: Any,
    seconds: float | None,
    what: str,
    object_id: bytes | None,
    node: str | None,
    cancel: bool = True,
) -> None:
    """Wait until a call succeeds. If the wait ends otherwise, `cancel` says whether to cancel the call.

    `what` and the id, if there is one, name the call in errors and in the log.

    Raises
    ------
    PhalanxError
        The error of the call, or GetTimeoutError.
    """
    # Most calls end within the first slice. They construct neither a Patience nor a description.
    first = _SLICE_S if seconds is None else min(seconds, _SLICE_S)
    try:
        code = lib.phx_wait(call, int(first * 1e9))
        if code == PENDING:
            describe = partial(_described, what, object_id)
            patience = Patience(None if seconds is None else seconds - first, describe)
        while code == PENDING:
            left = patience.slice()
            code = lib.phx_wait(call, left)
            if code == PENDING and left == 0:
                raise error_of(DEADLINE, f"{describe()}: not there within {seconds} s", node)
    except BaseException:
        if cancel:
            lib.phx_cancel(call)
        raise
    if code != 0:
        raise error_of(code, text(lib.phx_error()), node)


def _check_process(calls: list[Any]) -> None:
    """Raise ClosedError if the calls were made before a fork: they do not end in the child."""
    call = next((call for call in calls if not lib.phx_call_ended(call)), None)
    if call is None:
        return
    code = lib.phx_wait(call, 0)
    if code != PENDING and not lib.phx_call_ended(call):
        raise error_of(code, text(lib.phx_error()))


def some(calls: list[Any], count: int, seconds: float | None, describe: Describe) -> list[bool]:
    """Wait until `count` calls have ended, with or without an error, or the timeout expires.

    Returns
    -------
    list of bool
        For each call, whether it has ended.

    Raises
    ------
    ClosedError
        The calls were made before this process was forked.
    """
    pointers = ffi.new("phx_call*[]", calls)
    patience = Patience(seconds, describe)
    left = 0
    while lib.phx_wait_some(pointers, len(calls), count, left) < count:
        _check_process(calls)
        left = patience.slice()
        if left == 0:
            break
    return [bool(lib.phx_call_ended(call)) for call in calls]


# ---- steps


class Finish:
    """The step that waits until a call succeeds; the arguments are those of `finish`."""

    __slots__ = ("call", "cancel", "object_id", "seconds", "what")

    def __init__(
        self, call: Any, seconds: float | None, what: str, object_id: bytes | None, cancel: bool = True
    ) -> None:
        self.call = call
        self.seconds = seconds
        self.what = what
        self.object_id = object_id
        self.cancel = cancel

    def block(self, node: str) -> None:
        finish(self.call, self.seconds, self.what, self.object_id, node, self.cancel)

    def check(self, node: str) -> None:
        """Raise the error of the call, or GetTimeoutError if it has not ended. Does not wait."""
        code = lib.phx_wait(self.call, 0)
        if code == PENDING:
            if self.cancel:
                lib.phx_cancel(self.call)
            subject = _described(self.what, self.object_id)
            raise error_of(DEADLINE, f"{subject}: not there within {self.seconds} s", node)
        if code != 0:
            raise error_of(code, text(lib.phx_error()), node)


class Some:
    """The step that waits until `count` calls have ended; its result is that of `some`."""

    __slots__ = ("calls", "count", "describe", "seconds")

    def __init__(self, calls: list[Any], count: int, seconds: float | None, describe: Describe) -> None:
        self.calls = calls
        self.count = count
        self.seconds = seconds
        self.describe = describe

    def block(self, node: str) -> list[bool]:
        return some(self.calls, self.count, self.seconds, self.describe)


class Work:
    """The step that calls a function without waits, which can take long: a large copy.

    In an event loop a worker thread calls the function, and the step ends after the function, also if
    the task is cancelled: only then is the memory free that the function uses. The function gets the
    step, whose `cancelled` is true from the cancellation on.
    """

    __slots__ = ("cancelled", "function")

    def __init__(self, function: Callable[[Work], Any]) -> None:
        self.function = function
        self.cancelled = False

    def block(self, node: str) -> Any:
        return self.function(self)
