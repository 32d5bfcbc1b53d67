"""One process's trial of the package, or of Ray, on this machine alone: a fresh store, each work, seconds as JSON.

    one_node.py phalanx|ray --works put,get,small,refs --size 268435456

A work's seconds are those of the calls alone, as the caller sees them. Results are verified after the clock has stopped.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time

import numpy as np

SMALL_BYTES = 1024
SMALL_RUNS = 300
REFS = 10_000
WRITERS = 4
ROUNDS = 4


def values(size, seed=1):
    """Returns `size` bytes of small whole numbers, whose sum is exact in any order."""
    return np.resize(((np.arange(997) * 31 + seed) % 251).astype(np.float64), size // 8)


class Worker:
    """The operations of another process on refs."""

    def __init__(self, store):
        self.store = store
        self.held = None

    def put(self, size):
        """Returns the seconds of putting an array after the last one was freed."""
        self.held = None
        array = values(size)
        return timed(lambda: setattr(self, "held", self.store.put(array)))[0]

    def get(self, refs):
        """The seconds to get the one ref of the list, and then to get it and to sum it."""
        took, array = timed(lambda: self.store.get(refs[0]))
        return took, bool(np.array_equal(array, values(array.nbytes)))

    def get_and_sum(self, refs):
        took, total = timed(lambda: np.sum(self.store.get(refs[0])))
        return took, float(total)


def serve(pipe, address):
    """A worker of Phalanx in its own process."""
    import phalanx

    with phalanx.Client(address) as client:
        worker = Worker(client)
        while (request := pipe.recv()) is not None:
            pipe.send(getattr(worker, request[0])(*request[1:]))


class PhalanxWorker:
    def __init__(self, address):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, address))
        self._process.start()

    def do(self, *request):
        self._pipe.send(request)
        return self._pipe.recv()

    def close(self):
        self._pipe.send(None)
        self._process.join()


class Phalanx:
    def __init__(self, capacity):
        import phalanx

        self.client = phalanx.init(capacity=capacity)
        self.put, self.get = self.client.put, self.client.get

    def worker(self):
        return PhalanxWorker(self.client.address)

    def close(self):
        self.client.close()


class RayWorker:
    def __init__(self, ray):
        class Store:
            put = staticmethod(ray.put)
            get = staticmethod(ray.get)

        @ray.remote(num_cpus=0)
        class Actor:
            def __init__(self):
                self.worker = Worker(Store)

            def do(self, name, *arguments):
                return getattr(self.worker, name)(*arguments)

        self._ray, self._actor = ray, Actor.remote()
        self._ray.get(self._actor.do.remote("put", 8))

    def do(self, *request):
        return self._ray.get(self._actor.do.remote(*request))

    def close(self):
        self._ray.kill(self._actor)


class Ray:
    def __init__(self, capacity):
        import ray

        self.ray = ray
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", dir="/dev/shm")
        ray.init(num_cpus=os.cpu_count(), object_store_memory=capacity, include_dashboard=False, logging_level="error",
                 log_to_driver=False, _temp_dir=self._folder.name)
        self.put, self.get = ray.put, ray.get

    def worker(self):
        return RayWorker(self.ray)

    def close(self):
        self.ray.shutdown()
        self._folder.cleanup()


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def put(store, size):
    """The first Put of a fresh store, then further Puts, each after the last array was freed."""
    array, each = values(size), []
    for _ in range(1 + ROUNDS):
        took, ref = timed(lambda: store.put(array))
        del ref
        each.append(took)
    return {"first put": each[:1], "put": each[1:]}


def put_turns(store, size):
    """Several processes, one after the other; the first round does not count."""
    with contextlib.ExitStack() as stack:
        workers = [store.worker() for _ in range(WRITERS)]
        for worker in workers:
            stack.callback(worker.close)
        each = [worker.do("put", size) for _ in range(1 + ROUNDS) for worker in workers]
    return {f"put, {WRITERS} processes in turn": each[WRITERS:]}


def get(store, size):
    array, gets, sums = values(size), [], []
    total = float(np.sum(array))
    with contextlib.closing(store.worker()) as worker:
        for number in range(1 + ROUNDS):
            one, other = store.put(array), store.put(array)
            took, right = worker.do("get", [one])
            summed, answer = worker.do("get_and_sum", [other])
            if not right or answer != total:
                raise SystemExit("some bytes were wrong")
            if number:
                gets.append(took)
                sums.append(summed)
            del one, other
    return {"get in another process": gets, "get and sum in another process": sums}


def small(store, _):
    array, each = values(SMALL_BYTES), []
    for _ in range(SMALL_RUNS):
        took, got = timed(lambda: store.get(store.put(array)))
        if not np.array_equal(got, array):
            raise SystemExit("some bytes were wrong")
        each.append(took)
    return {"put and get of 1 KiB": each}


def refs(store, _):
    made = [store.put(values(SMALL_BYTES, seed)) for seed in range(REFS)]
    took, got = timed(lambda: store.get(made))
    if not all(np.array_equal(array, values(SMALL_BYTES, seed)) for seed, array in enumerate(got)):
        raise SystemExit("some bytes were wrong")
    return {"one get of 10,000 refs": [took]}


WORKS = {"put": put, "put_turns": put_turns, "get": get, "small": small, "refs": refs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=("phalanx", "ray"))
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--size", type=int, default=256 << 20)
    parser.add_argument("--files", type=int, help="as `ulimit -n`")
    arguments = parser.parse_args()
    if arguments.files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.files, arguments.files))
    with contextlib.closing({"phalanx": Phalanx, "ray": Ray}[arguments.side](12 * arguments.size)) as store:
        seconds = {}
        for work in arguments.works.split(","):
            seconds.update(WORKS[work](store, arguments.size))
    json.dump(seconds, sys.stdout)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit through the handlers that clean up
    main()
