"""The ranks of a job sum a vector in each of five rounds. Each keeps the totals as its model.

    phalanx launch -n 3 --restarts 2 --fail 1@4 -- python basic.py

The death of rank 1 in its fourth call changes nothing of what is printed last.
"""

import numpy as np

import phalanx.spmd

ROUNDS = 5

with phalanx.spmd.join() as session:
    version, totals = session.load()
    if version == 0:
        totals = []
    if session.life > 0:
        print(f"life {session.life} goes on from version {version}", flush=True)
    while session.version < ROUNDS:
        total = session.allreduce(np.arange(3) + session.rank + session.version)
        totals.append(int(total.sum()))
        session.checkpoint(totals)
    print(f"rank {session.rank}:", *totals, flush=True)
