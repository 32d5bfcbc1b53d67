"""Reductions and collectives, on three nodes."""

from __future__ import annotations

import pathlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_structures import tree

import phalanx
from phalanx import _collectives, _objects, _values, exceptions
from phalanx._objects import structures
from phalanx._values import dtypes

LARGE = 1 << 19


def test_reduce_of_one_node(client):
    refs = [client.put(np.full(1000, i, np.float32)) for i in range(5)]
    target = client.reduce(refs, np.add)
    assert np.array_equal(client.get(target).ravel(), np.full(1000, 10, np.float32))
    assert sorted(client.reduced_from(target)) == sorted(refs)


@pytest.mark.parametrize("op, expected", [("sum", 6), ("prod", 6), ("min", 1), ("max", 3), ("mean", 2)])
@pytest.mark.parametrize("size", [10, LARGE])
def test_reduce_keeps_shape_and_dtype(nodes, op, expected, size):
    clients, _, _ = nodes
    refs = [c.put(np.full((2, size), i + 1, np.float64, order="F")) for i, c in enumerate(clients)]
    result = clients[1].get(clients[0].reduce(refs, op, timeout=60), timeout=60)
    assert result.shape == (2, size) and result.dtype == np.float64 and result.flags.f_contiguous
    assert np.all(result == expected)


def test_reduce_a_subset_and_later_sources(nodes):
    clients, _, _ = nodes
    refs = [clients[0].ref() for _ in range(4)]
    target = clients[0].ref()
    with ThreadPoolExecutor() as pool:
        reduced = pool.submit(clients[0].reduce, refs, num_objects=2, dtype="f32", ref=target, timeout=60)
        for c, ref in zip(clients[:2], refs):
            c.put(np.ones(100, np.float32), ref)
        assert reduced.result() == target
    assert np.all(clients[2].get(target, timeout=60) == 2)


def test_fixed_order_is_the_left_fold(nodes):
    clients, _, _ = nodes
    refs = [c.put(np.full(10, x)) for c, x in zip(clients, (1e8, 1.0, -1e8))]
    got = clients[0].get(clients[0].reduce(refs, order="fixed", timeout=60))
    assert np.all(got == (1e8 + 1.0) - 1e8)


def test_open_reduction(client):
    first = client.put(np.ones(10))
    reduction = client.open_reduction([first], dtype=np.float64)
    reduction.add([client.put(np.ones(10)) for _ in range(3)])
    reduction.close()
    assert np.all(client.get(reduction.wait(timeout=60)).ravel() == 4)


def test_reduce_trees(nodes):
    clients, _, _ = nodes
    refs = [
        c.put({"w": np.full((3, 5), i, np.float32), "b": np.full(7, 10 * i, np.float32)})
        for i, c in enumerate(clients)
    ]
    got = clients[0].get(clients[0].reduce(refs, timeout=60))
    assert got["w"].shape == (3, 5) and np.all(got["w"] == 3) and np.all(got["b"] == 30)


def _mixed(size, i):
    """A tree of five dtypes. The sums over i = 0, 1, 2 are 3 times the tree of 1, without overflow."""
    return {
        "f": np.full(size, i, np.float32),
        "steps": np.array(1000 * i, np.int64),
        "nested": [np.full((3, 5), i, np.float64), np.full(7, i, np.float16)],
        "bytes": np.full(size + 3, i, np.uint8),
        "g": np.full(9, 10 * i, np.float32),
    }


def _assert_mixed(got, size):
    want = _mixed(size, 3)
    assert got["nested"][0].shape == (3, 5)
    for one, other in zip([got, *got["nested"]], [want, *want["nested"]]):
        if isinstance(one, dict):
            assert list(one) == list(other)
            for key in ("f", "steps", "bytes", "g"):
                np.testing.assert_array_equal(one[key], other[key], strict=True)
        else:
            np.testing.assert_array_equal(one, other, strict=True)


