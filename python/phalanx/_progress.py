"""Bars that show how many objects of several have arrived.

tqdm draws the bars and is imported for the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx import _waiting
from phalanx._native import PENDING, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _T = TypeVar("_T")


def bar(total: int) -> Any:
    """Return a bar of tqdm.

    Raises
    ------
    ImportError
        tqdm is not installed.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "progress=True draws its bar with tqdm, which is not installed: pip install 'phalanx[progress]'",
            name="tqdm",
        ) from error
    return tqdm(total=total, desc="phalanx", unit=" objects")


def counted(shown: Any, items: Iterable[_T]) -> Iterator[_T]:
    """Iterate, and advance a bar by one for each item. The bar closes when the iteration ends or fails."""
    with shown:
        for item in items:
            shown.update()
            yield item


def some(calls: list[Any], count: int, seconds: float | None, describe: _waiting.Describe) -> list[bool]:
    """Like `_waiting.some`, and show how many of the `count` calls have ended."""
    deadline = _waiting.Deadline(seconds)
    with bar(count) as shown:
        ended = _waiting.some(calls, 0, 0, describe)
        while True:
            there = sum(ended)
            shown.update(min(there, count) - shown.n)
            if there >= count:
                return ended
            ended = _waiting.some(calls, there + 1, deadline.left(), describe)
            # No new call ended, so the timeout expired.
            if sum(ended) == there:
                return ended


def until_all_or_one_fails(calls: list[Any], deadline: _waiting.Deadline) -> None:
    """Show how many calls have ended, until all have, one fails, or the timeout expires."""
    pending = calls
    with bar(len(calls)) as shown:
        while pending:
            ended = _waiting.some(pending, 1, deadline.left(), lambda: f"{len(calls)} objects")
            there = [call for call, has_ended in zip(pending, ended) if has_ended]
            shown.update(len(there))
            if not there or any(lib.phx_wait(call, 0) not in (0, PENDING) for call in there):
                return
            pending = [call for call, has_ended in zip(pending, ended) if not has_ended]
