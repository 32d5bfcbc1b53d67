"""The failure table of docs/python.md: the exact exception of each case, and the time it takes."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import sys
import threading
import time

import numpy as np
import pytest
from failures_support import AT_ONCE_S, raises

import phalanx
from phalanx import _values, exceptions
from phalanx._values import _wire

NOBODY = 65534
# As in src/local/local_protocol.h: a u32 length, a u8 kind, a u32 magic and the version.
HELLO = struct.Struct("<IBII")


def put_and_delete(client):
    ref = client.put(1)
    client.delete(ref)
    return ref


def failed(client, error):
    ref = client.ref()
    ref.set_exception(error)
    return ref


def closed(client):
    other = phalanx.Client(client.address)
    other.close()
    return other


def local_error():
    class Local(Exception):
        pass

    return Local("of a class that others have not")


_CASES = {
    "not put in time": (exceptions.GetTimeoutError, 0.3, lambda c: c.get(c.ref(), timeout=0.3)),
    "polled": (exceptions.GetTimeoutError, 0, lambda c: c.get(c.ref(), timeout=0)),
    "deleted": (exceptions.ObjectDeletedError, 0, lambda c: c.get(put_and_delete(c))),
    "producer raised": (ZeroDivisionError, 0, lambda c: c.get(failed(c, ZeroDivisionError()))),
    "producer raised its own": (exceptions.ProducerError, 0, lambda c: c.get(failed(c, local_error()))),
    "of another size": (exceptions.ObjectExistsError, 0, lambda c: c.put(b"xx", c.put(b"x"))),
    "larger than the node": (exceptions.StoreFullError, 0, lambda c: c.put(np.zeros(1 << 29, np.uint8))),
    "read-only": (ValueError, 0, lambda c: np.copyto(c.get(c.put(np.ones(9))), 0)),
    "out= of another dtype": (
        ValueError,
        0,
        lambda c: c.get(c.put(np.ones(9)), out=np.ones(9, "f4")),
    ),
    "no such dtype": (exceptions.InvalidArgumentError, 0, lambda c: c.reduce([c.ref()], dtype="c16")),
    "no such op": (exceptions.InvalidArgumentError, 0, lambda c: c.reduce([c.put(np.ones(2))], "mode")),
    "no elements": (TypeError, 0, lambda c: c.reduce([c.put(object)])),
    "pickle refused": (exceptions.PickleRefusedError, 0, lambda c: c.put(object(), allow_pickle=False)),
    "closed": (exceptions.ClosedError, 0, lambda c: closed(c).put(1)),
}


@pytest.mark.parametrize("case", _CASES)
def test_exact_exception_in_time(client, case):
    kind, after, call = _CASES[case]
    with raises(kind, after):
        call(client)


def test_no_room_now(cluster):
    cluster.start_shards()
    node = cluster.start_node("n0", capacity="64MiB")
    with phalanx.Client(node.client_address) as client:
        kept = client.put(np.ones(48 << 20, np.uint8))
        with raises(exceptions.StoreFullError, 0.3):
            client.put(np.ones(32 << 20, np.uint8), timeout=0.3)
        client.delete(kept)
        client.put(np.ones(32 << 20, np.uint8), timeout=30)


def test_a_tensor_without_torch(client, monkeypatch):
    """Another process put a tensor, and torch is not installed here."""
    metadata = _wire.pack_layout(_wire.TENSOR, _wire.Layout("float32", (3,), "C"))
    with monkeypatch.context() as patch:
        patch.setattr(_values, "encode", lambda array, **_: _values.Encoded(metadata, 12, memoryview(array)))
        ref = client.put(np.ones(3, np.float32))
    monkeypatch.setitem(sys.modules, "torch", None)
    with raises(ImportError, match=re.escape("phalanx[torch]")):
        client.get(ref)


# ---- two package versions


class Between:
    """A proxy between a client and a real node that makes one of them look like another version."""

    def __init__(self, path: str, node: str, of_client: int, of_node: int) -> None:
        self._node = node.removeprefix("unix:")
        self._more = (of_client, of_node)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.socket(socket.AF_UNIX) as node:
            node.connect(self._node)
            for source, to, more in zip((client, node), (node, client), self._more):
                length, *start = HELLO.unpack(self._read(source, HELLO.size))
                kind, magic, version = start
                rest = self._read(source, 4 + length - HELLO.size)
                to.sendall(HELLO.pack(length, kind, magic, version + more) + rest)
            client.recv(1)  # until the client has read the answer

    @staticmethod
    def _read(source: socket.socket, count: int) -> bytes:
        return source.recv(count, socket.MSG_WAITALL) if count else b""

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


@pytest.mark.parametrize("of_client, of_node", [(-1, 0), (2, 0), (0, -1), (0, 2)])
def test_other_protocol_version(cluster, of_client, of_node):
    """A client meets a node of another release; either side can detect it."""
    cluster.start_shards()
    node = cluster.start_node("n0")
    path = cluster.path("between")
    between = Between(path, node.client_address, of_client, of_node)
    with raises(exceptions.VersionError) as caught:
        phalanx.Client(path)
    between.close()
    said = str(caught.value)
    assert isinstance(caught.value, ConnectionError)
    one, other = (int(number) for number in re.findall(r"(?:version|client|n0) (\d+)", said))
    assert one - other == of_client + of_node
    assert path in said and phalanx.__version__ in said and socket.gethostname() in said
    assert caught.value.node == f"unix:{path}"


# ---- no secret, another user


@pytest.mark.parametrize("secret", [None, "another"])
def test_no_secret(cluster, tmp_path, monkeypatch, secret):
    """The node accepts its own user; a request to the directory needs the cluster's secret."""
    file = tmp_path / "secret"
    file.write_text("of this cluster\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    cluster.start_shards(arguments=[f"--secret-file={file}"])
    cluster.tool_arguments = [f"--secret-file={file}"]
    node = cluster.start_node("n0", [f"--secret-file={file}"])
    cluster.wait_for_nodes(1)
    if secret is not None:
        monkeypatch.setenv("PHALANX_SECRET", secret)
    with phalanx.Client(node.client_address) as client:
        ref = client.put(1)
        assert client.get(ref) == 1
        cluster.await_copies(ref.hex(), 1)
        for call in (client.status, lambda: client.tree(ref)):
            with raises(exceptions.AccessError, match="PHALANX_SECRET") as caught:
                call()
            assert isinstance(caught.value, PermissionError)
        monkeypatch.setenv("PHALANX_SECRET_FILE", str(file))
        assert client.status()["connected_nodes"] == 1
        assert "n0" in str(client.tree(ref))


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else one must be root")
@pytest.mark.parametrize("open_to_all", [False, True])
def test_another_user(cluster, open_to_all):
    cluster.start_shards()
    node = cluster.start_node("n0")
    os.chmod(cluster.folder, 0o755)
    if open_to_all:
        os.chmod(node.client_address.removeprefix("unix:"), 0o666)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            phalanx.Client(node.client_address, connect_timeout=5)
        except BaseException as error:
            os.write(write, type(error).__name__.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"AccessError"
    os.close(read)


# ---- nodes that die


def test_a_named_put_whose_object_is_lost_while_it_is_compared(cluster):
    cluster.start_shards()
    slow = cluster.start_node("n0", ["--max-egress=1MB/s"])
    other = cluster.start_node("n1")
    cluster.wait_for_nodes(2)
    value = np.ones(1 << 21)
    first, second = phalanx.Client(slow.client_address), phalanx.Client(other.client_address)
    ref = first.put(value, first.ref("once"))

    def kill_during_the_comparison():
        cluster.follow(lambda look: look["partial_copies"] == 1, "describe", ref.hex())
        slow.kill()

    killer = threading.Thread(target=kill_during_the_comparison)
    killer.start()
    with pytest.raises(exceptions.ObjectLostError) as caught:
        second.put(value, second.ref("once"), timeout=60)
    killer.join()
    assert caught.value.ref == ref.hex() and '"once"' in str(caught.value)
    second.close()
    first.close()


def test_dead_node(nodes):
    clients, daemons, cluster = nodes
    absent, lost = clients[0].ref(), clients[1].ref()
    clients[0].put(np.ones(1 << 18), phalanx.ObjectRef(lost.id), keep=True)
    cluster.await_copies(lost.hex(), 1)
    killer = threading.Timer(0.3, daemons[0].kill)
    with raises(exceptions.DisconnectedError, 0.3):
        killer.start()
        clients[0].get(absent, timeout=60)
    killer.join()
    with raises(exceptions.DisconnectedError):
        clients[0].put(1)
    with raises(exceptions.ObjectLostError):
        clients[1].get(lost, timeout=60)
