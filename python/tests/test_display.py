"""What a prompt and a notebook show of refs, drafts, reductions, broadcasts and the cluster."""

from __future__ import annotations

import html.parser
import sys
import threading

import numpy as np
import pytest

import phalanx
from phalanx import _native


class _Checked(html.parser.HTMLParser):
    """Checks that tags match, and collects the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


def shown(value: object) -> str:
    """Return the text of the HTML that a notebook shows."""
    return _Checked(value._repr_html_()).text


def test_refs_and_handles(client):
    ref = client.put(np.ones(3, np.float32))
    assert ref.hex() in repr(ref) and repr(ref) in shown(ref)
    draft = client.create((2, 3), "f4")
    assert "float32 (2, 3), not sealed" in repr(draft) and draft.ref.hex() in shown(draft)
    draft.array[:] = 0
    draft.seal()
    assert "sealed" in repr(draft) and "not sealed" not in repr(draft)
    late = client.ref()
    growing = client.open_reduction([ref, late], dtype="f32")
    assert "under way" in repr(growing) and growing.ref.hex() in shown(growing)
    client.put(np.ones(3, np.float32), late)
    growing.close()
    growing.wait(timeout=60)
    assert "ended" in repr(growing)
    sent = client.broadcast(ref, sticky=False)
    assert sent.wait(timeout=60) == 1
    assert repr(sent) == f"<phalanx.Broadcast of {ref!r} to all nodes: ended>" and ref.hex() in shown(sent)
    assert "to n1, <n2>:" in repr(client.broadcast(ref, ["n1", "<n2>"], sticky=False))
    assert "<n2>" in shown(client.broadcast(ref, ["n1", "<n2>"], sticky=False))
    assert "1 of 1 complete" in shown(sent.progress())
    aio = phalanx.AsyncClient.of(client)
    assert repr(aio.broadcast(ref, sticky=False)).startswith("<phalanx.AsyncBroadcast of")


def test_status(client):
    ref = client.put(np.ones((1 << 20) // 8))
    status = client.stat(ref)
    assert "complete=True" in repr(status) and "1048576" in shown(status)
    # Metadata is bytes, and can be long.
    assert len(repr(status)) < 400 and "metadata=<" in repr(status)
    cluster = client.status()
    assert isinstance(cluster, dict) and cluster["connected_nodes"] == 1
    assert client.node in shown(cluster) and "1 nodes, 1 of 1 shards" in shown(cluster)


def test_no_repr_asks_the_node(client, monkeypatch):
    """A debugger shows reprs at any time, also while the node does not answer."""
    ref = client.put(np.ones(3))
    values = [
        client,
        ref,
        client.create(3, "f4"),
        client.open_reduction([ref, client.ref()], dtype="f64"),
        client.broadcast(ref, sticky=False),
        client.stat(ref),
        client.status(),
        phalanx.AsyncClient.of(client),
        phalanx.AsyncClient("/nowhere"),
    ]
    called = []

    class Library:
        def __getattr__(self, name):
            called.append(name)
            return getattr(_native.lib, name)

    for name, module in list(sys.modules.items()):
        if name.startswith("phalanx.") and hasattr(module, "lib") and module is not _native:
            monkeypatch.setattr(module, "lib", Library())
    for value in values:
        assert repr(value)
        if hasattr(value, "_repr_html_"):
            shown(value)
    assert set(called) <= {"phx_call_ended"}
    monkeypatch.undo()
    values[2].drop()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The displays of a notebook's kernel."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    kind = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    displaypub = pytest.importorskip("IPython.core.displaypub")
    kind.instance().display_pub = made = displaypub.CapturingDisplayPublisher()
    yield made
    kind.clear_instance()


def test_a_tree_is_followed_in_its_place(client, monkeypatch, published):
    """One picture, updated until the reduction has ended."""
    sources = [client.put(np.ones(3)), client.ref()]
    growing = client.open_reduction(sources, dtype="f64")
    growing.close()
    tree = client.tree(growing.ref)
    assert tree.under_way
    drawn = threading.Event()
    original = published.publish

    def publish(*args, **kwargs):
        original(*args, **kwargs)
        drawn.set()

    monkeypatch.setattr(published, "publish", publish)

    def put() -> None:
        assert drawn.wait(60)
        client.put(np.ones(3), sources[1])

    putting = threading.Thread(target=put)
    putting.start()
    last = tree.follow(timeout=60, interval=0.01)
    putting.join()
    assert not last.under_way and last.data["complete_copies"] == 1
    first, *updates = published.outputs
    assert not first["update"] and updates and all(update["update"] for update in updates)
    assert {output["transient"]["display_id"] for output in published.outputs} == {
        first["transient"]["display_id"]
    }
    assert all(output["data"]["image/svg+xml"].startswith("<svg") for output in published.outputs)
    assert str(last).strip() == updates[-1]["data"]["text/plain"].strip()


def test_following_ends_with_its_timeout_or_the_object(client, published):
    growing = client.open_reduction([client.ref()], dtype="f64")
    tree = client.tree(growing.ref)
    assert tree.follow(timeout=0.3, interval=0.05).under_way
    assert len(published.outputs) > 1
    client.delete(growing.ref)
    last = tree.follow(timeout=60)
    assert last.data["deleted"] and not last.under_way


def test_following_without_ipython_names_the_package(client, monkeypatch):
    tree = client.tree(client.put(1))
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ImportError, match="pip install ipython"):
        tree.follow()
