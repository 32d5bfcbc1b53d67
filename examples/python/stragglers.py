"""Synchronous training that does not wait for the slowest: each step takes the first k of n gradients.

All workers make the same `allreduce` with ``num_objects=k``. It ends when any k gradients are there, and all
workers get the same bits, the slow one included: its weights stay equal to those of the others. A worker
that has fallen behind finds the results of the steps that it missed, since they have names.
"""

from __future__ import annotations

import multiprocessing
import sys
import time

import numpy as np

import phalanx

WORKERS, NEEDED = 4, 3
STEPS = 20
SLOW, SLOW_S = 3, 0.05  # this worker takes so much longer for each gradient
FEATURES, SAMPLES = 20, 200
LEARNING_RATE = np.float32(0.1)
TIMEOUT_S = 30.0


def truth() -> np.ndarray:
    """Return the weights that the training must find."""
    return np.random.default_rng(0).normal(size=FEATURES).astype(np.float32)


def named(job: str, *parts: object) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name("/".join([job, *map(str, parts)]))


def train(client: phalanx.Client, job: str, worker: int) -> np.ndarray:
    x = np.random.default_rng(1 + worker).normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    weights = np.zeros(FEATURES, np.float32)
    for step in range(STEPS):
        mean = named(job, "mean", step)
        sources = [named(job, "gradient", step, i) for i in range(WORKERS)]
        # If the others have finished this step, this worker's gradient is of no use.
        if not client.contains(mean):
            if worker == SLOW:
                time.sleep(SLOW_S)
            gradient = x.T @ (x @ (weights - truth())) * np.float32(2 / SAMPLES)
            client.put(gradient, sources[worker])
        # The dtype is given, so the call needs no source to begin.
        weights = weights - LEARNING_RATE * client.allreduce(
            sources, "mean", ref=mean, num_objects=NEEDED, dtype=np.float32
        )
    return weights


def work(address: str, job: str, worker: int) -> None:
    result = named(job, "result", worker)
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        try:
            client.put(train(client, job, worker), result)
        except Exception as error:
            client.set_exception(result, error)  # the main process raises it


def main() -> int:
    client = phalanx.init(timeout=TIMEOUT_S)
    job = client.ref().hex()
    spawned = multiprocessing.get_context("spawn").Process
    workers = [spawned(target=work, args=(client.address, job, i), daemon=True) for i in range(WORKERS)]
    for process in workers:
        process.start()
    weights = client.get([named(job, "result", i) for i in range(WORKERS)])
    for process in workers:
        process.join()
    used = [client.reduced_from(named(job, "mean", step)) for step in range(STEPS)]
    slow = sum(named(job, "gradient", step, SLOW) in used[step] for step in range(STEPS))
    print(f"{STEPS} steps with {NEEDED} of {WORKERS} gradients; the slow worker's were in {slow} of them")
    same = len({array.tobytes() for array in weights}) == 1
    error = float(np.abs(weights[0] - truth()).max())
    print(f"weights bit-identical: {same}; largest error {error:.3f}")
    return 0 if same and error < 0.2 and all(len(refs) == NEEDED for refs in used) else 1


if __name__ == "__main__":
    sys.exit(main())
