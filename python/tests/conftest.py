"""Fixtures: private clusters, and daemons on loopback.

The tests use the installed package, or, for the tests of values only, the checkout.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
if importlib.util.find_spec("phalanx") is None:
    sys.path.insert(0, str(_ROOT / "python"))
sys.path.insert(0, str(_ROOT / "tests" / "process"))
sys.path.insert(0, str(_ROOT / "python" / "tests" / "support"))

# Settings of the caller must not change the tests; PHALANX_TEST_* is for the tests themselves.
for _name in [name for name in os.environ if re.match("PHALANX_(?!TEST_)", name)]:
    del os.environ[_name]

# Private clusters make their folders there, and tests kill some of them. The path of a socket is short.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="phx-", dir="/tmp")


def _remove_folder(folder: str, owner: int) -> None:
    # Children of tests run this, too, when they exit.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


atexit.register(_remove_folder, os.environ["XDG_RUNTIME_DIR"], os.getpid())


@pytest.fixture(scope="session")
def binary() -> str:
    """The executable of the package."""
    from phalanx import _native

    return _native.EXECUTABLE


@pytest.fixture
def client():
    """The default client, of a private cluster that all tests of a run share."""
    import phalanx

    return phalanx.init(capacity=256 << 20)


class Clock:
    """The clock of waits. The test moves it by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of waits in this process."""
    from phalanx import _waiting

    made = Clock()
    monkeypatch.setattr(_waiting, "time", made)
    return made


@pytest.fixture
def cluster(binary):
    """A cluster without daemons yet. It ends with the test."""
    import harness

    harness.BINARY = binary
    made = harness.Cluster()
    yield made
    made.close()


@pytest.fixture
def nodes(cluster):
    """Clients of three nodes of one cluster by name, the daemons, and the cluster."""
    import phalanx

    cluster.start_shards()
    daemons = cluster.start_nodes(3, capacity="256MiB")
    cluster.wait_for_nodes(3)
    clients = [phalanx.Client(daemon.client_address) for daemon in daemons]
    yield clients, daemons, cluster
    for made in clients:
        made.close()
