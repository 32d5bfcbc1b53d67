"""Groups: collectives of the members of a job. Several members in one process, on several nodes, and under
`phalanx launch`. A member of rank r has arrays whose elements follow from r, so every result has a closed form."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import phalanx
from phalanx import _native, _waiting, exceptions
from phalanx._jobs import groups as of_groups

WORLD = 3
LIMIT_S = 60


def together(groups, call):
    """Make a call of each member before the first is waited for, and return the results by rank."""
    calls = [call(group) for group in groups]
    return [each.wait(LIMIT_S) for each in calls]


def errors_of(groups, call):
    """Return the errors of all members' calls."""
    raised = []
    for each in [call(group) for group in groups]:
        with pytest.raises(exceptions.PhalanxError) as caught:
            each.wait(LIMIT_S)
        raised.append(caught.value)
    return raised


def joined(clients, job, world=WORLD, **options):
    """Return the members and groups of a job; member r uses client r, or one of fewer in turn."""
    members = [
        phalanx.join(job, f"worker{rank}", world=world, client=clients[rank % len(clients)]) for rank in range(world)
    ]
    return members, [member.group(timeout=LIMIT_S, **options) for member in members]


@pytest.fixture
def groups(client, request):
    """The groups of three members on one node."""
    members, made = joined([client], request.node.name)
    yield made
    for member in members:
        member.leave()


def vector(group, count, dtype=np.float32):
    return (np.arange(count) % 50 + group.rank).astype(dtype)


# ---- every collective


def check_every_collective(groups, count):
    world = len(groups)
    ramp = np.arange(count) % 50
    for total in together(groups, lambda g: g.allreduce(vector(g, count), wait=False)):
        assert (total == world * ramp + sum(range(world))).all() and total.dtype == np.float32
    for total in together(groups, lambda g: g.allreduce(vector(g, count, np.int64), "max", wait=False)):
        assert (total == ramp + world - 1).all()
    reduced = together(groups, lambda g: g.reduce(vector(g, count, np.float64), "mean", world - 1, wait=False))
    assert (reduced[-1] == ramp + (world - 1) / 2).all()
    for rank in range(world - 1):
        assert (reduced[rank] == ramp + rank).all()
    for received in together(groups, lambda g: g.broadcast(vector(g, count, np.complex64), 1 % world, wait=False)):
        assert (received == ramp + 1 % world).all()
    for all_of_them in together(groups, lambda g: g.allgather(vector(g, count), wait=False)):
        assert all_of_them.shape == (world, count)
        assert all((all_of_them[rank] == ramp + rank).all() for rank in range(world))

    def parts(group):
        return np.stack([np.full(count, 10 * group.rank + part) for part in range(world)])

    scattered = together(groups, lambda g: g.reduce_scatter(parts(g), wait=False))
    for rank, part in enumerate(scattered):
        assert part.shape == (1, count) and (part == 10 * sum(range(world)) + world * rank).all()
    for rank, mixed in enumerate(together(groups, lambda g: g.all_to_all(parts(g), wait=False))):
        assert all((mixed[sender] == 10 * sender + rank).all() for sender in range(world))
    assert together(groups, lambda g: g.barrier(wait=False)) == [None] * world
    assert {group.calls for group in groups} == {8} and {g.members_of_last_call for g in groups} == {world}


@pytest.mark.parametrize("count", [1, 1000, 300_000])
def test_every_collective_on_one_node(groups, count):
    check_every_collective(groups, count)


@pytest.mark.parametrize("count", [1000, 300_000])
def test_every_collective_on_three_nodes(nodes, count):
    members, groups = joined(nodes[0], "spread", world=4)
    check_every_collective(groups, count)
    for member in members:
        member.leave()


def test_a_world_of_one(client):
    (member,), groups = joined([client], "alone", world=1)
    check_every_collective(groups, 5)
    # Calls that wait, which is the usual way.
    (group,) = groups
    array = np.ones(4, np.float32)
    assert group.allreduce(array, "prod") is array and (array == 1).all()
    assert group.barrier() is None
    assert repr(group) == "<phalanx.Group alone/worker: rank 0 of 1, on_loss='fail'>"
    member.leave()


