"""What the tests of failures share: exactly which exception, and within how long."""

from __future__ import annotations

import contextlib
import time

import pytest

# What "at once" may take on a machine that is doing something else.
AT_ONCE_S = 2.0


@contextlib.contextmanager
def raises(kind: type[BaseException], after: float = 0.0, match: str | None = None):
    """Expect exactly this exception, `after` seconds from now and hardly later."""
    begun = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        yield caught
    took = time.monotonic() - begun
    assert type(caught.value) is kind
    assert after * 0.9 <= took < after + AT_ONCE_S, took
