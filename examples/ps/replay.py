"""A table under BSP in one process, in NumPy: the same bits as servers have.

docs/parameter-server.md says what these are: the pushes of a clock are added up in the order of workers, and then the update
is made once for each key. include/phalanx/ps_table.h has the formulas of the updates; each is computed from left to right
in the type of the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_DTYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64}


class Replay:
    """The arguments are those of `phalanx.ps.Server.table`, as far as the examples use them."""

    def __init__(
        self, name: str, keys: int = 0, width: int = 1, dtype: str = "f32", update: str = "sum", rate: float = 0.1,
        epsilon: float = 1e-8, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0, init: str = "zeros",
        scale: float = 0.0, seed: int = 0, split: str = "range",
    ) -> None:  # fmt: skip
        del name, split  # which server has a key changes no bit
        self._type = _DTYPES[dtype]
        self._width, self._update = width, update
        self._rate, self._epsilon, self._beta = self._type(rate), self._type(epsilon), self._type(beta)
        self._l1, self._l2 = self._type(l1), self._type(l2)
        self._init = (init, self._type(scale), seed)
        self._dense = keys
        self._values, *self._state = (np.zeros((0, width), self._type) for _ in range(3))
        self._grow(keys)

    def pull(self, keys: Any) -> Any:
        """Return the rows of the keys (None: all), as a worker gets them."""
        if keys is None:
            keys = np.arange(self._dense)
        self._grow(int(keys[-1]) + 1)
        rows = self._values[keys]
        return rows[:, 0] if self._width == 1 else rows

    def turn(self, pushes: list[tuple[Any, Any]]) -> None:
        """End a clock in which the workers have pushed this: keys (None: all) and rows, in the order of workers."""
        pushes = [(np.arange(self._dense) if keys is None else keys, rows) for keys, rows in pushes]
        touched = np.unique(np.concatenate([keys for keys, _ in pushes]))
        added = np.zeros((len(touched), self._width), self._type)
        for keys, rows in pushes:
            places, pushed = np.searchsorted(touched, keys), np.asarray(rows, self._type).reshape(-1, self._width)
            added[places] = pushed if self._update == "assign" else added[places] + pushed
        self._grow(int(touched[-1]) + 1)
        w, first, second = self._values[touched], self._state[0][touched], self._state[1][touched]
        self._values[touched] = getattr(self, f"_{self._update}")(w, added, first, second)
        self._state[0][touched], self._state[1][touched] = first, second

    # ---- the updates: return the new values, and change the state that they keep beside these

    def _assign(self, w: Any, g: Any, *_: Any) -> Any:
        return g

    def _sgd(self, w: Any, g: Any, *_: Any) -> Any:
        return w - self._rate * g

    def _adagrad(self, w: Any, g: Any, s: Any, _: Any) -> Any:
        s += g * g
        return w - self._rate * g / (np.sqrt(s) + self._epsilon)

    def _ftrl(self, w: Any, g: Any, z: Any, n: Any) -> Any:
        squares = n + g * g
        root = np.sqrt(squares)
        z += g - (root - np.sqrt(n)) / self._rate * w
        n[:] = squares
        value = (np.copysign(self._l1, z) - z) / ((self._beta + root) / self._rate + self._l2)
        return np.where(np.abs(z) <= self._l1, self._type(0), value)

    # ---- rows

    def _grow(self, keys: int) -> None:
        """Have rows for the keys below this one. A sparse table of the servers makes one with the first push of its key."""
        begin = len(self._values)
        if keys > begin:
            fresh = np.zeros((keys - begin, self._width), self._type)
            kind, scale, seed = self._init
            if kind == "uniform":
                fresh = _uniform(np.arange(begin, keys, dtype=np.uint64), self._width, scale, seed)
            self._values = np.concatenate([self._values, fresh])
            self._state = [np.concatenate([each, np.zeros_like(fresh)]) for each in self._state]


def _mixed(key: Any) -> Any:
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _uniform(keys: Any, width: int, scale: Any, seed: int) -> Any:
    """Return what rows of f32 have before their first push: draws of xoshiro256**, seeded by SplitMix64."""
    start = _mixed(_mixed(np.array([seed], np.uint64)) ^ keys)
    with np.errstate(over="ignore"):
        a, b, c, d = (_mixed(start + np.uint64(i * 0x9E3779B97F4A7C15 % 2**64)) for i in range(1, 5))
        rows = np.empty((len(keys), width), np.float32)
        for column in range(width):
            drawn = _rotated(b * np.uint64(5), 7) * np.uint64(9)
            rows[:, column] = (drawn >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
            shifted = b << np.uint64(17)
            c, d = c ^ a, d ^ b
            b, a = b ^ c, a ^ d
            c, d = c ^ shifted, _rotated(d, 45)
    return rows * scale