def _rings(cluster):
    """Return the number of reductions that used a ring."""
    return sum(shard["counters"]["rings"] for shard in cluster.ask("status")["shards"])


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("order", ["arrival", "fixed"])
def test_reduce_trees_of_several_dtypes(nodes, size, order):
    clients, _, _ = nodes
    refs = [c.put(_mixed(size, i)) for i, c in enumerate(clients)]
    result = clients[0].reduce(refs, order=order, timeout=60)
    _assert_mixed(clients[1].get(result, timeout=60), size)
    assert clients[2].reduced_from(result) == refs or order == "arrival"
    # The same call joins the reduction; a different call is an error.
    assert clients[1].reduce(refs, order=order, ref=result, timeout=60) == result
    with pytest.raises(exceptions.ObjectExistsError, match="dtype"):
        clients[1].reduce(refs, order=order, dtype=np.uint8, ref=result, timeout=60)


def test_allreduce_of_a_tree_of_several_dtypes_uses_a_ring(nodes):
    clients, _, cluster = nodes
    # A directory that has just started answers for unknown ids only after it can plan rings.
    with pytest.raises(exceptions.ObjectDeletedError):
        clients[0].delete(clients[0].ref())
    refs = [c.put(_mixed(8 * LARGE, i)) for i, c in enumerate(clients)]
    for ref in refs:
        cluster.await_copies(ref.hex(), 1)
    target = clients[0].ref()
    before = _rings(cluster)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda c: c.allreduce(refs, ref=target, timeout=60), clients))
    for result in results:
        _assert_mixed(result, 8 * LARGE)
    assert _rings(cluster) == before + 1


def test_open_reductions_of_trees_of_several_dtypes(client):
    refs = [client.put(_mixed(100, i)) for i in range(3)]
    reduction = client.open_reduction(refs[:1], dtype=_mixed(100, 0))
    reduction.add(refs[1:])
    reduction.close()
    _assert_mixed(client.get(reduction.wait(timeout=60)), 100)


def test_each_dtype_of_a_tree_must_have_the_op(client):
    refs = [client.put(_mixed(10, i)) for i in range(2)]
    with pytest.raises(exceptions.InvalidArgumentError, match=r"no mean of i64, and value\['steps'\] is"):
        client.reduce(refs, "mean", timeout=60)
    flags = client.put({"a": np.ones(3), "b": np.ones(3, bool)})
    with pytest.raises(TypeError, match="bool"):
        client.reduce([flags], timeout=60)
    with pytest.raises(TypeError, match="several dtypes"):
        client.reduce_scatter(refs, [client.ref(), client.ref()], 0, timeout=60)


def _step(size, i):
    """The gradients and the numbers of a training step; all of them are `i` times those of 1."""
    return {
        "grad": np.full(size, i, np.float32),
        "metrics": {"loss": 0.5 * i, "seen": 32 * i, "norm": np.float32(i), "best": np.int16(-i)},
        "opt": [np.float64(i), (i, None)],
    }


def _assert_step(got, size, i):
    want = _step(size, i)
    np.testing.assert_array_equal(got["grad"], want["grad"], strict=True)
    for one, other in ((got["metrics"], want["metrics"]), (got["opt"], want["opt"])):
        # The repr has the type: of an int, a float, or a NumPy scalar.
        assert repr(one) == repr(other)
    assert [type(leaf) for leaf in got["metrics"].values()] == [float, int, np.float32, np.int16]


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("order", ["arrival", "fixed"])
def test_numbers_in_trees_are_folded(nodes, size, order):
    clients, _, _ = nodes
    refs = [c.put(_step(size, i)) for i, c in enumerate(clients, 1)]
    result = clients[0].reduce(refs, order=order, timeout=60)
    _assert_step(clients[1].get(result, timeout=60), size, 6)
    _assert_step(clients[2].get(result, timeout=60, copy=True), size, 6)
    target = clients[0].ref()
    with ThreadPoolExecutor() as pool:
        for got in pool.map(lambda c: c.allreduce(refs, ref=target, timeout=60), clients):
            _assert_step(got, size, 6)
    late = [*refs, clients[0].ref()]
    _assert_step(clients[1].get(clients[1].reduce(late, num_objects=3, order=order, timeout=60)), size, 6)
    reduction = clients[2].open_reduction(refs[:1], dtype=_step(size, 0))
    reduction.add(refs[1:])
    reduction.close()
    _assert_step(clients[2].get(reduction.wait(timeout=60)), size, 6)


