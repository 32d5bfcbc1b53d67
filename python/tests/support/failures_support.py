"""Helpers for the tests of failures: the exact exception, and the time it takes."""

from __future__ import annotations

import contextlib
import time

import pytest

# The limit of "at once", with a margin for a busy machine.
AT_ONCE_S = 2.0


@contextlib.contextmanager
def raises(kind: type[BaseException], after: float = 0.0, match: str | None = None):
    """Expect exactly this exception, `after` seconds from now, within AT_ONCE_S."""
    begun = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        yield caught
    took = time.monotonic() - begun
    assert type(caught.value) is kind
    assert after * 0.9 <= took < after + AT_ONCE_S, took
