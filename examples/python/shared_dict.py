"""A large dict of arrays, put once and read by eight processes, which map the same memory.

``shared_dict.py [MIB]``: the size of the dict, 64 MiB by default. No reader copies it: the node holds one
copy, and each `get` takes as long for 1 MiB as for 1 GiB.
"""

from __future__ import annotations

import multiprocessing
import sys
import time

import numpy as np

import phalanx

READERS = 8
LAYERS = 16
TIMEOUT_S = 60.0


def make(mib: int) -> dict[str, np.ndarray]:
    """Return a dict of equal arrays; all elements of layer i are i."""
    return {f"layer {i}": np.full((mib << 20) // LAYERS // 4, i, np.float32) for i in range(LAYERS)}


def read(address: str, ref: phalanx.ObjectRef, result: phalanx.ObjectRef) -> None:
    """Put the seconds of the get, and what it got: the last element of each layer."""
    with phalanx.Client(address, timeout=TIMEOUT_S) as client:
        began = time.perf_counter()
        layers = client.get(ref)
        seconds = time.perf_counter() - began
        client.put((seconds, [float(layer[-1]) for layer in layers.values()]), result)


def main() -> int:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    client = phalanx.init(timeout=TIMEOUT_S)
    results = [client.ref() for _ in range(READERS)]
    ref = client.ref()
    spawned = multiprocessing.get_context("spawn").Process
    readers = [spawned(target=read, args=(client.address, ref, result), daemon=True) for result in results]
    for process in readers:
        process.start()  # they wait for the dict
    layers = make(mib)
    began = time.perf_counter()
    client.put(layers, ref)
    seconds = time.perf_counter() - began
    found = client.get(results)
    for process in readers:
        process.join()
    print(f"put {mib} MiB in {seconds * 1e3:.0f} ms; {READERS} processes read it")
    copies = client.stat(ref).complete_copies
    print(f"copies in the cluster: {copies}")
    return 0 if copies == 1 and all(last == list(range(LAYERS)) for _, last in found) else 1


if __name__ == "__main__":
    sys.exit(main())
