"""Parameters of a program of Rabit: ``name=value`` among its arguments, which count before the environment.

They are those of librabit (src/rabit/parameters.h), whose tests have the same cases. Has no state.
"""

from __future__ import annotations

import re

from phalanx import exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# How long a call waits for ranks that are missing, if nothing is given: Rabit's own number.
_TIMEOUT_S = 1800
_MOST_RESULT_COPIES, _MOST_LOCAL_COPIES = 16, 15
_SIZE = re.compile(r"\d+([bkmg]b?)?", re.IGNORECASE)
_DEATH = re.compile(r"(\d+),(\d+),(\d+),(\d+)")
# Of other launchers; the variable of ours counts before each.
_LAUNCHERS = {"DMLC_TASK_ID": "PHALANX_TASK", "DMLC_NUM_WORKER": "PHALANX_WORLD", "DMLC_NUM_ATTEMPT": "PHALANX_LIFE"}
_VARIABLES = ("DMLC_TRACKER_URI", "DMLC_ROLE")


class Parameters:
    """What the parameters say. A value.

    Attributes
    ----------
    launched : bool
        Whether there are other ranks: there is a job, and no tracker "NULL".
    role : str
        A process of another role than "worker" ends at once.
    task : str | None
        None: ``PHALANX_TASK``.
    world : int | None
        None: ``PHALANX_WORLD``.
    result_copies, local_copies : int
    peer_timeout : float | None
        Seconds; None: no limit.
    deaths : set[tuple[int, ...]]
        Of the mock library: (rank, version, seq, life).
    report_stats, force_local : bool
    life : int | None
        ``rabit_num_trial``, or that of the launch; None: that of the session.
    unused : list[str]
        Parameters that have no effect here, in the order in which they came.
    """

    def __init__(self) -> None:
        self.launched = False
        self.role = "worker"
        self.task: str | None = None
        self.world: int | None = None
        self.result_copies = 2
        self.local_copies = 2
        self.peer_timeout: float | None = _TIMEOUT_S
        self.deaths: set[tuple[int, ...]] = set()
        self.report_stats = False
        self.force_local = False
        self.life: int | None = None
        self.unused: list[str] = []


# The functions below raise ValueError, with what a value should be.


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise ValueError("true, false, 1 or 0")
    return value.lower() in ("true", "1")


def _whole(value: str, least: int) -> int:
    if not re.fullmatch(r"\d{1,10}", value) or not least <= int(value) < 1 << 31:
        raise ValueError(f"a number from {least} on")
    return int(value)


def _size(value: str) -> None:
    if not _SIZE.fullmatch(value):
        raise ValueError("a size, such as 256MB")


def _task(value: str, role: str) -> str | None:
    if value == "NULL":
        return None
    # The place of a task called worker3 is 3.
    return f"{role}{value}" if value.isdecimal() else value


def _world(value: str) -> int | None:
    if not re.fullmatch(r"-?\d{1,9}", value) or int(value) == 0:
        raise ValueError("a number from 1 on, or -1")
    return int(value) if int(value) > 0 else None


def _death(value: str) -> tuple[int, ...]:
    match = _DEATH.fullmatch(value)
    if match is None:
        raise ValueError("RANK,VERSION,SEQ,LIFE")
    return tuple(int(number) for number in match.groups())


# Those without an effect: their values are checked.
_UNUSED: dict[str, Callable[[str], object]] = {
    "rabit_reduce_buffer": _size,
    "rabit_tree_reduce_minsize": _size,
    "rabit_reduce_ring_mincount": lambda value: _whole(value, 1),
    "rabit_tracker_port": lambda value: _whole(value, 1),
    "DMLC_TRACKER_PORT": lambda value: _whole(value, 1),
    "DMLC_WORKER_CONNECT_RETRY": lambda value: _whole(value, 1),
    "rabit_debug": _bool,
    "rabit_enable_tcp_no_delay": _bool,
    "rabit_hadoop_mode": _bool,
    # Calls are repeated in their order here.
    "rabit_bootstrap_cache": _bool,
}
_OF_MOCK = ("mock", "report_stats", "force_local")


