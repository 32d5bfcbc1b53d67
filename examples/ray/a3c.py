"""Asynchronous actor-critic under Ray, of A3C's shape: actors play and compute gradients, and each step takes the first k of n.

    python examples/ray/a3c.py                          # gradients and weights by Phalanx
    python examples/ray/a3c.py --transport ray          # the same loop by Ray's own store
    python examples/ray/a3c.py --megabytes 64 --gradient-seconds 0.1

Each actor plays CartPole with the weights that it was given, and computes the gradient of the policy's and the value's loss. The learner
adds up the first k gradients, updates the weights with Adam, and gives them to those k actors. The program fails if the policy does not
come to 150 steps of 200 on average (it begins with 25). With ``--megabytes`` the policy is only a vector of this size, and a gradient
takes ``--gradient-seconds``, in which nothing is computed: EMULATED work, to see what the transport costs. The weights are compared
with those of a serial run of the same updates at the end: they are the same, bit for bit.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import cartpole
import learner
import numpy as np

# Gradients are whole multiples of this, so that their sum is the same in every order: at most 1 long, they add up exactly for 64 actors.
# The sums of others would differ in the last bit, and the games of a serial run would soon be others.
QUANTUM = 2.0**-18


class Summed:
    """What a step takes of gradients: their sum."""

    def take(self, transport: Any, refs: list[Any], k: int) -> tuple[np.ndarray, list[Any]]:
        return transport.first(refs, k)

    def joined(self, results: list[np.ndarray]) -> np.ndarray:
        return sum(results[1:], results[0])


class A3C(Summed, cartpole.Policy):
    """Advantage actor-critic on CartPole. `update` has the state of Adam."""

    def work(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        played = cartpole.rollout(weights, (self._seed, worker, number))
        values = cartpole.forward(weights, played["states"])[2]
        returns = returns_of(played, values)
        advantages = returns - values[:-1]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        slope = cartpole.gradient(weights, played, returns, advantages)
        return (np.round(slope / QUANTUM) * QUANTUM).astype(np.float32)

    def update(self, weights: np.ndarray, taken: np.ndarray, k: int) -> np.ndarray:
        return self._adam.step(weights, taken / k)


class EmulatedA3C(Summed, learner.EmulatedWeights):
    """A gradient takes a stated time, in which nothing is computed."""

    samples = 1

    def __init__(self, megabytes: float, seconds: float) -> None:
        super().__init__(megabytes)
        self._seconds = seconds

    def work(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        time.sleep(self._seconds)
        return self.repeated(self.pattern(weights, worker, number), self.periods)

    def update(self, weights: np.ndarray, taken: np.ndarray, k: int) -> np.ndarray:
        return weights + taken


def returns_of(played: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the discounted rewards from each step on. A game that goes on is worth what the policy thinks of it."""
    returns, follows = np.empty(played["right"].shape), values[-1]
    for step in reversed(range(len(returns))):
        follows = np.where(played["ended"][step], values[step], follows)
        follows = 1 + cartpole.DISCOUNT * np.where(played["fallen"][step], 0, follows)
        returns[step] = follows
    return returns


def main() -> int:
    arguments = learner.start(learner.parser(__doc__, steps=60))

    def make(replayed: bool) -> Any:
        if arguments.megabytes > 0:
            return EmulatedA3C(arguments.megabytes, 0 if replayed else arguments.gradient_seconds)
        return A3C(arguments.seed)

    return learner.train("a3c", arguments, make, cartpole.SCORE, "gradients/s")


if __name__ == "__main__":
    sys.exit(main())
