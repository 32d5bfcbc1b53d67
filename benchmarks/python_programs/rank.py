"""A rank of the package on its host. It reads one command per line and answers when the command is done.

    rank.py --address unix:SOCKET --rank 3 --world 8

"clear" deletes the objects of the last run; the answer is "clear". "prepare OP NUMBER SIZE" puts the inputs; the answer is
"ready". "go INSTANT" starts the operation at that instant of CLOCK_MONOTONIC; the answer is the instant of its end. "check"
verifies every number; the answer is the result. It is a separate command, so that it does not delay ranks that still work.
"""

import argparse
import sys
import time

import numpy as np
import phalanx

ARRAYS = 60
# The parts of a state dict have different lengths, as in a model.
WEIGHTS = [1 + i % 7 for i in range(ARRAYS)]


def floats(rank, count, seed):
    """Returns small whole numbers, so that every order of adding gives the same floats."""
    period = (np.arange(1021, dtype=np.int64) * (rank + 3) + seed) % 97
    return np.resize(period.astype(np.float32), count)


def state_dict(rank, size, seed):
    count = size // 4
    ends = np.cumsum(WEIGHTS) * count // sum(WEIGHTS)
    starts = [0, *ends[:-1]]
    return {f"layer{i}.weight": floats(rank, end - start, seed + i) for i, (start, end) in enumerate(zip(starts, ends))}


class Rank:
    def __init__(self, client, rank, world):
        self.client, self.rank, self.world = client, rank, world
        self.held = []

    def clear(self):
        """Drops everything of the last run, so that nodes reuse its memory."""
        if self.rank == 0 and self.held and self.op == "allreduce":
            self.held.append(self.result)
        self.client.delete(self.held)
        self.held.clear()

    def prepare(self, op, number, size):
        self.op, self.number, self.size = op, number, size
        names = [f"{op}-{number}-{rank}" for rank in range(self.world)]
        self.refs = [self.client.ref(name) for name in names]
        self.result = self.client.ref(f"{op}-{number}-result")
        if op == "broadcast" and self.rank == 0:
            self.held.append(self.client.put(floats(0, size // 4, number), ref=self.refs[0]))
        if op == "allreduce":
            self.held.append(self.client.put(state_dict(self.rank, size, number), ref=self.refs[self.rank]))

    def go(self, instant):
        while (left := instant - time.monotonic()) > 0:
            time.sleep(left)
        if self.op == "broadcast":
            self.got = self.client.get(self.refs[0]) if self.rank else None
        else:
            self.got = self.client.allreduce(self.refs, "sum", ref=self.result)
        return time.monotonic()

    def right(self):
        got, self.got = self.got, None
        if self.op == "broadcast":
            return self.rank == 0 or np.array_equal(got, floats(0, self.size // 4, self.number))
        all_ranks = [state_dict(rank, self.size, self.number) for rank in range(self.world)]
        return all(np.array_equal(got[name], sum(each[name] for each in all_ranks)) for name in all_ranks[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    arguments = parser.parse_args()
    with phalanx.Client(arguments.address, timeout=120) as client:
        rank = Rank(client, arguments.rank, arguments.world)
        for line in sys.stdin:
            what, *rest = line.split()
            if what == "clear":
                rank.clear()
                print("clear", flush=True)
            elif what == "prepare":
                rank.prepare(rest[0], int(rest[1]), int(rest[2]))
                print("ready", flush=True)
            elif what == "go":
                print(rank.go(float(rest[0])), flush=True)
            else:
                print(int(rank.right()), flush=True)


if __name__ == "__main__":
    main()
