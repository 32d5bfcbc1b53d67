"""Every kind of process is killed and stopped during a reduction, at points of its progress.

    scripts/bazel run //tests/process:reduce_kills -- --shards=3 --operation=allreduce

Eight nodes have one source each. A round puts the sources, makes some or all nodes request the sum,
waits until the root has folded a given part, and strikes: SIGKILL, SIGSTOP until all others are
done, or SIGSTOP until the directory has declared the node dead. The directory names the node at each
place of the tree. The lost source of a dead or stopped node is put on another node by another
attempt with other bytes; or there are two spare sources; or the next node has a copy. Checks in each
round:

- every caller whose process and node live ends with the sum; all its elements show the same
  attempts, one for each reported source; all callers get the same;
- every other caller ends too;
- only the victim has died; after all objects are deleted no node has memory, folds, calls or pulls.

At the end the memory and descriptors of the daemons are at their initial values.
"""

import argparse
import collections
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from tests.process.harness import DEADLINE_S, NOT_FOUND, OK, Cluster, environment, own_bytes, tied

CALLER = os.path.abspath("tests/process/reduce_caller")
MIB = 1 << 20
NODES = 8
LEASE_S = 1
TIMEOUT_S = 50
IDLE = ("used_bytes", "objects", "pins", "clients", "waiting_gets", "waiting_for_memory", "pulls_active",
        "pushes_active", "condemned_bytes", "folds", "fold_scratch_bytes", "waiting_reductions")
MEMORY_SLACK = 24 << 20
DESCRIPTOR_SLACK = 8

ROLES = ("leaf", "interior", "root", "caller", "shard")
STRIKES = ("kill", "stop", "pause")
COVERS = ("again", "spare", "copy")
# The first number of rounds that repeat rounds which ended before their strike.
MISSED = 100000


class Violation(Exception):
    pass


def slots_of(reduction):
    """Return the slots of a tree; a ring is cut before its first member, and its last member is the root."""
    if reduction["shape"] != "ring":
        return reduction["slots"]
    return [slot | {"parent": -1} if slot["parent"] == 0 else slot for slot in reduction["slots"]]


def subtree(slots, top):
    below = [slot["slot"] for slot in slots if slot["parent"] == top]
    return 1 + sum(subtree(slots, slot) for slot in below)


def height_above(slots, slot):
    parents = {entry["slot"]: entry["parent"] for entry in slots}
    above = 0
    while (slot := parents.get(slot, -1)) >= 0:
        above += 1
    return above


