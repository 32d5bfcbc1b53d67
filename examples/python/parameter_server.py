"""An asynchronous parameter server: each round takes the first k of n gradients, of any workers.

The server hands every worker a task, an object with the ref of the weights to use, and begins a reduction
of all outstanding gradients with ``num_objects=k``. `reduced_from` tells whose went in; only these
workers get new tasks. A slow worker delays no other; its gradient goes into a later round.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter

import numpy as np

import phalanx

WORKERS = 4
NEEDED = 2  # gradients per round
SLOW = {3: 0.05}  # worker: extra seconds for each gradient
MIN_ROUNDS = 80
FEATURES, SAMPLES = 50, 400
LEARNING_RATE = np.float32(0.05)
TIMEOUT_S = 30.0


def truth() -> np.ndarray:
    """Return the weights that the training must find."""
    return np.random.default_rng(0).normal(size=FEATURES).astype(np.float32)


def work(address: str, job: str, worker: int) -> None:
    """Put a gradient for every task, until a task is None."""
    x = np.random.default_rng(1 + worker).normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        step = 0
        while (weights_ref := client.get(task(job, worker, step))) is not None:
            error = x @ (client.get(weights_ref) - truth())
            time.sleep(SLOW.get(worker, 0))  # a slower machine
            client.put(x.T @ error * np.float32(2 / SAMPLES), gradient(job, worker, step))
            step += 1


def task(job: str, worker: int, step: int) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name(f"{job}/task/{worker}/{step}")


def gradient(job: str, worker: int, step: int) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name(f"{job}/gradient/{worker}/{step}")


class Server:
    """The weights, and the current step of every worker."""

    def __init__(self, client: phalanx.Client, job: str) -> None:
        self.client, self.job = client, job
        self.weights = np.zeros(FEATURES, np.float32)
        self.newest = client.put(self.weights)
        self.given = [self.newest] * WORKERS  # the weights that each worker uses
        self.steps = [0] * WORKERS
        self.rounds = 0
        self.used: Counter[int] = Counter()  # reduced gradients of each worker
        self.late = 0  # those computed with weights of an earlier round
        for worker in range(WORKERS):
            client.put(self.newest, task(job, worker, 0))

    def round(self) -> None:
        """Wait for the first gradients, make a step, and give their workers new tasks."""
        client = self.client
        sources = [gradient(self.job, i, self.steps[i]) for i in range(WORKERS)]
        mean = client.reduce(sources, "mean", num_objects=NEEDED, dtype=np.float32)
        came = [sources.index(ref) for ref in client.reduced_from(mean)]
        self.weights -= LEARNING_RATE * client.get(mean)
        self.used.update(came)
        self.late += sum(self.given[worker] != self.newest for worker in came)
        self.rounds += 1

        in_use = set(self.given)
        over = [mean, *(sources[worker] for worker in came)]
        self.newest = client.put(self.weights)
        for worker in came:
            over.append(task(self.job, worker, self.steps[worker]))
            self.steps[worker] += 1
            self.given[worker] = self.newest
            client.put(self.newest, task(self.job, worker, self.steps[worker]))
        client.delete([*over, *in_use.difference(self.given)])

    def off(self) -> float:
        """Return how far the weights are from the truth."""
        return float(np.linalg.norm(self.weights - truth()) / np.linalg.norm(truth()))

    def end(self) -> None:
        """Make each worker end after its current gradient."""
        for worker, step in enumerate(self.steps):
            self.client.put(None, task(self.job, worker, step + 1))


def main() -> int:
    client = phalanx.init(timeout=TIMEOUT_S)
    job = client.ref().hex()
    spawned = multiprocessing.get_context("spawn").Process
    arguments = [(client.address, job, i) for i in range(WORKERS)]
    workers = [spawned(target=work, args=these, daemon=True) for these in arguments]
    for process in workers:
        process.start()
    server = Server(client, job)
    # Until a gradient of the slow worker was reduced too, and the error of old gradients is corrected.
    while server.rounds < MIN_ROUNDS or len(server.used) < WORKERS or server.off() > 1e-2:
        server.round()
    server.end()
    for process in workers:
        process.join()
    print(f"{server.rounds} rounds of {NEEDED} of {WORKERS}: weights {server.off():.1e} off the truth")
    print(f"gradients used {dict(sorted(server.used.items()))}; {server.late} from an earlier round")
    ended = not any(process.exitcode for process in workers)
    return 0 if ended and server.late > 0 and server.used.total() == NEEDED * server.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
