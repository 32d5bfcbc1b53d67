"""The loop of a3c.py and impala.py: actors work with weights that the learner gives them, and it uses the first k results of each step.

     learner (the driver)                                  actors
       │─ put(weights of version v) ──────── to those that are free ──►│
       │                                                 work(weights, number): play, and compute
       │◄──────────── the first k results ─────────────────────────────│   the others go on with older weights
       │  update(weights, results) makes version v + 1
       │─ put(weights of version v + 1) ─── to the k whose results came ──►

What the programs differ in is an algorithm:

    start()                         the weights of version 0
    work(weights, worker, number)   in an actor: what this worker returns the number-th time; the same for the same arguments
    take(transport, refs, k)        in the learner: the first k results, as `update` wants them, and which refs they were
    joined(results)                 the same of results that are in this process
    update(weights, taken, k)       the next weights
    score(weights)                  how good they are
    samples                         of one result

After the run, `replay` does all updates again, one after the other in the driver's process: the weights have to be the same, bit for bit.
Not thread-safe; an object belongs to the driver.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import ray
import runs
from transports import value_of

# Of emulated weights: whole numbers, so that every order of adding gives the same floats, and of a period that no part of a transfer has.
PERIOD = 1021


@ray.remote
class Actor:
    def __init__(self, algorithm: Any, index: int) -> None:
        self.algorithm, self.index = algorithm, index

    def work(self, weights: Any, number: int) -> Any:
        return self.algorithm.work(value_of(weights), self.index, number)


class Learner:
    """The weights, and what each actor is at, with which weights."""

    def __init__(self, transport: Any, algorithm: Any, actors: list[Any]) -> None:
        self.transport, self.algorithm, self.actors = transport, algorithm, actors
        self.weights = algorithm.start()
        self.updates: list[list[tuple[int, int, int]]] = []  # of each step: worker, its number, version of the weights
        self.running: dict[Any, tuple[int, int, int]] = {}
        self.numbers = [0] * len(actors)
        self._begin(range(len(actors)))

    def _begin(self, workers: Iterable[int]) -> None:
        given, order = self.transport.put(self.weights), list(workers)
        own = [(self.numbers[worker],) for worker in order]
        calls = self.transport.calls([self.actors[worker] for worker in order], "work", given, own)
        for worker, ref in zip(order, calls):
            self.running[ref] = (worker, self.numbers[worker], len(self.updates))
            self.numbers[worker] += 1

    def step(self, k: int) -> list[int]:
        """Update the weights with the next k results, and return the workers that made them."""
        taken, came = self.algorithm.take(self.transport, list(self.running), k)
        self.weights = self.algorithm.update(self.weights, taken, k)
        self.updates.append([self.running.pop(ref) for ref in came])
        workers = [worker for worker, _, _ in self.updates[-1]]
        self._begin(workers)
        return workers


def replay(algorithm: Any, updates: list[list[tuple[int, int, int]]]) -> np.ndarray:
    """Return the weights after these updates, one after the other in this process."""
    versions = {0: algorithm.start()}
    last_use = {version: i for i, step in enumerate(updates) for _, _, version in step}
    for i, step in enumerate(updates):
        taken = algorithm.joined([algorithm.work(versions[version], worker, number) for worker, number, version in step])
        versions[i + 1] = algorithm.update(versions[i], taken, len(step))
        for version in [version for version in versions if version <= i and last_use.get(version, 0) <= i]:
            del versions[version]
    return versions[len(updates)]


class EmulatedWeights:
    """A vector instead of a policy: every number of it is whole, and takes part in every update."""

    def __init__(self, megabytes: float) -> None:
        self.periods = max(1, int(megabytes * (1 << 20)) // (4 * PERIOD))

    def start(self) -> np.ndarray:
        return np.zeros(self.periods * PERIOD, np.float32)

    def score(self, weights: np.ndarray) -> float:
        return float(weights[0])

    def pattern(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        """Return one period of small whole numbers that differ from worker to worker, and depend on the last of the weights."""
        shift = (worker * 31 + number * 7 + int(weights[-1])) % PERIOD
        return ((np.arange(PERIOD) + shift) * 5 % 13 - 6).astype(np.float32)

    @staticmethod
    def repeated(pattern: np.ndarray, periods: int) -> np.ndarray:
        made = np.empty((periods, PERIOD), np.float32)
        made[:] = pattern
        return made.ravel()


def parser(description: str | None, steps: int) -> argparse.ArgumentParser:
    made = runs.parser(description, workers=4)
    made.add_argument("--first", type=int, default=2, metavar="K", help="results of a step")
    made.add_argument("--steps", type=int, default=steps)
    made.add_argument("--megabytes", type=float, default=0, help="MiB of emulated weights")
    made.add_argument("--gradient-seconds", type=float, default=0, help="of an emulated gradient")
    return made


def start(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments, and connect to Ray's cluster, and Phalanx to it."""
    arguments = runs.start(made)
    if not 1 <= arguments.first <= arguments.workers:
        made.error("--first is 1 to --workers")
    return arguments


def train(program: str, arguments: argparse.Namespace, make: Callable[[bool], Any], bar: float, unit: str) -> int:
    """Train, check the weights by a replay, print the record, and return the exit status.

    `make(replayed)` makes the algorithm, at its start; of an emulated one that is replayed, without its sleep. `bar` is the score that a
    policy has to reach, and `unit` is of the rate of an emulated run.
    """
    emulated = arguments.megabytes > 0
    algorithm = make(False)
    actors = runs.placed(Actor, arguments, algorithm)
    run = runs.Run(
        program,
        arguments,
        actors,
        unit if emulated else "samples/s",
        emulated=emulated,
        megabytes=algorithm.start().nbytes / (1 << 20),
        gradient_seconds=arguments.gradient_seconds,
    )
    transport = runs.transport(arguments, actors)
    runs.start_workers(transport, actors, "work", algorithm.start())
    learner = Learner(transport, algorithm, actors)
    learner.step(arguments.first)
    passed = [(0.0, learner.weights)]
    run.begin()
    while run.goes_on(arguments.steps):
        came = learner.step(arguments.first)
        run.step(came, amount=arguments.first * algorithm.samples)
        if len(learner.updates) % 5 == 1:  # of the step that does not count, and of five more
            passed.append((run.seconds(), learner.weights if not emulated else learner.weights[:1].copy()))
    seconds = run.seconds()
    if passed[-1][1] is not learner.weights:
        passed.append((seconds, learner.weights))

    off = float(np.abs(replay(make(True), learner.updates) - learner.weights).max())
    curve = [[round(when, 4), round(algorithm.score(weights), 3)] for when, weights in passed]
    reached = next((when for when, score in curve if score >= bar), None)
    late = sum(version < i for i, step in enumerate(learner.updates) for _, _, version in step)
    return run.end(
        off == 0,
        emulated or reached is not None,
        curve,
        seconds,
        curve_name="" if emulated else "score",
        k=arguments.first,
        score_to_reach=None if emulated else bar,
        reached_after_s=None if emulated else reached,
        results_of_older_weights=late,
        off_a_serial_run=off,
    )
