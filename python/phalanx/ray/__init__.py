"""Phalanx under Ray, with nothing changed in Ray. The guide is docs/ray.md.

``phalanx.ray.init()`` instead of ``ray.init()`` is all that a program needs: Phalanx's daemons start with Ray's
workers and end with Ray's nodes.
"""

from __future__ import annotations

try:
    import ray as _ray  # noqa: F401
except ImportError as _error:
    raise ImportError(
        'phalanx.ray needs Ray, which is not installed: pip install "phalanx[ray]"', name="ray"
    ) from _error

from phalanx.ray._arrays import Array, array
from phalanx.ray._broadcasting import broadcast
from phalanx.ray._connecting import client
from phalanx.ray._counting import Ref, get, put
from phalanx.ray._groups import group_options
from phalanx.ray._hook import init, register, shutdown, try_to_register_names as _try_to_register_names
from phalanx.ray._sharing import share
from phalanx.ray._tasks import Task, call, reduce, task
from phalanx.ray._transport import method

__all__ = [
    "Array",
    "Ref",
    "Task",
    "array",
    "broadcast",
    "call",
    "client",
    "get",
    "group_options",
    "init",
    "method",
    "put",
    "reduce",
    "register",
    "share",
    "shutdown",
    "task",
]

# So that Ray knows the names in each process that imports this package, or receives something of it.
_try_to_register_names()