@pytest.mark.parametrize(
    ("op", "dtype", "fold"),
    [
        ("sum", np.float16, sum),
        ("prod", np.int16, np.prod),
        (np.minimum, np.uint8, min),
        ("max", np.int8, max),
        ("bit-and", np.uint32, np.bitwise_and.reduce),
        ("bit-or", np.int32, np.bitwise_or.reduce),
        (np.bitwise_xor, np.uint64, np.bitwise_xor.reduce),
        ("mean", np.float64, lambda values: sum(values) / len(values)),
    ],
)
def test_every_op(groups, op, dtype, fold):
    for array in together(groups, lambda g: g.allreduce(np.full((2, 3), g.rank + 1, dtype), op, wait=False)):
        assert array.shape == (2, 3) and (array == fold([1, 2, 3])).all()


def test_results_go_into_arrays_of_the_caller(groups):
    outs = [np.zeros((2, WORLD), np.int32) for _ in groups]
    assert together(groups, lambda g: g.allgather(np.full(2, g.rank, np.int32), outs[g.rank], wait=False))[1] is outs[1]
    assert all(out.ravel().tolist() == [0, 0, 1, 1, 2, 2] for out in outs)
    mixed = np.zeros((WORLD, 1), np.int32)
    arrays = [np.arange(WORLD, dtype=np.int32) for _ in groups]
    together(groups, lambda g: g.all_to_all(arrays[g.rank], mixed if g.rank == 2 else None, wait=False))
    assert mixed.ravel().tolist() == [2, 2, 2]
    halves = np.zeros(1, np.int32)
    together(groups, lambda g: g.reduce_scatter(arrays[g.rank], out=halves if g.rank == 1 else None, wait=False))
    assert halves.tolist() == [3]


# ---- nests of arrays


def tree_of(rank, filled_backwards=False):
    tree = {
        "w": np.full((300, 1000), rank + 1, np.float32),
        "b": [np.full(7, rank, np.float64), np.full((), 2 * rank, np.float32)],
        "large": np.full(3_000_000, rank, np.float32),
        "none": np.zeros(0, np.float32),
    }
    return dict(reversed(tree.items())) if filled_backwards else tree


def test_a_nest_of_arrays_is_reduced_in_place(groups):
    trees = [tree_of(rank, filled_backwards=rank == 1) for rank in range(WORLD)]
    places = [[id(tree["w"]), id(tree["b"][0])] for tree in trees]
    for rank, tree in enumerate(together(groups, lambda g: g.allreduce(trees[g.rank], wait=False))):
        assert tree is trees[rank] and places[rank] == [id(tree["w"]), id(tree["b"][0])]
        assert (tree["w"] == 6).all() and (tree["b"][0] == 3).all() and tree["b"][1] == 6
        assert (tree["large"] == 3).all()
    # The small arrays of each dtype together, and two large ones.
    assert {group.calls for group in groups} == {4}
    together(groups, lambda g: g.broadcast(tuple(tree_of(g.rank)["b"]) if g.rank else trees[0]["b"], wait=False))
    assert {group.calls for group in groups} == {5}


def test_many_small_arrays_are_few_calls(groups):
    def arrays(rank):
        return [np.full(10_000, i + rank, np.float32) for i in range(400)]

    for result in together(groups, lambda g: g.allreduce(arrays(g.rank), wait=False)):
        assert all((array == 3 * i + 3).all() for i, array in enumerate(result))
    assert groups[0].calls == 4  # of at most 4 MiB, for 15 MiB


def in_threads(groups, call):
    """Make a call of each member that waits, and return the results by rank."""
    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(call, groups))


def test_many_large_arrays_are_calls_by_themselves(client):
    """They are not copied together: 60 of 32 MiB take about as long as one array of that size."""
    # The buffers of one client do not suffice for three members.
    clients = [phalanx.Client(client.address) for _ in range(WORLD)]
    _, groups = joined(clients, "large")

    def reduce(group):
        return group.allreduce([np.full(140_000, i + group.rank, np.float32) for i in range(60)])

    for result in in_threads(groups, reduce):
        assert all((array == 3 * i + 3).all() for i, array in enumerate(result))
    assert groups[0].calls == 60
    for each in clients:
        each.close()


def test_a_call_waits_while_many_large_ones_are_under_way(client):
    (member,), (group,) = joined([client], "crowd", world=1)
    calls = [group.allreduce(np.full(20_000, i), wait=False) for i in range(100)]
    assert sum(call.done for call in calls) > 50
    assert [call.wait(LIMIT_S)[0] for call in calls] == list(range(100))
    member.leave()


