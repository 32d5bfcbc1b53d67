"""A cluster of Ray on this machine: a head and two nodes, each with a raylet and a Phalanx node of its own.

Ray is installed for one Python only (test-requirements.txt); for the others this folder has no tests. There it
is required: without it the import below fails.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest

HAS_RAY = sys.version_info[:2] == (3, 11)
collect_ignore_glob = [] if HAS_RAY else ["test_*"]

# Ray writes neither into the home of the user that tests, nor outside of the folder of this run.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_TMPDIR"] = os.environ["XDG_RUNTIME_DIR"]
# By default 15: beside another process that computes, a worker would have a thirtieth of a core.
os.environ["RAY_worker_niceness"] = "0"
CAPACITY = 256 << 20
# For a program, and for what a test waits for: longer than any takes on a loaded machine.
_LIMIT_S = 150
_EVENTUALLY_S = 60.0
_HERE = pathlib.Path(__file__).resolve().parent
# Where workers find what tests and examples send them functions and classes of.
_MODULES = f"{_HERE}:{_HERE.parents[2] / 'examples' / 'ray'}"


@pytest.fixture(scope="session")
def client():
    """A client of a private cluster, which is not the default client: that one may be in Ray's cluster."""
    import phalanx

    with phalanx.Client(capacity=CAPACITY) as made:
        yield made


@pytest.fixture(scope="session")
def ray_cluster():
    """The one cluster that this process is connected to. Tests that end processes of it run last."""
    import phalanx
    import phalanx.ray
    from ray.cluster_utils import Cluster

    phalanx.shutdown()  # the default client of other tests
    node = {"object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 4})
    for i in range(2):
        cluster.add_node(num_cpus=4, resources={f"n{i}": 100}, **node)
    phalanx.ray.init(
        cluster.address,
        capacity=CAPACITY,
        runtime_env={"env_vars": {"PYTHONPATH": _MODULES, "STARTER": "a worker"}},
        log_to_driver=False,
        logging_level="error",
    )
    yield cluster
    phalanx.ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def fragile_cluster(ray_cluster):
    """The same cluster, for tests that end processes. Nodes that a test adds are its own."""
    return ray_cluster


_stations = {}


@pytest.fixture
def stations(ray_cluster):
    """Four actors that live through the session: two on each of the cluster's other nodes."""
    from stations_support import Station

    if not _stations:
        for i in range(4):
            _stations[i] = Station.options(resources={f"n{i % 2}": 1}).remote()
    return [_stations[i] for i in range(4)]


def pytest_collection_modifyitems(items):
    """Run the tests that end processes of the cluster after all others."""
    items.sort(key=lambda item: "fragile_cluster" in getattr(item, "fixturenames", ()))


def _eventually(condition, seconds: float = _EVENTUALLY_S):
    """Return the condition's result as soon as it is true. Between two looks it waits for the clock to move on."""
    import threading

    until, never = time.monotonic() + seconds, threading.Event()
    while not (result := condition()):
        assert time.monotonic() < until, "the condition has not come true in time"
        never.wait(0.02)
    return result


@pytest.fixture
def eventually():
    return _eventually


def _run_program(*arguments, **variables):
    """Run a Python program, with these environment variables and none of Phalanx's; return what it prints, and its log."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        env={**environment, **variables},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def run_program():
    return _run_program
