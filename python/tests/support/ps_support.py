"""Parameter servers whose servers and workers are threads with a client each. One that raises `Died` dies, and its next
life runs the program again."""

from __future__ import annotations

import concurrent.futures
import contextlib

import numpy as np

import phalanx
import phalanx.ps
from phalanx import exceptions

SERVERS, WORKERS, KEYS, LIMIT_S = 2, 3, 11, 60


class Died(Exception):
    """The death of a server or worker; its next life waits for the event, if there is one."""

    def __init__(self, before_next_life=None):
        super().__init__()
        self.before_next_life = before_next_life


class Mortal:
    """Answers a request by the life of the server; the first life dies of it, unanswered."""

    def __init__(self, client, job, server, asked):
        self.client, self.job, self.server, self.asked = client, job, server, asked

    def __call__(self, request):
        server = self.server
        self.asked.append(server.life)
        if server.life == 0:
            # Of a life that has a next one nothing is heard. That one dies at once, and the life after it answers.
            with (
                contextlib.closing(phalanx.Client(self.client.address)) as own,
                phalanx.ps.server(self.job, f"server{server.rank}", server.servers, client=own) as second,
            ):
                assert (second.rank, second.life) == (server.rank, 1)
            server.stop()
        return f"life {server.life}".encode()


def run(client, job, serve, work, servers=SERVERS, workers=WORKERS):
    """Run `serve` for each server before it runs, and `work` for each worker; return the results of `work` by rank."""

    def server(rank, own):
        with phalanx.ps.server(job, f"server{rank}", servers, client=own, peer_timeout=LIMIT_S) as each:
            serve(each)
            try:
                each.run()
            except exceptions.CallCancelledError as error:
                raise Died() from error

    def worker(rank, own):
        with phalanx.ps.worker(job, f"worker{rank}", workers, client=own, peer_timeout=LIMIT_S) as each:
            return work(each)

    clients = [phalanx.Client(client.address) for _ in range(servers + workers)]

    def lives(life, rank, own):
        while True:
            try:
                return life(rank, own)
            except Died as died:
                if died.before_next_life is not None:
                    died.before_next_life.wait(LIMIT_S)

    with concurrent.futures.ThreadPoolExecutor(servers + workers) as pool, contextlib.ExitStack() as stack:
        for each in clients:
            stack.callback(each.close)
        serving = [pool.submit(lives, server, rank, clients[rank]) for rank in range(servers)]
        working = [pool.submit(lives, worker, rank, clients[servers + rank]) for rank in range(workers)]
        # The others would wait for one that has failed; without their clients they end.
        concurrent.futures.wait([*serving, *working], return_when=concurrent.futures.FIRST_EXCEPTION)
        first = next((each for each in [*working, *serving] if each.done() and each.exception()), None)
        if first is not None:
            first.result()
        return [each.result() for each in working]


@contextlib.contextmanager
def serving(client, job, **tables):
    """Serve these tables, of KEYS keys unless they say so, by one server, for workers that need not leave."""
    with (
        contextlib.closing(phalanx.Client(client.address)) as own,
        phalanx.ps.server(job, "server0", 1, client=own, peer_timeout=LIMIT_S) as server,
    ):
        for name, options in tables.items():
            server.table(name, **{"keys": KEYS, **options})
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.run)
            try:
                yield
            finally:
                server.stop()
            with contextlib.suppress(exceptions.CallCancelledError):
                running.result(LIMIT_S)


class Replay:
    """What a table with "bsp" has after each clock, computed by NumPy one element after the other."""

    def __init__(self, shape, dtype, update, **numbers):
        self.w, self.first, self.second = (np.zeros(shape, dtype) for _ in range(3))
        self._update = getattr(self, update)
        self._numbers = {name: np.dtype(dtype).type(value) for name, value in numbers.items()}

    def turn(self, pushes):
        """Make the clock of these pushes: (rows, values) in the order of workers, and of each one's pushes."""
        sums = np.zeros_like(self.w)
        touched = np.zeros(len(self.w), bool)
        for rows, values in pushes:
            sums[rows] += values
            touched[rows] = True
        self._update(touched, sums[touched], **self._numbers)

    def sum(self, at, g):
        self.w[at] += g

    def sgd(self, at, g, rate):
        self.w[at] -= rate * g

    def momentum(self, at, g, rate, momentum):
        self.first[at] = momentum * self.first[at] + g
        self.w[at] -= rate * self.first[at]

    def adagrad(self, at, g, rate, epsilon):
        self.first[at] += g * g
        self.w[at] -= rate * g / (np.sqrt(self.first[at]) + epsilon)

    def ftrl(self, at, g, rate, beta, l1, l2):
        squares = self.second[at] + g * g
        root = np.sqrt(squares)
        sigma = (root - np.sqrt(self.second[at])) / rate
        z = self.first[at] + (g - sigma * self.w[at])
        value = (np.copysign(l1, z) - z) / ((beta + root) / rate + l2)
        self.first[at], self.second[at] = z, squares
        self.w[at] = np.where(np.abs(z) <= l1, np.zeros_like(z), value)