@pytest.mark.parametrize(
    ("op", "expected"),
    [("sum", (6, 3.0)), ("prod", (6, 0.75)), ("min", (1, 0.5)), ("max", (3, 1.5)), ("bit-or", (3, None)), ("mean", (None, 1.0))],
)
def test_each_op_folds_numbers(client, op, expected):
    numbers, fractions = [1, 2, 3], [0.5, 1.0, 1.5]
    for values, want in zip((numbers, fractions), expected):
        if want is None:
            continue
        for wrap, unwrap in ((lambda x: x, lambda x: x), (lambda x: {"x": x}, lambda x: x["x"])):
            refs = [client.put(wrap(value)) for value in values]
            got = unwrap(client.get(client.reduce(refs, op, timeout=60)))
            assert got == want and type(got) is type(want)


def test_ints_wrap_around(client):
    refs = [client.put({"n": 2**62}) for _ in range(2)]
    assert client.get(client.reduce(refs, timeout=60)) == {"n": -(2**63)}


def test_a_leaf_that_cannot_be_folded_is_named(client):
    ref = client.ref()
    for value, what in (
        ({"opt": [1, {"name": "adam"}]}, r"value\['opt'\]\[1\]\['name'\] is a str"),
        ({"w": np.ones(3), "mask": np.ones(3, bool)}, r"value\['mask'\] is an array of bool"),
        ({"n": 2**64}, r"value\['n'\] is an int of more than 64 bits"),
    ):
        source = client.put(value)
        for call in (
            lambda source=source: client.reduce([source], timeout=60),
            lambda source=source: client.allreduce([source], ref=ref, timeout=60),
            lambda value=value: client.open_reduction([], dtype=value),
        ):
            with pytest.raises(TypeError, match=f"{what}.* cannot be reduced"):
                call()
    # The structure of the second tree is an object of its own.
    for more in ({}, tree(9)):
        refs = [client.put({"w": np.ones(3), "steps": 3, **more}) for _ in range(2)]
        assert (_values.structure_elsewhere(client.stat(refs[0]).metadata) is not None) == bool(more)
        structures._known.clear()
        for dtype in (None, {"w": np.ones(3), "steps": 3, **more}):
            with pytest.raises(exceptions.InvalidArgumentError, match=r"no mean of i64, and value\['steps'\] is an int"):
                client.reduce(refs, "mean", dtype=dtype, timeout=60)
        with pytest.raises(exceptions.InvalidArgumentError, match=r"no bit-or of f64, and value\['w'\] is an array of float64"):
            client.reduce(refs, np.bitwise_or, timeout=60)


@pytest.mark.parametrize("put_here", [True, False])
def test_later_sources_are_compared(nodes, put_here):
    """The directory compares sources that are put after the call."""
    clients, _, _ = nodes
    first = clients[1].put(np.ones((2, 3), np.float32))
    # Another process's ref does not know what was put.
    refs = [first if put_here else phalanx.ObjectRef(first.id), phalanx.ObjectRef(clients[1].ref().id)]
    with ThreadPoolExecutor(1) as pool:
        total = pool.submit(clients[0].reduce, refs, timeout=60)
        # The reduction runs by now, or begins with both sources: the same error.
        later = clients[2].put(np.ones((3, 2), np.float32), phalanx.ObjectRef(refs[1].id))
        with pytest.raises(exceptions.InvalidArgumentError, match=r"differ.*shape \(3, 2\)"):
            total.result(60)
    clients[0].delete([first, later])