def test_memory_that_occurs_twice_is_reduced_once(groups):
    def tied(rank):
        weights = np.full(5, rank + 1.0)
        return {"in": weights, "out": weights}

    for result in together(groups, lambda g: g.allreduce(tied(g.rank), wait=False)):
        assert (result["in"] == 6).all() and result["out"] is result["in"]


def test_tensors(groups):
    torch = pytest.importorskip("torch")
    for tensor in together(groups, lambda g: g.allreduce(torch.full((3,), g.rank + 1.0).bfloat16(), wait=False)):
        assert tensor.dtype == torch.bfloat16 and tensor.tolist() == [6.0] * 3
    parameters = [torch.nn.Parameter(torch.full((2, 2), float(rank))) for rank in range(WORLD)]
    together(groups, lambda g: g.broadcast(parameters[g.rank], 2, wait=False))
    assert all(each.detach().tolist() == [[2.0, 2.0]] * 2 for each in parameters)
    gathered = together(groups, lambda g: g.allgather(torch.full((2,), g.rank), wait=False))[0]
    assert gathered.tolist() == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(exceptions.InvalidArgumentError, match=r"not contiguous; give \.contiguous\(\)"):
        groups[0].allreduce(torch.ones(3, 4).T)


def test_bfloat16_of_ml_dtypes(groups):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for array in together(groups, lambda g: g.allreduce(np.full(3, g.rank + 1, ml_dtypes.bfloat16), wait=False)):
        assert array.tolist() == [6, 6, 6]


# ---- many calls at once, and waiting


def test_calls_take_effect_in_their_order(groups):
    arrays = [[np.full(count, rank + i) for i, count in enumerate([1, 200_000] * 20)] for rank in range(WORLD)]
    calls = [[group.allreduce(array, wait=False) for array in arrays[group.rank]] for group in groups]
    for rank in (2, 0, 1):
        # The last one first: it ends after those before it.
        for i in range(39, -1, -1):
            assert (calls[rank][i].wait(LIMIT_S) == 3 * i + 3).all()
            assert calls[rank][i].done
    assert groups[0].calls == 40


def test_calls_are_awaited(groups):
    async def main():
        calls = [group.allreduce(vector(group, 400_000), wait=False) for group in groups for _ in range(3)]
        tree = [group.allreduce({"a": vector(group, 500_000)}, wait=False) for group in groups]
        assert "allreduce of test_calls_are_awaited/worker" in repr(calls[0])
        for total in await asyncio.gather(*calls):
            assert (total == 3 * (np.arange(400_000) % 50) + 3).all()
        for total in await asyncio.gather(*tree):
            assert total["a"][1] == 6

        # A task that is cancelled leaves its call alone.
        array = np.ones(3)
        call = groups[0].allreduce(array, wait=False)
        waiter = asyncio.ensure_future(asyncio.wait_for(call, 0.01))
        with pytest.raises(asyncio.TimeoutError):
            await waiter
        others = [group.allreduce(np.ones(3), wait=False) for group in groups[1:]]
        await asyncio.gather(*others)
        assert (await call).tolist() == [3, 3, 3]

    asyncio.run(main())


def test_a_wait_can_end_before_its_call(groups):
    call = groups[0].allreduce(np.ones(2), wait=False)
    with pytest.raises(exceptions.GetTimeoutError, match="allreduce of .*: not there within 0.01 s"):
        call.wait(0.01)
    assert not call.done and "under way" in repr(call)
    together(groups[1:], lambda g: g.allreduce(np.ones(2), wait=False))
    assert call.wait(LIMIT_S).tolist() == [3, 3] and "ended" in repr(call)


def test_arrays_live_until_their_call_has_ended(groups):
    for group in groups:
        for _ in range(10):
            group.allreduce(np.ones(100_000), wait=False)  # nobody keeps the arrays or the handles
            group.allreduce([np.ones(1000), np.ones(2000)], wait=False)
    together(groups, lambda g: g.barrier(wait=False))
    assert groups[0].calls == 21


