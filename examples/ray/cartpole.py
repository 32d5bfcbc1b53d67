"""CartPole in NumPy, many poles at once, and a policy for it whose parameters are one vector.

A cart is pushed left or right so that the pole on it does not fall: a reward of 1 for each step until the pole is 12 degrees off,
the cart has left its track, or `LIMIT` steps have passed. Dynamics and limits are those of the known CartPole-v0.

What a rollout contains depends on the weights and the seed alone, and is computed in double precision. So a serial run with the same
weights plays the very same games.
"""

from __future__ import annotations

import numpy as np

LIMIT = 200
POLES = 4
SAMPLES = LIMIT * POLES  # of a rollout
DISCOUNT = 0.98
# What the square of the value's error, and the entropy of the actions, count in the loss.
VALUE, ENTROPY = 0.00025, 0.01
HIDDEN = 32
# What a policy is to come to: steps that a pole stands on average. It begins with 25.
SCORE = 150
# Where the vector is cut: into the hidden layer, its bias, the logits of both actions, their bias, the value, its bias.
_SHAPES = ((4, HIDDEN), (HIDDEN,), (HIDDEN, 2), (2,), (HIDDEN,), ())
_SIZES = [int(np.prod(shape)) for shape in _SHAPES]
COUNT = sum(_SIZES)


class Poles:
    """Carts with poles; those that have ended are set up again."""

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self._random = random
        self.state = random.uniform(-0.05, 0.05, (count, 4))
        self.ages = np.zeros(count, int)

    def step(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push each cart right or left for 20 ms; return which poles have fallen, and which have stood for `LIMIT` steps."""
        place, speed, angle, turning = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (np.where(right, 10.0, -10.0) + 0.05 * turning**2 * sine) / 1.1
        angular = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        linear = push - 0.05 * angular * cosine / 1.1
        self.state = self.state + 0.02 * np.stack([speed, linear, turning, angular], 1)
        self.ages += 1
        fallen = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > np.pi / 15)
        return fallen, ~fallen & (self.ages >= LIMIT)

    def renew(self, ended: np.ndarray) -> None:
        if ended.any():
            self.state[ended] = self._random.uniform(-0.05, 0.05, (int(ended.sum()), 4))
            self.ages[ended] = 0


def start(seed: int = 0) -> np.ndarray:
    """Return the weights that a training begins with."""
    random = np.random.default_rng(seed)
    scales = (0.7, 0.0, 0.05, 0.0, 0.05, 0.0)
    parts = [random.normal(0, 1, size) * scale for size, scale in zip(_SIZES, scales)]
    return np.concatenate(parts).astype(np.float32)


def forward(weights: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hidden values, the chances of both actions and the values of states."""
    into, bias, act, act_bias, worth, worth_bias = _parts(weights)
    hidden = np.tanh(states * (0.5, 0.5, 5.0, 0.5) @ into + bias)
    logits = hidden @ act + act_bias
    grown = np.exp(logits - logits.max(-1, keepdims=True))
    return hidden, grown / grown.sum(-1, keepdims=True), 10 * (hidden @ worth + worth_bias)


def rollout(weights: np.ndarray, seed: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Play `LIMIT` steps of `POLES` poles. Every array begins with steps, then poles.

    "states" has one more than steps: what followed the last; "chances" are those of the actions that were taken; a pole has "ended"
    that has "fallen", or stood for `LIMIT` steps.
    """
    random = np.random.default_rng(seed)
    poles = Poles(POLES, random)
    played: dict[str, list[np.ndarray]] = {"states": [poles.state], "right": [], "chances": [], "fallen": [], "ended": []}
    for _ in range(LIMIT):
        chance = forward(weights, poles.state)[1]
        right = random.random(POLES) < chance[:, 1]
        fallen, stood = poles.step(right)
        poles.renew(fallen | stood)
        each = (poles.state.copy(), right, np.where(right, chance[:, 1], chance[:, 0]), fallen, fallen | stood)
        for part, value in zip(played.values(), each):
            part.append(value)
    return {name: np.stack(part) for name, part in played.items()}


def score(weights: np.ndarray, episodes: int = 32) -> float:
    """Return how many steps a pole stands on average."""
    random = np.random.default_rng(12345)
    poles = Poles(episodes, random)
    standing, steps = np.ones(episodes, bool), np.zeros(episodes)
    for _ in range(LIMIT):
        steps += standing
        fallen, _ = poles.step(random.random(episodes) < forward(weights, poles.state)[1][:, 1])
        standing &= ~fallen
    return float(steps.mean())


def loss(weights: np.ndarray, played: dict[str, np.ndarray], targets: np.ndarray, advantages: np.ndarray) -> float:
    """Return the actor's and the critic's loss: of the actions by their advantages, of the values by their targets."""
    _, chances, values = forward(weights, played["states"][:-1])
    taken = np.where(played["right"], chances[..., 1], chances[..., 0])
    entropy = -(chances * np.log(chances)).sum(-1)
    return float(np.mean(-advantages * np.log(taken) + VALUE * (values - targets) ** 2 - ENTROPY * entropy))


def gradient(weights: np.ndarray, played: dict[str, np.ndarray], targets: np.ndarray, advantages: np.ndarray) -> np.ndarray:
    """Return the gradient of `loss`, at most 1 long."""
    _, _, act, _, worth, _ = _parts(weights)
    states = played["states"][:-1].reshape(-1, 4)
    hidden, chance, values = forward(weights, states)
    taken = np.stack([~played["right"].ravel(), played["right"].ravel()], 1)
    surprise = -np.log(np.clip(chance, 1e-9, 1))
    to_logits = advantages.reshape(-1, 1) * (chance - taken)
    to_logits += ENTROPY * chance * ((chance * surprise).sum(1, keepdims=True) - surprise)
    to_value = 10 * 2 * VALUE * (values - targets.ravel())  # values are scaled by 10
    back = (to_logits @ act.T + to_value[:, None] * worth) * (1 - hidden**2)
    scaled = states * (0.5, 0.5, 5.0, 0.5)
    parts = [scaled.T @ back, back.sum(0), hidden.T @ to_logits, to_logits.sum(0), hidden.T @ to_value, to_value.sum()]
    whole = np.concatenate([np.ravel(part) for part in parts]) / len(states)
    return whole / max(1.0, float(np.linalg.norm(whole)))


class Adam:
    """Steps of a size that each parameter's own gradients choose."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._count = 0
        self._mean = self._square = np.zeros(COUNT)

    def step(self, weights: np.ndarray, slope: np.ndarray) -> np.ndarray:
        self._count += 1
        self._mean = 0.9 * self._mean + 0.1 * slope
        self._square = 0.99 * self._square + 0.01 * slope**2
        mean, square = self._mean / (1 - 0.9**self._count), self._square / (1 - 0.99**self._count)
        return (weights - self._rate * mean / (np.sqrt(square) + 1e-6)).astype(np.float32)


class Policy:
    """What the algorithms that learn one have alike."""

    samples = SAMPLES

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._adam = Adam(0.005)

    def start(self) -> np.ndarray:
        return start(self._seed)

    def score(self, weights: np.ndarray) -> float:
        return score(weights)


def _parts(weights: np.ndarray) -> list[np.ndarray]:
    cut = np.split(weights.astype(np.float64), np.cumsum(_SIZES)[:-1])
    return [part.reshape(shape) for part, shape in zip(cut, _SHAPES)]