def test_a_source_that_was_put_again_is_no_error(nodes):
    """A client remembers what it has put; another client can have put another value since."""
    clients, _, _ = nodes
    ref, same = phalanx.ObjectRef.from_name("put again"), phalanx.ObjectRef.from_name("put again")
    clients[0].put(np.ones(3, np.float32), ref)
    clients[0].delete(ref)
    clients[1].put(np.ones(4), same)
    refs = [ref, clients[1].put(np.ones(4))]
    assert clients[0].get(clients[0].reduce(refs, timeout=60)).tolist() == [2, 2, 2, 2]
    clients[0].delete(ref)


def test_an_error_has_the_names_of_sources(nodes):
    clients, _, _ = nodes
    there, missing = phalanx.ObjectRef.from_name("there"), phalanx.ObjectRef.from_name("missing")
    clients[0].put(np.ones(3), there)
    for dtype in (None, np.float64):
        with pytest.raises(exceptions.GetTimeoutError, match=f'"missing" \\({missing.hex()}\\)'):
            clients[0].reduce([there, missing], dtype=dtype, timeout=0.2)
    clients[0].delete(there)


def test_a_value_that_existed_is_not_remembered(nodes):
    clients, _, _ = nodes
    ref, same = phalanx.ObjectRef.from_name("existed"), phalanx.ObjectRef.from_name("existed")
    clients[1].put(np.arange(2.0), same)
    assert clients[0].put(np.zeros(2), ref, exist_ok=True) == ref
    clients[0].put(np.zeros((2, 1), np.float64), ref, exist_ok=True)
    total = clients[0].reduce([ref, clients[0].put(np.ones(2))], timeout=60)
    assert clients[0].get(total).tolist() == [1, 2]
    clients[0].delete(ref)


def test_sources_are_compared(client):
    """Other dtypes and shapes of equally many bytes are refused, too."""
    first = client.put(np.ones((2, 3), np.float32))
    others = {
        "int32": np.ones((2, 3), np.int32),
        r"shape \(3, 2\)": np.ones((3, 2), np.float32),
        "order of their axes": np.ones((2, 3), np.float32, order="F"),
        "a tree": {"w": np.ones((2, 3), np.float32)},
        "sizes|float64": np.ones((2, 3)),
    }
    for what, value in others.items():
        refs = [first, client.put(value)]
        for call in (
            lambda refs=refs: client.reduce(refs, timeout=60),
            lambda refs=refs: client.allreduce(refs, ref=client.ref(), timeout=60),
            lambda refs=refs: client.reduce_scatter(refs, [client.ref(), client.ref()], 0, timeout=60),
            lambda refs=refs: client.reduce([*refs, client.ref()], num_objects=1, timeout=60),
        ):
            with pytest.raises(exceptions.InvalidArgumentError, match=f"differ.*({what})"):
                call()
    pair = [client.put({"name": "a"}), client.put({"name": "bbbb"})]
    with pytest.raises(exceptions.InvalidArgumentError, match=r"value\['name'\] is a str\) cannot be reduced"):
        client.reduce(pair, timeout=60)
    pair = [client.put({"n": 1}), client.put({"n": 1.0})]
    with pytest.raises(exceptions.InvalidArgumentError, match=r"value\['n'\] is an int in the one and a float in the other"):
        client.reduce(pair, timeout=60)


def test_sources_that_come_later_are_compared_by_size_only(client):
    """As the guide says: their elements are folded as those of the first source."""
    first, later = client.put(np.ones(3, np.int32)), client.ref()
    with ThreadPoolExecutor() as pool:
        reduced = pool.submit(client.reduce, [first, later], dtype=np.int32, timeout=60)
        client.put(np.ones(3, np.float32), later)
        got = client.get(reduced.result())
    assert got.dtype == np.int32 and np.all(got == 1 + np.float32(1).view(np.int32))
    larger = client.ref()
    with ThreadPoolExecutor() as pool:
        reduced = pool.submit(client.reduce, [first, larger], dtype=np.int32, timeout=60)
        client.put(np.ones(4, np.float32), larger)
        with pytest.raises(exceptions.InvalidArgumentError):
            reduced.result()


