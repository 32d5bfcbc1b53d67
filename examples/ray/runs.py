"""What all programs of this folder do alike: options, actors on their hosts, the clock, a kill, and the record of the run.

    parser = runs.parser(__doc__, workers=4)
    parser.add_argument("--steps", type=int, default=100)
    arguments = runs.start(parser)                  # connects to Ray, and Phalanx to it
    workers = runs.placed(Worker, arguments, model)
    transport = runs.transport(arguments, workers)
    run = runs.Run("a3c", arguments, workers, unit="samples/s")
    runs.start_workers(transport, workers, "work", weights)
    ...                                             # one step that does not count
    run.begin()
    while run.goes_on(arguments.steps):
        ...
        run.step(came=[0, 2], amount=512)           # workers whose results this step used; samples
    sys.exit(run.end(right=..., learned=..., curve=[[seconds, loss], ...], k=3))

The record is a JSON object, the last line of the output. With --kill the process of a worker is killed at the start of a step, by
SIGKILL from another process of its host, and Ray restarts the actor; the run goes on until some steps after its return. Not
thread-safe: `Run` belongs to the driver's thread.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import time
from typing import Any

import ray

import phalanx.ray
import transports


# A run with a kill has these after the step in which the worker is back, if that is not later than the limit after the kill.
STEPS_AFTER = 3
BACK_LIMIT_S = 60.0


def parser(description: str | None, workers: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--transport", choices=("phalanx", "ray"), default="phalanx", help="what moves the arrays (phalanx)")
    made.add_argument("--ray-form", choices=("flat", "trees"), default="flat",
                      help="of --transport ray: fetches from and to the driver's host, or waves and trees of tasks (flat)")
    made.add_argument("--address", default="local", help="of Ray's cluster (a cluster of this machine alone, which ends with the program)")
    made.add_argument("--node-address", help="of this host, where Ray cannot find it itself: that of ray start --node-ip-address")
    made.add_argument("--workers", type=int, default=workers)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--kill", type=_worker_and_step, metavar="WORKER@STEP",
                      help="kill the process of a worker at the start of a step: 1@20")
    made.add_argument("--json", metavar="FILE", help="write the record there, too")
    return made


def _worker_and_step(text: str) -> tuple[int, int]:
    worker, _, step = text.partition("@")
    if not (worker.isdigit() and step.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 1@20")
    return int(worker), int(step)


def start(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments, and connect to Ray's cluster, and Phalanx to it."""
    arguments = made.parse_args()
    if arguments.workers < 1:
        made.error("--workers is at least 1")
    if arguments.kill and arguments.kill[0] >= arguments.workers:
        made.error(f"--kill: the workers are 0 to {arguments.workers - 1}")
    steps = getattr(arguments, "steps", None)
    if arguments.kill and steps is not None and arguments.kill[1] >= steps:
        made.error(f"--kill: the steps are 0 to {steps - 1}")
    more = {"_node_ip_address": arguments.node_address} if arguments.node_address else {}
    phalanx.ray.init(arguments.address, log_to_driver=False, **more)
    return arguments


def placed(actor_class: Any, arguments: argparse.Namespace, *args: Any) -> list[Any]:
    """Return the workers: actors that Ray restarts, each on a host of its own if hosts are marked, given `args` and their index."""
    options = {"max_restarts": -1, "max_task_retries": -1}
    return [
        actor_class.options(**options, **transports.place_of(index)).remote(*args, index) for index in range(arguments.workers)
    ]


def transport(arguments: argparse.Namespace, workers: list[Any]) -> Any:
    if arguments.transport == "phalanx":
        return transports.ByPhalanx(workers)
    return (transports.ByRayTrees if arguments.ray_form == "trees" else transports.ByRay)(workers)


def start_workers(transport: Any, workers: list[Any], method: str, value: Any) -> None:
    """Call the method of every worker once with a value and a number, and drop the results: all processes run, and were reached."""
    started = transport.calls(workers, method, transport.put(value), [(0,)] * len(workers))
    transport.wait(started, len(started))


@ray.remote(num_cpus=0)
class _Killer:
    """A process of the victim's host: process ids of other hosts mean nothing here."""

    def ready(self) -> None:
        pass

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)


def _process_of(_: Any) -> int:
    return os.getpid()


