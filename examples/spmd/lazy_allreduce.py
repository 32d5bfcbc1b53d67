"""An input that takes long is computed only if a call needs it: not if its result is kept.

    phalanx launch -n 3 --restarts 1 --fail 1@4 -- python lazy_allreduce.py

The next life of rank 1 repeats two calls without their inputs, and makes the third one, in which it died.
"""

import numpy as np

import phalanx.spmd

CALLS = 3

with phalanx.spmd.join() as session:
    session.load()
    prepared: list[int] = []

    def prepare() -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        prepared.append(session.seq)
        return np.full(4, session.rank * 10**session.seq)

    for _ in range(CALLS):
        total = session.allreduce(prepare=prepare, shape=4, dtype="i8")
    print(f"rank {session.rank}, life {session.life}: prepared calls {prepared}, the last sum is {total[0]}", flush=True)