def test_state_dicts_with_counters_reduce(nodes):
    torch = pytest.importorskip("torch")
    clients, _, _ = nodes
    models = [torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)) for _ in clients]
    for step, model in enumerate(models):
        model[1].num_batches_tracked.fill_(step + 5)
    refs = [c.put(model.state_dict()) for c, model in zip(clients, models)]
    got = clients[0].get(clients[0].reduce(refs, timeout=60))
    assert list(got) == list(models[0].state_dict())
    assert got["1.num_batches_tracked"].dtype == torch.int64 and int(got["1.num_batches_tracked"]) == 18
    want = sum(model.state_dict()["0.weight"] for model in models)
    assert torch.allclose(got["0.weight"], want)
    models[0].load_state_dict(got)


@pytest.mark.parametrize("size", [100, LARGE])
def test_allreduce(nodes, size):
    clients, _, _ = nodes
    refs = [c.ref() for c in clients]
    target = clients[0].ref()

    def task(i):
        clients[i].put(np.full(size, i + 1, np.float32), refs[i])
        return clients[i].allreduce(refs, ref=target, timeout=60)

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(task, range(3)))
    for result in results:
        assert result.dtype == np.float32 and result.shape == (size,) and np.all(result == 6)


def test_moving(nodes):
    clients, _, _ = nodes
    own = [c.ref() for c in clients]

    def task(i):
        c = clients[i]
        c.put(np.full(LARGE, i), own[i])
        gathered = c.allgather(own, i, timeout=60)
        outgoing = [(own[0].from_name(f"t/{own[0].hex()}/{i}/{j}"), f"{i} to {j}") for j in range(3)]
        incoming = [own[0].from_name(f"t/{own[0].hex()}/{j}/{i}") for j in range(3)]
        exchanged = c.all_to_all(outgoing, incoming, timeout=60)
        c.barrier(f"done {own[0].hex()}", 3, i, timeout=60)
        return [int(value[0]) for value in gathered], exchanged

    with ThreadPoolExecutor() as pool:
        for i, (gathered, exchanged) in enumerate(pool.map(task, range(3))):
            assert gathered == [0, 1, 2]
            assert exchanged == [f"{j} to {i}" for j in range(3)]


def test_a_barrier_is_passed_once(nodes):
    clients, _, _ = nodes
    left = clients[0].ref("barrier/0/epoch")

    def arrive(i, name="epoch", timeout=60):
        clients[i].barrier(name, 3, i, timeout)

    with ThreadPoolExecutor() as pool:
        list(pool.map(arrive, range(3)))
        for i in range(3):
            with pytest.raises(exceptions.ObjectExistsError, match='"epoch" has been passed.*each round'):
                arrive(i)
            # From another process, too.
            with phalanx.Client(clients[0].address) as other, pytest.raises(exceptions.ObjectExistsError):
                other.barrier("epoch", 3, i, timeout=60)
        for k in range(3):
            list(pool.map(arrive, range(3), [f"epoch/{k}"] * 3))
    assert clients[0].contains(left)
    clients[0].delete(left)
    with pytest.raises(exceptions.ObjectExistsError):
        arrive(0)


def test_a_barrier_whose_call_timed_out_is_repeated(nodes):
    clients, _, _ = nodes

    def repeat(name, i, timed_out):
        while True:
            try:
                return clients[i].barrier(name, 3, i, timeout=0.2)
            except exceptions.GetTimeoutError:
                timed_out.set()

    for late in range(3):
        timeouts = [threading.Event() for _ in range(2)]
        with ThreadPoolExecutor() as pool:
            early = [i for i in range(3) if i != late]
            calls = [pool.submit(repeat, f"late {late}", *each) for each in zip(early, timeouts)]
            for timed_out in timeouts:
                assert timed_out.wait(60)
            clients[late].barrier(f"late {late}", 3, late, timeout=60)
            for call in calls:
                assert call.result() is None


