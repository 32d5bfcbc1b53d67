"""A steady light load without faults, for any length of time. Reports memory, descriptors and latency
for each minute.

    scripts/bazel run //tests/process:soak -- --seconds=3600

Four nodes, two shards. In each round a client at every node puts an object and then gets its
neighbour's; the objects of 50 rounds ago are deleted. Every byte is checked. Exits with 1 if a call
fails, a daemon ends, or a daemon has more memory of its own or more descriptors at the end than after
the warm-up.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

from tests.process.harness import Cluster, environment, own_bytes, tied

LOAD = os.path.abspath("tests/process/soak_load")
NODES = 4
SHARDS = 2
CAPACITY = "1GiB"
LIVE = 50
SIZES = (100, 1000, 10000, 100000, 1 << 20, 100, 1000, 30000, 300000, 4 << 20)
MINUTE_S = 60
WARM_UP_MINUTES = 5
MEMORY_SLACK = 8 << 20
DESCRIPTOR_SLACK = 4
# The limit for the answers of a round.
STUCK_S = 600


class Load:
    def __init__(self, cluster, node):
        self.log = open(cluster.path(f"load-{node}.log"), "wb")
        self.process = subprocess.Popen(
            tied(LOAD, cluster.nodes[node].client_address), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.log, text=True, env=environment(),
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a client ended with {self.process.wait()}: see {self.log.name}")
        verb, micros = line.split()
        return verb, float(micros)

    def close(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            pipe.close()


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class Soak:
    def __init__(self, seconds, interval):
        self.seconds, self.interval = seconds, interval
        self.cluster = Cluster()
        self.never = threading.Event()
        self.loads = []
        self.round = 0
        self.latencies = {}
        # One per minute: daemon -> (bytes, descriptors).
        self.minutes = []

    def start(self):
        self.cluster.start_shards(SHARDS)
        self.cluster.start_nodes(NODES, capacity=CAPACITY)
        self.loads = [Load(self.cluster, name) for name in sorted(self.cluster.nodes)]

    def daemons(self):
        named = {f"s{index}": shard for index, shard in enumerate(self.cluster.shards)}
        return {**named, **self.cluster.nodes}

    def everybody(self, line_of):
        for index, load in enumerate(self.loads):
            load.ask(line_of(index))
        for load in self.loads:
            verb, micros = load.answer()
            self.latencies.setdefault(verb, []).append(micros)

    def do_round(self):
        size = SIZES[self.round % len(SIZES)]
        first = self.round * NODES
        self.everybody(lambda index: f"put {first + index} {size}")
        self.everybody(lambda index: f"get {first + (index + 1) % NODES} {size}")
        if self.round >= LIVE:
            old = (self.round - LIVE) * NODES
            self.everybody(lambda index: f"rm {old + index}")
        self.round += 1

    def note(self):
        holdings = {}
        for name, daemon in self.daemons().items():
            if daemon.process.poll() is not None:
                raise RuntimeError(f"{name} ended with {daemon.process.returncode}: {daemon.log()[-2000:]}")
            holdings[name] = (own_bytes(daemon.pid), len(os.listdir(f"/proc/{daemon.pid}/fd")))
        self.minutes.append(holdings)
        columns = [f"{len(self.minutes):4}", f"{self.round:7}"]
        for verb in ("put", "get", "rm"):
            values = self.latencies.get(verb, [])
            columns += [f"{percentile(values, share) / 1000:9.2f}" for share in (0.5, 0.99)]
        for kind in ("n", "s"):
            mine = [held for name, held in holdings.items() if name[0] == kind]
            columns.append(f"{max(held[0] for held in mine) / (1 << 20):8.1f}")
            columns.append(f"{max(held[1] for held in mine):5}")
        print(" ".join(columns), flush=True)
        self.latencies = {}

    def run(self):
        self.start()
        print("minute, rounds; ms of put (median, 99 %), get, rm; most MiB and descriptors of a node, of a shard")
        begun = time.monotonic()
        # A call that hangs is ended here, and counts as failed.
        while time.monotonic() - begun < self.seconds and not self.never.wait(self.interval):
            guard = threading.Timer(STUCK_S, self.kill_loads)
            guard.start()
            self.do_round()
            guard.cancel()
            if time.monotonic() - begun > MINUTE_S * (len(self.minutes) + 1):
                self.note()

    def kill_loads(self):
        for load in self.loads:
            load.process.kill()

    def grown(self):
        """Return the daemons that have more memory or descriptors than after the warm-up."""
        if len(self.minutes) <= WARM_UP_MINUTES:
            return []
        found = []
        for name, (memory, descriptors) in self.minutes[-1].items():
            most = max(minute[name][0] for minute in self.minutes[:WARM_UP_MINUTES])
            most_descriptors = max(minute[name][1] for minute in self.minutes[:WARM_UP_MINUTES])
            if memory > most + MEMORY_SLACK:
                found.append(f"{name}: {most >> 10} KiB of its own memory became {memory >> 10}")
            if descriptors > most_descriptors + DESCRIPTOR_SLACK:
                found.append(f"{name}: {most_descriptors} descriptors became {descriptors}")
        return found

    def close(self):
        for load in self.loads:
            load.close()
        self.cluster.close()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--interval", type=float, default=0.1, help="seconds between rounds")
    options = parser.parse_args(arguments)
    soak = Soak(options.seconds, options.interval)
    try:
        soak.run()
        found = soak.grown()
    finally:
        soak.close()
    for line in found:
        print(f"VIOLATION {line}")
    print(f"{soak.round} rounds, {2 * NODES * soak.round} objects put and got, each seen whole")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
