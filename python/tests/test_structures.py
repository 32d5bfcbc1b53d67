"""Trees whose structure is too long for metadata can be reduced and read like other trees."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_lifetime import nameless, wait_until_freed

import phalanx
from phalanx import _calls, exceptions
from phalanx._objects import structures


def tree(seed: int, factor: float = 1) -> dict:
    """Return a tree of 300 leaves with incompressible names; each seed gives another structure."""
    noise = np.random.default_rng(seed)
    return {noise.bytes(30).hex(): np.full(i % 7, factor * i, np.float32) for i in range(300)}


def same(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[key], other[key]) for key in one)


def structure_of(client: phalanx.Client, ref: phalanx.ObjectRef) -> phalanx.ObjectRef:
    digest = phalanx._values.structure_elsewhere(client.stat(ref).metadata)
    assert digest is not None
    return nameless(structures.ref_of(client, digest))


def read_elsewhere(client: phalanx.Client, ref: phalanx.ObjectRef) -> str:
    """A process that has never seen the structure reads the tree."""
    code = """
import pickle, sys, phalanx
value = phalanx.init(sys.argv[1]).get(phalanx.ObjectRef.from_hex(sys.argv[2]), timeout=60)
print(len(value), sum(float(leaf.sum()) for leaf in value.values()))
"""
    command = [sys.executable, "-c", code, client.address, ref.hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout.strip() or done.stderr


def summary(value: dict) -> str:
    return f"{len(value)} {sum(float(leaf.sum()) for leaf in value.values())}"


def test_it_is_freed_with_the_last_tree(client):
    value = tree(1)
    first, second = client.put(value), client.put(tree(1, 2))
    structure = structure_of(client, first)
    assert structure == structure_of(client, second)
    assert same(client.get(first), value) and read_elsewhere(client, first) == summary(value)
    del first
    assert read_elsewhere(client, second) == summary(tree(1, 2))
    del second
    wait_until_freed(client, structure)
    # The next put restores the structure.
    third = client.put(value)
    assert read_elsewhere(client, third) == summary(value)


@pytest.mark.parametrize("dtype", [None, "f32"])
def test_allreduce(nodes, dtype):
    clients, _, _ = nodes
    refs, target = [c.ref() for c in clients], clients[0].ref()

    def task(i):
        clients[i].put(tree(2, i), refs[i])
        return clients[i].allreduce(refs, ref=target, dtype=dtype, timeout=60)

    with ThreadPoolExecutor() as pool:
        for result in pool.map(task, range(3)):
            assert same(result, tree(2, 3))
    # The sources are gone, and the reader of the result has never seen them.
    structure = structure_of(clients[0], target)
    clients[0].delete(refs)
    assert read_elsewhere(clients[1], target) == summary(tree(2, 3))
    assert not clients[0].stat(structure).owned


@pytest.mark.parametrize("dtype", [None, np.float32])
def test_reduce(client, dtype):
    refs = [client.put(tree(3, i)) for i in range(3)]
    target = client.reduce(refs, dtype=dtype, timeout=60)
    client.delete(refs)
    assert same(client.get(target), tree(3, 3)) and read_elsewhere(client, target) == summary(tree(3, 3))


def test_open_reduction(client):
    refs = [client.put(tree(4, i)) for i in range(3)]
    reduction = client.open_reduction(refs[:1], dtype=np.float32)
    reduction.add(refs[1:])
    reduction.close()
    target = reduction.wait(timeout=60)
    client.delete(refs)
    assert read_elsewhere(client, target) == summary(tree(4, 3))


def test_sources_of_different_structures(client):
    refs = [client.put(tree(5)), client.put(tree(6))]
    with pytest.raises(exceptions.InvalidArgumentError, match="differ"):
        client.reduce(refs, timeout=30)


def test_trees_of_several_dtypes_reduce(client):
    def value(factor):
        return {**tree(7, factor), "steps": np.array([int(factor)])}

    refs = [client.put(value(factor)) for factor in (1, 2)]
    result = client.reduce(refs, timeout=60)
    del refs
    assert same(client.get(result), value(3))
    assert read_elsewhere(client, result) == summary(value(3))


def test_a_tree_that_cannot_be_reduced_is_an_error(client):
    with pytest.raises(TypeError, match=r"value\['flags'\] is an array of bool"):
        client.reduce([client.put({**tree(7), "flags": np.array([True])})])


def test_two_trees_that_cannot_be_reduced_name_the_leaf(client):
    flags = {"flags": np.array([True])}
    refs = [client.put({**tree(7), **flags}), client.put({**tree(9), **flags, "more": np.ones(99)})]
    with pytest.raises(exceptions.InvalidArgumentError, match=r"value\['flags'\] is an array of bool.*cannot be reduced"):
        client.reduce(refs, timeout=30)


def test_an_error_waits_for_a_structure_within_the_timeout(client, monkeypatch):
    refs = [client.put(tree(10)), client.put(tree(11))]
    given = []
    begin = _calls.get

    def get(connection, wanted, seconds, *args, **options):
        given.append(seconds)
        return begin(connection, wanted, seconds, *args, **options)

    monkeypatch.setattr(_calls, "get", get)
    structures._known.clear()
    with pytest.raises(exceptions.InvalidArgumentError, match="differ"):
        client.reduce(refs, timeout=2)
    assert given and all(0 < seconds <= 2 for seconds in given)


def test_a_structure_that_is_gone(client):
    ref = client.put(tree(8))
    client.delete(structure_of(client, ref))
    assert same(client.get(ref), tree(8))  # this process knows the structure
    structures._known.clear()
    with pytest.raises(exceptions.ObjectLostError, match="structure"):
        client.get(ref)
    again = client.put(tree(8))
    assert same(client.get(ref), tree(8)) and again != ref
