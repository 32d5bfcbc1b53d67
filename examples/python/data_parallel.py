"""Synchronous data-parallel training: every step the workers take the mean of their gradients by allreduce.

Each worker has its own part of the data and its own copy of a small network. In every round it puts its
gradients, a dict of arrays, as one object, and `allreduce` gives all workers the same bits of the mean, so
their weights stay equal. There is no group to join: workers share only the names of the objects. On
several hosts the same program would pass each worker its own node's address.
"""

from __future__ import annotations

import multiprocessing
import sys

import numpy as np

import phalanx

WORKERS = 4
ROUNDS = 40
SAMPLES = 256  # per worker
LEARNING_RATE = np.float32(0.1)
TIMEOUT_S = 30.0

Tree = dict[str, np.ndarray]


def initial_weights() -> Tree:
    """Return the same weights for every worker."""
    rng = np.random.default_rng(0)
    return {
        "w1": rng.normal(0, 0.5, (8, 32)).astype(np.float32),
        "b1": np.zeros(32, np.float32),
        "w2": rng.normal(0, 0.2, (32, 1)).astype(np.float32),
        "b2": np.zeros(1, np.float32),
    }


def part_of_the_data(worker: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1 + worker)
    x = rng.normal(size=(SAMPLES, 8)).astype(np.float32)
    return x, np.sin(x[:, :1]) + x[:, 1:2] * np.float32(0.5)


def loss_and_gradients(weights: Tree, x: np.ndarray, y: np.ndarray) -> tuple[float, Tree]:
    """Return the mean squared error of a network with one hidden layer, and its gradients."""
    hidden = np.tanh(x @ weights["w1"] + weights["b1"])
    error = hidden @ weights["w2"] + weights["b2"] - y
    slope = error * np.float32(2 / len(x))
    below = slope @ weights["w2"].T * (1 - hidden**2)
    return float(np.mean(error**2)), {
        "w1": x.T @ below,
        "b1": below.sum(axis=0),
        "w2": hidden.T @ slope,
        "b2": slope.sum(axis=0),
    }


def named(job: str, *parts: object) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name("/".join([job, *map(str, parts)]))


def gradients_of(job: str, step: int) -> list[phalanx.ObjectRef]:
    return [named(job, "gradient", step, worker) for worker in range(WORKERS)]


def train(client: phalanx.Client, job: str, worker: int) -> dict[str, object]:
    """Return the worker's losses, and its weights after the last round."""
    x, y = part_of_the_data(worker)
    weights = initial_weights()
    losses: list[float] = []
    for step in range(ROUNDS):
        loss, gradients = loss_and_gradients(weights, x, y)
        losses.append(loss)
        sources = gradients_of(job, step)
        client.put(gradients, sources[worker])
        mean = client.allreduce(sources, "mean", ref=named(job, "mean", step))
        for name, gradient in mean.items():
            weights[name] -= LEARNING_RATE * gradient
        # Every worker that put a gradient in this round has the mean of the last round: it can be deleted.
        if step > 0:
            client.delete(gradients_of(job, step - 1)[worker])
            if worker == 0:
                client.delete(named(job, "mean", step - 1))
    return {"losses": np.array(losses), "weights": weights}


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
    arguments = [(client.address, job, i) for i in range(WORKERS)]
    workers = [spawned(target=work, args=these, daemon=True) for these in arguments]
    for process in workers:
        process.start()
    results = client.get([named(job, "result", i) for i in range(WORKERS)])
    for process in workers:
        process.join()
    losses = np.mean([result["losses"] for result in results], axis=0)
    weights = [b"".join(a.tobytes() for a in result["weights"].values()) for result in results]
    same = len(set(weights)) == 1
    old = [ref for i in range(ROUNDS - 1) for ref in [*gradients_of(job, i), named(job, "mean", i)]]
    left = sum(client.contains(ref) for ref in old)
    print(f"{WORKERS} workers, {ROUNDS} rounds: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"weights bit-identical: {same}; objects of earlier rounds left: {left}")
    return 0 if same and left == 0 and losses[-1] < losses[0] / 4 else 1


if __name__ == "__main__":
    sys.exit(main())
