"""What moves the arrays of the programs in this folder: Phalanx, or Ray's own object store in its best known form.

Both have the same calls, so that a program has one loop:

    put(array)                      a ref of an array for several workers, which is in Ray's or Phalanx's store here; a small array itself
    call(worker, method, *args)     start a method of an actor; the ref of its result, which stays on the actor's host
    spread(workers, given)          send a ref's value to the hosts of several workers, if calls with it would not do that well
    calls(workers, method, given, own)  spread `given`, and call each of the workers with it and then its own arguments
    first(refs, k)                  the sum of the first k results, and which refs they were
    wait(refs, k)                   the first k refs that exist, without their values; the others go on
    get(ref), get([ref, ...])       values
    calls_to_sum(workers, method, given, own), sum_to_all(workers, given, refs)
                                    calls whose results are summed for all workers (the method gets further arguments), and what to give to these as `given` + the sum, at once

`value_of` is for the worker: the value of an argument that was a ref. An object belongs to one driver, and to one thread of it; `put`
and `spread` use no state, and any thread may call them. A wait for results ends after `LIMIT_S`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import ray

import phalanx.ray


# Of results, and of a sum that all workers make together: also while Ray restarts one of them.
LIMIT_S = 120
# Ray sends smaller arguments with the call itself: either store would be a detour.
INLINE_BYTES = 100 << 10


def value_of(argument: Any) -> Any:
    """Return the value of what a transport has returned, in the worker that got it as an argument.

    Ray replaces its own refs by their values before it calls a method; those of Phalanx arrive as refs.
    """
    if isinstance(argument, (Sum, Parts)):
        return argument.value()
    return argument.get() if isinstance(argument, phalanx.ObjectRef) else argument


@dataclasses.dataclass
class Sum:
    """A sum of Phalanx's objects that all workers make together, each by the same call: a ring, if they are large."""

    sources: list[Any]
    ref: Any  # of the result

    def value(self) -> np.ndarray:
        return phalanx.ray.client().allreduce(self.sources, ref=self.ref, dtype=np.float32, timeout=LIMIT_S)


@dataclasses.dataclass
class Parts:
    """A sum in Ray's store, in parts: each worker makes one from its parts of all sources, and all fetch all of them."""

    refs: list[Any]

    def value(self) -> np.ndarray:
        return np.concatenate(ray.get(self.refs, timeout=LIMIT_S))


def _in_parts(actor: Any, count: int, method: str, *args: Any) -> list[np.ndarray]:
    return np.array_split(getattr(actor, method)(*args), count)


def _sum_of_part(_: Any, *parts: np.ndarray) -> np.ndarray:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _waited(refs: list[Any], k: int, fetch: bool = False) -> tuple[list[Any], list[Any]]:
    """Return the first k of Ray's refs that exist, and the others."""
    ready, left = ray.wait(refs, num_returns=k, timeout=LIMIT_S, fetch_local=fetch)
    if len(ready) < k:
        raise TimeoutError(f"{len(ready)} of {k} results exist after {LIMIT_S} s; {len(left)} are still computed")
    return ready, left


def place_of(index: int, share: float = 1) -> dict[str, Any]:
    """Return the options of the actor or task that belongs on the index-th host, if hosts are marked as benchmarks/ray marks them."""
    name = f"host{index + 1}"  # the first host is the driver's
    marked = ray.cluster_resources()
    return {"num_cpus": 0, "resources": {name: share}} if name in marked else {"num_cpus": 0}


class _Transport:
    def __init__(self, workers: list[Any]) -> None:
        """`workers` are all actors of the program, in the order of their hosts."""

    def spread(self, workers: list[Any], given: Any) -> None:
        """Do nothing: each worker fetches it, from the driver's host or from a worker that has it."""

    def calls(self, workers: list[Any], method: str, given: Any, own: list[tuple[Any, ...]]) -> list[Any]:
        self.spread(workers, given)
        return [self.call(worker, method, given, *args) for worker, args in zip(workers, own)]


class ByPhalanx(_Transport):
    """Receivers relay what they get to each other, and the first k results are added up on their way."""

    name = "phalanx"

    def put(self, value: np.ndarray) -> Any:
        return phalanx.ray.put(value) if value.nbytes > INLINE_BYTES else value

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        return phalanx.ray.call(worker, method, *args)

    def first(self, refs: list[Any], k: int) -> tuple[np.ndarray, list[Any]]:
        total = phalanx.ray.reduce(refs, num_objects=k, dtype=np.float32)
        values = total.get(LIMIT_S)
        came = set(phalanx.ray.client().reduced_from(total))
        return values, [ref for ref in refs if ref in came]

    def calls_to_sum(self, workers: list[Any], method: str, given: Any, own: list[tuple[Any, ...]]) -> list[Any]:
        # Ray starts a call after the tasks whose refs are among its arguments, so that all sources exist: for some that are
        # late the directory would not wait long, and make a tree instead of a ring.
        after = given.sources if isinstance(given, Sum) else []
        return self.calls(workers, method, given, [(*args, *after) for args in own])

    def sum_to_all(self, workers: list[Any], given: Any, refs: list[Any]) -> Sum:
        first = phalanx.ray.put(given) if isinstance(given, np.ndarray) else given.ref if isinstance(given, Sum) else given
        return Sum([first, *refs], phalanx.ray.client().ref())

    def wait(self, refs: list[Any], k: int) -> tuple[list[Any], list[Any]]:
        # By Ray's refs of the tasks, since a wait for objects of Phalanx brings them here.
        of_task = {ref.task: ref for ref in refs}
        ready, left = _waited(list(of_task), k)
        return [of_task[task] for task in ready], [of_task[task] for task in left]

    def get(self, refs: Any) -> Any:
        return phalanx.ray.get(refs, LIMIT_S)


