"""The root's values go to all ranks: any value that can be pickled.

    phalanx launch -n 3 --restarts 1 --fail 0@3 -- python broadcast.py

Only the first life of the root reads the time: calls before `load` are repeated in every life.
"""

import time

import numpy as np

import phalanx.spmd

with phalanx.spmd.join() as session:
    settings = session.broadcast({"began": time.time(), "seed": 7} if session.rank == 0 else None)
    session.load()
    assert len({each["began"] for each in session.allgather(settings)}) == 1

    # Each rank is the root of one round. A receiver needs no array.
    for root in range(session.world):
        numbers = np.random.default_rng(settings["seed"] + root).random(1000)
        received = session.broadcast(numbers if session.rank == root else None, root)
        assert (received == numbers).all()
    print(f"rank {session.rank} has received {session.world} broadcasts", flush=True)
