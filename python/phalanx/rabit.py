"""Rabit's Python functions: programs of ranks that survive the deaths of some. docs/coming-from.md, "From Rabit".

>>> import numpy as np
>>> import phalanx.rabit as rabit
>>> rabit.init()                                   # alone; under `phalanx launch` one of its ranks
>>> version, model = rabit.load_checkpoint()
>>> if version == 0:
...     model = np.zeros(3)
>>> model += rabit.allreduce(np.ones(3), rabit.SUM)
>>> rabit.checkpoint(model)
>>> rabit.version_number()
1
>>> rabit.finalize()

A thread has ranks of its own, from `init` to `finalize`. Without a launcher there is one rank, and every call is
local. Errors are the exceptions of `phalanx.spmd.Session`, which is what the functions call.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

import numpy as np

from phalanx import exceptions, spmd
from phalanx._client import Client
from phalanx._jobs import rabit_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from phalanx._jobs.rabit_parameters import Parameters
    from phalanx._jobs.sessions import Session

__all__ = [
    "BITOR",
    "MAX",
    "MIN",
    "SUM",
    "allreduce",
    "broadcast",
    "checkpoint",
    "finalize",
    "get_processor_name",
    "get_rank",
    "get_world_size",
    "init",
    "load_checkpoint",
    "tracker_print",
    "version_number",
]

MAX, MIN, SUM, BITOR = range(4)
_OPS = ("max", "min", "sum", "bit-or")
# The exit code of a death by mock= without a launch.
_DIED = 254


class _Rank:
    """The rank of a thread; `session` is None without a launcher. Owns the client of the session, if there is one."""

    def __init__(self, parameters: Parameters, session: Session | None, client: Client | None = None) -> None:
        self.parameters = parameters
        self.session = session
        self.client = client
        self.rank = 0 if session is None else session.rank
        self.world = 1 if session is None else session.world
        self.seq = 0
        self._version = 0
        # Whether the session goes on from the checkpoint that there is.
        self._loaded = False
        # The version that a program without load_checkpoint has passed over.
        self._passed_over = 0
        self._in_calls = 0.0
        self._began = time.monotonic()

    @property
    def version(self) -> int:
        return self._version if self.session is None else self.session.version

    def life(self) -> int:
        life = self.parameters.life
        if life is not None:
            return life
        return 0 if self.session is None else self.session.life

    def die_if_due(self, ahead: int = 0) -> None:
        here = (self.rank, self.version, self.seq + ahead, self.life())
        if here not in self.parameters.deaths:
            return
        text = f"[{here[0]}] dies at version {here[1]}, call {here[2]}, in life {here[3]}"
        print(text, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        if self.session is not None:
            self.session._die("mock=" + ",".join(str(number) for number in here))
        os._exit(_DIED)  # without a launch

    def call(self, call: Callable[[], Any], collectives: int = 1) -> Any:
        """Make a call that Rabit counts as so many collectives."""
        for ahead in range(collectives):
            self.die_if_due(ahead)
        began = time.monotonic()
        result = call()
        # A call that raises can be one that was not made.
        self.seq += collectives
        self._in_calls += time.monotonic() - began
        return result

    def checkpoint(self, model: Any, local: Any) -> None:
        self.die_if_due()
        began = time.monotonic()
        if self.parameters.force_local:
            model, local = None, (model, local)
        if self.session is None:
            self._version += 1
        else:
            self._load_before_checkpoint(self.session, local is not None)
            self.session.checkpoint(model, local)
        end = time.monotonic()
        if self.parameters.report_stats and self.rank == 0:
            self.print(
                f"[v{self.version}] {self.seq} calls, {self._in_calls:g} s in them, {end - self._began:g} s since the "
                f"checkpoint before, {end - began:g} s in this one\n"
            )
        self._restart(end)

    def _load_before_checkpoint(self, session: Session, with_local: bool) -> None:
        """Load, for the first checkpoint of a program that does not. A version there means a rank has lost its own."""
        if not self._loaded:
            self._passed_over = (session.load(local=True) if with_local else session.load())[0]
            self._loaded = True
        if self._passed_over:
            raise exceptions.ClosedError(
                f"rabit.checkpoint: this rank was started again, but the program has not called load_checkpoint, which "
                f"goes on from version {self._passed_over}"
            )

    def load(self, with_local: bool) -> tuple[Any, ...]:
        if self.session is None:
            self._version = 0
            loaded: tuple[Any, ...] = (0, None, None) if with_local else (0, None)
        elif self.parameters.force_local:
            version, _, both = self.session.load(local=True)
            model, local = both or (None, None)
            loaded = (version, model, local) if with_local else (version, model)
        elif with_local:
            loaded = self.session.load(local=True)
        else:
            loaded = self.session.load()
        self._loaded = True
        self._restart(time.monotonic())
        return loaded

    def print(self, text: str) -> None:
        if self.session is not None:
            self.session.print(text)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _restart(self, now: float) -> None:
        self.seq = 0
        self._in_calls = 0.0
        self._began = now


class _Thread(threading.local):
    rank: _Rank | None = None
    left = False


_thread = _Thread()
_ALONE = rabit_parameters.Parameters()


def _own() -> _Rank:
    if _thread.rank is None:
        _thread.rank = _Rank(_ALONE, None)
    return _thread.rank


def _begun() -> bool:
    return _thread.rank is not None and _thread.rank.parameters is not _ALONE


def init(
    args: Sequence[str | bytes] | None = None,
    lib: str = "standard",
    lib_dll: object = None,
) -> None:
    """Join the other ranks, and wait for them. Does nothing if this thread has called it.

    Parameters
    ----------
    args
        Arguments ``name=value`` that are parameters count before those in the environment; all others are left to
        the program. None: those of the program.
    lib
        "mock" makes the deaths that arguments ``mock=RANK,VERSION,SEQ,LIFE`` order.
    lib_dll
        The library of Rabit. It is not used: this module needs none.

    Raises
    ------
    InvalidArgumentError
        A parameter has a bad value; also what `phalanx.spmd.join` raises.
    ClosedError
        This thread has called `finalize`.
    """
    if _begun():
        return
    if _thread.left:
        raise exceptions.ClosedError("rabit.init: this thread has called finalize")
    if lib not in ("standard", "mock"):
        raise exceptions.InvalidArgumentError(f"rabit.init: lib is {lib!r}; it is 'standard' or 'mock'")
    given = sys.argv if args is None else args
    arguments = [each.decode() if isinstance(each, bytes) else each for each in given]
    parameters = rabit_parameters.read(arguments, os.environ, mock=lib == "mock")
    if parameters.role != "worker":
        print(f"rabit: a process of role {parameters.role} is no worker, and ends", file=sys.stderr)
        raise SystemExit(0)
    rank = _join(parameters) if parameters.launched else _Rank(parameters, None)
    if parameters.unused and rank.rank == 0 and rank.life() == 0:
        print("rabit: without effect here: " + ", ".join(parameters.unused), file=sys.stderr)
    _thread.rank = rank


def _join(parameters: Parameters) -> _Rank:
    # Ranks that are threads have a client each.
    client = Client()
    try:
        session = spmd.join(
            task=parameters.task,
            world=parameters.world,
            client=client,
            result_copies=parameters.result_copies,
            local_copies=parameters.local_copies,
            peer_timeout=parameters.peer_timeout,
        )
    except BaseException:
        client.close()
        raise
    return _Rank(parameters, session, client)


def finalize() -> None:
    """Wait until all ranks have called it. The thread cannot call `init` again."""
    rank = _thread.rank
    if rank is not None and rank.session is not None:
        rank.session.leave()
        _thread.left = True
        if rank.client is not None:
            rank.client.close()
    _thread.rank = None


def get_rank() -> int:
    """Return the place of this rank: 0 to ``get_world_size() - 1``."""
    return _own().rank


def get_world_size() -> int:
    """Return the number of ranks."""
    return _own().world


def get_processor_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()


def tracker_print(msg: object) -> None:
    """Print a text where `phalanx launch` runs, or on standard output without it."""
    _own().print(str(msg))


def broadcast(data: Any, root: int) -> Any:
    """Return the root's value, which can be pickled, on all ranks. Others pass anything. Counts as two collectives."""
    rank = _own()
    session = rank.session
    if session is None and root != 0:
        raise exceptions.InvalidArgumentError(f"broadcast: root {root} is no rank of a world of 1")
    return rank.call(lambda: data if session is None else session.broadcast(data, root), 2)


