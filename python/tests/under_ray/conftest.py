"""Clusters of Ray on this machine: a head and two nodes, each with a raylet and a Phalanx node of its own.

Ray is installed for one Python only (test-requirements.txt); for the others this folder has no tests. There it
is required: without it the import below fails.
"""

from __future__ import annotations

import os
import sys
import time

import pytest

HAS_RAY = sys.version_info[:2] == (3, 11)
collect_ignore_glob = [] if HAS_RAY else ["test_*"]

# Ray writes neither into the home of the user that tests, nor outside of the folder of this run.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_TMPDIR"] = os.environ["XDG_RUNTIME_DIR"]
# Of a transfer, 60 s by default: one of the tests waits for the limit.
os.environ["RAY_rdt_fetch_fail_timeout_milliseconds"] = "20000"
CAPACITY = 256 << 20
_HERE = os.path.dirname(os.path.abspath(__file__))


class Clusters:
    """Owns the one cluster that this process is connected to: a process can be in one only."""

    def __init__(self) -> None:
        self._cluster = None
        self._name = ""
        self.nodes = []

    def use(self, name: str):
        """Return the cluster of this name; end another one, and start this one if need be."""
        import phalanx
        import phalanx.ray
        from ray.cluster_utils import Cluster

        if self._name == name:
            return self._cluster
        self.stop()
        phalanx.shutdown()  # the default client of other tests
        node = {"object_store_memory": 100 << 20, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 4})
        for i in range(2):
            self._cluster.add_node(num_cpus=4, resources={f"n{i}": 100}, **node)
        phalanx.ray.init(
            self._cluster.address,
            capacity=CAPACITY,
            runtime_env={"env_vars": {"PYTHONPATH": _HERE}},
            log_to_driver=False,
            logging_level="error",
        )
        self._name = name
        return self._cluster

    def stop(self) -> None:
        import phalanx.ray

        if self._cluster is not None:
            phalanx.ray.shutdown()
            self._cluster.shutdown()
        self._cluster, self._name = None, ""


@pytest.fixture(scope="session")
def client():
    """A client of a private cluster, which is not the default client: that one may be in Ray's cluster."""
    import phalanx

    with phalanx.Client(capacity=CAPACITY) as made:
        yield made


@pytest.fixture(scope="session")
def _clusters():
    made = Clusters()
    yield made
    made.stop()


@pytest.fixture
def ray_cluster(_clusters):
    """The cluster of all tests that destroy nothing."""
    return _clusters.use("stable")


@pytest.fixture
def fragile_cluster(_clusters):
    """The cluster of the tests that end processes. Nodes that a test adds are its own."""
    return _clusters.use("fragile")


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
    """Run the tests of the fragile cluster after all others, since the stable one then ends."""
    items.sort(key=lambda item: "fragile_cluster" in getattr(item, "fixturenames", ()))


def _eventually(condition, seconds: float = 20.0):
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
