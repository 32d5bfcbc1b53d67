"""Twelve members of a group on four nodes make calls without end, with a pause of 20 ms in which they would compute.
Every 20 seconds something fails: a member or a node is killed or stopped, links break, or the directory restarts.

    scripts/bazel run //tests/process:group_chaos -- --seconds=1800 --seed=7
    scripts/bazel run //tests/process:group_chaos -- --seconds=1800 --seed=9 --on-loss=wait --least=0.9

The promises:
- every element of every result is the sum of one input of each of its members, of this call; all members have
  the same result, of the same members, and a member is in its own results;
- the calls that a life of a member makes have consecutive numbers, and no number of the job is left out;
- no call fails (unless the member itself counts as dead), and every call ends within its deadline;
- before the next fault all members are back, and no daemon has ended but the victims;
- with --on-loss=wait every result has all members;
- the job makes at least 97 % (--least) of the calls without faults.

What counts for the last one: a call counts when a member has its result. The rate without faults is measured in the
same run, beside each fault: in the last third of its interval, after all members are back. It is expected of the whole
interval, also of the time in which nothing can be known of a stopped or dead process (up to the lease of a second).
Without pauses (--pause-ms=0) other work of the machine changes the rate more than the faults do.

Exits with 0, or with 1 after a violation; then the logs of the daemons are kept.
"""

import argparse
import collections
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

from tests.process.chaos_network import Network
from tests.process.harness import BINARY, DEADLINE_S, Cluster, environment, own_bytes, tied
from tests.process.proxy import free_address

LOAD = os.path.abspath("tests/process/group_load")
NODES = 4
TASKS = 12
EACH = TASKS // NODES
ALL = 2**TASKS - 1
LEASE_S = 1
# The deadline of each call: longer than any fault and what follows it.
CALL_S = 15
# How many of the last calls are kept at least, for members that print theirs late.
KEPT_CALLS = 4000
RESTARTS = 1000000


class Violation(Exception):
    pass


