"""Real daemons on loopback for tests: started, watched, and stopped by process id.

Every wait has a deadline and nothing sleeps: a test waits for a line of output, for the end of a
process, or for a command (`phalanx status --until-nodes`) that waits itself.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

# The executable under test, in the runfiles of the test.
BINARY = os.environ.get("PHALANX_BINARY", os.path.abspath("src/cli/phalanx"))
# Of tests that have //tests/process:holder in their data.
HOLDER = os.environ.get("PHALANX_HOLDER", os.path.abspath("tests/process/holder"))
# Longer than any step takes on a slow machine, shorter than Bazel's own limit.
DEADLINE_S = 60

OK, ERROR, USAGE, NOT_FOUND, TIMED_OUT, UNAVAILABLE = range(6)

ID_A = "aa" * 20
ID_B = "bb" * 20


def environment():
    """Return the environment without variables that change the commands."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}


def tied(*command):
    """Return the command wrapped so that the kernel kills it when the thread that starts it ends."""
    return ["setpriv", "--pdeathsig=KILL", *command]


def wait_for_end(pid, timeout=DEADLINE_S):
    """Wait until a process has ended. The process need not be a child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise TimeoutError(f"process {pid} still runs after {timeout} s")
    finally:
        os.close(handle)


def own_bytes(pid):
    """Return the memory that a process does not share."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel reports no RssAnon")


class Daemon:
    """A process that this one started, with its standard output as lines."""

    def __init__(self, arguments, log_path, **popen):
        self.log_path = log_path
        self.arguments = arguments
        self._buffer = b""
        with open(log_path, "ab") as log:
            self.process = subprocess.Popen(
                tied(BINARY, *arguments), stdout=subprocess.PIPE, stderr=log, env=environment(), **popen
            )
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def pid(self):
        return self.process.pid

    def read_line(self, timeout=DEADLINE_S):
        """Return the next line without its end; raise EOFError at the end of the output."""
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0, end - time.monotonic())):
                    raise TimeoutError(f"{self.arguments[0]} printed nothing for {timeout} s")
                chunk = os.read(self.process.stdout.fileno(), 65536)
                if not chunk:
                    raise EOFError(f"{' '.join(self.arguments)} ended: {self.log()[-2000:]}")
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def wait_for_log(self, text, timeout=DEADLINE_S):
        """Wait for a log line that contains `text`, and return it."""
        end = time.monotonic() + timeout
        with subprocess.Popen(
            ["tail", "--lines=+1", "--follow", self.log_path], stdout=subprocess.PIPE
        ) as tail, selectors.DefaultSelector() as selector:
            selector.register(tail.stdout, selectors.EVENT_READ)
            seen = b""
            try:
                while selector.select(max(0, end - time.monotonic())):
                    seen += os.read(tail.stdout.fileno(), 65536)
                    for line in seen.splitlines():
                        if text.encode() in line:
                            return line.decode(errors="replace")
            finally:
                tail.kill()
        raise AssertionError(f"{text} is not in the log: {seen.decode(errors='replace')}")

    def log(self):
        return pathlib.Path(self.log_path).read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Send SIGKILL, which also ends a stopped process, and wait until it is gone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def wait(self, timeout=DEADLINE_S):
        """Wait for the process, and return its exit status."""
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.process.stdout.close()


class DirectoryShard(Daemon):
    def __init__(self, arguments, log_path, **popen):
        super().__init__(["directory", "--json", *arguments], log_path, **popen)
        self.hello = json.loads(self.read_line())
        self.address = self.hello["address"]


class Node(Daemon):
    def __init__(self, arguments, log_path, **popen):
        super().__init__(["node", "--json", *arguments], log_path, **popen)
        self.hello = json.loads(self.read_line())
        self.name = self.hello["name"]
        self.address = self.hello["address"]
        self.client_address = self.hello["socket"]


