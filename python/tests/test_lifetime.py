"""Lifetime: refs and holds, the release that frees objects, copies on several hosts, and scopes."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import phalanx
from phalanx import ObjectRef, exceptions


def nameless(ref: ObjectRef) -> ObjectRef:
    """Return a ref to the same object without a hold."""
    other = ObjectRef(ref.id)
    other._named = True
    return other


def wait_until_freed(client: phalanx.Client, ref: ObjectRef) -> None:
    until = time.monotonic() + 60
    while not client.stat(ref).deleted:
        assert time.monotonic() < until, f"{ref} is still there: {client.stat(ref)}"


def wait_for_holders(client: phalanx.Client, ref: ObjectRef, nodes: int) -> None:
    until = time.monotonic() + 60
    while client.stat(ref).holders != nodes:
        assert time.monotonic() < until, f"{ref} is still held otherwise: {client.stat(ref)}"


def still_there(client: phalanx.Client, ref: ObjectRef) -> bool:
    """Whether the object exists and stays, after all earlier requests of this client.

    A shard frees no object in its first lease. After it, the shard frees the unreferenced objects.
    """
    status = client.stat(ref)
    return status.complete and (status.holders > 0 or not status.owned)


def test_objects_that_still_exist(cluster):
    """Within the shard's first lease, and after it, when the shard frees unreferenced objects."""
    cluster.start_shards()
    with phalanx.Client(cluster.start_node("n0").client_address) as client:
        for _ in range(2):
            held, kept, dropped = client.put(1), client.put(2, keep=True), client.put(3)
            kept, gone = nameless(kept), nameless(dropped)
            assert still_there(client, gone)
            del dropped
            assert not still_there(client, gone)
            assert still_there(client, held) and still_there(client, kept)
            wait_until_freed(client, gone)


@pytest.mark.parametrize("size", [10, 1 << 18])
def test_the_last_ref_frees(client, size):
    ref = client.put(np.ones(size))
    again = copy.copy(ref)
    watched = nameless(ref)
    del ref
    assert still_there(client, watched)
    assert client.stat(watched).owned and client.stat(watched).holders == 1
    view = client.get(again)
    del again
    wait_until_freed(client, watched)
    assert view.sum() == size
    with pytest.raises(exceptions.ObjectDeletedError):
        client.get(watched)


def test_a_fresh_ref_that_is_put_elsewhere(client):
    """The ref of one client keeps an object that another client put and released."""
    ref = client.ref()
    with phalanx.Client(client.address) as other:
        other.put("x", ObjectRef(ref.id))
    assert still_there(client, nameless(ref))
    assert client.get(ref) == "x"


def test_each_client_that_uses_a_ref_holds(client):
    ref = client.ref()
    with phalanx.Client(client.address) as other:
        other.put("x", ref)
    assert still_there(client, nameless(ref))
    assert ref.get() == "x"


