"""Phalanx: a store of immutable objects for task runtimes on many machines, with collectives.

>>> import numpy as np
>>> import phalanx
>>> ref = phalanx.put(np.arange(10))
>>> phalanx.get(ref)
array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])

The functions here use one client per process. It connects at the first use: to
``PHALANX_ADDRESS``, or to a private cluster that ends with the process. Child processes use the
cluster of their parent. Use `Client` for several clusters at once.
NumPy, torch and cloudpickle are imported when a value first needs them.
"""

from __future__ import annotations

import types

from phalanx import _interpreter

_interpreter.check()

from phalanx import exceptions
from phalanx._broadcast import Broadcast, Progress
from phalanx._building import get_include, get_library
from phalanx._client import Client
from phalanx._collectives import Reduction
from phalanx._default import client as _default_client
from phalanx._default import init, shutdown
from phalanx._ref import ObjectRef
from phalanx._release import __version__
from phalanx._status import ObjectStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "Broadcast",
    "Client",
    "ObjectRef",
    "ObjectStatus",
    "Progress",
    "Reduction",
    "__version__",
    "all_to_all",
    "allgather",
    "allreduce",
    "as_completed",
    "barrier",
    "broadcast",
    "contains",
    "create",
    "delete",
    "exceptions",
    "gather",
    "get",
    "get_include",
    "get_library",
    "init",
    "keep",
    "open_reduction",
    "put",
    "reduce",
    "reduce_scatter",
    "reduced_from",
    "ref",
    "scatter",
    "shutdown",
    "stat",
    "status",
    "tree",
    "wait",
]


def _of_default_client(verb: Callable[Concatenate[Any, _P], _R]) -> Callable[_P, _R]:
    """Return a function that calls a method of the default client."""
    name = verb.__name__

    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(_default_client(), name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = verb.__doc__
    # inspect.signature then shows the signature without the client.
    function.__wrapped__ = types.MethodType(verb, Client)  # type: ignore[attr-defined]
    return function


all_to_all = _of_default_client(Client.all_to_all)
allgather = _of_default_client(Client.allgather)
allreduce = _of_default_client(Client.allreduce)
as_completed = _of_default_client(Client.as_completed)
barrier = _of_default_client(Client.barrier)
broadcast = _of_default_client(Client.broadcast)
contains = _of_default_client(Client.contains)
create = _of_default_client(Client.create)
delete = _of_default_client(Client.delete)
gather = _of_default_client(Client.gather)
get = _of_default_client(Client.get)
keep = _of_default_client(Client.keep)
open_reduction = _of_default_client(Client.open_reduction)
put = _of_default_client(Client.put)
reduce = _of_default_client(Client.reduce)
reduce_scatter = _of_default_client(Client.reduce_scatter)
reduced_from = _of_default_client(Client.reduced_from)
ref = _of_default_client(Client.ref)
scatter = _of_default_client(Client.scatter)
stat = _of_default_client(Client.stat)
status = _of_default_client(Client.status)
tree = _of_default_client(Client.tree)
wait = _of_default_client(Client.wait)
