"""Small objects from Python on three nodes of this machine: steps of training, many gets, and 1 MB from node to node.

    small.py --trials 9 --json out.json

- allreduce: six processes, two at each node, each put a dict of six float32 arrays (31 KB), add all six up by `allreduce`, and delete
  their objects of the step before, as examples/python/data_parallel.py does. "quick": with dtype= for allreduce and exist_ok=True for
  put, which spare a message to the directory and back each. Peer: each process sends its dict through a pipe of multiprocessing to one
  further process, which adds them up and sends the sum back.
- gets: 10,000 refs to arrays of 1 KiB in one call and in a loop, on the node that has them and on another one, which has no copy. Peer:
  the same values from a multiprocessing.Manager's dict, in one call and, a thousand of them, in a loop.
- megabyte: an array of 1 MB that another node has, one at a time. Peer: the array through a socket of the loopback to a process that
  sends it on request, pickled.

Each trial does the work and its peer in turn; which goes first alternates. Results are verified after the clock has stopped.
Times are those of one process around its own calls.
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import pickle
import signal
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Client as Socket
from multiprocessing.connection import Listener
from multiprocessing.managers import SyncManager

import numpy as np
import phalanx
import phalanx._native

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from clusters import Cluster  # noqa: E402
from emulated_hosts import Loopback  # noqa: E402

NODES = 3
RANKS = 6
LAYERS = {"w1": (64, 64), "b1": (64,), "w2": (64, 50), "b2": (50,), "w3": (50, 6), "b3": (6,)}
REFS = 10_000
LOOPED_PEER = 1_000
SMALL_FLOATS = 256
MEGABYTE_FLOATS = 250_000
WARM_UP_STEPS = 30


def gradients(rank, seed):
    """Small whole numbers, whose sum is exact in any order."""
    return {name: np.full(shape, rank + seed + i, np.float32) for i, (name, shape) in enumerate(LAYERS.items())}


def check_sum(got, seed):
    for name, wanted in gradients(0, 0).items():
        if not np.array_equal(got[name], wanted * RANKS + (sum(range(RANKS)) + RANKS * seed)):
            raise SystemExit("a sum was wrong")


def check_small(got):
    if not all(array.shape == (SMALL_FLOATS,) and array[0] == i and array[-1] == i for i, array in enumerate(got)):
        raise SystemExit("some bytes were wrong")


def small_arrays():
    return [np.full(SMALL_FLOATS, i, np.float32) for i in range(REFS)]


# ---- the processes


class Worker:
    """A process with a client of one node, and a pipe to the process that adds up. Its methods are called by name."""

    def __init__(self, address, rank, pipe):
        self.client = phalanx.Client(address, timeout=120)
        self.rank, self.pipe = rank, pipe
        self.held = []

    def steps(self, job, count, quick):
        """Seconds of each step through the store."""
        client, rank, each = self.client, self.rank, []

        def named(*parts):
            return phalanx.ObjectRef.from_name("/".join([job, *map(str, parts)]))

        for step in range(WARM_UP_STEPS + count):
            mine = gradients(rank, step)
            start = time.perf_counter()
            sources = [named("gradient", step, worker) for worker in range(RANKS)]
            client.put(mine, sources[rank], exist_ok=quick)
            total = client.allreduce(sources, "sum", ref=named("sum", step), dtype=mine if quick else None)
            if step > 0:
                client.delete(named("gradient", step - 1, rank))
                if rank == 0:
                    client.delete(named("sum", step - 1))
            each.append(time.perf_counter() - start)
            check_sum(total, step)
        return each[WARM_UP_STEPS:]

    def peer_steps(self, count):
        """Seconds of each step through the process that adds up."""
        each = []
        for step in range(WARM_UP_STEPS + count):
            mine = gradients(self.rank, step)
            start = time.perf_counter()
            self.pipe.send(mine)
            total = self.pipe.recv()
            each.append(time.perf_counter() - start)
            check_sum(total, step)
        return each[WARM_UP_STEPS:]

    def put_small(self):
        self.held = [self.client.put(array) for array in small_arrays()]
        return self.held

    def put_megabytes(self, count):
        self.held = [self.client.put(np.full(MEGABYTE_FLOATS, i, np.float32)) for i in range(count)]
        return self.held

    def clear(self):
        self.held = []

    def get_list(self, refs):
        start = time.perf_counter()
        got = self.client.get(refs)
        took = time.perf_counter() - start
        check_small(got)
        return [took]

    def get_loop(self, refs):
        get = self.client.get
        start = time.perf_counter()
        got = [get(ref) for ref in refs]
        took = time.perf_counter() - start
        check_small(got)
        return [took]

    def get_megabytes(self, refs):
        each = []
        for i, ref in enumerate(refs):
            start = time.perf_counter()
            array = self.client.get(ref)
            each.append(time.perf_counter() - start)
            if not (array == i).all():
                raise SystemExit("some bytes were wrong")
            del array
        return each


def serve(address, rank, pipe, commands):
    worker = Worker(address, rank, pipe)
    with worker.client:
        while (request := commands.recv()) is not None:
            commands.send(getattr(worker, request[0])(*request[1:]))


def add_up(pipes):
    """The peer of allreduce: receives a dict from each pipe, and sends the sum to each."""
    with contextlib.suppress(EOFError):
        while True:
            total = pipes[0].recv()
            for pipe in pipes[1:]:
                for name, array in pipe.recv().items():
                    total[name] += array
            for pipe in pipes:
                pipe.send(total)


def send_megabytes(commands):
    """The peer of a get from another node: sends an array for each request."""
    with Listener(("127.0.0.1", 0)) as listener:
        commands.send(listener.address)
        with listener.accept() as socket, contextlib.suppress(EOFError):
            while True:
                i = socket.recv()
                socket.send_bytes(pickle.dumps(np.full(MEGABYTE_FLOATS, i, np.float32), protocol=5))


class Store(dict):
    """The values of the peer of gets, in the manager's process."""

    def many(self, keys):
        return [self[key] for key in keys]