class Calls:
    """What all members have printed. The readers of the launches and the driver share it.

    The lines of one member come in their order; those of two members, also of one call, come in any.
    """

    def __init__(self, least_members):
        self._least_members = least_members
        self._changed = threading.Condition()
        # By number: its set, its sum of salts, and the salts by rank.
        self._results = {}
        self._dropped = None  # the last call that was
        # By rank: its process, and the number of its last call; None before the first one of this life.
        self.processes, self._last = {}, {}
        self.violations, self.stopped, self.lives_over = [], set(), 0
        # When each call had its first result.
        self._times = []
        # The highest number of a call, its set, and the highest number of a call of all members.
        self.newest = self.members = self.newest_of_all = 0
        self.sums_proven = self.results = 0
        self.longest_s = 0.0

    def take(self, lines):
        now = time.monotonic()
        with self._changed:
            for line in lines:
                try:
                    self._take(now, line)
                except (ValueError, TypeError, LookupError):
                    self.violations.append(f"unexpected line: {line}")
            self._changed.notify_all()

    def _take(self, now, line):
        # "[worker3] R 5 4095 ..."
        name, kind, *words = line.split(" ")
        rank = int(name[len("[worker"):-1])
        if kind == "P":
            self.processes[rank], self._last[rank] = int(words[0]), None
            if int(words[1]) != rank:
                self.violations.append(f"worker{rank} has rank {words[1]}")
        elif kind == "R":
            self._take_result(now, rank, *map(int, words))
        elif kind == "O":
            self.lives_over += 1
            self._check_time(rank, int(words[0]), int(words[1]))
        elif kind == "E":
            self._take_failure(rank, int(words[0]), int(words[1]), " ".join(words[2:]))
        elif kind == "S":
            self.stopped.add(rank)
        else:
            self.violations.append(line)

    def _count(self, rank, number, micros):
        last, self._last[rank] = self._last[rank], number
        if last is not None and number != last + 1:
            self.violations.append(f"worker{rank}: call {number} came after {last}")
        self._check_time(rank, number, micros)

    def _check_time(self, rank, number, micros):
        self.longest_s = max(self.longest_s, micros / 1e6)
        if micros > CALL_S * 1e6:
            self.violations.append(f"worker{rank}: call {number} took {micros / 1e6:.1f} s")

    def _take_failure(self, rank, number, micros, text):
        self._count(rank, number, micros)
        self.violations.append(f"worker{rank}: call {number} failed: {text}")

    def _take_result(self, now, rank, number, members, total, own, micros):
        self.results += 1
        self._count(rank, number, micros)
        if number not in self._results:
            self._results[number] = (members, total, {})
            self._times.append(now)
            if number > self.newest:
                self.newest, self.members = number, members
            if members == ALL:
                self.newest_of_all = max(self.newest_of_all, number)
            if len(self._results) == 2 * KEPT_CALLS:
                self._drop_oldest(KEPT_CALLS)
        if members.bit_count() < self._least_members:
            self.violations.append(f"call {number} has only the members {members:012b} at worker{rank}")
        seen = self._results[number]
        if seen[:2] != (members, total):
            self.violations.append(f"call {number} has two results: {seen[:2]}, {(members, total)} at worker{rank}")
        seen[2][rank] = own

    def _drop_oldest(self, count):
        for number in sorted(self._results)[:count]:
            if self._dropped is not None and number != self._dropped + 1:
                self.violations.append(f"no member has printed a result between the calls {self._dropped} and {number}")
            self._drop(number)
            self._dropped = number

    def _drop(self, number):
        members, total, salts = self._results.pop(number)
        took_part = [rank for rank in range(TASKS) if members >> rank & 1]
        if not all(rank in salts for rank in took_part):
            return  # a member has died before it had this result
        self.sums_proven += 1
        if sum(salts[rank] for rank in took_part) != total:
            self.violations.append(f"call {number} of {took_part} is no sum of their inputs: {salts}, {total}")

    def drop_all(self):
        with self._changed:
            self._drop_oldest(len(self._results))

    def wait_for(self, condition, seconds):
        """Wait until `condition()` holds, and return whether it does."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def take_times(self, begin, end):
        """Return when the calls between these moments had their first results. Times before `end` are forgotten."""
        with self._changed:
            times, self._times = self._times, [at for at in self._times if at >= end]
        return [at for at in times if begin <= at < end]


class GroupChaos:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.cluster = Cluster()
        self.network = Network()
        self.never = threading.Event()
        self.calls = Calls(TASKS if options.on_loss == "wait" else 1)
        self.launches = []
        self.readers = []
        # Of each fault: its kind, calls, calls expected, the longest pause in s.
        self.measured = []
        self.listen, self.doors = {}, {}
        self.before = {}
        self.kinds = [
            ("member killed", self.kill_member),
            ("node killed, started again at once", lambda: self.kill_node(0)),
            ("node killed, away for two leases", lambda: self.kill_node(2 * LEASE_S)),
            ("node stopped, shorter than the lease", lambda: self.stop(self.node().pid, LEASE_S / 2)),
            ("node stopped, longer than the lease", lambda: self.stop(self.node().pid, 3 * LEASE_S)),
            ("member stopped", lambda: self.stop(self.member(), LEASE_S / 2)),
            ("links of two nodes cut", lambda: self.disturb("cut")),
            ("links of two nodes refused", lambda: self.disturb("refuse", LEASE_S / 2)),
            ("links of two nodes half-open", lambda: self.disturb("stall", LEASE_S / 2)),
            ("directory restarted", self.restart_directory),
        ]

    # ---- processes

    def start(self):
        self.cluster.start_shards(1, [f"--lease={LEASE_S}s"])
        for index in range(NODES):
            self.listen[f"n{index}"] = free_address()
            self.doors[f"n{index}"] = self.network.door(self.listen[f"n{index}"], f"n{index}")
            self.start_node(f"n{index}")
        self.cluster.wait_for_nodes(NODES)
        for index in range(NODES):
            self.start_launch(index)
        self.before = {name: own_bytes(node.pid) for name, node in self.cluster.nodes.items()}

    def start_node(self, name):
        node = self.cluster.start_node(name, [f"--listen={self.listen[name]}", f"--advertise={self.doors[name]}"])
        self.network.pids[name] = node.pid

    def start_launch(self, index):
        command = [BINARY, "launch", f"-n{EACH}", f"--world={TASKS}", f"--first={index * EACH}", "--job=chaos"]
        command += [f"--restarts={RESTARTS}", f"--address={self.cluster.nodes[f'n{index}'].client_address}", "--", LOAD]
        command += [str(self.options.bytes), str(self.options.pause_ms), self.options.on_loss, str(CALL_S)]
        with open(self.cluster.path(f"launch{index}.log"), "wb") as log:
            launch = subprocess.Popen(
                tied(*command), env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self.launches.append(launch)
        reader = threading.Thread(target=self.read, args=(launch.stdout,), daemon=True)
        reader.start()
        self.readers.append(reader)

    def read(self, pipe):
        rest = b""
        while chunk := os.read(pipe.fileno(), 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            self.calls.take([line.decode(errors="replace") for line in lines])

    # ---- faults

    def wait(self, seconds):
        self.never.wait(seconds)

    def node(self):
        return self.cluster.nodes[self.random.choice(sorted(self.cluster.nodes))]

    def member(self):
        return self.calls.processes[self.random.randrange(TASKS)]

    def kill_member(self):
        os.kill(self.member(), signal.SIGKILL)

    def kill_node(self, away_s):
        node = self.node()
        node.kill()
        self.wait(away_s)
        self.start_node(node.name)

    def stop(self, pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        self.wait(seconds)
        os.kill(pid, signal.SIGCONT)

    def disturb(self, how, seconds=0):
        one, other = self.random.sample(sorted(self.cluster.nodes), 2)
        self.network.disturb(one, other, how)
        self.wait(seconds)
        self.network.disturb(one, other, "heal")

    def restart_directory(self):
        self.cluster.shards[0].kill()
        self.cluster.restart_shard(0, [f"--lease={LEASE_S}s"])

    # ---- the run

    def await_all(self):
        """Wait for a call of all members that begins after now. The next call can be under way: not that one."""
        calls, begun = self.calls, self.calls.newest + 2
        if not calls.wait_for(lambda: calls.newest_of_all >= begun, DEADLINE_S):
            raise Violation(f"not all members are back after {DEADLINE_S} s: call {calls.newest} has {calls.members:012b}")

    def check(self):
        if self.calls.violations:
            raise Violation(self.calls.violations[0])
        for daemon in (*self.cluster.nodes.values(), *self.cluster.shards):
            if daemon.process.poll() is not None:
                raise Violation(f"{daemon.arguments[0]} ended with {daemon.process.returncode}: {daemon.log()[-2000:]}")
        for launch in self.launches:
            if launch.poll() is not None:
                raise Violation(f"a launch ended with {launch.returncode}")

    def run(self):
        self.start()
        self.await_all()
        end = time.monotonic() + self.options.seconds
        order = []
        while time.monotonic() < end:
            if not order:
                order = self.random.sample(self.kinds, len(self.kinds))
            kind, act = order.pop()
            begin = time.monotonic()
            act()
            self.await_all()
            # On a slow machine an interval is longer, so that its last third has all members.
            end_of_it = max(begin + self.options.every, time.monotonic() + self.options.every / 3)
            self.wait(max(0, end_of_it - time.monotonic()))
            self.check()
            self.measure(kind, begin, time.monotonic())
        self.end()

    def measure(self, kind, begin, end):
        calm = end - self.options.every / 3
        times = self.calls.take_times(begin, end)
        expected = sum(at >= calm for at in times) / (end - calm) * (end - begin)
        if not expected:
            raise Violation(f"no call in the {end - calm:.0f} s after all members were back ({kind})")
        pause = max(later - earlier for earlier, later in zip([begin, *times], [*times, end]))
        self.measured.append((kind, len(times), expected, pause))
        print(f"{len(self.measured):4} {kind:37} {len(times):6} calls, {len(times) / expected:6.1%}; "
              f"longest pause {pause * 1000:5.0f} ms", flush=True)

    def end(self):
        """End the job in a call of all members."""
        os.kill(self.calls.processes[0], signal.SIGTERM)
        for launch in self.launches:
            try:
                launch.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                raise Violation("the members do not stop") from None
        for reader in self.readers:
            reader.join(DEADLINE_S)
        self.calls.drop_all()
        ends = [launch.returncode for launch in self.launches]
        if any(ends) or len(self.calls.stopped) != TASKS:
            raise Violation(f"the launches ended with {ends}, {sorted(self.calls.stopped)} have stopped")
        if not self.calls.sums_proven:
            raise Violation("of no call are the inputs of all that took part known")
        if (share := self.share()) < self.options.least:
            raise Violation(f"{share:.1%} of the calls without faults are less than {self.options.least:.0%}")

    def share(self, kind=None):
        rows = [row for row in self.measured if kind in (None, row[0])]
        return sum(calls for _, calls, _, _ in rows) / sum(expected for _, _, expected, _ in rows)

    # ---- the end

    def report(self):
        for kind, count in sorted(collections.Counter(kind for kind, *_ in self.measured).items()):
            pauses = [row[-1] * 1000 for row in self.measured if row[0] == kind]
            print(f"{count:4} x {kind:37} {self.share(kind):6.1%} of the calls without faults; longest pause "
                  f"{statistics.median(pauses):4.0f} ms (median), {max(pauses):4.0f} ms (most)")
        if self.measured:
            print(f"{sum(row[1] for row in self.measured)} calls, {self.share():.1%} of those without faults")
        print(f"{self.calls.results} results checked, {self.calls.sums_proven} calls with the inputs of all that took part, "
              f"{self.calls.lives_over} calls of lives that were over, longest call {self.calls.longest_s:.2f} s")
        for name, node in sorted(self.cluster.nodes.items()):
            with contextlib.suppress(OSError):
                print(f"{name}: {self.before.get(name, 0) >> 10} KiB of its own memory at the start, {own_bytes(node.pid) >> 10} at the end")

    def close(self, keep):
        folder = self.cluster.folder
        for launch in self.launches:
            launch.kill()
            launch.wait()
        for reader in self.readers:
            reader.join(DEADLINE_S)
        for launch in self.launches:
            launch.stdout.close()
        self.network.close()
        if keep:
            self.cluster.folder = os.path.join(folder, "nothing")
        self.cluster.close()
        return folder


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=20, metavar="SECONDS", help="between two faults")
    parser.add_argument("--bytes", type=int, default=256 << 10, help="of a call")
    parser.add_argument("--pause-ms", type=float, default=20, help="of a member between two calls")
    parser.add_argument("--on-loss", choices=("exclude", "wait"), default="exclude", help="of the group")
    parser.add_argument("--least", type=float, default=0.97, help="share of the possible calls")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.seconds:.0f} s", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chaos = GroupChaos(options)
    failures = ["it did not end"]
    try:
        try:
            chaos.run()
            failures = []
        except (Violation, AssertionError, TimeoutError, EOFError, OSError) as error:
            failures = [f"{type(error).__name__}: {error}"]
        except KeyboardInterrupt:
            failures = ["interrupted"]
        failures += chaos.calls.violations
        chaos.report()
    finally:
        kept = chaos.close(keep=bool(failures))
    for failure in failures[:40]:
        print(f"VIOLATION {failure[:3000]}")
    if failures:
        print(f"logs: {kept}\nagain: --seed={options.seed}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
