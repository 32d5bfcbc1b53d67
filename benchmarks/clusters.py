"""Daemons on the hosts of a benchmark: a directory, and one node per host."""

import contextlib
import json
import pathlib
import secrets
import signal
import socket
import subprocess
import time

from benchmarks.emulated_hosts import Loopback

DIRECTORY_PORT = 7400
NODE_PORT = 7410
# A new directory reports no object as lost until every node of an earlier directory could have registered: its --lease.
LEARNING_S = 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """A directory and one node per host, from start to stop."""

    def __init__(self, hosts, arguments, folder):
        self.hosts, self.arguments, self.folder = hosts, arguments, pathlib.Path(folder)
        self.secret = self.folder / "secret"
        self.secret.write_text(secrets.token_hex(32))
        self.secret.chmod(0o600)
        self.daemons = []
        self.shards = []
        self.began = time.monotonic()

    def __enter__(self):
        try:
            self._begin()
        except BaseException:  # `with` does not call __exit__ if __init__ fails
            self.__exit__()
            raise
        return self

    def _begin(self):
        loopback = isinstance(self.hosts, Loopback)
        ports = [free_port() if loopback else DIRECTORY_PORT + i for i in range(self.arguments.shards)]
        self.shards = [f"{self.hosts.address(0)}:{port}" for port in ports]
        for index in range(len(self.shards)):
            self.daemons.append(self._start_shard(index))
        for host in range(self.hosts.count):
            address = self.hosts.address(host) + (":0" if loopback else f":{NODE_PORT}")
            labels = ["--label", f"zone=z{self.hosts.zone(host)}"] if self.hosts.zones > 1 else []
            if loopback:  # nodes of one address count as one host, which keeps one copy of a result
                labels += ["--label", f"host=h{host}"]
            self.daemons.append(self._start(
                host, f"node{host}", ["node", "--directory", ",".join(self.shards), "--name", f"node{host}", "--listen", address,
                                      "--socket", self.socket(host)] + labels + self.arguments.node_flags.split()))
        for host in range(self.hosts.count):
            self._wait_for_socket(host)
        self.began = time.monotonic()

    def __exit__(self, *_):
        for daemon in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGCONT)
                daemon.kill()
        for daemon in self.daemons:
            daemon.wait()

    def socket(self, host):
        return str(self.folder / f"n{host}" / "node.sock")

    def pids(self):
        return [daemon.pid for daemon in self.daemons]

    def named_pids(self):
        """The process ids of the daemons, by name."""
        names = [f"directory{index}" for index in range(len(self.shards))] + [f"node{host}" for host in range(self.hosts.count)]
        return dict(zip(names, self.pids()))

    def kill_node(self, host):
        """Returns the instant of the kill."""
        killed = time.monotonic_ns()
        self.daemons[len(self.shards) + host].kill()
        return killed

    def stop_node(self, host):
        """Returns the instant at which the node is stopped: it lives, and is silent."""
        stopped = time.monotonic_ns()
        self.daemons[len(self.shards) + host].send_signal(signal.SIGSTOP)
        return stopped

    def kill_shard(self):
        """Returns when the first shard has ended."""
        self.daemons[0].kill()
        self.daemons[0].wait()

    def restart_shard(self):
        """Starts the first shard again. Returns the instant before that."""
        started = time.monotonic_ns()
        self.daemons[0] = self._start_shard(0)
        return started

    def wait_until_it_decides(self):
        """Waits until the directory would report the copies of a killed node as lost at once."""
        time.sleep(max(0, self.began + LEARNING_S - time.monotonic()))

    def _start_shard(self, index):
        return self._start(0, f"directory{index}", ["directory", "--listen", self.shards[index], "--shard-index", str(index),
                                                    "--num-shards", str(len(self.shards))])

    def _start(self, host, name, command):
        folder = pathlib.Path(self.arguments.logs or self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.log", "a") as log:
            return self.hosts.popen(host, [self.arguments.binary] + command + ["--secret-file", str(self.secret)],
                                    stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _wait_for_socket(self, host):
        """Waits for the sockets: a node opens its socket when it starts to serve."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(self.socket(host))
                return
            if any(daemon.poll() is not None for daemon in self.daemons):
                break
            time.sleep(0.01)
        raise SystemExit(f"node {host} did not come up; see its log (--logs DIR keeps it)")


class PrivateCluster:
    """A directory and a node in one process, as programs start them for themselves. REQUIRES: one host, without a namespace."""

    def __init__(self, hosts, arguments, folder):
        self.hosts, self.arguments, self.folder = hosts, arguments, pathlib.Path(folder)
        self.daemon = None
        self.shards = []

    def __enter__(self):
        with open(self.folder / "up.log", "w") as log:
            self.daemon = subprocess.Popen([self.arguments.binary, "up", "--json"] + self.arguments.node_flags.split(),
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.daemon.stdout.readline()
        if not line:
            self.__exit__()
            raise SystemExit(f"the private cluster did not come up: {(self.folder / 'up.log').read_text()}")
        place = json.loads(line)
        self.address, self.secret, self.shards = place["socket"], pathlib.Path(place["secret_file"]), [place["directory"]]
        return self

    def __exit__(self, *_):
        # Not SIGKILL: it removes its folder.
        self.daemon.terminate()
        self.daemon.communicate()

    def socket(self, _):
        return self.address.removeprefix("unix:")

    def pids(self):
        return [self.daemon.pid]

    def named_pids(self):
        return {"cluster": self.daemon.pid}
