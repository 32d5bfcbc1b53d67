"""Asynchronous training with a parameter server under Ray: each step takes the first k gradients of n workers.

    python examples/ray/async_sgd.py                          # gradients and weights by Phalanx
    python examples/ray/async_sgd.py --transport ray          # the same loop by Ray's own store
    python examples/ray/async_sgd.py --megabytes 64 --gradient-seconds 0.1

The loop is the same for both; `--transport` chooses the three calls of `ByPhalanx` or of `ByRay`. Workers are actors, which Ray
restarts. By default the model is a small network that learns which of two spirals a point is on. With ``--megabytes`` the model is
only a vector of this size, and a gradient takes ``--gradient-seconds``, in which nothing is computed: EMULATED work, to see what the
transport costs. The weights are compared with those of a serial run of the same updates at the end.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import ray
import runs
from transports import value_of

HIDDEN, SAMPLES = 32, 600
# Of the weights of a serial run: floats are added in another order.
TOLERANCE = 1e-3


class Spirals:
    """A network with one hidden layer and logistic loss; its parameters are one vector."""

    rate = np.float32(0.5)

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._points: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # a worker makes its own once

    def start(self) -> np.ndarray:
        return np.random.default_rng(self._seed).normal(0, 0.7, 4 * HIDDEN + 1).astype(np.float32)

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
        x, y = (part[number % 5 :: 5] for part in self.points(worker))
        hidden, chance = self._forward(weights, x)
        error = (chance - y) / np.float32(len(y))
        back = error[:, None] * weights[3 * HIDDEN : -1] * (1 - hidden**2) * 4
        parts = [(x.T @ back).ravel(), back.sum(0), hidden.T @ error, [error.sum()]]
        return np.concatenate(parts).astype(np.float32)


class Emulated:
    """A vector instead of a model: a gradient takes a stated time, in which nothing is computed."""

    rate = np.float32(0.5)

    def __init__(self, megabytes: float, seconds: float) -> None:
        self.count, self.seconds = int(megabytes * (1 << 18)), seconds

    def start(self) -> np.ndarray:
        return np.zeros(self.count, np.float32)

    def loss(self, weights: np.ndarray) -> float:
        return float(weights[0])

    def gradient(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        time.sleep(self.seconds)
        return np.full(self.count, (worker * 31 + number) % 7 - 3 + weights[0] * 1e-3, np.float32)


@ray.remote
class Worker:
    def __init__(self, model: Any, index: int) -> None:
        self.model, self.index = model, index

    def gradient(self, weights: Any, number: int) -> np.ndarray:
        return self.model.gradient(value_of(weights), self.index, number)


class Server:
    """The weights, and which gradient each worker computes, with which weights."""

    def __init__(self, transport: Any, model: Any, workers: list[Any]) -> None:
        self.transport, self.model, self.workers = transport, model, workers
        self.weights = model.start()
        self.version = 0
        self.updates: list[list[tuple[int, int, int]]] = []  # of each step: worker, its number, version of the weights
        self.running: dict[Any, tuple[int, int, int]] = {}
        self.numbers = [0] * len(workers)
        self._begin(range(len(workers)))

    def _begin(self, workers: Any) -> None:
        given, order = self.transport.put(self.weights), list(workers)
        own = [(self.numbers[worker],) for worker in order]
        calls = self.transport.calls([self.workers[worker] for worker in order], "gradient", given, own)
        for worker, ref in zip(order, calls):
            self.running[ref] = (worker, self.numbers[worker], self.version)
            self.numbers[worker] += 1

    def step(self, k: int) -> None:
        total, came = self.transport.first(list(self.running), k)
        self.weights = self.weights - self.model.rate / np.float32(k) * total
        self.version += 1
        self.updates.append([self.running.pop(ref) for ref in came])
        self._begin([worker for worker, _, _ in self.updates[-1]])


def replay(model: Any, updates: list[list[tuple[int, int, int]]]) -> np.ndarray:
    """Return the weights after these updates, one after the other in this process."""
    versions = {0: model.start()}
    last_use = {version: i for i, step in enumerate(updates) for _, _, version in step}
    for i, step in enumerate(updates):
        total = sum(model.gradient(versions[version], worker, number) for worker, number, version in step)
        versions[i + 1] = versions[i] - model.rate / np.float32(len(step)) * total
        for version in [version for version in versions if version <= i and last_use.get(version, 0) <= i]:
            del versions[version]
    return versions[len(updates)]


def main() -> int:
    parser = runs.parser(__doc__, workers=4)
    parser.add_argument("--first", type=int, default=2, metavar="K", help="gradients of a step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--megabytes", type=float, default=0, help="MiB of an emulated model")
    parser.add_argument("--gradient-seconds", type=float, default=0, help="of an emulated gradient")
    arguments = runs.start(parser)
    if not 1 <= arguments.first <= arguments.workers:
        parser.error("--first is 1 to --workers")

    emulated = arguments.megabytes > 0
    model = Emulated(arguments.megabytes, arguments.gradient_seconds) if emulated else Spirals(arguments.seed)
    workers = runs.placed(Worker, arguments, model)
    run = runs.Run("async_sgd", arguments, workers, "steps/s", emulated=emulated, megabytes=model.start().nbytes / (1 << 20),
                   gradient_seconds=arguments.gradient_seconds)
    server = Server(runs.transport(arguments, workers), model, workers)
    server.step(arguments.first)  # the workers have started
    passed = [(0.0, server.weights)]
    run.begin()
    for step in range(arguments.steps):
        server.step(arguments.first)
        run.step([worker for worker, _, _ in server.updates[-1]])
        if step % 10 == 9 or step + 1 == arguments.steps:
            passed.append((run.seconds(), server.weights))
    seconds = run.seconds()

    serial = Emulated(arguments.megabytes, seconds=0) if emulated else model
    off = float(np.abs(replay(serial, server.updates) - server.weights).max())
    curve = [[round(when, 4), round(model.loss(weights), 5)] for when, weights in passed]
    late = sum(version < i for i, step in enumerate(server.updates) for _, _, version in step)
    right = off < TOLERANCE and (emulated or curve[-1][1] < curve[0][1] / 2)
    return run.end(right, curve, seconds, k=arguments.first, gradients_of_older_weights=late, off_a_serial_run=off)


if __name__ == "__main__":
    sys.exit(main())