class Manager(SyncManager):
    pass


Manager.register("Store", Store, exposed=("many", "__getitem__", "update"))


class Workers:
    """The processes of a run, and the requests to them."""

    def __init__(self, cluster):
        self._context = multiprocessing.get_context("spawn")
        self._processes, self.commands, pipes = [], [], []
        for rank in range(RANKS):
            ours, theirs = self._context.Pipe()
            pipe, other = self._context.Pipe()
            pipes.append(other)
            self.commands.append(ours)
            self._start(serve, f"unix:{cluster.socket(rank % NODES)}", rank, pipe, theirs)
            pipe.close()
            theirs.close()
        self._start(add_up, pipes)
        for pipe in pipes:
            pipe.close()

    def _start(self, function, *arguments):
        process = self._context.Process(target=function, args=arguments)
        process.start()
        self._processes.append(process)

    def megabytes(self):
        """Starts the process that sends megabytes; returns a socket to it."""
        ours, theirs = self._context.Pipe()
        self._start(send_megabytes, theirs)
        return Socket(ours.recv())

    def do(self, rank, *request):
        self.commands[rank].send(request)
        return self.commands[rank].recv()

    def all_do(self, *request):
        for pipe in self.commands:
            pipe.send(request)
        return [pipe.recv() for pipe in self.commands]

    def close(self):
        for pipe in self.commands:
            with contextlib.suppress(BrokenPipeError):
                pipe.send(None)
        for process in self._processes:
            process.join()


# ---- the works: each has a function for Phalanx and one for the peer, which return seconds by name