def _machine_seconds() -> tuple[float, float]:
    """Return the busy and all time of this machine's cores, in ticks."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(float, stat.readline().split()[1:9])
    busy = user + nice + system + irq + softirq + steal
    return busy, busy + idle + iowait


class Run:
    """The clock of a run, and its record."""

    def __init__(
        self,
        program: str,
        arguments: argparse.Namespace,
        workers: list[Any],
        unit: str,
        variant: str = "",
        emulated: bool = False,
        megabytes: float = 0,
        gradient_seconds: float = 0,
    ) -> None:
        """`megabytes` are MiB of what a step moves to each worker; of an emulated model with `gradient_seconds` of sleep."""
        self.record = {
            "program": program,
            "transport": arguments.transport,
            "ray_form": arguments.ray_form if arguments.transport == "ray" else "",
            "variant": variant,
            "emulated": emulated,
            "megabytes": megabytes,
            "gradient_seconds": gradient_seconds,
            "workers": len(workers),
            "seed": arguments.seed,
            "unit": unit,
        }
        self.step_seconds: list[float] = []
        self.amount = 0.0
        self._json = arguments.json
        self._began = self._step_began = 0.0
        self._busy_before = self._busy_after = (0.0, 0.0)
        self._kill = arguments.kill
        self._back: int | None = None  # the first step that used a result of the killed worker again
        self._killed_at: float | None = None
        if self._kill:
            victim = self._kill[0]
            self._killer = _Killer.options(**transports.place_of(victim)).remote()
            ray.get(self._killer.ready.remote())  # its process does not start while the clock runs
            self._victim = workers[victim]
            self._process = self._process_of_victim()

    def begin(self) -> None:
        """Start the clock: everything has started, and was used once."""
        self._began = self._step_began = time.monotonic()
        self._busy_before = _machine_seconds()
        self._kill_if_due()

    def goes_on(self, steps: int) -> bool:
        """Return whether there are steps to make: of `steps`, and after a kill more, until `STEPS_AFTER` the worker's return."""
        done = len(self.step_seconds)
        if done < steps or self._killed_at is None:
            return done < steps
        back = self._back is not None and done > self._back + STEPS_AFTER
        return not back and time.monotonic() < self._killed_at + BACK_LIMIT_S

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def step(self, came: list[int] | None = None, amount: float = 1, seconds: float | None = None) -> None:
        """End a step that used results of the workers `came`; with `seconds`, one of several at once that took this long."""
        now = time.monotonic()
        self.step_seconds.append(now - self._step_began if seconds is None else seconds)
        self._step_began = now
        self._busy_after = _machine_seconds()
        self.amount += amount
        done = len(self.step_seconds)
        if self._killed_at is not None and self._back is None:
            # A result that came before is one of the killed process.
            if self._has_restarted() and self._kill[0] in (came or []):
                self._back = done - 1
        self._kill_if_due()

    def _kill_if_due(self) -> None:
        if self._kill and len(self.step_seconds) == self._kill[1]:
            ray.get(self._killer.kill.remote(self._process))
            self._killed_at = time.monotonic()
            self._probe = self._victim.__ray_call__.remote(_process_of)

    def _has_restarted(self) -> bool:
        if not ray.wait([self._probe], timeout=0)[0]:
            return False
        try:
            return ray.get(self._probe) != self._process
        except ray.exceptions.RayActorError:  # of an actor whose calls Ray does not repeat
            self._probe = self._victim.__ray_call__.remote(_process_of)
            return False

    def _process_of_victim(self) -> int:
        return ray.get(self._victim.__ray_call__.remote(_process_of), timeout=transports.LIMIT_S)

    def end(self, right: bool, learned: bool, curve: list[list[float]], seconds: float | None = None, **more: Any) -> int:
        """Print the record, and end Ray's cluster if it is the program's own. Return the exit status.

        `right`: nothing was lost or mixed up on the way; `learned`: the model has come to what it is to come to. `seconds` is
        the length of the run if it has ended before this call; `more` are further keys: k, p99_s, ...
        """
        took = self.seconds() if seconds is None else seconds
        busy, total = (after - before for after, before in zip(self._busy_after, self._busy_before))
        self.record.update(
            steps=len(self.step_seconds),
            seconds=took,
            rate=self.amount / took,
            cpu_share=round(busy / total, 3) if total else None,
            right=right,
            learned=learned,
            curve=curve,
            step_seconds=[round(each, 5) for each in self.step_seconds],
            **more,
        )
        if self._killed_at is not None:
            processes = {"process": self._process, "process_after": self._process_of_victim()}
            self.record["kill"] = {**failure_of(self.step_seconds, self._kill, self._back), **processes}
        line = json.dumps(self.record)
        if self._json:
            pathlib.Path(self._json).write_text(line + "\n")
        phalanx.ray.shutdown()
        print(line)
        sys.stdout.flush()
        return 0 if right and learned else 1


def failure_of(step_seconds: list[float], kill: tuple[int, int], back: int | None) -> dict[str, Any]:
    """Return what a kill did: medians of the steps before, between the kill and the worker's next result, and after; what was lost.

    Steps are lost that the run would have made in the time by which the steps in between were longer than the median before.
    """
    worker, step = kill
    until = len(step_seconds) if back is None else back + 1
    before, during, after = step_seconds[:step], step_seconds[step:until], step_seconds[until:]
    usual = statistics.median(before) if before else None
    lost = sum(max(0.0, each - usual) for each in during) if usual else None
    return {
        "worker": worker,
        "step": step,
        "back_at_step": back,
        "before_s": usual,
        "during_s": statistics.median(during) if during else None,
        "longest_s": max(during) if during else None,
        "after_s": statistics.median(after) if after else None,
        "seconds_lost": None if lost is None else round(lost, 3),
        "steps_lost": None if lost is None else round(lost / usual, 2),
    }