class _Reader:
    def __init__(self, mock: bool, role: str) -> None:
        self.to = Parameters()
        self.mock = mock
        self.role = role
        self.tracker = ""
        self.timeout = True
        self.timeout_s = _TIMEOUT_S

    def read(self, name: str, value: str) -> None:
        try:
            if not self._read(name, value):
                self._unused(name, value)
        except ValueError as error:
            raise exceptions.InvalidArgumentError(f"rabit.init: {name}={value}: the value is {error}") from None

    def _read(self, name: str, value: str) -> bool:
        """Return whether the parameter has an effect."""
        to = self.to
        if name in ("rabit_tracker_uri", "DMLC_TRACKER_URI"):
            self.tracker = value
        elif name in ("rabit_task_id", "DMLC_TASK_ID"):
            to.task = _task(value, self.role)
        elif name in ("rabit_world_size", "DMLC_NUM_WORKER"):
            to.world = _world(value)
        elif name == "DMLC_ROLE":
            to.role = value
        elif name == "rabit_global_replica":
            to.result_copies = min(_whole(value, 1), _MOST_RESULT_COPIES)
        elif name == "rabit_local_replica":
            to.local_copies = min(_whole(value, 1), _MOST_LOCAL_COPIES)
        elif name == "rabit_timeout":
            self.timeout = _bool(value)
        elif name == "rabit_timeout_sec":
            self.timeout_s = _whole(value, 1)
        elif name in ("rabit_num_trial", "DMLC_NUM_ATTEMPT"):
            to.life = _whole(value, 0)
        elif self.mock and name == "mock":
            to.deaths.add(_death(value))
        elif self.mock and name == "report_stats":
            to.report_stats = _bool(value)
        elif self.mock and name == "force_local":
            to.force_local = _bool(value)
        else:
            return False
        return True

    def _unused(self, name: str, value: str) -> None:
        if name in _UNUSED:
            _UNUSED[name](value)
        elif name not in _OF_MOCK and not name.startswith("rabit_"):
            return
        if name not in self.to.unused:
            self.to.unused.append(name)


def read(arguments: Iterable[str], environment: Mapping[str, str], *, mock: bool) -> Parameters:
    """Return what arguments and environment say. Arguments of the program itself are skipped."""
    reader = _Reader(mock, environment.get("PHALANX_ROLE") or "worker")
    for name, own in _LAUNCHERS.items():
        if environment.get(name) and not environment.get(own):
            reader.read(name, environment[name])
    # Rabit counts the processes of a rank, as the launch does; a session counts those that have joined.
    if environment.get("PHALANX_LIFE"):
        reader.read("DMLC_NUM_ATTEMPT", environment["PHALANX_LIFE"])
    for name in sorted(environment):
        if environment[name] and (name in _VARIABLES or name.startswith("rabit_")):
            reader.read(name, environment[name])
    for argument in arguments:
        name, _, value = argument.partition("=")
        if value:
            reader.read(name, value)
    to = reader.to
    to.peer_timeout = reader.timeout_s if reader.timeout else None
    alone = reader.tracker == "NULL"
    job = bool(environment.get("PHALANX_JOB"))
    to.launched = job and not alone
    of_launch = environment.get("PHALANX_WORLD")
    if to.launched and to.world is not None and of_launch and str(to.world) != of_launch:
        raise exceptions.InvalidArgumentError(
            f"rabit.init: rabit_world_size={to.world}: the launch has a world of {of_launch}"
        )
    if reader.tracker and not job and not alone:
        raise exceptions.InvalidArgumentError(
            f"rabit.init: there is a tracker ({reader.tracker}), but no job: this library has no use for Rabit's "
            "tracker; start the program with `phalanx launch`"
        )
    return to
