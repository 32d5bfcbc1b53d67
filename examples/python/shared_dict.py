"""A large dict of arrays for eight processes on four hosts, here four nodes on loopback.

``shared_dict.py [MIB]``: the size of the dict, 64 MiB by default. It is put once, at one node. The others fetch it from
each other, once each, and the two processes of a node map the same memory. The first dict also pays for the
memory of the nodes; the second one finds it there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import tempfile
import time

import numpy as np
from fleet import NODES, Fleet, wait_until

import phalanx

READERS = 2 * NODES
DICTS = 2
LAYERS = 16
TIMEOUT_S = 120.0


def make(mib: int, number: int) -> dict[str, np.ndarray]:
    """Return a dict of equal arrays, with other elements in each array of each dict."""
    size = (mib << 20) // LAYERS // 4
    return {f"layer {i}": np.full(size, value, np.float32) for i, value in enumerate(values_of(number))}


def values_of(number: int) -> list[float]:
    return [float(LAYERS * number + i) for i in range(LAYERS)]


def shared(number: int) -> phalanx.ObjectRef:
    return phalanx.ObjectRef.from_name(f"dict/{number}")


def answers(number: int) -> list[phalanx.ObjectRef]:
    return [phalanx.ObjectRef.from_name(f"answer/{number}/{reader}") for reader in range(READERS)]


def read(address: str, reader: int) -> None:
    """Wait for each dict, and answer with the last element of each of its arrays."""
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        client.put("ready", answers(0)[reader])
        for number in range(1, DICTS + 1):
            layers = client.get(shared(number))
            client.put([float(layer[-1]) for layer in layers.values()], answers(number)[reader])
            del layers  # the node can use its memory again once no process looks at it


def share(client: phalanx.Client, mib: int, number: int) -> bool:
    """Put a dict, and return whether all processes have read it, with one copy on each node."""
    layers = make(mib, number)
    began = time.perf_counter()
    client.put(layers, shared(number))
    found = client.get(answers(number))
    seconds = time.perf_counter() - began
    copies = client.stat(shared(number)).complete_copies
    print(f"dict {number} of {mib} MiB: read by {READERS} processes after {seconds:.2f} s; {copies} copies")
    client.delete(shared(number))
    return copies == NODES and all(values == values_of(number) for values in found)


def main() -> int:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    with tempfile.TemporaryDirectory(prefix="shared-", dir="/tmp") as folder:
        fleet = Fleet(folder, capacity_mib=2 * mib + 64)
        with contextlib.closing(fleet), contextlib.ExitStack() as stack:
            clients = [stack.enter_context(fleet.add_node(f"n{i + 1}")) for i in range(NODES)]
            wait_until(clients[0], "status", f"--until-nodes={NODES}")
            spawned = multiprocessing.get_context("spawn").Process
            arguments = [(clients[i % NODES].address, i) for i in range(READERS)]
            readers = [spawned(target=read, args=these, daemon=True) for these in arguments]
            for process in readers:
                process.start()
            clients[0].get(answers(0), timeout=TIMEOUT_S)
            good = all([share(clients[0], mib, number) for number in range(1, DICTS + 1)])
            for process in readers:
                process.join()
    return 0 if good and not any(process.exitcode for process in readers) else 1


if __name__ == "__main__":
    sys.exit(main())