def test_reduce_scatter_and_scatter(nodes):
    clients, _, _ = nodes
    refs = [c.put(np.arange(10, dtype=np.float32)) for c in clients]
    targets = [clients[0].ref() for _ in clients]

    def task(i):
        return clients[i].reduce_scatter(refs, targets, i, timeout=60)

    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(task, range(3)))
    assert np.array_equal(np.concatenate(parts), 3 * np.arange(10, dtype=np.float32))
    places = [clients[0].ref() for _ in range(3)]
    clients[0].scatter(np.arange(10), places)
    got = [clients[1].get(place, timeout=60) for place in places]
    assert np.array_equal(np.concatenate(got), np.arange(10))


def test_the_steps_of_a_call_share_its_time(client, clock, monkeypatch):
    """The first source arrives near the end of the timeout, the second never."""
    sources, given = [], []
    arrive, begin = _objects.wait, _collectives._reduce_options

    def wait(connection, refs, count, timeout):
        clock.now += 29.95
        client.put(np.ones(3), sources[0])
        return arrive(connection, refs, count, timeout)

    def options(number, op, num_objects, order, root, seconds, *more):
        given.append(seconds)
        return begin(number, op, num_objects, order, root, seconds, *more)

    monkeypatch.setattr(_objects, "wait", wait)
    monkeypatch.setattr(_collectives, "_reduce_options", options)
    targets = [client.ref(), client.ref()]
    for call in (client.reduce, lambda refs, timeout: client.reduce_scatter(refs, targets, 0, timeout=timeout)):
        given.clear()
        sources[:] = [client.ref(), client.ref()]
        with pytest.raises(TimeoutError):
            call(sources, timeout=30)
        assert given[0] < 0.1


def test_the_puts_of_a_call_share_its_time(client, clock, monkeypatch):
    given = []

    def step(connection, value, ref, keep, seconds, *options):
        given.append(seconds)
        clock.now += 2
        yield from ()

    monkeypatch.setattr(_objects, "put", step)
    monkeypatch.setattr(_objects, "get", lambda client, refs, seconds: step(client, None, refs, None, seconds))
    refs = [client.ref() for _ in range(3)]
    client.scatter(np.arange(3), refs, timeout=5)
    assert given == [5, 3, 1]
    given.clear()
    client.all_to_all([(ref, 1) for ref in refs], refs, timeout=5)
    assert given == [5, 3, 1, 0]
    with pytest.raises(ValueError):
        client.scatter(np.arange(3), refs, timeout=-1)


def test_the_names_of_dtypes_are_the_librarys():
    header = (pathlib.Path(__file__).parents[2] / "include/phalanx/elements.h").read_text()
    names = re.search(r"enum class DType \{ (.*) \};", header)[1]
    assert [f"k{name.capitalize()}" for name in dtypes.REDUCED_NAMES.values()] == names.split(", ")


@pytest.mark.parametrize("name", [name for name in dtypes.REDUCED_NAMES if name != "bfloat16"])
def test_each_dtype_is_reduced_in_its_own_type(client, name):
    sources = [client.put(np.ones(3, name)) for _ in range(2)]
    for dtype in (None, name, np.dtype(name)):
        result = client.get(client.reduce(sources, dtype=dtype, timeout=60))
        assert result.dtype == np.dtype(name) and list(result) == [2, 2, 2]


def test_bad_input(client):
    ref = client.put(np.ones(4, np.float32))
    for call in (
        lambda: client.reduce([]),
        lambda: client.reduce([ref, ref]),
        lambda: client.reduce([ref], op="median"),
        lambda: client.reduce([ref], op="bit-and"),
        lambda: client.reduce([ref], order="random"),
        lambda: client.reduce([ref], dtype="u16"),
        lambda: client.reduce([ref], num_objects=0),
        lambda: client.reduce([ref], ref=ref),
        lambda: client.reduce([ref, client.put(np.ones(5, np.float32))], timeout=30),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="pickled"):
        client.reduce([client.put(object)])


def test_a_source_whose_producer_failed(client):
    ref, failed = client.put(np.ones(4)), client.ref()
    failed.set_exception(LookupError("no data"))
    for dtype in ("f64", None):
        with pytest.raises(LookupError, match="no data"):
            client.reduce([ref, failed], dtype=dtype, timeout=30)
    assert client.get(client.reduce([failed, ref], num_objects=1, timeout=30)).sum() == 4