def allreduce(data: Any, op: int, prepare_fun: Callable[[Any], object] | None = None) -> Any:
    """Return the `MAX`, `MIN`, `SUM` or `BITOR` of all ranks' arrays, in the shape and dtype of `data`.

    Parameters
    ----------
    data
        An array. It stays as it is.
    op
        `BITOR` is for integers.
    prepare_fun
        ``prepare_fun(data)`` fills the array; it is not called if the result is there, in a rank that was started
        again.
    """
    if not isinstance(data, np.ndarray):
        raise TypeError(f"allreduce: {type(data).__name__} is no numpy.ndarray")
    if op not in range(len(_OPS)):
        raise exceptions.InvalidArgumentError(f"allreduce: {op!r} is none of MAX, MIN, SUM and BITOR")
    if op == BITOR and not np.issubdtype(data.dtype, np.integer):
        raise exceptions.InvalidArgumentError(f"allreduce: BITOR is for integers, not for {data.dtype}")
    rank = _own()
    session = rank.session

    def prepare() -> Any:
        if prepare_fun is not None:
            prepare_fun(data)
        return data

    def call() -> Any:
        if session is None:
            return prepare().copy()
        given: Any = _OPS[op]
        if prepare_fun is None:
            return session.allreduce(data, given)
        return session.allreduce(op=given, prepare=prepare, shape=data.shape, dtype=data.dtype)

    return rank.call(call)


def load_checkpoint(with_local: bool = False) -> tuple[Any, ...]:
    """Return the version of the last checkpoint, and its models. Once in each life, before the first checkpoint.

    Returns
    -------
    ``(version, model)``, or ``(version, model, local)`` with local models; of version 0, where there is no
    checkpoint, the models are None.
    """
    return _own().load(with_local)


def checkpoint(global_model: Any, local_model: Any = None) -> None:
    """Save the models, which can be pickled, as those of the next version.

    The global one is the same on all ranks. The local one, which differs from rank to rank, is copied to other hosts;
    a program has one in all of its checkpoints or in none.
    """
    _own().checkpoint(global_model, local_model)


def version_number() -> int:
    """Return the number of checkpoints so far."""
    return _own().version
