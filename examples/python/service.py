"""A model behind a service: requests and answers are objects.

Request i of a client has the name ``JOB/request/CLIENT/i``, its answer ``JOB/answer/CLIENT/i``. The server awaits
the next request of every client in one event loop, and answers those that are there as one batch. A
client waits for its answer, or for the exception that the server raised.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from typing import Any

import numpy as np

import phalanx

CLIENTS, REQUESTS = 3, 20
FEATURES = 16
TIMEOUT_S = 30.0


def named(job: str, *parts: object) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name("/".join([job, *map(str, parts)]))


async def serve(client: phalanx.AsyncClient, job: str) -> list[int]:
    """Answer until every client has ended, and return the sizes of the batches."""
    weights = np.arange(FEATURES, dtype=np.float32)
    waiting: dict[asyncio.Task[Any], tuple[int, int]] = {}

    def expect(asker: int, number: int) -> None:
        request = client.get(named(job, "request", asker, number))
        waiting[asyncio.create_task(request)] = (asker, number)

    for asker in range(CLIENTS):
        expect(asker, 0)
    sizes = []
    while waiting:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        batch = {waiting.pop(task): task.result() for task in done}
        good = {}
        for (asker, number), inputs in batch.items():
            if inputs is None:  # this client has ended
                continue
            expect(asker, number + 1)
            if np.shape(inputs) == (FEATURES,):
                good[asker, number] = inputs
            else:
                error = ValueError(f"{FEATURES} numbers are expected, not {np.size(inputs)}")
                await client.set_exception(named(job, "answer", asker, number), error)
        if good:
            sizes.append(len(good))
            for key, output in zip(good, np.stack(list(good.values())) @ weights):
                await client.put(float(output), named(job, "answer", *key))
    return sizes


def ask(address: str, job: str, asker: int) -> None:
    """Make requests, one of them wrong, and check the answers."""
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        for number in range(REQUESTS):
            request, answer = named(job, "request", asker, number), named(job, "answer", asker, number)
            wrong = number == 5
            client.put(np.full(3 if wrong else FEATURES, number, np.float32), request)
            try:
                assert client.get(answer) == number * sum(range(FEATURES)) and not wrong
            except ValueError:
                assert wrong
            client.delete([request, answer] if not wrong else request)
        client.put(None, named(job, "request", asker, REQUESTS))


def main() -> int:
    client = phalanx.init(timeout=TIMEOUT_S)
    job = client.ref().hex()
    spawned = multiprocessing.get_context("spawn").Process
    clients = [spawned(target=ask, args=(client.address, job, i), daemon=True) for i in range(CLIENTS)]
    for process in clients:
        process.start()
    sizes = asyncio.run(serve(phalanx.AsyncClient.of(client), job))
    for process in clients:
        process.join()
    failed = sum(process.exitcode != 0 for process in clients)
    print(f"{sum(sizes)} requests answered in {len(sizes)} batches; clients that failed: {failed}")
    return 0 if sum(sizes) == CLIENTS * (REQUESTS - 1) and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
