"""Ray's object store as tasks use it: an actor on every host, the driver on the first. Steps and records are those of trial.h.

    ray_tasks.py --world 8 --hosts 10.77.0.1,... --plan PLAN --output RECORDS

Times are measured by the driver, from the call to the last answer. They include a call of an actor, as for every user of Ray.
The inputs are put before the start. Every byte is verified after the clock has stopped. CPU seconds are those of the whole
machine during the run.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import numpy as np
import ray

PERIOD = 1021
START_TIMEOUT_S = 120


def values(rank, count, seed):
    """Returns small whole numbers, so that every order of adding gives the same floats."""
    period = (np.arange(PERIOD, dtype=np.int64) * (rank + 3) + seed) % 97
    return np.resize(period.astype(np.float32), count)


def is_sum(array, ranks, count, seed):
    """Returns whether the array is the sum of these ranks' floats. Makes no array of that size: all hosts share this machine's memory."""
    period = sum(values(rank, PERIOD, seed) for rank in ranks)
    whole, rest = np.split(array, [count // PERIOD * PERIOD])
    return len(array) == count and bool((whole.reshape(-1, PERIOD) == period).all()) and np.array_equal(rest, period[:len(rest)])


@ray.remote(num_cpus=0)
class Host:
    """The actor of one host."""

    def __init__(self, rank):
        self.rank = rank
        self.held = []
        self.got = []

    def ready(self):
        return self.rank

    def hold(self, count, seed, parts):
        """Puts this rank's floats in parts, and returns their references."""
        self.held = [ray.put(part) for part in np.array_split(values(self.rank, count, seed), parts)]
        return self.held

    def get(self, references):
        self.got = ray.get(list(references))

    def sum_parts(self, references):
        return add_up(ray.get(list(references)))

    def holds(self, ranks, count, seed):
        """Returns whether the received parts, joined, are the sum of these ranks' floats."""
        return is_sum(self.got[0] if len(self.got) == 1 else np.concatenate(self.got), ranks, count, seed)

    def holds_each(self, count, seed):
        return all(np.array_equal(got, values(rank, count, seed)) for rank, got in enumerate(self.got))

    def forget(self):
        self.held, self.got = [], []


def add_up(arrays):
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total


@ray.remote(num_cpus=0)
def add(one, other):
    return one + other


class Driver:
    def __init__(self, world):
        self.world = world
        self.hosts = [Host.options(resources={f"host{rank}": 1}).remote(rank) for rank in range(world)]
        ray.get([host.ready.remote() for host in self.hosts])
        self.everybody = list(range(world))

    # Each op returns its seconds and a function that verifies the result.

    def broadcast(self, algorithm, count, seed):
        reference = ray.get(self.hosts[0].hold.remote(count, seed, 1))
        start = time.perf_counter()
        if algorithm == "waves":  # each wave doubles the number of hosts that have the object
            done = 1
            while done < self.world:
                ray.get([host.get.remote(reference) for host in self.hosts[done:2 * done]])
                done *= 2
        else:
            ray.get([host.get.remote(reference) for host in self.hosts[1:]])
        seconds = time.perf_counter() - start
        return seconds, lambda: all(ray.get([host.holds.remote([0], count, seed) for host in self.hosts[1:]]))

    def gather(self, _, count, seed):
        references = [part for each in self._hold(count, seed) for part in each]
        start = time.perf_counter()
        ray.get(self.hosts[0].get.remote(references))
        seconds = time.perf_counter() - start
        return seconds, lambda: ray.get(self.hosts[0].holds_each.remote(count, seed))

    def allgather(self, _, count, seed):
        references = [part for each in self._hold(count, seed) for part in each]
        start = time.perf_counter()
        ray.get([host.get.remote(references) for host in self.hosts])
        seconds = time.perf_counter() - start
        return seconds, lambda: all(ray.get([host.holds_each.remote(count, seed) for host in self.hosts]))

    def reduce(self, algorithm, count, seed):
        references = [part for each in self._hold(count, seed) for part in each]
        start = time.perf_counter()
        total = ray.get(self._tree(references)) if algorithm == "tree" else self._flat(references)
        seconds = time.perf_counter() - start
        return seconds, lambda: is_sum(total, self.everybody, count, seed)

    def allreduce(self, algorithm, count, seed):
        parts = self._hold(count, seed, self.world if algorithm == "scatter" else 1)
        start = time.perf_counter()
        if algorithm == "scatter":  # host i adds up part i, every host gets all parts
            result = [host.sum_parts.remote([each[i] for each in parts]) for i, host in enumerate(self.hosts)]
        elif algorithm == "tree":
            result = [self._tree([each[0] for each in parts])]
        else:
            result = [ray.put(self._flat([each[0] for each in parts]))]
        ray.get([host.get.remote(result) for host in self.hosts])
        seconds = time.perf_counter() - start
        return seconds, lambda: all(ray.get([host.holds.remote(self.everybody, count, seed) for host in self.hosts]))

    def _hold(self, count, seed, parts=1):
        return ray.get([host.hold.remote(count, seed, parts) for host in self.hosts])

    def _flat(self, references):
        """The driver adds the parts up as they arrive."""
        total, left = None, list(references)
        while left:
            ready, left = ray.wait(left, num_returns=1)
            array = ray.get(ready[0])
            total = array.copy() if total is None else np.add(total, array, out=total)
        return total

    def _tree(self, references):
        """A task for each pair, on the host of one of the two."""
        level = list(enumerate(references))
        while len(level) > 1:
            above = []
            for pair in (level[i:i + 2] for i in range(0, len(level), 2)):
                rank, reference = pair[0]
                if len(pair) > 1:
                    reference = add.options(resources={f"host{rank}": 0.001}).remote(reference, pair[1][1])
                above.append((rank, reference))
            level = above
        return level[0][1]

    def forget(self):
        ray.get([host.forget.remote() for host in self.hosts])