def test_a_child_that_uses_a_ref_holds(client):
    ref = client.put("parent's")
    watched = nameless(ref)
    (there, here), (ask, told) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with phalanx.Client(client.address) as mine:
            assert mine.get(ref) == "parent's"
            os.write(here, b"x")
            os.read(ask, 1)
            os._exit(0 if mine.get(ref) == "parent's" else 1)
    os.read(there, 1)
    del ref
    assert still_there(client, watched)
    os.write(told, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    wait_until_freed(client, watched)


def test_keep(client):
    kept, kept_later = client.put(1, keep=True), client.put(2)
    client.keep(kept_later)
    watched = [nameless(kept), nameless(kept_later)]
    del kept, kept_later
    for ref in watched:
        assert still_there(client, ref)
        client.delete(ref)
        wait_until_freed(client, ref)


def test_names_stay(client):
    client.put("x", ObjectRef.from_name("test_names_stay"))
    assert still_there(client, ObjectRef.from_name("test_names_stay"))
    client.delete(ObjectRef.from_name("test_names_stay"))


def test_refs_inside_an_object(client):
    inner = client.put(np.ones(10))
    watched = nameless(inner)
    outer = client.put({"inner": [inner]})
    del inner
    assert still_there(client, watched)
    found = client.get(outer)["inner"][0]
    outer_watched = nameless(outer)
    del outer
    wait_until_freed(client, outer_watched)
    assert still_there(client, watched) and client.get(found).sum() == 10
    del found
    wait_until_freed(client, watched)


def test_many_refs_inside_an_object(client):
    inner = [client.put(i) for i in range(300)]
    watched = [nameless(ref) for ref in inner]
    outer = client.put(inner)
    del inner
    found = client.get(outer)
    outer_watched = nameless(outer)
    del outer
    wait_until_freed(client, outer_watched)
    assert client.get(found) == list(range(300))
    del found
    for ref in watched:
        wait_until_freed(client, ref)


def test_a_ref_in_a_message(client):
    ref = client.put("message")
    watched = nameless(ref)
    message = pickle.dumps(ref)
    del ref
    assert still_there(client, watched)
    first, second = pickle.loads(message), pickle.loads(message)
    del first
    assert still_there(client, watched)
    assert client.get(second) == "message"
    del second
    wait_until_freed(client, watched)


def test_a_ref_in_another_process(client):
    ref = client.put(np.arange(10))
    watched = nameless(ref)
    code = """
import pickle, sys, phalanx
c = phalanx.init(sys.argv[1])
ref = pickle.loads(bytes.fromhex(sys.argv[2]))
print('claimed', flush=True)
sys.stdin.readline()
print(int(c.get(ref).sum()), flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, client.address, pickle.dumps(ref).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "claimed"
    del ref
    assert still_there(client, watched)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "45"
    assert still_there(client, watched)
    process.kill()
    process.wait()
    wait_until_freed(client, watched)


def test_results_of_reductions(client):
    refs = [client.put(np.ones(10, np.float32)) for _ in range(3)]
    target = client.reduce(refs)
    watched = nameless(target)
    del refs
    assert still_there(client, watched) and client.get(target).sum() == 30
    del target
    wait_until_freed(client, watched)


@pytest.mark.parametrize("ended", [False, True])
def test_results_of_reductions_without_a_waiting_caller(client, ended):
    first, second = client.put(np.ones(10)), client.ref()
    reduction = client.open_reduction([first, second], dtype="f64")
    reduction.close()
    ref = reduction.ref
    if not ended:
        del reduction
    client.put(np.ones(10), second)
    assert client.get(ref, timeout=60).sum() == 20
    reduction = None
    watched = nameless(ref)
    assert still_there(client, watched)
    del ref
    wait_until_freed(client, watched)


def test_rounds_with_stragglers_leave_nothing(client):
    watched, late = [], []
    for step in range(5):
        refs = [client.ref() for _ in range(4)]
        for ref in refs[:3]:
            client.put(np.full(1000, step, np.float32), ref)
        mean = client.reduce(refs, "mean", num_objects=2, dtype=np.float32, timeout=60)
        assert client.get(mean).mean() == step
        watched += [nameless(ref) for ref in (*refs, mean)]
        late.append(refs[3])
        del refs, ref, mean
    for step, ref in enumerate(late):
        client.put(np.full(1000, step, np.float32), ref)
    late.clear()
    del ref
    for other in watched:
        wait_until_freed(client, other)


def test_sources_under_names_stay_until_they_are_deleted(client):
    refs = [client.ref(f"round/{i}") for i in range(3)]
    for ref in refs[:2]:
        client.put(np.ones(1000, np.float32), ref)
    mean = client.reduce(refs, "mean", num_objects=1, dtype=np.float32, timeout=60)
    used = client.reduced_from(mean)
    client.delete(used)
    client.put(np.ones(1000, np.float32), refs[2])
    left = [ref for ref in refs if ref not in used]
    assert len(left) == 2 and all(still_there(client, ref) for ref in left)
    client.delete(left)


def test_an_open_reduction_ends_with_the_process_that_opened_it(client):
    code = (
        "import phalanx, sys\n"
        f"client = phalanx.Client({client.address!r})\n"
        "client.open_reduction([], dtype='f8', ref=client.ref('abandoned'))\n"
        "print('opened', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "opened\n"
        process.kill()
    with pytest.raises(exceptions.CallCancelledError, match="the last client"):
        client.get(client.ref("abandoned"), timeout=60)


def test_drafts(client):
    with client.create(10, "f8") as draft:
        draft.array[:] = 1
    watched = nameless(draft.ref)
    assert still_there(client, watched)
    del draft
    wait_until_freed(client, watched)


def test_a_forked_child_frees_nothing(client):
    ref = client.put("parent's")
    pid = os.fork()
    if pid == 0:
        del ref
        os._exit(0)
    os.waitpid(pid, 0)
    assert still_there(client, nameless(ref))
    assert client.get(ref) == "parent's"


class Long(Exception):
    """An exception that is too long for a reason."""


def raised(client: phalanx.Client, ref: ObjectRef, kind: type[Exception]) -> Exception:
    """Return the exception of a Get without its frames, because the frames have the ref."""
    try:
        client.get(ref)
    except kind as error:
        assert isinstance(error.__cause__, exceptions.RemoteTraceback)
        error.__context__ = None
        return error.with_traceback(None)
    pytest.fail("nothing was raised")


def test_a_long_exception_goes_with_the_refs_of_its_object(cluster):
    cluster.start_shards()
    node = cluster.start_node("n0", ["--transit-patience=100ms"])
    payload = os.urandom(1 << 16)
    with phalanx.Client(node.client_address) as client, phalanx.Client(node.client_address) as reader:
        ref = client.ref()
        theirs = ObjectRef(ref.id)
        ref.set_exception(Long(payload))
        assert raised(reader, theirs, Long).args == (payload,)
        reason, watched = nameless(ref._reason), nameless(ref)
        del ref
        wait_for_holders(client, reason, 1)  # the reference in transit expires
        assert raised(reader, theirs, Long).args == (payload,)
        assert still_there(client, reason)
        del theirs
        wait_until_freed(client, reason)
        assert "Long" in str(raised(client, watched, exceptions.ProducerError))

        # Readers still get the part that fits.
        ref = client.ref()
        try:
            raise KeyError("shard 7") from ValueError(payload.hex())
        except KeyError as error:
            ref.set_exception(error)
        reason, watched = nameless(ref._reason), nameless(ref)
        del ref
        wait_until_freed(client, reason)
        assert raised(client, watched, KeyError).args == ("shard 7",)


def test_a_put_releases_the_earlier_exception(client):
    ref = client.ref()
    ref.set_exception(Long(os.urandom(4096)))
    assert ref._reason is not None
    client.put(1, ref)
    assert ref._reason is None


def test_lost(nodes):
    clients, daemons, cluster = nodes
    ref = clients[1].ref()
    clients[0].put(np.ones(1 << 18), ObjectRef(ref.id), keep=True)
    cluster.await_copies(ref.hex(), 1)
    daemons[0].kill()
    with pytest.raises(exceptions.ObjectLostError) as caught:
        clients[1].get(ref, timeout=60)
    assert isinstance(caught.value, KeyError)
    with pytest.raises(TimeoutError):
        clients[1].get(ref, timeout=0.2, on_lost="wait")
    clients[2].put(np.ones(1 << 18), ObjectRef(ref.id), keep=True)
    assert clients[1].get(ref, timeout=60).sum() == 1 << 18


# ---- copies on several hosts, and scopes


def start_hosts(cluster, hosts: str):
    """Start a node on each of the hosts, and return them."""
    cluster.start_shards()
    return cluster.start_hosts(hosts)


def test_copies_on_several_hosts(cluster):
    nodes = start_hosts(cluster, "aab")
    value = np.arange(300_000)
    with phalanx.Client(nodes[0].client_address) as client:
        assert client.stat(client.put(1)).copies_wanted == 0
        ref = client.put(value, copies=2, wait_for_copies=True)
        status = client.stat(ref)
        assert (status.copies_wanted, status.copies_there) == (2, 2)
        assert client.replicate(ref, 3) == 2, "as many as there are hosts"
        assert client.stat(ref).copies_wanted == 3
        with client.create(4, "f4", copies=2, wait_for_copies=True) as draft:
            draft.array[:] = 7
        assert client.stat(draft.ref).copies_there == 2
        named = client.put(value, client.ref("kept"), copies=2, wait_for_copies=True)
        nodes[0].kill()
        with phalanx.Client(nodes[2].client_address) as other:
            assert (other.get(other.ref(named.name)) == value).all()


def test_scopes(cluster):
    nodes = start_hosts(cluster, "ab")
    with phalanx.Client(nodes[0].client_address) as client, phalanx.Client(nodes[1].client_address) as other:
        refs = [client.put(np.full(200_000, step), scope=("job", step)) for step in range(4)]
        values = other.get(refs)
        client.end_scope(("job", 2))
        assert [client.contains(ref) for ref in refs] == [False, False, False, True]
        assert [value[0] for value in values] == [0, 1, 2, 3], "values that were read stay"
        with pytest.raises(exceptions.ObjectDeletedError, match='scope "job" 1 has ended'):
            other.put(1, scope=("job", 1))
        other.end_scope(("job", 3))
        assert not other.contains(refs[3])
        other.put(1, scope="job2")
        other.end_scope("job2")


def test_wrong_copies_and_scopes(cluster):
    (node,) = start_hosts(cluster, "a")
    with phalanx.Client(node.client_address) as client:
        for copies in (0, -1, 65):
            with pytest.raises(exceptions.InvalidArgumentError, match=f"copies={copies}"):
                client.put(1, copies=copies)
            with pytest.raises(exceptions.InvalidArgumentError, match=f"copies={copies}"):
                client.replicate(client.put(1), copies)
        with pytest.raises(TypeError):
            client.put(1, copies=1.5)
        with pytest.raises(exceptions.InvalidArgumentError, match="wait_for_copies"):
            client.put(1, wait_for_copies=True)
        for scope in ("", "x" * 256, "a\nb", "a\0b", ("a", -1), ("a", 1 << 64)):
            with pytest.raises(exceptions.InvalidArgumentError):
                client.put(1, scope=scope)
            with pytest.raises(exceptions.InvalidArgumentError):
                client.end_scope(scope)
        with pytest.raises(TypeError):
            client.end_scope(("a", 1.5))


def test_copies_and_scopes_by_coroutines(cluster):
    nodes = start_hosts(cluster, "ab")

    async def main():
        async with phalanx.AsyncClient(nodes[0].client_address) as client:
            ref = await client.put(b"x", copies=2, wait_for_copies=True, scope=("job", 1))
            assert await client.replicate(ref, 2) == 2
            await client.end_scope(("job", 1))
            assert not await client.contains(ref)

    asyncio.run(main())
