"""A model for a fleet: four hosts, here four nodes on loopback, get each version, also one that joins later.

The trainer puts each version under a name of its own and broadcasts it, sticky: nodes fetch it from each
other before a server asks for it. One node is killed, and the others get the next version.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

import phalanx

# The command of this environment's package, also if the environment is not active.
COMMAND = shutil.which("phalanx", path=os.path.dirname(sys.executable)) or "phalanx"
NODES = 4
MIB = 16
TIMEOUT_S = 30.0


class Fleet:
    """A directory and nodes, as processes of this machine. On a fleet each host has one node."""

    def __init__(self, folder: str, capacity_mib: int = 256) -> None:
        self._folder = folder
        self._capacity = f"--capacity={capacity_mib}MiB"
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._directory = self._start("directory", "directory", "--listen=127.0.0.1:0")["address"]

    def add_node(self, name: str) -> phalanx.Client:
        """Start a node, and return a client of it: what `phalanx.init()` is on that host."""
        flags = [f"--directory={self._directory}", f"--socket={self._folder}/{name}/node.sock"]
        started = self._start(name, "node", f"--name={name}", self._capacity, *flags)
        return phalanx.Client(started["socket"], timeout=TIMEOUT_S)

    def _start(self, name: str, *command: str) -> dict[str, Any]:
        """Start a daemon, and return the line that it prints when it listens. Raises RuntimeError."""
        words = [COMMAND, *command, "--log-level=off", "--json"]
        self.processes[name] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        output = self.processes[name].stdout
        assert output is not None
        line = output.readline()
        if not line:
            raise RuntimeError(f"{name} did not start: {' '.join(words)}")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.communicate()

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def version(number: int) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name(f"model/{number}")


def release(trainer: phalanx.Client, number: int) -> int:
    """Put a version, and return the number of nodes that have it."""
    trainer.put({"w": np.full(MIB << 18, number, np.float32)}, version(number))
    return trainer.broadcast(version(number), sticky=True).wait(TIMEOUT_S)


def served(servers: list[phalanx.Client], number: int) -> bool:
    """Whether each server has the version on its own node, complete and with the right values."""
    models = [server.get(version(number), timeout=0) for server in servers]
    return all(model["w"][0] == number == model["w"][-1] for model in models)


def wait_until(client: phalanx.Client, *command: str) -> None:
    words = [COMMAND, *command, "--timeout=30s", "--address", client.address]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="fleet-", dir="/tmp") as folder:
        fleet = Fleet(folder)
        with contextlib.closing(fleet), contextlib.ExitStack() as stack:
            trainer, *servers = (stack.enter_context(fleet.add_node(f"n{i}")) for i in range(1, NODES + 1))
            wait_until(trainer, "status", f"--until-nodes={NODES}")
            good = release(trainer, 1) == NODES and served(servers, 1)
            print(f"version 1 is on {NODES} nodes")

            late = stack.enter_context(fleet.add_node("n5"))
            wait_until(trainer, "describe", "--name=model/1", f"--until-copies={NODES + 1}")
            good &= served([late], 1)
            print("a node that joined later has it, too")

            fleet.kill("n2")
            servers = [*servers[1:], late]
            good &= release(trainer, 2) == NODES and served(servers, 2)
            trainer.delete(version(1))  # servers use version 2 now
            print(f"n2 died; version 2 is on the other {NODES} nodes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