def bytes_moved(op, world, size):
    """The minimum of bytes that cross the network, as in trial.cc."""
    return {"allreduce": 2, "allgather": world}.get(op, 1) * (world - 1) * size


def machine_cpu_seconds():
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq = map(int, stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def run_step(driver, op, algorithm, size, warmup, runs):
    each, cpu, verified = [], 0, True
    for number in range(warmup + runs):
        before = machine_cpu_seconds()
        seconds, verify = getattr(driver, op)(algorithm, size // 4, number)
        used = machine_cpu_seconds() - before
        verified = verify() and verified
        driver.forget()
        if number >= warmup:
            each.append(seconds)
            cpu += used
    return {"op": op, "algorithm": algorithm, "size_bytes": size, "verified": verified,
            "cpu_s_per_gb": cpu / runs / bytes_moved(op, driver.world, size) * 1e9, "each_s": each}


def wait_for_hosts(world):
    deadline = time.monotonic() + START_TIMEOUT_S
    while sum(node["Alive"] for node in ray.nodes()) < world:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {sum(node['Alive'] for node in ray.nodes())} of {world} hosts have joined")
        time.sleep(0.1)


def parsed(description):
    """Returns the arguments of a driver, with the address of the first host as `first`, and the lines of the plan as `steps`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--output", required=True)
    arguments, _ = parser.parse_known_args()
    arguments.first = arguments.hosts.split(",")[0]
    arguments.steps = pathlib.Path(arguments.plan).read_text().splitlines()
    return arguments


def write(arguments, measured):
    """Writes each of the records as soon as it is there. Returns the exit status: 1 if some bytes were wrong."""
    right = True
    with open(arguments.output, "w", encoding="utf-8") as output:
        for record in measured:
            right = right and record["verified"]
            print(json.dumps(dict(record, world=arguments.world)), file=output, flush=True)
    return 0 if right else 1


def measured(driver, steps):
    for step in steps:
        op, algorithm, size, _, warmup, runs, _, _ = step.split()
        yield run_step(driver, op, algorithm, int(size), int(warmup), int(runs))


def main():
    arguments = parsed(__doc__)
    ray.init(address=f"{arguments.first}:6379", _node_ip_address=arguments.first, log_to_driver=False, logging_level="error")
    wait_for_hosts(arguments.world)
    sys.exit(write(arguments, measured(Driver(arguments.world), arguments.steps)))


if __name__ == "__main__":
    main()