def test_arrays_do_not_outlive_the_wait_for_their_call(groups):
    def left(wait):
        arrays = [np.ones(100_000) for _ in groups]
        wait(arrays)
        return [weakref.ref(array) for array in arrays]

    def wait_for_handles(arrays):
        calls = [group.allreduce(array, wait=False) for group, array in zip(groups, arrays)]
        for call in calls:
            call.wait(LIMIT_S)

    def wait_at_once(arrays):
        with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
            list(pool.map(lambda group, array: group.allreduce([array, np.ones(3)]), groups, arrays))

    for wait in (wait_for_handles, wait_at_once):
        refs = left(wait)
        gc.collect()
        assert [ref() for ref in refs] == [None] * len(groups)


def test_threads_make_calls_one_after_the_other(groups):
    """Each of two threads of each member makes the same calls, so that their order does not matter."""
    results = []

    def work(group):
        for _ in range(20):
            results.append(group.allreduce(np.full(1000, group.rank + 1)).tolist() == [6] * 1000)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 120 and groups[0].calls == 40


def interrupted(*_):
    raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_the_array_alone(groups, monkeypatch):
    array, tree = np.ones(3), [np.ones(3), np.ones(4)]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_waiting, "finish", interrupted)
        groups[0].allreduce(array)
    together(groups[1:], lambda g: g.allreduce(np.ones(3), wait=False))
    for total in together(groups, lambda g: g.allreduce(tree if g.rank == 0 else [np.ones(3), np.ones(4)], wait=False)):
        assert total[1].tolist() == [3] * 4
    assert array.tolist() == [1, 1, 1]


def nest_calls(groups):
    """Make a call for a nest by each member. They have ended, and no result is in the arrays yet."""
    calls = [group.allreduce([np.ones(3), np.ones(4)], wait=False) for group in groups]
    together(groups, lambda g: g.barrier(wait=False))
    assert all(call.done for call in calls)
    return calls


def test_a_second_waiter_returns_after_the_result_is_copied(groups, monkeypatch):
    call, *_ = nest_calls(groups)
    copying, waiting = threading.Event(), threading.Event()
    unpack = of_groups.buffers.unpack

    def slow(*arguments):
        copying.set()
        waiting.wait(LIMIT_S)
        unpack(*arguments)

    class Lock:
        """The lock of the copy, which sets `waiting` when another thread has it."""

        lock = threading.Lock()

        def __enter__(self):
            if not self.lock.acquire(blocking=False):
                waiting.set()
                self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    monkeypatch.setattr(of_groups.buffers, "unpack", slow)
    monkeypatch.setattr(call, "_copying", Lock())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(call.wait)
        assert copying.wait(LIMIT_S)
        try:
            assert [array.tolist() for array in call.wait()] == [[3] * 3, [3] * 4]
        finally:
            waiting.set()
        assert first.result(LIMIT_S) is call.wait()


def test_a_wait_after_an_interrupted_copy_has_the_result(groups, monkeypatch):
    call, *_ = nest_calls(groups)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(of_groups.buffers, "unpack", interrupted)
        call.wait()
    assert [array.tolist() for array in call.wait()] == [[3] * 3, [3] * 4]


def test_an_interrupt_within_the_calls_of_a_nest_ends_the_group(client, monkeypatch):
    members, groups = joined([client], "torn", world=2)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_waiting, "some", interrupted)
        groups[0].allreduce([np.ones(40_000) for _ in range(20)])
    with pytest.raises(exceptions.CallCancelledError, match="after 16 of its 20 calls, .*: join again"):
        groups[0].barrier()
    for member in members:
        member.leave()


@contextlib.contextmanager
def an_interrupt_in_a_call_of_the_library(daemon, monkeypatch):
    """SIGINT arrives while the library waits for memory from a stopped node, which goes on after it."""
    made = threading.Event()

    class Library:
        def __getattr__(self, name):
            if name == "phx_group_all_reduce":
                made.set()
            return getattr(_native.lib, name)

    def interrupt():
        # This thread runs only when the other one has let go of the interpreter, in the library.
        made.wait(LIMIT_S)
        os.kill(os.getpid(), signal.SIGINT)
        noted.recv(1)
        daemon.signal(signal.SIGCONT)

    interval, handler = sys.getswitchinterval(), signal.signal(signal.SIGINT, signal.default_int_handler)
    noted, notes = socket.socketpair()
    notes.setblocking(False)
    previous = signal.set_wakeup_fd(notes.fileno())
    thread = threading.Thread(target=interrupt)
    thread.start()
    daemon.signal(signal.SIGSTOP)
    sys.setswitchinterval(1000)
    try:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(of_groups, "lib", Library())
            yield
    finally:
        sys.setswitchinterval(interval)
        thread.join()
        signal.set_wakeup_fd(previous)
        signal.signal(signal.SIGINT, handler)
        noted.close()
        notes.close()


