"""Waiting for calls of the library: interruptible, with deadlines, and not in silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from phalanx._native import PENDING, error_of, ffi, lib, nanos, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The interpreter runs signal handlers between calls: how long Ctrl-C may wait.
_SLICE_S = 0.05
# After so long a wait says whom it waits for, in the log.
NOTICE_S = 30.0
_DEADLINE = 4

Describe = Callable[[], str]


class Deadline:
    """The time that the steps of one call have together; None: for ever."""

    def __init__(self, seconds: float | None) -> None:
        nanos(seconds)  # or raises
        self.seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the seconds that are left for the next step."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


class Patience:
    """How long a wait may still take, in slices after each of which signals are seen.

    Parameters
    ----------
    seconds
        None: for ever.
    describe
        What is waited for, for the log.
    """

    def __init__(self, seconds: float | None, describe: Describe) -> None:
        now = time.monotonic()
        self._until = None if seconds is None else now + seconds
        self._notice = now + NOTICE_S
        self._describe = describe
        self._main = threading.current_thread() is threading.main_thread()

    def slice(self) -> int:
        """Return the next slice in nanoseconds; 0 when the time is over."""
        now = time.monotonic()
        if now >= self._notice:
            self._notice = now + NOTICE_S
            import logging

            logging.getLogger("phalanx").warning("still waiting for %s", self._describe())
        seconds = _SLICE_S if self._main else self._notice - now
        if self._until is not None:
            seconds = min(seconds, self._until - now)
        return max(0, int(seconds * 1e9))


def owned(call: Any, free: Any = lib.phx_call_free) -> Any:
    """Return a call's pointer that frees it; raise if the library gave none."""
    if call == ffi.NULL:
        raise error_of(lib.phx_error_code(), text(lib.phx_error()))
    return ffi.gc(call, free)


def taken(call: Any) -> Any:
    """Return a call that was to be forgotten, and whose hold is counted by a ref from here on."""
    ffi.gc(call, None)
    return ffi.gc(call, lib.phx_call_free)


def abandon(call: Any, _cancel: Any = lib.phx_cancel, _free: Any = lib.phx_call_free) -> None:
    """Free a call and cancel it, unless it has ended."""
    _cancel(call)
    _free(call)


def finish(
    call: Any, seconds: float | None, describe: Describe, node: str | None, cancel: bool = True
) -> None:
    """Wait until a call has ended well. Whatever ends the wait otherwise cancels the call, or not.

    Raises
    ------
    PhalanxError
        As the call ended, or GetTimeoutError.
    """
    # Most calls have ended before any patience would count.
    first = _SLICE_S if seconds is None else min(seconds, _SLICE_S)
    try:
        code = lib.phx_wait(call, int(first * 1e9))
        if code == PENDING:
            patience = Patience(None if seconds is None else seconds - first, describe)
        while code == PENDING:
            left = patience.slice()
            code = lib.phx_wait(call, left)
            if code == PENDING and left == 0:
                raise error_of(_DEADLINE, f"{describe()}: not there within {seconds} s", node)
    except BaseException:
        if cancel:
            lib.phx_cancel(call)
        raise
    if code != 0:
        raise error_of(code, text(lib.phx_error()), node)


def _check_process(calls: list[Any]) -> None:
    """Raise ClosedError if the calls are those of a parent, which will not end here."""
    call = next((call for call in calls if not lib.phx_call_ended(call)), None)
    if call is None:
        return
    code = lib.phx_wait(call, 0)
    if code != PENDING and not lib.phx_call_ended(call):
        raise error_of(code, text(lib.phx_error()))


def some(calls: list[Any], count: int, seconds: float | None, describe: Describe) -> list[bool]:
    """Wait until `count` of the calls have ended, however, or the time is over; which have.

    Raises
    ------
    ClosedError
        They were made before this process was forked.
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
