"""Images of digits in seven segments, and classifiers of them: random features and a fitted last layer, in NumPy.

Models of different seeds have other features and have seen other images, so that the vote of several is right more often than each.
"""

from __future__ import annotations

import numpy as np

SIDE = 16
PIXELS = SIDE * SIDE
# The segments of 0 to 9, from the top one clockwise, then the middle one.
_LIT = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
_PLACES = {"a": (0, 0, 1, 6), "b": (0, 5, 5, 1), "c": (5, 5, 5, 1), "d": (9, 0, 1, 6), "e": (5, 0, 5, 1), "f": (0, 0, 5, 1), "g": (4, 0, 1, 6)}


def images(count: int, seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy images, each a row of pixels, and the digits on them."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    left, top, bright = random.integers(4, 6, count), random.integers(2, 4, count), random.uniform(0.6, 1, count)
    pixels = random.normal(0, 0.25, (count, SIDE, SIDE))
    for image, label, x, y, light in zip(pixels, labels, left, top, bright):
        for segment in _LIT[label]:
            row, column, height, width = _PLACES[segment]
            image[y + row : y + row + height, x + column : x + column + width] += light
    return pixels.reshape(count, PIXELS).astype(np.float32), labels


class Classifier:
    """Features of random directions, and weights for them that fit the images of a seed of its own."""

    def __init__(self, seed: int, features: int = 200, samples: int = 2000) -> None:
        random = np.random.default_rng((seed, 1))
        self._directions = random.normal(0, 0.15, (PIXELS, features))
        self._shifts = random.uniform(-1, 1, features)
        seen, labels = images(samples, (seed, 2))
        made = self._features(seen)
        self._weights = np.linalg.solve(made.T @ made + 10 * np.eye(features), made.T @ np.eye(10)[labels])

    def _features(self, pixels: np.ndarray) -> np.ndarray:
        return np.maximum(0, pixels @ self._directions + self._shifts)

    def classify(self, pixels: np.ndarray) -> np.ndarray:
        return (self._features(pixels) @ self._weights).argmax(1).astype(np.uint8)


def vote(answers: list[np.ndarray]) -> np.ndarray:
    """Return of each image the digit that most answers are; the smallest of those that as many are."""
    counted = sum(np.eye(10, dtype=int)[answer] for answer in answers)
    return counted.argmax(1).astype(np.uint8)
