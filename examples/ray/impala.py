"""Off-policy actor-critic under Ray, of IMPALA's shape: actors only play, and the learner computes, with what the first k of n have played.

    python examples/ray/impala.py                          # games and weights by Phalanx
    python examples/ray/impala.py --transport ray          # the same loop by Ray's own store
    python examples/ray/impala.py --megabytes 64 --gradient-seconds 0.1

Each actor plays CartPole with the weights that it was given, and returns states, actions and their chances. The learner gets the first k
of these rollouts, corrects with V-trace that they were played with older weights, updates its own, and gives them to those k actors.
The program fails if the policy does not come to 150 steps of 200 on average (it begins with 25). With ``--megabytes`` the policy is only
a vector of this size, a rollout is one of ``--rollout-megabytes``, and the learner's gradient takes ``--gradient-seconds``, in which
nothing is computed: EMULATED work, to see what the transport costs. The weights are compared with those of a serial run of the same
updates at the end: they are the same, bit for bit.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import cartpole
import learner
import numpy as np


class Listed:
    """What a step takes of rollouts: all of them."""

    def take(self, transport: Any, refs: list[Any], k: int) -> tuple[list[Any], list[Any]]:
        came, _ = transport.wait(refs, k)
        return transport.get(came), came

    def joined(self, results: list[Any]) -> list[Any]:
        return results


class Impala(Listed, cartpole.Policy):
    """Actor-critic with V-trace on CartPole. `update` has the state of Adam."""

    def work(self, weights: np.ndarray, worker: int, number: int) -> dict[str, np.ndarray]:
        return cartpole.rollout(weights, (self._seed, worker, number))

    def update(self, weights: np.ndarray, taken: list[dict[str, np.ndarray]], k: int) -> np.ndarray:
        slopes = [cartpole.gradient(weights, played, *v_trace(weights, played)) for played in taken]
        return self._adam.step(weights, sum(slopes[1:], slopes[0]) / k)


class EmulatedImpala(Listed, learner.EmulatedWeights):
    """Rollouts of a stated size, which take no time, and a gradient that takes a stated one."""

    samples = 1

    def __init__(self, megabytes: float, rollout_megabytes: float, seconds: float) -> None:
        super().__init__(megabytes)
        self._played = max(1, int(rollout_megabytes * (1 << 20)) // (4 * learner.PERIOD))  # in periods
        self._seconds = seconds

    def work(self, weights: np.ndarray, worker: int, number: int) -> np.ndarray:
        return self.repeated(self.pattern(weights, worker, number), self._played)

    def update(self, weights: np.ndarray, taken: list[np.ndarray], k: int) -> np.ndarray:
        time.sleep(self._seconds)
        played = sum(taken[1:], taken[0])
        # Its last period, so that all of it has to be there.
        return (weights.reshape(-1, learner.PERIOD) + played[-learner.PERIOD :]).ravel()


def v_trace(weights: np.ndarray, played: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that the critic learns and the advantages of the actions: V-trace, with both cuts at 1."""
    _, chances, values = cartpole.forward(weights, played["states"])
    now = np.where(played["right"], chances[:-1, :, 1], chances[:-1, :, 0])
    ratios = np.minimum(1, now / played["chances"])
    fallen, ended = played["fallen"], played["ended"]
    # A pole that has stood for all steps is set up again: what would have followed is as good as the last state.
    follows = np.where(fallen, 0, np.where(ended, values[:-1], values[1:]))
    errors = ratios * (1 + cartpole.DISCOUNT * follows - values[:-1])
    targets, carried = np.empty(errors.shape), np.zeros(errors.shape[1])
    for step in reversed(range(len(errors))):
        carried = errors[step] + cartpole.DISCOUNT * ratios[step] * np.where(ended[step], 0, carried)
        targets[step] = values[step] + carried
    later = np.concatenate([targets[1:], values[-1:]])
    follows = np.where(fallen, 0, np.where(ended, values[:-1], later))
    advantages = ratios * (1 + cartpole.DISCOUNT * follows - values[:-1])
    return targets, advantages / (advantages.std() + 1e-6)


def main() -> int:
    parser = learner.parser(__doc__, steps=60)
    parser.add_argument("--rollout-megabytes", type=float, default=1, help="MiB of an emulated rollout")
    arguments = learner.start(parser)

    def make(replayed: bool) -> Any:
        if arguments.megabytes > 0:
            seconds = 0 if replayed else arguments.gradient_seconds
            return EmulatedImpala(arguments.megabytes, arguments.rollout_megabytes, seconds)
        return Impala(arguments.seed)

    return learner.train("impala", arguments, make, cartpole.SCORE, "rollouts/s")


if __name__ == "__main__":
    sys.exit(main())