class Works:
    def __init__(self, workers, manager, socket, arguments):
        self.workers, self.manager, self.socket, self.arguments = workers, manager, socket, arguments
        self.jobs = 0
        self.stored = None

    def allreduce(self):
        self.jobs += 1
        return {f"step of allreduce{', quick' * quick}":
                self.workers.all_do("steps", f"job{self.jobs}-{quick}", self.arguments.steps, quick)[0] for quick in (False, True)}

    def allreduce_peer(self):
        each = self.workers.all_do("peer_steps", self.arguments.steps)[0]
        return {"step of allreduce": each, "step of allreduce, quick": each}

    def gets(self):
        workers = self.workers
        refs = workers.do(0, "put_small")
        times = {"get of a list, own node": workers.do(0, "get_list", refs)}
        times["loop of gets, own node"] = workers.do(0, "get_loop", refs)
        # Workers 1 and 2 are at the other two nodes, which have no copy before.
        times["get of a list, other node"] = workers.do(1, "get_list", refs)
        times["loop of gets, other node"] = workers.do(2, "get_loop", refs)
        times["get of a list, there by now"] = workers.do(1, "get_list", refs)
        workers.do(0, "clear")
        return times

    def gets_peer(self):
        if self.stored is None:
            self.stored = self.manager.Store()
            self.stored.update(dict(enumerate(small_arrays())))
        start = time.perf_counter()
        got = self.stored.many(range(REFS))
        listed = time.perf_counter() - start
        check_small(got)
        start = time.perf_counter()
        for i in range(LOOPED_PEER):
            self.stored[i]
        looped = (time.perf_counter() - start) * REFS / LOOPED_PEER
        return {f"{one} of {what}, {node} node": [seconds] for node in ("own", "other")
                for one, what, seconds in (("get", "a list", listed), ("loop", "gets", looped))}

    def megabyte(self):
        refs = self.workers.do(0, "put_megabytes", self.arguments.megabytes)
        times = self.workers.do(1, "get_megabytes", refs)
        self.workers.do(0, "clear")
        return {"1 MB from another node": times}

    def megabyte_peer(self):
        each = []
        for i in range(self.arguments.megabytes):
            start = time.perf_counter()
            self.socket.send(i)
            array = pickle.loads(self.socket.recv_bytes())
            each.append(time.perf_counter() - start)
            if not (array == i).all():
                raise SystemExit("some bytes were wrong")
        return {"1 MB from another node": each}


NAMES = ("allreduce", "gets", "megabyte")


def measure(arguments):
    """Returns the seconds of each call by work: of both sides, a list per trial."""
    ours, theirs = {}, {}
    settings = argparse.Namespace(shards=1, node_flags="", logs=None, binary=phalanx._native.EXECUTABLE)
    with (tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder,
          Cluster(Loopback(NODES), settings, folder) as cluster,
          contextlib.closing(Workers(cluster)) as workers,
          Manager(ctx=multiprocessing.get_context("spawn")) as manager,
          workers.megabytes() as socket):
        works = Works(workers, manager, socket, arguments)
        for number in range(-1, arguments.trials):
            for name in arguments.works.split(","):
                sides = [(ours, name), (theirs, f"{name}_peer")]
                for found, method in sides if number % 2 else sides[::-1]:
                    for work, each in getattr(works, method)().items():
                        if number >= 0:  # the first trial warms up
                            found.setdefault(work, []).append(each)
    return [{"work": work, "phalanx_s": trials, "peer_s": theirs.get(work)} for work, trials in ours.items()]


def milliseconds(trials):
    medians = [statistics.median(each) for each in trials]
    every = sorted(seconds for each in trials for seconds in each)
    tail = f"p99 {every[int(len(every) * 0.99)] * 1e3:.3g}" if len(every) >= 200 else ""
    return f"{statistics.median(medians) * 1e3:.3g} ({min(medians) * 1e3:.3g}, {max(medians) * 1e3:.3g}) {tail}"


def report(measured):
    print(f"{'work, ms':30} {'phalanx':32} {'peer':32} phalanx/peer")
    for each in measured:
        ours, theirs = each["phalanx_s"], each["peer_s"]
        pairs = [statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs or [])]
        print(f"{each['work']:30} {milliseconds(ours):32} {milliseconds(theirs) if theirs else '-':32} "
              f"{f'{statistics.median(pairs):.2f}' if pairs else '-'}")
    print(f"load average at the end: {pathlib.Path('/proc/loadavg').read_text().split()[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default=",".join(NAMES), help=", ".join(NAMES))
    parser.add_argument("--trials", type=int, default=9, help="after one that warms up (9)")
    parser.add_argument("--steps", type=int, default=200, help="of allreduce in a trial (200)")
    parser.add_argument("--megabytes", type=int, default=100, help="arrays in a trial (100)")
    parser.add_argument("--json", metavar="FILE", help="write the seconds of each call there")
    arguments = parser.parse_args()
    measured = measure(arguments)
    report(measured)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit through the handlers that clean up
    main()