def test_an_interrupt_while_a_call_is_made_leaves_the_array_alone(nodes, monkeypatch):
    clients, daemons, _ = nodes
    members, groups = joined(clients, "made", world=2)
    array = np.ones(40_000)
    with an_interrupt_in_a_call_of_the_library(daemons[0], monkeypatch):
        groups[0].allreduce(array)
    # The others have its part of the call, and its next call is the next one.
    assert (groups[1].allreduce(np.ones(40_000)) == 2).all()
    together(groups, lambda g: g.barrier(wait=False))
    assert groups[0].calls == 2 and (array == 1).all()
    for member in members:
        member.leave()


def test_an_interrupt_while_the_first_call_of_a_nest_is_made_ends_the_group(nodes, monkeypatch):
    clients, daemons, _ = nodes
    members, groups = joined(clients, "first", world=2)
    with an_interrupt_in_a_call_of_the_library(daemons[0], monkeypatch):
        groups[0].allreduce([np.ones(40_000), np.ones(50_000)])
    with pytest.raises(exceptions.CallCancelledError, match="after 1 of its 2 calls, .*: join again"):
        groups[0].barrier()
    for member in members:
        member.leave()


# ---- errors


def test_members_that_differ_are_told(groups):
    for error in errors_of(groups, lambda g: g.allreduce(np.ones(2 + g.rank // 2), wait=False)):
        assert isinstance(error, exceptions.InvalidArgumentError)
        assert "16 bytes" in str(error) and "24 bytes" in str(error)
    for error in errors_of(groups, lambda g: g.allreduce(np.ones(2), "max" if g.rank else "min", wait=False)):
        assert "max of f64" in str(error) and "min of f64" in str(error)
    assert {group.calls for group in groups} == {2}
    together(groups, lambda g: g.barrier(wait=False))


def test_what_no_member_may_give(groups):
    for call, words in (
        (lambda g: g.allreduce(np.zeros(0), wait=False), "0 bytes"),
        (lambda g: g.allreduce([np.zeros(0)], wait=False), "0 bytes"),
        (lambda g: g.allgather(np.zeros((0, 2)), wait=False), "0 bytes"),
        (lambda g: g.allreduce(np.zeros(3, np.int32), "mean", wait=False), "mean"),
        (lambda g: g.allreduce(np.zeros(3), "bit-or", wait=False), "bit-or"),
        (lambda g: g.broadcast(np.zeros(3), 3, wait=False), "root 3"),
        (lambda g: g.reduce(np.zeros(3), root=7, wait=False), "root 7"),
    ):
        for error in errors_of(groups, call):
            assert isinstance(error, exceptions.InvalidArgumentError) and words in str(error)


def test_wrong_arguments_are_refused_here(groups):
    group = groups[0]
    read_only = np.ones(3)
    read_only.flags.writeable = False
    both = np.ones(6)
    for call, kind, words in (
        (lambda: group.allreduce([1.0]), TypeError, r"arrays\[0\]: a NumPy array or a torch tensor"),
        (lambda: group.allreduce({"a": {"b": None}}), TypeError, r"arrays\['a'\]\['b'\]: .*, not None"),
        (lambda: group.allreduce({"a": np.ones(1), 1: np.ones(1)}), TypeError, "keys of the dict"),
        (lambda: group.allreduce({}), ValueError, "no array in it"),
        (lambda: group.allreduce(np.array([None])), TypeError, "dtype object are Python objects"),
        (lambda: group.allreduce(np.ma.ones(3)), TypeError, "MaskedArray"),
        (lambda: group.allreduce(read_only), ValueError, "arrays: the array is read-only"),
        (lambda: group.broadcast([both, read_only]), ValueError, r"arrays\[1\]: the array is read-only"),
        (lambda: group.allreduce(np.ones((3, 4)).T), ValueError, r"\(4, 3\) with strides .*ascontiguousarray"),
        (lambda: group.allreduce(np.ones(3, bool)), ValueError, "dtype bool cannot be reduced; those of float16"),
        (lambda: group.allreduce(np.ones(3, ">f4")), ValueError, "dtype >f4 cannot be reduced"),
        (lambda: group.reduce_scatter(np.ones(3, complex)), ValueError, "complex128 cannot be reduced"),
        (lambda: group.allreduce(both, "avg"), ValueError, "no op of reductions: 'avg'; there are sum,"),
        (lambda: group.broadcast(both, -1), ValueError, "root=-1"),
        (lambda: group.broadcast(both, "0"), TypeError, "root='0'"),
        (lambda: group.reduce_scatter(np.ones(4)), ValueError, r"shape \(4,\), which has no 3 equal parts"),
        (lambda: group.all_to_all(np.ones(())), ValueError, "no 3 equal parts"),
        (lambda: group.allgather(both, np.ones(6)), ValueError, "out has 48 bytes; 144 are expected"),
        (lambda: group.allgather(both, np.ones(36, np.float32)), ValueError, "out has the dtype float32"),
        (lambda: group.all_to_all(both, both), ValueError, "array and out share memory"),
        (lambda: group.allgather(both[:2], both), ValueError, "array and out share memory"),
        (lambda: group.barrier(wait=False).wait("1"), TypeError, "timeout='1'"),
    ):
        with pytest.raises(kind, match=words):
            call()
        assert group.calls == 0
    # Nothing of it was sent, but for the barrier.
    together(groups[1:], lambda g: g.barrier(wait=False))
    together(groups, lambda g: g.barrier(wait=False))
    assert group.calls == 2


def test_wrong_options(client):
    with phalanx.join("options", "worker0", world=1, client=client) as member:
        for options, kind, words in (
            ({"on_loss": "ignore"}, ValueError, "on_loss='ignore': 'fail', 'wait' or 'exclude'"),
            ({"timeout": -1}, ValueError, "timeout=-1"),
            ({"timeout": "1"}, TypeError, "timeout='1'"),
        ):
            with pytest.raises(kind, match=words):
                member.group(**options)


def test_a_call_that_takes_too_long_names_the_missing_ranks(client):
    members = [phalanx.join("late", f"worker{rank}", world=2, client=client) for rank in range(2)]
    call = members[0].group(timeout=0.2).allreduce(np.ones(2), wait=False)
    with pytest.raises(exceptions.GetTimeoutError, match=r"rank 1 \(worker1\)"):
        call.wait(LIMIT_S)
    assert call.done
    for member in members:
        member.leave()


def test_a_member_that_leaves_ends_its_calls(client):
    members, groups = joined([client], "leaving", world=2)
    call = groups[0].allreduce(np.ones(2), wait=False)
    members[0].leave()
    with pytest.raises(exceptions.PhalanxError):
        call.wait(LIMIT_S)
    with pytest.raises(exceptions.ClosedError):
        groups[0].barrier()
    members[1].leave()


def test_a_newer_life_ends_the_calls_of_the_older_one(client):
    members = [phalanx.join("twice", f"worker{rank}", world=2, client=client) for rank in range(2)]
    older, other = (member.group("wait") for member in members)  # without a limit
    array = np.ones(2)
    calls = [older.allreduce(array, wait=False), older.allreduce([np.ones(50_000), array], wait=False)]
    with phalanx.join("twice", "worker0", world=2, client=client) as again:
        for call in (*calls, older.barrier(wait=False)):
            with pytest.raises(exceptions.MemberEndedError, match="a newer life of worker0 of job twice has joined"):
                call.wait(LIMIT_S)
            assert call.done  # it has ended, and not only the wait for it
        newer = again.group("wait", timeout=LIMIT_S)
        for total in together([newer, other], lambda g: g.allreduce(np.full(2, 2.0), wait=False)):
            assert total.tolist() == [4, 4]
        assert newer.calls == other.calls == 1 and array.tolist() == [1, 1]
    members[1].leave()


def test_a_forked_child_gets_an_error():
    program = """
import os, phalanx
group = phalanx.join("fork", "worker0", world=2).group(timeout=60)
call = group.barrier(wait=False)
pid = os.fork()
if pid == 0:
    for made in (call.wait, group.barrier):
        try:
            made()
            os._exit(1)
        except phalanx.exceptions.ClosedError as error:
            if "fork" not in str(error):
                os._exit(2)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "7\n", ended.stderr


# ---- members that end


def test_a_call_fails_when_a_member_has_died(client):
    members, groups = joined([client], "failing")
    calls = [group.allreduce(np.ones(2), wait=False) for group in groups[:2]]
    members[2].fail()
    for call in calls:
        with pytest.raises(exceptions.MemberUnavailableError, match="worker2"):
            call.wait(LIMIT_S)
    for member in members[:2]:
        member.leave()


def test_a_call_goes_on_without_a_member(client):
    members, groups = joined([client], "shrinking", on_loss="exclude")
    means = [group.allreduce(np.full(2, group.rank + 1.0), "mean", wait=False) for group in groups[:2]]
    gathered = [group.allgather(np.full(1, group.rank + 1), wait=False) for group in groups[:2]]
    members[2].fail()
    for call in means:
        assert call.wait(LIMIT_S).tolist() == [1.5, 1.5]
    for call in gathered:
        assert call.wait(LIMIT_S).ravel().tolist() == [1, 2, 0]
    assert groups[0].members_of_last_call == 2
    for member in members[:2]:
        member.leave()


def test_a_call_waits_for_the_next_life(client):
    members, groups = joined([client], "waiting", on_loss="wait")
    together(groups, lambda g: g.barrier(wait=False))
    calls = [group.allreduce(np.full(2, group.rank + 1), wait=False) for group in groups[:2]]
    members[2].fail()
    with phalanx.join("waiting", "worker2", world=WORLD, client=client) as again:
        returned = again.group("wait", timeout=LIMIT_S)
        assert again.life == 1
        assert returned.allreduce(np.full(2, 3)).tolist() == [6, 6]
        assert [call.wait(LIMIT_S).tolist() for call in calls] == [[6, 6]] * 2
        assert returned.calls == groups[0].calls == 2
    for member in members[:2]:
        member.leave()


# ---- kept results


def test_a_next_life_gets_the_results_that_it_has_missed(client):
    count = 100_000
    members, groups = joined([client], "kept", on_loss="exclude", retain=4)
    together(groups, lambda g: g.allreduce(vector(g, count), wait=False))
    together(groups, lambda g: g.broadcast(vector(g, 10), 1, wait=False))
    members[2].fail()
    together(groups[:2], lambda g: g.allgather(np.full(2, g.rank + 1.0), wait=False))
    together(groups[:2], lambda g: g.barrier(wait=False))
    together(groups[:2], lambda g: g.all_to_all(np.zeros(3), wait=False))
    with phalanx.join("kept", "worker2", world=WORLD, client=client) as again:
        group = again.group("exclude", timeout=LIMIT_S, retain=4)
        with pytest.raises(exceptions.GroupResultLostError, match="those of calls 2 to 5 are"):
            group.result(1, np.empty(count, np.float32))
        assert (group.result(2, np.empty(10, np.float32)) == np.arange(10) + 1).all()
        call = group.result(3, np.empty((WORLD, 2)), wait=False)
        assert call.wait(LIMIT_S).tolist() == [[1, 1], [2, 2], [0, 0]]
        assert group.result(4) is None
        with pytest.raises(exceptions.InvalidArgumentError, match="AllToAll"):
            group.result(5, np.empty(3))
        with pytest.raises(exceptions.InvalidArgumentError, match="has 40 bytes, not 8"):
            group.result(2, np.empty(1))
        with pytest.raises(exceptions.CallNotEndedError, match="the last one that has is 5"):
            group.result(6, np.empty(1))
        for total in together([*groups[:2], group], lambda g: g.allreduce(vector(g, count), wait=False)):
            assert (total == 3 * (np.arange(count) % 50) + 3).all()
        assert group.calls == 6
        for each in (groups[0], group):
            assert (each.result(6, np.empty(count, np.float32)) == 3 * (np.arange(count) % 50) + 3).all()
    for member in members[:2]:
        member.leave()


def test_members_that_keep_other_numbers_of_results_are_told(client):
    members = [phalanx.join("differ", f"worker{rank}", world=2, client=client) for rank in range(2)]
    groups = [member.group(timeout=LIMIT_S, retain=4 + rank) for rank, member in enumerate(members)]
    for error in errors_of(groups, lambda g: g.barrier(wait=False)):
        assert "retain=4 in 2 copies" in str(error) and "retain=5 in 2 copies" in str(error)
    for member in members:
        member.leave()
    for wrong in ({"retain": -1}, {"retain": 1025}, {"retain_copies": 0}, {"retain_copies": 17}):
        with pytest.raises(exceptions.InvalidArgumentError, match="retain.*: a number from"):
            members[0].group(**wrong)


def test_results_are_kept_until_they_are_released(client):
    options = {"on_loss": "wait", "retain": "until released"}
    members, groups = joined([client], "released", **options)
    assert repr(groups[0].progress()) == "GroupProgress(ended=0, boot=0, released=0, mark=0)"
    for number, keep in enumerate([(0, 0, 0), (1, 1, 0), (1, 1, 0), (1, 2, 1 << 63)], 1):
        for group in groups:
            group.keep(boot=keep[0], released=keep[1], mark=keep[2])
        together(groups, lambda g, number=number: g.allreduce(np.full(2, number * (g.rank + 1)), wait=False))
    members[2].fail()
    with phalanx.join("released", "worker2", world=WORLD, client=client) as again:
        group = again.group(timeout=LIMIT_S, **options)
        progress = group.progress()
        assert (progress.ended, progress.boot, progress.released, progress.mark) == (4, 1, 2, 1 << 63)
        for number in (1, 3, 4):
            assert group.result(number, np.empty(2, int)).tolist() == [6 * number] * 2
        with pytest.raises(exceptions.GroupResultLostError, match="call 2 of released/worker is not kept"):
            group.result(2, np.empty(2, int))
        for wrong in ({"boot": -1}, {"released": 1 << 63}, {"mark": 1 << 64}):
            with pytest.raises(exceptions.InvalidArgumentError, match="a number from 0 to"):
                group.keep(**wrong)
        group.keep(boot=1, released=2)
        with pytest.raises(exceptions.InvalidArgumentError, match="released=1: it was 2"):
            group.keep(released=1)
        with pytest.raises(exceptions.InvalidArgumentError, match="until released"):
            again.group().keep(released=1)
        group.keep(released=group.calls + 1)  # that of the next call itself
        for error in errors_of([*groups[:2], group], lambda g: g.barrier(wait=False)):
            assert "releases the results up to call 5" in str(error) or "differs" in str(error)
    for member in members[:2]:
        member.leave()


# ---- members in processes of their own

_PROGRAM = """
import json, os, pathlib, signal, sys
import numpy as np
import phalanx

on_loss, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if on_loss == "exclude" and os.environ["PHALANX_LIFE"] != "0":
    sys.exit(0)
with phalanx.join() as member:
    group = member.group(on_loss, timeout=100)
    sums = []
    while group.calls < 8:
        array = np.full(count, member.rank + 1, np.float32)
        if group.calls == 3 and member.rank == 1 and member.life == 0:
            if count > 1:
                group.allreduce(array, wait=False)
            os.kill(os.getpid(), signal.SIGKILL)
        group.allreduce(array)
        assert (array == array[0]).all()
        sums.append(float(array[0]))
    pathlib.Path(folder, member.task).write_text(json.dumps([member.life, group.members_of_last_call, sums]))
"""


def launched(on_loss, folder, count, *options):
    """Run three tasks, of which one kills itself in its fourth call; return what they have found by rank."""
    command = [_native.EXECUTABLE, "launch", "-n3", "--restarts=1", *options, "--", sys.executable, "-c", _PROGRAM]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    ended = subprocess.run(
        [*command, on_loss, str(folder), str(count)],
        capture_output=True,
        text=True,
        timeout=150,
        env=environment,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


@pytest.mark.parametrize("count", [1, 200_000])
def test_launched_tasks_wait_for_a_killed_one(tmp_path, count):
    found = launched("wait", tmp_path, count)
    assert sorted(found) == ["worker0", "worker1", "worker2"]
    assert found["worker0"] == found["worker2"] == [0, 3, [6.0] * 8]
    life, members, sums = found["worker1"]
    # The call in which it died can have ended with its part.
    assert (life, members, set(sums)) == (1, 3, {6.0}) and len(sums) in (4, 5)


@pytest.mark.parametrize("count", [1, 200_000])
def test_launched_tasks_go_on_without_a_killed_one(tmp_path, count):
    found = launched("exclude", tmp_path, count)
    assert sorted(found) == ["worker0", "worker2"] and found["worker0"] == found["worker2"]
    life, members, sums = found["worker0"]
    assert (life, members) == (0, 2) and sums[:3] == [6.0] * 3 and sums[4:] == [4.0] * 4
    assert sums[3] in ((4.0,) if count == 1 else (4.0, 6.0))
