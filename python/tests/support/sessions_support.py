"""Sessions whose ranks are threads with a client each. A rank that raises `Died` dies, and its next life runs the
program again."""

from __future__ import annotations

import concurrent.futures

import numpy as np

import phalanx
import phalanx.spmd

WORLD = 3
LIMIT_S = 60
# Sums of them depend on their order.
VALUES = np.array([1e8, 1, -1e8], np.float32)


class Died(Exception):
    pass


def run(client, job, body, world=WORLD, **options):
    """Run the body as each rank of a job, in threads, and return the results by rank."""
    options = {"peer_timeout": LIMIT_S, **options}

    def life(rank, own):
        with phalanx.spmd.join(job, f"worker{rank}", world=world, client=own, **options) as session:
            return body(session)

    def lives(rank):
        own = phalanx.Client(client.address)
        try:
            while True:
                try:
                    return life(rank, own)
                except Died:
                    pass
        finally:
            own.close()

    with concurrent.futures.ThreadPoolExecutor(world) as pool:
        return list(pool.map(lives, range(world)))


def same(arrays):
    """Return one of several arrays, of which all have the same bits."""
    assert len({(array.dtype.str, array.shape, array.tobytes()) for array in arrays}) == 1
    return arrays[0]
