"""Training with a parameter server under Ray: each step takes the first k gradients of n workers, or those of all in one reduction.

    python examples/ray/async_sgd.py                          # gradients and weights by Phalanx
    python examples/ray/async_sgd.py --transport ray          # the same loop by Ray's own store
    python examples/ray/async_sgd.py --variant one-reduce     # synchronous; the sum is the next step's weights
    python examples/ray/async_sgd.py --megabytes 64 --gradient-seconds 0.1 --steps 10
    python examples/ray/async_sgd.py --kill 1@100             # Ray restarts the worker

The loops are the same for both; `--transport` chooses what moves the arrays (transports.py). The model is a small network that learns
which of two spirals a point is on. With ``--megabytes`` its vector of weights is that large, and a gradient takes
``--gradient-seconds`` longer, in which nothing is computed: an EMULATED size, to see what the transport costs. The weights are
compared with those of a serial run of the same updates at the end. The last line of the output is a record (runs.py).

    k-of-n       server: put weights ──► workers' gradients ──► the first k, added up ──► server: weights - rate/k * sum
    one-reduce   workers: weights ──► each: -rate/n * gradient ──► weights + their sum, for all workers, which go on with it
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
import runs
from transports import value_of

HIDDEN, SAMPLES = 32, 600
# Of a worker's samples, each of which a gradient takes in turn.
BATCHES = 5
PARAMETERS = 4 * HIDDEN + 1
# Of the numbers that an emulated network does not use: of no part of a transfer, so that parts at wrong places make a difference.
PERIOD = 1021
# Of the weights of a serial run: floats are added in another order.
TOLERANCE = 1e-3


class Spirals:
    """A network with one hidden layer and logistic loss; its parameters are one vector."""

    rate = np.float32(0.5)

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._points: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # a worker makes its own once

    def start(self) -> np.ndarray:
        return np.random.default_rng(self._seed).normal(0, 0.7, PARAMETERS).astype(np.float32)

    def points(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        if part not in self._points:
            self._points[part] = self._drawn(part)
        return self._points[part]

    def _drawn(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng([self._seed, part])
        turn = random.uniform(0.3, 1, SAMPLES)
        label = random.integers(0, 2, SAMPLES)
        angle = 5 * turn + np.pi * label
        place = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) + random.normal(0, 0.02, (SAMPLES, 2))
        return place.astype(np.float32), label.astype(np.float32)

    def _forward(self, weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into, bias, out = weights[: 2 * HIDDEN].reshape(2, HIDDEN), weights[2 * HIDDEN : 3 * HIDDEN], weights[3 * HIDDEN :]
        hidden = np.tanh(4 * (x @ into + bias))
        return hidden, 1 / (1 + np.exp(-(hidden @ out[:-1] + out[-1])))

    def loss(self, weights: np.ndarray) -> float:
        x, y = self.points(999)
        chance = np.clip(self._forward(weights, x)[1], 1e-6, 1 - 1e-6)
        return float(-np.mean(y * np.log(chance) + (1 - y) * np.log(1 - chance)))

    def gradient(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        """Return the gradient of a batch: the number-th of this worker."""
        x, y = (part[number % BATCHES :: BATCHES] for part in self.points(worker))
        hidden, chance = self._forward(weights, x)
        error = (chance - y) / np.float32(len(y))
        back = error[:, None] * weights[3 * HIDDEN : -1] * (1 - hidden**2) * 4
        parts = [(x.T @ back).ravel(), back.sum(0), hidden.T @ error, [error.sum()]]
        return np.concatenate(parts).astype(np.float32)


class Emulated(Spirals):
    """The same network, whose vector is longer by numbers that it does not use, and whose gradients take a stated time."""

    def __init__(self, seed: int, megabytes: float, seconds: float) -> None:
        super().__init__(seed)
        self.count, self.seconds = int(megabytes * (1 << 18)), seconds
        self._made = np.empty(0, np.float32)  # made once in each process: new memory would take longer than the arithmetic

    def start(self) -> np.ndarray:
        small = super().start()
        return np.concatenate([small, np.zeros(self.count - len(small), np.float32)])

    def loss(self, weights: np.ndarray) -> float:
        return super().loss(weights[:PARAMETERS])

    def gradient(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        """Return the gradient, in memory that the next one overwrites."""
        time.sleep(self.seconds)
        if not len(self._made):
            self._made = np.empty(self.count, np.float32)
        made = self._made
        made[:PARAMETERS] = super().gradient(weights[:PARAMETERS], worker, number)
        pattern = ((np.arange(PERIOD) + worker * 31 + number) * 5 % 13 - 6 + weights[-1] * 1e-3).astype(np.float32)
        unused = made[PARAMETERS:]
        whole = len(unused) // PERIOD * PERIOD
        unused[:whole].reshape(-1, PERIOD)[:] = pattern
        unused[whole:] = pattern[: len(unused) - whole]
        return made


@ray.remote
class Worker:
    def __init__(self, model: Any, index: int) -> None:
        self.model, self.index = model, index

    def gradient(self, weights: Any, number: int) -> np.ndarray:
        return self.model.gradient(value_of(weights), self.index, number)

    def change(self, weights: Any, number: int, workers: int, *_after: Any) -> np.ndarray:
        """Return what this worker adds to the weights in a step of all workers."""
        made = self.gradient(weights, number)
        made *= -self.model.rate / np.float32(workers)
        return made


class Server:
    """The weights, and which gradient each worker computes, with which weights."""

    def __init__(self, transport: Any, model: Any, workers: list[Any], k: int) -> None:
        self.transport, self.model, self.workers, self.k = transport, model, workers, k
        self._weights = model.start()
        self._change = np.empty_like(self._weights)
        self.version = 0
        self.updates: list[list[tuple[int, int, int]]] = []  # of each step: worker, its number, version of the weights
        self.running: dict[Any, tuple[int, int, int]] = {}
        self.numbers = [0] * len(workers)
        self._begin(range(len(workers)))

    def _begin(self, workers: Any) -> None:
        given, order = self.transport.put(self._weights), list(workers)
        own = [(self.numbers[worker],) for worker in order]
        calls = self.transport.calls([self.workers[worker] for worker in order], "gradient", given, own)
        for worker, ref in zip(order, calls):
            self.running[ref] = (worker, self.numbers[worker], self.version)
            self.numbers[worker] += 1

    def weights(self) -> np.ndarray:
        return self._weights

    def step(self) -> None:
        total, came = self.transport.first(list(self.running), self.k)
        np.multiply(total, -self.model.rate / np.float32(self.k), out=self._change)
        self._weights += self._change
        self.version += 1
        self.updates.append([self.running.pop(ref) for ref in came])
        self._begin([worker for worker, _, _ in self.updates[-1]])


class Together:
    """The variant of one reduction: it makes each step's weights, for the workers alone, and this process never has them."""

    def __init__(self, transport: Any, model: Any, workers: list[Any]) -> None:
        self.transport, self.workers = transport, workers
        self.given = transport.put(model.start())
        self.version = 0  # of the newest weights that have been computed
        self.updates: list[list[tuple[int, int, int]]] = []
        self._begun = self._begin()

    def _begin(self) -> list[Any]:
        step = len(self.updates)
        self.updates.append([(worker, step, step) for worker in range(len(self.workers))])
        own = [(step, len(self.workers))] * len(self.workers)
        changes = self.transport.calls_to_sum(self.workers, "change", self.given, own)
        self.given = self.transport.sum_to_all(self.workers, self.given, changes)
        return changes

    def step(self) -> None:
        """Begin a step with weights that are not computed yet, and wait for the changes of the step before."""
        self.version = len(self.updates) - 1  # what the workers compute these changes with
        begun, self._begun = self._begun, self._begin()
        self.transport.wait(begun, len(begun))

    def weights(self) -> np.ndarray:
        """Return the weights after the last step that was begun."""
        return value_of(self.given)


