"""Checks of a caller's arguments: numbers, time limits and text.

Each error names the argument, what is expected, and the remedy of a usual mistake. A value of a wrong
type is a TypeError; a value out of range is an InvalidArgumentError. Refs are checked in `_ref`.
"""

from __future__ import annotations

import operator

from phalanx import exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# From here on (285 years) a limit is none: the library counts nanoseconds in 63 bits.
_NO_LIMIT_S = 9e9
_MAX_COUNT = (1 << 31) - 1
_MAX_SHOWN = 60


def shown(value: object) -> str:
    """Return the repr of a value as errors show it: cut off."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def seconds_of(timeout: Any, name: str = "timeout") -> float | None:
    """Return a caller's time limit in seconds. None: no limit."""
    if timeout is None:
        return None
    if type(timeout) is not float and type(timeout) is not int:
        timeout = _number_of(timeout, name)
    if timeout >= _NO_LIMIT_S:
        return None
    if not timeout >= 0:  # NaN, too
        raise exceptions.InvalidArgumentError(f"{name}={timeout}: 0 or more seconds, or None for no limit")
    return timeout  # type: ignore[no-any-return]


def _number_of(timeout: Any, name: str) -> float:
    """Convert a number of another type, such as NumPy's; raises TypeError for all other values."""
    if not isinstance(timeout, (str, bytes, bytearray)):  # float() reads numbers in text
        try:
            return float(timeout)
        except (TypeError, ValueError):
            pass
    remedy = ""
    if hasattr(timeout, "total_seconds"):
        remedy = f"; give {name}.total_seconds()"
    elif type(timeout).__name__ == "ObjectRef":
        remedy = "; give several refs as one list"
    raise TypeError(f"{name}={shown(timeout)}: a number of seconds is expected, or None for no limit{remedy}")


def whole(value: Any, name: str, least: int = 0, most: int = _MAX_COUNT) -> int:
    """Return a caller's whole number."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={shown(value)}: a whole number (an int) is expected") from None
    if not least <= number <= most:
        raise exceptions.InvalidArgumentError(f"{name}={number}: a number from {least} to {most} is expected")
    return number


def utf8(value: Any, name: str) -> bytes:
    """Return a caller's text in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={shown(value)}: text (a str) is expected")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise exceptions.InvalidArgumentError(
            f"{name}={shown(value)}: UTF-8 cannot encode this text"
        ) from None
