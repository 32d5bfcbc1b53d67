"""The demonstration behind scripts/demo: a cluster on loopback, a broadcast, a broadcast and a reduction with a death each.
Standard library only."""

import argparse
import array
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

NODES = 8
DEFAULT_BYTES = 100_000_000
# The limit at which each node sends, so that the transfers last long enough to watch.
EGRESS = "40MB/s"
POLL_SECONDS = 0.2
DEADLINE_SECONDS = 60
# For the reduction: the floats of each source, and the period after which they repeat.
FLOATS = 16_000_000
PERIOD = 1000


def fail(message):
    raise SystemExit(f"demo: {message}")


class Demo:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.directory = f"127.0.0.1:{free_port()}"
        self.daemons = {}
        # Exported settings of another cluster must not reach these daemons.
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}

    def start(self):
        self._daemon("directory", ["directory", "--listen", self.directory])
        for index in range(1, NODES + 1):
            self._daemon(f"node{index}", ["node", "--directory", self.directory, "--name", f"node{index}",
                                          "--socket", self.socket(index), "--max-egress", EGRESS])
        wait_until(lambda: len(self._connected()) == NODES, "the nodes to find the directory", self._dead)

    def stop(self):
        for daemon in self.daemons.values():
            if daemon.poll() is None:
                daemon.kill()
        for daemon in self.daemons.values():
            daemon.wait()

    def socket(self, index):
        return str(self.folder / f"n{index}" / "node.sock")

    def put(self, index, file, name):
        self._command(["put", str(file), "--name", name, "--address", f"unix:{self.socket(index)}"])

    def get(self, index, name, output):
        """Starts a get; the process ends when the file is complete."""
        return subprocess.Popen(
            [self.binary, "get", "--name", name, "-o", str(output), "--address", f"unix:{self.socket(index)}",
             "--timeout", f"{DEADLINE_SECONDS}s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=self.environment)

    def reduce(self, index, target, sources):
        """Starts a sum of floats; the process ends when the target is complete."""
        return subprocess.Popen(
            [self.binary, "reduce", "--names", target, *sources, "--dtype", "f32", "--op", "sum", "--address",
             f"unix:{self.socket(index)}", "--timeout", f"{DEADLINE_SECONDS}s"], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=self.environment)

    def look(self, name):
        """Returns the output of describe; nothing while the directory does not know the object."""
        result = subprocess.run([self.binary, "describe", "--name", name, "--directory", self.directory, "--json"],
                                capture_output=True, text=True, timeout=DEADLINE_SECONDS, env=self.environment)
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def describe(self, name):
        return json.loads(self._command(["describe", "--name", name, "--directory", self.directory, "--json"]))

    def draw(self, name):
        print(self._command(["describe", "--name", name, "--directory", self.directory]))

    def remove(self, name):
        self._command(["rm", "--name", name, "--address", f"unix:{self.socket(1)}"])

    def kill(self, node):
        self.daemons[node].send_signal(signal.SIGKILL)
        self.daemons[node].wait()

    def _connected(self):
        result = subprocess.run([self.binary, "status", "--directory", self.directory, "--json"], env=self.environment,
                                capture_output=True, text=True)
        if result.returncode != 0:
            return []
        return [node["name"] for node in json.loads(result.stdout)["nodes"] if node["connected_shards"] == 1]

    def _dead(self):
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None:
                return f"{name} ended with {daemon.returncode}: {self._log(name).read_text()[-2000:]}"
        return None

    def _log(self, name):
        return self.folder / f"{name}.log"

    def _daemon(self, name, command):
        with open(self._log(name), "w") as log:
            self.daemons[name] = subprocess.Popen([self.binary] + command, stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, env=self.environment)

    def _command(self, command):
        result = subprocess.run([self.binary] + command, capture_output=True, text=True, timeout=DEADLINE_SECONDS,
                                env=self.environment)
        if result.returncode != 0:
            fail(f"phalanx {' '.join(command)}: {result.stderr.strip()}")
        return result.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what, dead):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        reason = dead()
        if reason:
            fail(reason)
        if time.monotonic() > deadline:
            fail(f"waited in vain for {what}")
        time.sleep(0.05)


def sha256(file):
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make_file(path):
    """Writes about 100 MB of files that every machine has."""
    left = DEFAULT_BYTES
    with open(path, "wb") as out:
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib", "/usr/bin"):
            for file in sorted(pathlib.Path(folder).rglob("*")):
                if left <= 0:
                    return
                try:
                    if file.is_symlink() or not file.is_file():
                        continue
                    data = file.read_bytes()[:left]
                except OSError:
                    continue
                out.write(data)
                left -= len(data)


class Bars:
    """One line of progress per receiver, redrawn in place on a terminal; nothing elsewhere."""

    WIDTH = 40

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.drawn = 0

    def draw(self, size, copies):
        if not self.live:
            return
        if self.drawn:
            print(f"\033[{self.drawn}A", end="")
        present = {copy["node"]: (copy["bytes_present"], copy["sender"]) for copy in copies}
        for index in range(2, NODES + 1):
            done, sender = present.get(f"node{index}", (0, ""))
            filled = int(self.WIDTH * done / max(size, 1))
            print(f"  node{index} {'█' * filled}{'·' * (self.WIDTH - filled)} {100 * done / max(size, 1):5.1f} %  "
                  f"{'from ' + sender if sender else '':16}")
        self.drawn = NODES - 1


def broadcast(demo, file, digest, name, kill_at=None):
    """Puts a file on node1 and gets it on all other nodes; with kill_at, kills a relay at that fraction of the broadcast."""
    size = os.path.getsize(file)
    demo.put(1, file, name)
    started = time.monotonic()
    gets = {f"node{index}": (demo.get(index, name, demo.folder / f"{name}.{index}"), demo.folder / f"{name}.{index}")
            for index in range(2, NODES + 1)}
    bars, victim, tree = Bars(), None, []
    while any(process.poll() is None for process, _ in gets.values()):
        if time.monotonic() - started > DEADLINE_SECONDS:
            fail("the broadcast did not end")
        tree = demo.describe(name)["copies"]
        bars.draw(size, tree)
        if kill_at and victim is None:
            victim = kill_a_relay(demo, tree, size, kill_at)
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - started
    tree = demo.describe(name)["copies"]
    bars.draw(size, tree)
    survivors = [node for node in gets if node != victim]
    for node in survivors:
        process, output = gets[node]
        if process.returncode != 0:
            fail(f"{node} did not get the file: {process.stderr.read().strip()}")
        if sha256(output) != digest:
            fail(f"{node} has other bytes")
        output.unlink()
    report(size, seconds, survivors, victim, tree)
    demo.draw(name)
    demo.remove(name)
    if kill_at and victim is None:
        fail("no relay with descendants was seen half-way")


def kill_a_relay(demo, tree, size, kill_at):
    """Returns the relay with the most descendants, once it has that fraction of the object."""
    relays = [(copy["descendants"], copy["node"]) for copy in tree
              if copy["sender"] and kill_at * size <= copy["bytes_present"] < size]
    if not relays or max(relays)[0] < 2:
        return None
    count, victim = max(relays)
    demo.kill(victim)
    print(f"  killed {victim}, which was feeding {count} others directly or indirectly")
    return victim


def floats(factor):
    """Returns FLOATS little-endian f32: 0, factor, 2 factor, ..., repeated."""
    return array.array("f", [factor * i for i in range(PERIOD)]).tobytes() * (FLOATS // PERIOD)


def reduction(demo, name):
    """Every remaining node puts floats and node1 reduces them; half-way the node of an inner slot is killed."""
    nodes = [index for index in range(1, NODES + 1) if demo.daemons[f"node{index}"].poll() is None]
    sources = {f"node{index}": f"{name}-{index}" for index in nodes}
    file = demo.folder / "floats"
    for index in nodes:
        file.write_bytes(floats(index))
        demo.put(index, file, sources[f"node{index}"])
    started = time.monotonic()
    process = demo.reduce(1, name, sources.values())
    victim = None
    while process.poll() is None:
        if time.monotonic() - started > DEADLINE_SECONDS:
            fail("the reduction did not end")
        if victim is None:
            victim = kill_a_slot(demo, name, nodes)
        time.sleep(POLL_SECONDS / 4)
    seconds = time.monotonic() - started
    if process.returncode != 0:
        fail(f"the sum did not come: {process.stderr.read().strip()}")
    output = demo.folder / "sum"
    got = demo.get(1, name, output)
    if got.wait() != 0 or output.read_bytes() != floats(sum(nodes)):
        fail("the sum is another one")
    print(f"  the sum of {len(nodes)} times {FLOATS:,} floats is on node1, every one as it should be, after {seconds:.2f} s "
          f"({file.stat().st_size:,} bytes take {file.stat().st_size / 40e6:.2f} s on one link)")
    if victim is None:
        fail("no slot in the middle was seen half-way")


def kill_a_slot(demo, name, nodes):
    """Kills the node of a slot with slots below and above it, once that has computed half; puts its source again on node1."""
    tree = demo.look(name).get("reduction") or {"slots": []}
    above = {slot["parent"] for slot in tree["slots"]}
    below = {slot["slot"] for slot in tree["slots"]}
    victims = [slot["node"] for slot in tree["slots"]
               if slot["slot"] in above and slot["parent"] in below and 2 * slot["watermark"] >= tree["size_bytes"]]
    if not victims:
        return None
    victim = victims[len(victims) // 2]
    demo.draw(name)
    demo.kill(victim)
    index = int(victim.removeprefix("node"))
    file = demo.folder / "again"
    file.write_bytes(floats(index))
    demo.put(1, file, f"{name}-{index}")
    print(f"  killed {victim}, and put what it had put on node1; {len(nodes) - 1} nodes are left\n")
    demo.draw(name)
    return victim


def report(size, seconds, survivors, victim, tree):
    twice = sum(copy["bytes_sent_twice"] for copy in tree if copy["node"] in survivors)
    print(f"  {len(survivors)} nodes have all {size:,} bytes, SHA-256 equal, after {seconds:.2f} s "
          f"(one after the other would take {len(survivors)} times one transfer)")
    if victim:
        repaired = [copy["node"] for copy in tree if copy["repairs"] > 0]
        print(f"  {', '.join(repaired) or 'nobody'} went on from another sender; {twice:,} bytes were sent twice")


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("file", nargs="?", help="what to broadcast (default: some 100 MB of this machine's files)")
    parser.add_argument("--binary", required=True, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="phalanx-demo-")
    demo = Demo(arguments.binary, folder)
    try:
        file = pathlib.Path(arguments.file) if arguments.file else demo.folder / "file"
        if not arguments.file:
            make_file(file)
        if not file.is_file():
            fail(f"{file} is not a file")
        digest = sha256(file)
        print(f"A directory and {NODES} nodes on loopback, each sending at most {EGRESS}; a file of {file.stat().st_size:,} bytes.")
        demo.start()
        print("\n1. node1 has it; the seven others ask at once\n")
        broadcast(demo, file, digest, "demo-1")
        print("2. The same, and a relay dies half-way\n")
        broadcast(demo, file, digest, "demo-2", kill_at=0.5)
        print("3. Seven nodes have floats, node1 asks for their sum, and the node of a slot in the middle dies half-way\n")
        reduction(demo, "demo-3")
    finally:
        demo.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("All daemons stopped.")


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    main()