def place_of(slots, role):
    """Return the node at that place of the tree; None if the place does not exist."""
    placed = [slot for slot in slots if slot["node"] is not None]
    parents = {slot["parent"] for slot in slots}
    found = []
    for slot in placed:
        above, below = height_above(slots, slot["slot"]), subtree(slots, slot["slot"]) - 1
        if role == "root" and above == 0:
            found.append(slot)
        elif role == "leaf" and slot["slot"] not in parents and above > 0:
            found.append(slot)
        elif role == "interior" and above >= 2 and below >= 2:
            found.append(slot)
    return found[len(found) // 2]["node"] if found else None


class Round:
    """The victim, strike and checks of one round."""

    def __init__(self, number, operation, role, strike, point, cover):
        self.number, self.operation, self.role, self.strike = number, operation, role, strike
        self.point, self.cover = point, cover
        # Half of the rounds use integers.
        self.dtype = "u64" if number % 2 else "f64"
        self.target = self.object_id("target")
        self.sources = [self.object_id(index) for index in range(NODES)]
        self.count = NODES - 2 if cover == "spare" else NODES
        self.victim = None
        self.late = False
        # The output that all callers must have.
        self.output = None

    def object_id(self, name):
        return hashlib.sha1(f"{os.getpid()}/{self.number}/{name}".encode()).hexdigest()

    def __str__(self):
        return (f"round {self.number}: {self.operation}, {self.strike} {self.role} {self.victim or ''} "
                f"at {self.point:.0%}, {self.cover}, target {self.target}")


class Fire:
    def __init__(self, shards, size, egress):
        self.num_shards, self.size, self.egress = shards, size, egress
        self.cluster = Cluster()
        self.never = threading.Event()
        self.rounds = []
        self.callers = {}
        # Callers that have not been reaped.
        self.processes = []
        self.before = {}
        self.counts = collections.Counter()
        self.slowest = 0

    # ---- daemons

    def start(self):
        self.cluster.start_shards(self.num_shards, [f"--lease={LEASE_S}s"])
        for index in range(NODES):
            self.start_node(f"n{index}")
        self.cluster.wait_for_nodes(NODES)

    def start_node(self, name):
        self.cluster.start_node(
            name, [f"--max-egress={self.egress}", "--metrics-listen=127.0.0.1:0"], capacity=f"{8 * self.size}"
        )

    def metrics(self, name):
        address = self.cluster.nodes[name].hello["metrics"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            found = re.findall(r"^phalanx_node_(\w+) ([0-9.e+]+)$", answer.read().decode(), re.M)
        return {key: float(value) for key, value in found}

    def holdings(self, name):
        """Return a daemon's own memory, and its descriptors except objects' files and connections of
        peers or clients."""
        daemon = self.cluster.nodes[name] if name[0] == "n" else self.cluster.shards[int(name[1:])]
        count = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        if name[0] == "n":
            now = self.metrics(name)
            count -= int(now["files"] + now["peer_connections"] + now["clients"])
        return own_bytes(daemon.pid), count

    def names(self):
        return [*self.cluster.nodes, *(f"s{index}" for index in range(self.num_shards))]

    # ---- calls

    def begin(self, node, *words):
        process = subprocess.Popen(
            tied(CALLER, self.cluster.nodes[node].client_address, *map(str, words)),
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment(),
        )
        self.processes.append(process)
        return process

    def end(self, process, what):
        """Return the caller's output."""
        try:
            output = process.communicate(timeout=TIMEOUT_S + DEADLINE_S)[0].strip()
        except subprocess.TimeoutExpired:
            raise Violation(f"{what} hangs") from None
        finally:
            self.processes.remove(process)
        return output

    def begin_put(self, this, node, index, attempt):
        return self.begin(node, "put", index, attempt, self.size, this.dtype, this.sources[index])

    def end_put(self, process, what):
        output = self.end(process, what)
        if output != "OK new":
            raise Violation(f"{what}: {output}")

    def put_sources(self, this):
        puts = [self.begin_put(this, f"n{index}", index, 1) for index in range(NODES)]
        for index, put in enumerate(puts):
            self.end_put(put, f"the Put of source {index}")
        if this.cover != "copy":
            return
        gets = [self.cluster.begin("get", source, "-o", "/dev/null", "-q", node=f"n{(index + 1) % NODES}")
                for index, source in enumerate(this.sources)]
        for get in gets:
            self.cluster.finish(get)

    def call(self, this, node, verb):
        self.callers[node] = self.begin(
            node, verb, this.target, this.count, self.size, this.dtype, TIMEOUT_S, *this.sources
        )

    def call_all(self, this):
        self.callers = {}
        if this.operation == "allreduce":
            for name in self.cluster.nodes:
                self.call(this, name, "allreduce")
        else:
            self.call(this, "n0", "reduce")
            self.call(this, "n4", "join")

    # ---- the strike

    def reach(self, this):
        """Wait until the root has come so far; return the directory's description of the reduction."""

        def reached(look):
            if look["complete_copies"] > 0:
                return True
            reduction = look["reduction"]
            if reduction is None or not reduction["slots"]:
                return False
            root = next((slot for slot in slots_of(reduction) if slot["parent"] < 0), None)
            return (root is not None and root["version"] is not None
                    and root["watermark"] >= this.point * self.size)

        look = self.cluster.follow(reached, "describe", this.target)
        this.late = look["reduction"] is None
        return look

    def choose(self, this, look):
        if this.role == "caller":
            return "n4" if this.operation == "reduce" and this.number % 3 == 0 else min(self.callers)
        if this.role == "shard":
            caller = subprocess.run([CALLER, "-", "shard", this.target, str(self.num_shards)], check=True,
                                    stdout=subprocess.PIPE, text=True)
            return f"s{(int(caller.stdout) + (this.number % 2)) % self.num_shards}"
        return place_of(slots_of(look["reduction"]), this.role) if look["reduction"] else None

    def strike(self, this):
        look = self.reach(this)
        this.victim = self.choose(this, look)
        if this.victim is None or this.late:
            # The reduction ended before the strike, so this round does not count.
            this.victim = None
            return
        if this.role == "caller":
            self.strike_caller(this)
        elif this.role == "shard":
            self.strike_shard(this)
        else:
            self.strike_node(this)

    def strike_caller(self, this):
        process = self.callers[this.victim]
        if this.strike == "kill":
            process.kill()
            self.end(self.callers.pop(this.victim), "a killed caller")
            return
        process.send_signal(signal.SIGSTOP)
        others = {name: caller for name, caller in self.callers.items() if name != this.victim}
        self.check_callers(this, others)
        process.send_signal(signal.SIGCONT)
        self.callers = {this.victim: process}

    def strike_shard(self, this):
        index = int(this.victim[1:])
        if this.strike == "kill":
            self.cluster.shards[index].kill()
            self.cluster.restart_shard(index, [f"--lease={LEASE_S}s"])
            return
        self.cluster.shards[index].signal(signal.SIGSTOP)
        # The other nodes fold as much as they can without the victim.
        folded = -1
        while (now := sum(self.metrics(name)["folded_bytes_total"] for name in self.cluster.nodes)) != folded:
            folded = now
            self.never.wait(0.2)
        self.cluster.shards[index].signal(signal.SIGCONT)

    def strike_node(self, this):
        node = self.cluster.nodes[this.victim]
        if this.strike == "kill":
            node.kill()
            if this.victim in self.callers:
                output = self.end(self.callers.pop(this.victim), "the caller of a killed node")
                # The caller can have ended just before the strike.
                if output and not output.startswith(("ERROR", "LOST", "OK")):
                    raise Violation(f"the caller at the killed {this.victim} printed {output}")
            self.cover(this)
            return
        node.signal(signal.SIGSTOP)
        if this.strike == "stop":
            if this.cover == "again":
                # The source is put again only after the directory has declared its node dead.
                self.wait_until_given_up(this.victim)
            self.cover(this)
            others = {name: caller for name, caller in self.callers.items() if name != this.victim}
            self.check_callers(this, others)
            self.callers = {name: caller for name, caller in self.callers.items() if name == this.victim}
        else:
            self.wait_until_given_up(this.victim)
        node.signal(signal.SIGCONT)

    def wait_until_given_up(self, name):
        self.cluster.follow(
            lambda look: all(node["name"] != name or not node["connected_shards"] for node in look["nodes"]), "status")

    def cover(self, this):
        """Put another attempt at the victim's source."""
        if this.cover != "again":
            return
        index = int(this.victim[1:])
        put = self.begin_put(this, f"n{(index + 1) % NODES}", index, 2)
        self.end_put(put, f"the second Put of source {index}")

    # ---- results of the callers

    def check_callers(self, this, callers):
        for name, process in callers.items():
            output = self.end(process, f"the caller at {name}")
            if not output.startswith("OK"):
                raise Violation(f"the caller at {name} printed: {output or process.returncode}")
            this.output = this.output or output
            if output != this.output:
                raise Violation(f"the caller at {name} got {output}, others {this.output}")

    def clean(self, this):
        if this.role not in ("caller", "shard") and this.strike == "kill" and this.victim is not None:
            self.start_node(this.victim)
        self.cluster.wait_for_nodes(NODES)
        removals = [self.cluster.begin("rm", object_id, node="n1") for object_id in (this.target, *this.sources)]
        for removal in removals:
            output = removal.communicate(timeout=DEADLINE_S)[1]
            # A source can be lost with its node.
            if removal.returncode not in (OK, NOT_FOUND):
                raise Violation(f"cannot delete: {output}")
        end = time.monotonic() + DEADLINE_S
        while left := self.not_idle():
            if time.monotonic() > end:
                raise Violation(f"left when all is deleted: {left}")
            self.never.wait(0.02)

    def not_idle(self):
        left = []
        for name in self.cluster.nodes:
            now = self.metrics(name)
            left += [f"{name}: {key}={now[key]:.0f}" for key in IDLE if now.get(key)]
        return left

    def check_daemons(self):
        for name in self.names():
            daemon = self.cluster.nodes[name] if name[0] == "n" else self.cluster.shards[int(name[1:])]
            if daemon.process.poll() is not None:
                raise Violation(f"{name} died with {daemon.process.returncode}: {daemon.log()[-2000:]}")

    def run(self, this):
        began = time.monotonic()
        self.rounds.append(this)
        try:
            self.put_sources(this)
            self.call_all(this)
            self.strike(this)
            self.check_callers(this, self.callers)
            self.clean(this)
            self.check_daemons()
        except (Violation, AssertionError, TimeoutError, EOFError, OSError) as error:
            raise Violation(f"{this}: {error}") from error
        took = time.monotonic() - began
        self.slowest = max(self.slowest, took)
        what = f"{this.strike} {this.role}" if this.victim else f"over before {this.strike} {this.role}"
        self.counts[f"{this.operation}, {what}"] += 1
        return took

    def check_holdings(self):
        """Compare memory and descriptors with those after the first rounds. A daemon that was started since
        must not exceed a daemon of its kind."""
        if not self.before:
            self.before = {name: self.holdings(name) for name in self.names()}
            return
        for name, (memory, descriptors) in ((name, self.holdings(name)) for name in self.names()):
            most = max(own for other, (own, _) in self.before.items() if other[0] == name[0])
            open_files = max(count for other, (_, count) in self.before.items() if other[0] == name[0])
            print(f"{name}: {memory >> 20} MiB of its own (at most {most >> 20} in the beginning), "
                  f"{descriptors} descriptors ({open_files})")
            if memory > most + MEMORY_SLACK or descriptors > open_files + DESCRIPTOR_SLACK:
                raise Violation(f"{name} has grown")

    def close(self, keep):
        folder = self.cluster.folder
        for process in self.processes:
            self.cluster.discard(process)
        if keep:
            self.cluster.folder = os.path.join(folder, "nothing")
        self.cluster.close()
        return folder if keep else None


def matrix(options):
    """Yield each role, strike and point; covers alternate."""
    number = options.first
    for turn in range(options.repeat):
        for point in options.at.split(","):
            for strike in options.strikes.split(","):
                for role in options.roles.split(","):
                    if strike == "pause" and role in ("caller", "shard"):
                        continue
                    cover = COVERS[(number + turn) % len(COVERS)] if options.cover is None else options.cover
                    for operation in options.operations.split(","):
                        number += 1
                        yield Round(number, operation, role, strike, int(point) / 100, cover)


def missed(options, never_struck):
    """Yield early rounds for each role whose rounds all ended before their strikes."""
    number = options.first + MISSED
    for _ in range(3):
        for role in sorted(never_struck):
            number += 1
            yield Round(number, options.operations.split(",")[0], role, options.strikes.split(",")[0], 0.1, COVERS[0])


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--mib", type=int, default=64, help="of each source")
    parser.add_argument("--egress", default="32MB/s", help="of each node")
    parser.add_argument("--operations", default="reduce,allreduce")
    parser.add_argument("--roles", default=",".join(ROLES))
    parser.add_argument("--strikes", default=",".join(STRIKES))
    parser.add_argument("--at", default="0,10,20,30,40,50,60,70,80,90", help="percent of the root's work")
    parser.add_argument("--cover", choices=COVERS, help="what becomes of lost sources; by default in turns")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="numbers of the rounds begin after this")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no round after so long")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    fire = Fire(options.shards, options.mib * MIB, options.egress)
    end = time.monotonic() + options.seconds
    failure = "it did not end"
    never_struck = set(options.roles.split(","))
    try:
        fire.start()
        for count, this in enumerate(itertools.chain(matrix(options), missed(options, never_struck))):
            if time.monotonic() > end:
                print(f"time is over before {this}")
                break
            took = fire.run(this)
            if this.victim:
                never_struck.discard(this.role)
            print(f"{took:5.1f} s  {this}{'' if this.victim else '  (over before)'}", flush=True)
            if count == 3:
                fire.check_holdings()
        fire.check_holdings()
        # All its rounds ended before their strikes, or had no victim, or time did not allow any.
        failure = f"never struck: {', '.join(sorted(never_struck))}" if never_struck else None
    except Violation as violation:
        failure = str(violation)
    finally:
        logs = fire.close(keep=failure is not None)
    for what, count in sorted(fire.counts.items()):
        print(f"{count:5} {what}")
    print(f"{len(fire.rounds)} rounds, the slowest {fire.slowest:.1f} s")
    if failure:
        print(f"VIOLATION {failure}\nlogs: {logs}")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
