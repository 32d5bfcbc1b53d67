"""Phalanx and Ray in one process, imported in either order: both bring gRPC, allocators, threads and
signal handlers."""

from __future__ import annotations

import os
import subprocess
import sys

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
options = {"include_dashboard": False, "object_store_memory": 100 << 20, "logging_level": "error"}
ray.init(num_cpus=1, **options)
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
def test_one_process(first):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
    environment["RAY_ADDRESS"] = "local"  # not the cluster of other tests
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", "import numpy as np" + _FIRST[first] + _PROGRAM],
        capture_output=True,
        text=True,
        timeout=150,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "end"