def test_a_broadcast_ends_when_each_node_has_it(nodes):
    clients, _, _ = nodes
    ref = clients[0].put(np.ones(LARGE))
    sent = clients[0].broadcast(ref)
    assert sent.wait(timeout=60) == 3
    assert sent.done
    progress = sent.progress()
    assert (progress.nodes, progress.complete, progress.without_room) == (3, 3, 0)
    assert progress.nbytes == progress.total_nbytes == 3 * clients[0].stat(ref).nbytes
    assert not progress.sticky
    assert "complete=3" in repr(progress)
    assert all(client.stat(ref).local for client in clients)


def test_nodes_that_join_later_get_sticky_objects(nodes):
    clients, daemons, cluster = nodes
    ref = clients[0].put(np.ones(LARGE))
    sent = clients[0].broadcast(ref, sticky=True)
    assert sent.wait(timeout=60) == 3
    assert clients[1].stat(ref).sticky
    # The directory visits ids in order, so this one comes after the first.
    after = next(made for made in iter(clients[0].ref, None) if made.id > ref.id)
    other = clients[0].put(np.ones(LARGE), after)
    assert clients[0].broadcast(other, sticky=True).wait(timeout=60) == 3
    daemons[2].kill()
    late = phalanx.Client(cluster.start_node("n3", capacity="256MiB").client_address)
    _await_copy(cluster, "n3", ref)
    assert late.stat(ref).local
    sent.stop()
    assert not clients[1].stat(ref).sticky
    later = phalanx.Client(cluster.start_node("n4", capacity="256MiB").client_address)
    _await_copy(cluster, "n4", other)
    assert not later.stat(ref).local
    late.close()
    later.close()


def _await_copy(cluster, node, ref):
    def there(look):
        return any(copy["node"] == node and copy["complete"] for copy in look["copies"])

    cluster.follow(there, "describe", ref.hex())


def test_broadcasts_that_cannot_be(nodes):
    clients, _, cluster = nodes
    with pytest.raises(exceptions.ObjectDeletedError):
        clients[0].broadcast(clients[0].ref()).wait(timeout=60)
    ref = clients[0].put(np.ones(LARGE))
    with pytest.raises(exceptions.InvalidArgumentError, match="no node is called zed; there are n0, n1, n2"):
        clients[0].broadcast(ref, ["n1", "zed"]).wait(timeout=60)
    with pytest.raises(ValueError):
        clients[0].broadcast(ref, []).wait(timeout=60)
    with pytest.raises(ValueError, match="zero byte"):
        clients[0].broadcast(ref, ["n1\0n2"])
    cluster.start_node("small", capacity="2MiB")
    cluster.wait_for_nodes(4)
    with pytest.raises(exceptions.StoreFullError, match="small"):
        clients[0].broadcast(ref).wait(timeout=60)
    full = clients[0].put(np.ones(30 << 20))  # 240 MB of each node's 256 MiB
    held = clients[1].put(np.ones(10 << 20))
    sent = clients[0].broadcast(full, "n1")
    with pytest.raises(exceptions.GetTimeoutError):
        sent.wait(timeout=1)
    assert not sent.done
    clients[1].delete(held)
    assert sent.wait(timeout=60) == 1


def test_a_broadcast_is_awaited(nodes):
    import asyncio

    clients, _, _ = nodes
    ref = clients[0].put(np.ones(LARGE))

    async def send():
        sent = clients[0].broadcast(ref)
        waiting = asyncio.ensure_future(_awaited(sent))
        await asyncio.sleep(0)
        waiting.cancel()  # ends this waiter only
        return await sent

    assert asyncio.run(send()) == 3


async def _awaited(sent):
    return await sent


def test_a_broadcast_continues_without_its_handle(nodes):
    clients, _, cluster = nodes
    ref = clients[0].put(np.ones(LARGE))
    clients[0].broadcast(ref, ["n1", "n2"])
    for node in ("n1", "n2"):
        _await_copy(cluster, node, ref)
