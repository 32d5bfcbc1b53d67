"""The driver of one Ray cluster with an actor on every host: the same work by Ray's store and by phalanx.ray, in turn.

    under_ray.py --world 8 --hosts 10.77.0.1,... --plan PLAN --output RECORDS

A line of the plan is an op, a size, the number of runs that do not count, of those that do, and ways. Each run does the op once in
every way: one of ray_tasks.py, with "ray:" before its name, or one of class Phalanx. Times are measured by the driver, from the call to the last answer, and include calls of actors, as for every user
of Ray; inputs are put before the start. Every byte is verified after the clock has stopped. CPU seconds are those of the whole
machine during the run.
"""

import functools
import sys
import time

import ray
from ray.util import collective

import phalanx.ray
from benchmarks.peer_programs import ray_tasks
from benchmarks.peer_programs.ray_tasks import is_sum, machine_cpu_seconds, values

GROUP = "allreduce"


@ray.remote(num_cpus=0)
class Host:
    """The actor of one host, with Phalanx."""

    def __init__(self, rank):
        self.rank = rank
        self.forget()

    def ready(self):
        return phalanx.ray.client().node

    def forget(self):
        self.held = self.got = self.buffer = None

    def hold(self, count, seed):
        self.held = phalanx.ray.put(values(self.rank, count, seed))
        return self.held

    @phalanx.ray.method
    def tensor(self, count, seed):
        return values(self.rank, count, seed)

    def fetch(self, ref):
        self.got = phalanx.ray.get(ref)

    def take(self, tensor):
        self.got = tensor

    def fill(self, count, seed):
        self.buffer = values(self.rank, count, seed)

    def allreduce(self):
        collective.allreduce(self.buffer, GROUP)
        self.got = self.buffer

    def holds(self, ranks, count, seed):
        """Returns whether what it got is the sum of these ranks' floats."""
        return is_sum(self.got, ranks, count, seed)


class Phalanx:
    """The same ops as ray_tasks.Driver: each returns its seconds and a function that verifies the result."""

    def __init__(self, world):
        self.hosts = [Host.options(resources={f"host{rank}": 1}).remote(rank) for rank in range(world)]
        ray.get([host.ready.remote() for host in self.hosts])
        self.everybody = list(range(world))
        collective.create_collective_group(self.hosts, world, self.everybody, backend="phalanx", group_name=GROUP)

    def broadcast(self, way, count, seed):
        root, others = self.hosts[0], self.hosts[1:]
        if way == "refs":
            given = ray.get(root.hold.remote(count, seed))
            step = [functools.partial(host.fetch.remote, given) for host in others]
        else:
            given = root.tensor.remote(count, seed)
            ray.wait([given], fetch_local=False)
            step = [functools.partial(host.take.remote, given) for host in others]
        seconds = self._timed(step)
        return seconds, functools.partial(self._all_hold, others, [0], count, seed)

    def reduce(self, _, count, seed):
        refs = ray.get([host.hold.remote(count, seed) for host in self.hosts])
        start = time.perf_counter()
        total = phalanx.ray.reduce(refs, dtype="float32").get()
        seconds = time.perf_counter() - start
        return seconds, lambda: is_sum(total, self.everybody, count, seed)

    def allreduce(self, way, count, seed):
        if way == "group":
            ray.get([host.fill.remote(count, seed) for host in self.hosts])
            seconds = self._timed([host.allreduce.remote for host in self.hosts])
        else:
            refs = ray.get([host.hold.remote(count, seed) for host in self.hosts])
            start = time.perf_counter()
            total = phalanx.ray.reduce(refs, dtype="float32", root="any")
            ray.get([host.fetch.remote(total) for host in self.hosts])
            seconds = time.perf_counter() - start
        return seconds, functools.partial(self._all_hold, self.hosts, self.everybody, count, seed)

    def forget(self):
        ray.get([host.forget.remote() for host in self.hosts])

    def _timed(self, calls):
        start = time.perf_counter()
        ray.get([call() for call in calls])
        return time.perf_counter() - start

    def _all_hold(self, hosts, ranks, count, seed):
        return all(ray.get([host.holds.remote(ranks, count, seed) for host in hosts]))


def run_step(sides, op, size, warmup, runs, ways):
    """Returns a record for each way, whose runs took turns."""
    made = {way: {"each_s": [], "cpu_s": [], "verified": True} for way in ways}
    for number in range(warmup + runs):
        # Each way comes first in turn.
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            record = made[way]
            side, _, name = way.rpartition(":")
            before = machine_cpu_seconds()
            seconds, verify = getattr(sides[side], op)(name, size // 4, number)
            used = machine_cpu_seconds() - before
            record["verified"] = verify() and record["verified"]
            sides[side].forget()
            if number >= warmup:
                record["each_s"].append(seconds)
                record["cpu_s"].append(used)
    return [{"op": op, "algorithm": way, "size_bytes": size, **record} for way, record in made.items()]


def measured(world, lines):
    steps = [(op, int(size), int(warmup), int(runs), ways.split(",")) for op, size, warmup, runs, ways in map(str.split, lines)]
    wanted = {way.rpartition(":")[0] for *_, ways in steps for way in ways}
    sides = {side: make(world) for side, make in (("ray", ray_tasks.Driver), ("", Phalanx)) if side in wanted}
    for step in steps:
        yield from run_step(sides, *step)


def main():
    arguments = ray_tasks.parsed(__doc__)
    phalanx.ray.init(f"{arguments.first}:6379", _node_ip_address=arguments.first, log_to_driver=False, logging_level="error")
    ray_tasks.wait_for_hosts(arguments.world)
    sys.exit(ray_tasks.write(arguments, measured(arguments.world, arguments.steps)))


if __name__ == "__main__":
    main()