def replay(model: Any, updates: list[list[tuple[int, int, int]]]) -> Iterator[np.ndarray]:
    """Yield the weights at the start and after each of these updates, one after the other in this process."""
    versions = {0: model.start()}
    yield versions[0]
    last_use = {version: i for i, step in enumerate(updates) for _, _, version in step}
    for i, step in enumerate(updates):
        total = sum(model.gradient(versions[version], worker, number) for worker, number, version in step)
        versions[i + 1] = versions[i] - model.rate / np.float32(len(step)) * total
        yield versions[i + 1]
        for version in [version for version in versions if version <= i and last_use.get(version, 0) <= i]:
            del versions[version]


def parsed() -> argparse.Namespace:
    parser = runs.parser(__doc__, workers=4)
    parser.add_argument("--variant", choices=("k-of-n", "one-reduce"), default="k-of-n")
    parser.add_argument("--first", type=int, default=2, metavar="K", help="gradients of a step of k-of-n")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--megabytes", type=float, default=0, help="MiB of an emulated vector of weights")
    parser.add_argument("--gradient-seconds", type=float, default=0, help="by which an emulated gradient takes longer")
    arguments = runs.start(parser)
    if not 1 <= arguments.first <= arguments.workers:
        parser.error("--first is 1 to --workers")
    if arguments.megabytes and arguments.megabytes * (1 << 18) <= PARAMETERS:
        parser.error(f"--megabytes: the network has {PARAMETERS} parameters of 4 bytes")
    return arguments


def main() -> int:
    arguments = parsed()
    emulated, together = arguments.megabytes > 0, arguments.variant == "one-reduce"
    model = Emulated(arguments.seed, arguments.megabytes, arguments.gradient_seconds) if emulated else Spirals(arguments.seed)
    workers = runs.placed(Worker, arguments, model)
    run = runs.Run("async_sgd", arguments, workers, "steps/s" if emulated else "samples/s", arguments.variant, emulated,
                   model.start().nbytes / (1 << 20), arguments.gradient_seconds)
    transport, k = runs.transport(arguments, workers), len(workers) if together else arguments.first
    runs.start_workers(transport, workers, "gradient", model.start())
    trainer = Together(transport, model, workers) if together else Server(transport, model, workers, k)
    amount = 1 if emulated else k * SAMPLES // BATCHES
    trainer.step()
    before, when = trainer.version, [0.0]  # when there were the weights of each version from that one on
    run.begin()
    while run.goes_on(arguments.steps):
        trainer.step()
        run.step([worker for worker, _, _ in trainer.updates[-1]], amount)
        when.append(run.seconds())

    serial = Emulated(arguments.seed, arguments.megabytes, seconds=0) if emulated else model
    curve = []
    for version, weights in enumerate(replay(serial, trainer.updates)):
        step = version - before
        if 0 <= step < len(when) and step % max(1, arguments.steps // 30) == 0:
            curve.append([round(when[step], 4), round(model.loss(weights), 5)])
    off = float(np.abs(weights - trainer.weights()).max())
    late = sum(version < i for i, step in enumerate(trainer.updates) for _, _, version in step)
    learned = emulated or curve[-1][1] < curve[0][1] / 2
    return run.end(off < TOLERANCE, learned, curve, when[-1], curve_name="loss", k=k, gradients_of_older_weights=late, off_a_serial_run=off)


if __name__ == "__main__":
    sys.exit(main())