class Cluster:
    """The shards and nodes of one test, and the commands for them."""

    def __init__(self):
        # Short: the path of a Unix socket has at most 107 bytes.
        self.folder = tempfile.mkdtemp(prefix="phx-", dir="/tmp")
        self.shards = []
        self.nodes = {}
        # Arguments of every command that queries the directory.
        self.tool_arguments = []
        self._daemons = []
        self._commands = []

    def close(self):
        for command in self._commands:
            self.discard(command)
        for daemon in reversed(self._daemons):
            daemon.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def logs(self):
        """Return the end of every daemon's log, for the message of a failed test."""
        parts = []
        for daemon in self._daemons:
            parts.append(f"--- {daemon.log_path} (exit {daemon.process.poll()})\n{daemon.log()[-1500:]}")
        return "\n".join(parts)

    def start(self, make, arguments, name, **popen):
        daemon = make(arguments, self.path(name + ".log"), **popen)
        self._daemons.append(daemon)
        return daemon

    def start_shards(self, count=1, arguments=()):
        for index in range(count):
            self.shards.append(self.start_shard(index, count, arguments=arguments))
        return self.shards

    def start_shard(self, index, count, listen="127.0.0.1:0", arguments=()):
        place = [f"--listen={listen}", f"--shard-index={index}", f"--num-shards={count}"]
        return self.start(DirectoryShard, [*place, *arguments], f"shard{index}")

    def restart_shard(self, index, arguments=()):
        """Start the shard again at the same address. REQUIRES: its previous process is dead."""
        self.shards[index] = self.start_shard(
            index, len(self.shards), listen=self.shards[index].address, arguments=arguments
        )

    @property
    def directory(self):
        return ",".join(shard.address for shard in self.shards)

    def start_node(self, name, arguments=(), directory=None, capacity="64MiB", **popen):
        settings = [
            f"--name={name}",
            f"--directory={directory or self.directory}",
            "--listen=127.0.0.1:0",
            f"--socket={self.path(name + '.sock')}",
            "--io-threads=1",
        ]
        if capacity is not None:
            settings.append(f"--capacity={capacity}")
        self.nodes[name] = self.start(Node, [*settings, *arguments], name, **popen)
        return self.nodes[name]

    def start_nodes(self, count, arguments=(), **settings):
        for index in range(count):
            self.start_node(f"n{index}", arguments, **settings)
        self.wait_for_nodes(count)
        return list(self.nodes.values())

    def start_hosts(self, hosts, arguments=()):
        """Start a node on each of the hosts: "aab" are n0 and n1 on host a, and n2 on host b."""
        for index, host in enumerate(hosts):
            self.start_node(f"n{index}", [f"--label=host={host}", *arguments])
        self.wait_for_nodes(len(hosts))
        return list(self.nodes.values())

    # ---- commands

    def begin(self, *arguments, node=None, **popen):
        """Start a command. Its output is text unless `popen` sets something else."""
        command = tied(BINARY, *arguments)
        if node is not None:
            command.append(f"--address={self.nodes[node].client_address}")
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment(), **{**settings, **popen})
        self._commands.append(process)
        return process

    def finish(self, process, expect=OK, timeout=DEADLINE_S):
        """Return a command's standard output; fail unless it exits with `expect`."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{process.args} hangs: {out}\n{err}\n{self.logs()}") from None
        if process.returncode != expect:
            raise AssertionError(
                f"{process.args} ended with {process.returncode}, not {expect}: {out}\n{err}\n{self.logs()}"
            )
        return out if expect == OK else err

    def discard(self, process):
        """Kill a command and drop its output."""
        process.kill()
        process.wait(DEADLINE_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                # Input that could not be written does not matter.
                with contextlib.suppress(OSError):
                    pipe.close()

    def run(self, *arguments, node=None, expect=OK, timeout=DEADLINE_S):
        return self.finish(self.begin(*arguments, node=node), expect, timeout)

    def ask(self, *arguments, expect=OK):
        """Run a command that queries the directory, and return its JSON."""
        place = [f"--directory={self.directory}", *self.tool_arguments]
        return json.loads(self.run(*arguments, "--json", *place, expect=expect))

    def wait_for_nodes(self, count):
        return self.ask("status", f"--until-nodes={count}", f"--timeout={DEADLINE_S}s", "--interval=20ms")

    def follow(self, condition, *arguments, timeout=DEADLINE_S):
        """Follow a command until `condition` holds for its output, and return that output."""
        watcher = Daemon(
            [*arguments, "--follow", "--json", "--interval=10ms", f"--directory={self.directory}",
             *self.tool_arguments],
            self.path("follow.log"),
        )
        end = time.monotonic() + timeout
        try:
            while True:
                try:
                    look = json.loads(watcher.read_line(max(0.1, end - time.monotonic())))
                except TimeoutError:
                    raise AssertionError(f"it never came to that\n{self.logs()}") from None
                if condition(look):
                    return look
                if time.monotonic() > end:
                    raise AssertionError(f"it never came to that: {look}\n{self.logs()}")
        finally:
            watcher.close()

    def await_copies(self, object_id, count):
        """Wait until the directory lists this many complete copies. Put and Get do not wait for that."""
        return self.follow(lambda look: look["complete_copies"] == count, "describe", object_id)

    def bench(self, op, *flags, sizes="1KiB,1MiB"):
        """Run a benchmark with a rank at each node, and return its records. Every rank verifies every byte."""
        names = list(self.nodes)
        shared = ["bench", op, f"--world={len(names)}", f"--session={' '.join([op, *flags])}", f"--sizes={sizes}",
                  "--runs=2", "--warmup=1", "--json", *flags]
        ranks = [self.begin(*shared, f"--rank={rank}", node=name) for rank, name in enumerate(names)]
        records = json.loads([self.finish(rank) for rank in ranks][0])
        if len(records) != len(sizes.split(",")) or not all(record["verified"] for record in records):
            raise AssertionError(f"{op} {flags}: {records}")
        return records

    # ---- files

    def make_file(self, name, size, seed=1):
        """Make a file with bytes that follow from `seed`, and return its path."""
        path = self.path(name)
        with open(path, "wb") as file:
            left, counter = size, 0
            while left > 0:
                block = hashlib.shake_128(f"{seed}/{counter}".encode()).digest(min(left, 1 << 20))
                file.write(block)
                left -= len(block)
                counter += 1
        return path

    def put(self, node, path, object_id, *arguments, expect=OK):
        return self.run("put", path, f"--id={object_id}", "-q", *arguments, node=node, expect=expect)

    def begin_get(self, node, object_id, *arguments):
        output = self.path(f"{node}.{object_id[:8]}.out")
        process = self.begin(
            "get", object_id, "-o", output, "-q", f"--timeout={DEADLINE_S}s", *arguments, node=node
        )
        process.output = output
        return process

    def finish_get(self, process):
        """Return the SHA-256 of the output of a Get."""
        self.finish(process)
        return sha256(process.output)

    def get(self, node, object_id, *arguments):
        return self.finish_get(self.begin_get(node, object_id, *arguments))


class Holder:
    """A client process that executes commands (holder.cc)."""

    def __init__(self, node):
        self.process = subprocess.Popen(
            tied(HOLDER, node.client_address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment(),
        )

    def begin(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def finish(self):
        return self.process.stdout.readline().strip()

    def execute(self, *words):
        self.begin(*words)
        return self.finish()

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class ClusterTest(unittest.TestCase):
    """A test with its own cluster."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)

    def assert_dies(self, daemon, status):
        self.assertEqual(daemon.wait(), status, daemon.log())

    @contextlib.contextmanager
    def stopped(self, daemon):
        """Stop a daemon with SIGSTOP for the length of the block."""
        daemon.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            daemon.signal(signal.SIGCONT)


def of_this_shard(tests):
    """Return the tests of a suite that this process runs if Bazel splits them among several processes. A
    module with `shard_count` returns this from `load_tests`."""
    if status := os.environ.get("TEST_SHARD_STATUS_FILE"):
        pathlib.Path(status).touch()  # reports to Bazel that the tests are split
    each = [test for of_class in tests for test in of_class]
    index, count = (int(os.environ.get(name, default)) for name, default in (("TEST_SHARD_INDEX", 0), ("TEST_TOTAL_SHARDS", 1)))
    return unittest.TestSuite(each[index::count])
