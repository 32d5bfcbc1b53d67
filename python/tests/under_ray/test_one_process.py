"""Phalanx and Ray in one process, imported in either order: both bring gRPC, allocators, threads and
signal handlers."""

from __future__ import annotations

import pytest

_FIRST = {
    "phalanx": """
import phalanx
assert phalanx.get(phalanx.put(np.ones(1 << 18))).sum() == 1 << 18
import ray
""",
    "ray": """
import ray
import phalanx
""",
}
_PROGRAM = """
ray.init(logging_level="error", log_to_driver=False)
client = phalanx.init()
ref = client.put(np.arange(1 << 18))

@ray.remote
def last(address, ref):
    with phalanx.Client(address) as there:
        return int(there.get(ref, timeout=60)[-1])

# A ref travels in Ray's messages, and is used in Ray's worker.
assert ray.get(last.remote(client.address, ref)) == (1 << 18) - 1
total = client.get(client.reduce([client.put(np.ones(5, "f4")) for _ in range(3)]))
assert (total == 3).all()
assert ray.get(ray.put(client.get(ref)))[-1] == (1 << 18) - 1
ray.shutdown()
assert client.get(ref)[-1] == (1 << 18) - 1
print("end")
"""


@pytest.mark.parametrize("first", _FIRST)
def test_one_process(first, ray_cluster, run_program):
    program = "import numpy as np" + _FIRST[first] + _PROGRAM
    printed, _ = run_program("-X", "faulthandler", "-c", program, RAY_ADDRESS=ray_cluster.address)
    assert printed.splitlines()[-1] == "end"
