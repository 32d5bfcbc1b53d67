"""A mixed load on eight nodes and three shards, under faults that a seed draws. Checks every promise
of the store.

    scripts/bazel run //tests/process:chaos -- --seconds=1800 --seed=7

The promises:
- a Get, stream, copy or view shows all bytes of one attempt to put the object, and a view never
  changes;
- every word of a sum has one attempt of each of the requested number of sources, whichever process
  dies during the reduction;
- if one writer puts an id and gets the answer "adopted", every reader gets these bytes until that
  writer requests the Delete, as long as the node of the put lives; once a Delete is acknowledged, the
  next Put of that writer finds no object;
- every call ends, and no daemon dies except the victims;
- after the faults have ended every daemon answers; after all objects are deleted no node has more
  memory, views, clients or pulls, and no daemon more descriptors or memory of its own, than at the
  start.

Exits with 0, or with 1 after a violation; then the logs and histories are kept.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from tests.process.chaos_network import Network
from tests.process.harness import DEADLINE_S, NOT_FOUND, OK, Cluster, environment, own_bytes, tied
from tests.process.proxy import free_address

LOAD = os.path.abspath("tests/process/chaos_load")
NODES = 8
SHARDS = 3
LOADS_PER_NODE = 2
CAPACITY = 16 << 20
# For the records of copies, and for results that end while the objects are read.
ROOM_SLACK = 256 << 10
LEASE_S = 1
SHARED = 48
# The longest call of the load, and the longest wait of a daemon after the last fault.
CALM_S = 90
MEMORY_SLACK_MIB = 48
DESCRIPTOR_SLACK = 8
IDLE = ("used_bytes", "objects", "pins", "clients", "waiting_gets", "waiting_for_memory", "pulls_active",
        "pushes_active", "condemned_bytes", "folds", "fold_scratch_bytes", "waiting_reductions")


class Violation(Exception):
    pass


class Load:
    """A load process, and its output."""

    def __init__(self, chaos, node, writer, orphans):
        self.node, self.writer = node, writer
        # The life of its node.
        self.life = chaos.cluster.nodes[node].pid
        self.path = chaos.cluster.path(f"load{writer}.log")
        seed = chaos.seed * 100003 + writer
        numbers = [writer, seed, LOADS_PER_NODE * NODES + 4, *orphans]
        with open(self.path, "ab") as out:
            self.process = subprocess.Popen(
                tied(LOAD, chaos.cluster.nodes[node].client_address, "run", *map(str, numbers)),
                stdout=out, env=environment(), stdin=subprocess.DEVNULL,
            )
        self.killed = False

    def events(self):
        return [line.split(" ", 5) for line in pathlib.Path(self.path).read_text().splitlines()]

    def live(self):
        """Return a dict from object to promised attempt, and the set of all objects that can exist."""
        promised, possible = {}, set()
        for event in self.events():
            if event[0] not in "BE" or int(event[2]) < SHARED:
                continue
            op, item, attempt = event[1], int(event[2]), int(event[3])
            if op in ("put", "create", "abandon", "delete") and event[0] == "B":
                promised.pop(item, None)
                possible.add(item)
            elif op in ("put", "create") and event[4] == "OK" and event[5] == "new":
                promised[item] = attempt
            elif op == "delete" and event[4] in ("OK", "NOT_FOUND"):
                possible.discard(item)
        return promised, possible


class Chaos:
    def __init__(self, seconds, seed, memory_slack):
        self.seconds, self.seed, self.memory_slack = seconds, seed, memory_slack
        self.random = random.Random(seed)
        self.cluster = Cluster()
        self.network = Network()
        self.never = threading.Event()
        self.loads = []
        self.finished = []
        self.writers = 0
        self.promised = self.skipped = 0
        self.faults = collections.Counter()
        self.listen = {}
        self.advertise = {}
        self.doors = {}
        # Faults under way: (end, repair).
        self.pending = []
        self.busy = set()
        # Daemon -> (bytes, descriptors), at the start and after all objects are deleted.
        self.before, self.after = {}, {}

    # ---- daemons

    def start(self):
        self.cluster.start_shards(SHARDS, [f"--lease={LEASE_S}s"])
        for index in range(NODES):
            name = f"n{index}"
            self.listen[name] = free_address()
            self.advertise[name] = self.network.door(self.listen[name], name)
            self.doors[name] = ",".join(
                self.network.door(shard.address, f"s{number}", name)
                for number, shard in enumerate(self.cluster.shards)
            )
            self.start_node(name)
        self.cluster.wait_for_nodes(NODES)
        self.before = {name: self.holdings(name) for name in (*self.nodes(), *self.shards())}
        for name in self.cluster.nodes:
            for _ in range(LOADS_PER_NODE):
                self.start_load(name)

    def start_node(self, name):
        node = self.cluster.start_node(
            name,
            [f"--listen={self.listen[name]}", f"--advertise={self.advertise[name]}", "--checksums",
             "--metrics-listen=127.0.0.1:0"],
            directory=self.doors[name], capacity=str(CAPACITY),
        )
        self.network.pids[name] = node.pid

    def start_load(self, node, orphans=()):
        self.writers += 1
        self.loads.append(Load(self, node, self.writers, sorted(orphans)))

    def metrics(self, name):
        address = self.cluster.nodes[name].hello["metrics"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            found = re.findall(r"^phalanx_node_(\w+) ([0-9.e+]+)$", answer.read().decode(), re.M)
        return {key: float(value) for key, value in found}

    def holdings(self, name):
        """Return a daemon's own memory, and its descriptors except objects' files and connections of
        peers or clients."""
        pid = self.daemon(name).pid
        count = len(os.listdir(f"/proc/{pid}/fd"))
        if name in self.cluster.nodes:
            now = self.metrics(name)
            count -= int(now["files"] + now["peer_connections"] + now["clients"])
        return own_bytes(pid), count

    # ---- faults

    def later(self, seconds, what, *arguments):
        self.pending.append((time.monotonic() + seconds, what, arguments))

    def victim(self, names):
        free = [name for name in names if name not in self.busy]
        if not free:
            return None
        name = self.random.choice(free)
        self.busy.add(name)
        return name

    def nodes(self):
        return sorted(self.cluster.nodes)

    def shards(self):
        return [f"s{index}" for index in range(SHARDS)]

    def daemon(self, name):
        return self.cluster.nodes[name] if name[0] == "n" else self.cluster.shards[int(name[1:])]

    def kill(self, names):
        name = self.victim(names)
        if name is None:
            return
        self.daemon(name).kill()
        self.later(self.random.uniform(0, 2.5), self.restart, name)

    def restart(self, name):
        if name[0] == "n":
            self.start_node(name)
        else:
            self.cluster.restart_shard(int(name[1:]), [f"--lease={LEASE_S}s"])
        self.busy.discard(name)

    def pause(self, names, longest):
        name = self.victim(names)
        if name is None:
            return
        self.daemon(name).signal(signal.SIGSTOP)
        self.later(self.random.uniform(0.05, longest), self.resume, name)

    def resume(self, name):
        self.daemon(name).signal(signal.SIGCONT)
        self.busy.discard(name)

    def disturb(self, others, kind, amount=0):
        one = self.random.choice(self.nodes())
        other = self.random.choice([name for name in others if name != one])
        self.network.disturb(one, other, kind, amount)
        if kind != "cut":
            self.later(self.random.uniform(0.1, 3), self.network.disturb, one, other, "heal")

    def slow(self):
        """Slow all links of one node, or one of them, each to a rate of its own."""
        nodes = self.nodes()
        one = self.random.choice(nodes)
        others = [name for name in nodes if name != one]
        if self.random.random() < 0.5:
            others = [self.random.choice(others)]
        end = self.random.uniform(0.3, 5)
        for other in others:
            self.network.disturb(one, other, "slow", self.random.uniform(0.3e6, 10e6))
            self.later(end, self.network.disturb, one, other, "heal")

    def kill_load(self):
        load = self.random.choice(self.loads)
        load.killed = True
        load.process.kill()

    def draw_fault(self):
        table = [
            (2, "node killed", lambda: self.kill(self.nodes())),
            (2, "shard killed", lambda: self.kill(self.shards())),
            (3, "node stopped", lambda: self.pause(self.nodes(), 3)),
            (2, "shard stopped", lambda: self.pause(self.shards(), 2)),
            (4, "client killed", self.kill_load),
        ]
        for others, text in ((self.nodes(), "node and node"), (self.shards(), "node and shard")):
            table += [
                (2, f"parted: {text}", lambda others=others: self.disturb(others, "refuse")),
                (2, f"half-open: {text}", lambda others=others: self.disturb(others, "stall")),
                (3, f"cut: {text}", lambda others=others: self.disturb(others, "cut")),
                (2, f"delayed: {text}", lambda others=others: self.disturb(others, "delay", 0.02)),
            ]
        table.append((4, "slowed: node and nodes", self.slow))
        table.append((4, "corrupted: node and node", lambda: self.disturb(self.nodes(), "corrupt", 2)))
        _, name, act = self.random.choices(table, [row[0] for row in table])[0]
        self.faults[name] += 1
        act()

    # ---- the run

    def tend(self):
        """Repair the faults whose time is over, and replace clients that have ended."""
        now = time.monotonic()
        due = [entry for entry in self.pending if entry[0] <= now]
        self.pending = [entry for entry in self.pending if entry[0] > now]
        for _, what, arguments in due:
            what(*arguments)
        for load in [load for load in self.loads if load.process.poll() is not None]:
            if load.node in self.busy:
                continue
            self.check_end(load)
            self.loads.remove(load)
            self.finished.append(load)
            self.start_load(load.node, load.live()[1])

    def check_end(self, load):
        if load.process.returncode not in (0, 3) and not load.killed:
            raise Violation(f"client {load.writer} ended with {load.process.returncode}: {load.path}")

    def check_daemons(self):
        for name in (*self.nodes(), *self.shards()):
            daemon = self.daemon(name)
            if name not in self.busy and daemon.process.poll() is not None:
                raise Violation(f"{name} died with {daemon.process.returncode}: {daemon.log()[-2000:]}")

    def run(self):
        self.start()
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and not self.never.wait(self.random.uniform(0.05, 0.5)):
            self.check_daemons()
            self.draw_fault()
            self.tend()
        self.calm()

    def calm(self):
        for _, what, arguments in self.pending:
            what(*arguments)
        self.pending = []
        self.tend()
        self.check_daemons()
        self.cluster.wait_for_nodes(NODES)
        for load in self.loads:
            load.process.send_signal(signal.SIGTERM)
        for load in self.loads:
            try:
                load.process.wait(CALM_S)
            except subprocess.TimeoutExpired:
                raise Violation(f"client {load.writer} does not end: {load.path}") from None
            self.check_end(load)
        self.check_reads()
        self.check_memory()

    def history(self):
        return self.finished + self.loads

    def check_reads(self):
        """Read every promised object from every node. A node can lack the memory for an object that is
        larger than what its primary copies leave."""
        promised = {}
        for load in self.history():
            node = self.cluster.nodes[load.node]
            if load.life == node.pid and load in self.loads:
                promised.update(load.live()[0])
        self.promised = len(promised)
        lines = "".join(f"{item} {attempt}\n" for item, attempt in sorted(promised.items()))
        for name, node in self.cluster.nodes.items():
            room = CAPACITY - int(self.metrics(name)["pinned_bytes"]) - ROOM_SLACK
            try:
                check = subprocess.run(
                    tied(LOAD, node.client_address, "check", str(max(room, 0))), input=lines, text=True,
                    env=environment(), stdout=subprocess.PIPE, timeout=CALM_S + len(promised), check=False,
                )
            except subprocess.TimeoutExpired as expired:
                raise Violation(f"reads from {name} do not end: {expired.stdout}") from None
            output = check.stdout.splitlines()
            self.skipped += sum(line.startswith("S ") for line in output)
            if check.returncode != 0 or any(not line.startswith("S ") for line in output):
                raise Violation(f"read from {name}: {check.stdout[:3000]} (exit {check.returncode})")

    def check_memory(self):
        listed = self.cluster.run("ls", "--json", f"--directory={self.cluster.directory}")
        ids = [json.loads(line)["id"] for line in listed.splitlines()]
        for object_id in ids:
            # Some objects do not exist; only Gets wait for them.
            rm = self.cluster.begin("rm", object_id, node="n0")
            output = rm.communicate(timeout=DEADLINE_S)[1]
            if rm.returncode not in (OK, NOT_FOUND):
                raise Violation(f"cannot delete {object_id}: {output}")
        end = time.monotonic() + CALM_S
        while left := self.not_idle():
            if time.monotonic() > end or self.never.wait(0.2):
                raise Violation(f"left when all is deleted: {left}")

    def not_idle(self):
        left = []
        for name in self.nodes():
            now = self.metrics(name)
            left += [f"{name}: {key}={now[key]:.0f}" for key in IDLE if now[key]]
        for name, (memory, descriptors) in self.before.items():
            self.after[name] = self.holdings(name)
            grown, extra = self.after[name][0] - memory, self.after[name][1] - descriptors
            if grown > self.memory_slack:
                left.append(f"{name}: {grown >> 20} MiB of its own memory more")
            if extra > DESCRIPTOR_SLACK:
                left.append(f"{name}: {extra} descriptors more")
        return left

    # ---- the end

    def violations(self):
        return [f"client {load.writer} at {load.node}: {' '.join(event)}"
                for load in self.history() for event in load.events() if event[0] == "V"]

    def report(self):
        calls = collections.defaultdict(collections.Counter)
        for load in self.history():
            for event in load.events():
                if event[0] == "E":
                    calls[event[1]][event[4]] += 1
        for op, outcomes in sorted(calls.items()):
            print(f"{op:9} " + ", ".join(f"{code} {count}" for code, count in outcomes.most_common()))
        for fault, count in sorted(self.faults.items()):
            print(f"{count:5} {fault}")
        print(f"{self.network.corrupted:5} chunks corrupted, {self.writers} clients, "
              f"{self.promised} promised objects read from every node, but {self.skipped} times "
              "a node without room for one")
        for name, (memory, descriptors) in sorted(self.after.items()):
            print(f"{name}: {self.before[name][0] >> 10} KiB of its own memory at the start, "
                  f"{memory >> 10} at the end; {self.before[name][1]} descriptors, {descriptors}")

    def close(self, keep):
        """End every process. If `keep` is set, keep the logs and histories and print their folder."""
        folder = self.cluster.folder
        try:
            for load in self.history():
                load.process.kill()
                load.process.wait()
            self.network.close()
        finally:
            if keep:
                self.cluster.folder = os.path.join(folder, "nothing")
            self.cluster.close()
        return folder if keep else None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--memory-slack", type=int, default=MEMORY_SLACK_MIB, metavar="MIB",
        help="limit of the growth of a daemon's own memory; sanitizers need some",
    )
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}, {options.seconds:.0f} s", flush=True)
    chaos = Chaos(options.seconds, options.seed, options.memory_slack << 20)
    interrupts = (signal.SIGINT, signal.SIGTERM)
    for number in interrupts:
        # A shell starts background processes with these signals ignored.
        signal.signal(number, signal.default_int_handler)
    failures = ["it did not end"]
    try:
        try:
            chaos.run()
            failures = []
        except (Violation, AssertionError, TimeoutError, EOFError, OSError) as error:
            failures = [f"{type(error).__name__}: {error}"]
        except KeyboardInterrupt:
            failures = ["interrupted"]
        failures += chaos.violations()
        chaos.report()
    finally:
        for number in interrupts:
            signal.signal(number, signal.SIG_IGN)
        kept = chaos.close(keep=bool(failures))
    for failure in failures[:40]:
        print(f"VIOLATION {failure[:3000]}")
    if failures:
        print(f"logs and histories: {kept}\nagain: --seed={options.seed} --seconds={options.seconds:.0f}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