class ByRay(_Transport):
    """Every worker fetches from the driver's host, which fetches the results as they come, and adds them up."""

    name = "ray"

    def put(self, value: np.ndarray) -> Any:
        return ray.put(value) if value.nbytes > INLINE_BYTES else value

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        return getattr(worker, method).remote(*args)

    def first(self, refs: list[Any], k: int) -> tuple[np.ndarray, list[Any]]:
        total, came, left = None, [], refs
        while len(came) < k:
            ready, left = _waited(left, 1, fetch=True)  # the others are on their way meanwhile
            values = ray.get(ready[0])
            total = values.copy() if total is None else np.add(total, values, out=total)
            came += ready
        return total, came

    def calls_to_sum(self, workers: list[Any], method: str, given: Any, own: list[tuple[Any, ...]]) -> list[Any]:
        n = len(workers)
        return [
            worker.__ray_call__.options(num_returns=n).remote(_in_parts, n, method, given, *args)
            for worker, args in zip(workers, own)
        ]

    def sum_to_all(self, workers: list[Any], given: Any, refs: list[Any]) -> Parts:
        whole = ray.get(given) if isinstance(given, ray.ObjectRef) else given
        first = whole.refs if isinstance(whole, Parts) else [ray.put(part) for part in np.array_split(whole, len(workers))]
        columns = zip(workers, first, *refs)
        return Parts([worker.__ray_call__.remote(_sum_of_part, *column) for worker, *column in columns])

    def wait(self, refs: list[Any], k: int) -> tuple[list[Any], list[Any]]:
        refs = [ref[0] if isinstance(ref, list) else ref for ref in refs]  # the parts of a call exist together
        return _waited(refs, k)

    def get(self, refs: Any) -> Any:
        return ray.get(refs, timeout=LIMIT_S)


def _have(*_: Any) -> bool:
    return True


@ray.remote
class _Adder:
    """A process of a worker's host: a task would start one in the midst of the sum, since Ray ends those that are idle for a second."""

    def add(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one + other


class ByRayTrees(ByRay):
    """Doubling waves of receivers, and a tree of actors that add up: the fastest ways of Ray's store in benchmarks/ray."""

    name = "ray"

    def __init__(self, workers: list[Any]) -> None:
        super().__init__(workers)
        self._host = {worker: index for index, worker in enumerate(workers)}
        self._adders = [_Adder.options(**place_of(index, share=0.001)).remote() for index in range(len(workers))]
        ray.get([adder.add.remote(0, 0) for adder in self._adders], timeout=LIMIT_S)  # they have started
        self._made_on: dict[bytes, int] = {}  # of each result that was not read yet: the host

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        ref = super().call(worker, method, *args)
        self._made_on[ref.binary()] = self._host[worker]
        return ref

    def spread(self, workers: list[Any], given: Any) -> None:
        wave, size, left = [], 1, list(workers) if isinstance(given, ray.ObjectRef) else []
        while left:
            # Small results, which exist as soon as the workers' hosts have it: the next wave waits for them.
            wave = [worker.__ray_call__.remote(_have, given, *wave) for worker in left[:size]]
            left, size = left[size:], 2 * size

    def first(self, refs: list[Any], k: int) -> tuple[np.ndarray, list[Any]]:
        came, _ = self.wait(refs, k)
        level = [(self._made_on.pop(ref.binary()), ref) for ref in came]
        while len(level) > 1:
            pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
            level = [(pair[0][0], self._sum_of(pair)) for pair in pairs]
        return ray.get(level[0][1], timeout=LIMIT_S), came

    def get(self, refs: Any) -> Any:
        for ref in refs if isinstance(refs, list) else [refs]:
            self._made_on.pop(ref.binary(), None)
        return super().get(refs)

    def _sum_of(self, pair: list[tuple[int, Any]]) -> Any:
        """Return the ref of the sum, which is made on the host of the first."""
        (host, ref), *other = pair
        if not other:
            return ref
        return self._adders[host].add.remote(ref, other[0][1])
