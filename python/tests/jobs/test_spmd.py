"""Sessions: their calls, on arrays of every form and on values, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import mmap
import signal
import threading
import weakref

import numpy as np
import pytest
from sessions_support import LIMIT_S, VALUES, WORLD, Died, run, same

import phalanx.spmd
from phalanx import exceptions
from phalanx._jobs.session_calls import Functions


@pytest.fixture
def alone(client, request):
    """A session of one rank."""
    with phalanx.spmd.join(request.node.name, "worker0", world=1, client=client, peer_timeout=LIMIT_S) as session:
        yield session


# ---- calls


def test_calls_of_every_kind(client):
    def body(session):
        assert (session.world, session.life, session.version, session.seq) == (WORLD, 0, 0, 0)
        assert repr(session) == f"<phalanx.spmd.Session: rank {session.rank} of {WORLD}, life 0>"
        assert session.load() == (0, None)
        given = np.full((2, 3), session.rank + 1, np.int16)
        total = session.allreduce(given, np.maximum)
        assert total.dtype == np.int16 and total.tolist() == [[3] * 3] * 2 and (given == session.rank + 1).all()
        word = session.broadcast({"word": "hello", "from": session.rank}, 1)
        assert word == {"word": "hello", "from": 1}
        parts = session.allgather(np.full((session.rank, 2), session.rank))
        assert [part.shape for part in parts] == [(0, 2), (1, 2), (2, 2)] and (parts[2] == 2).all()
        session.barrier()
        assert session.seq == 4
        session.checkpoint(total)
        assert (session.version, session.seq) == (1, 0)
        stats = session.stats
        assert (stats.repeated, stats.made, stats.prepared, stats.recovery) == (0, 7, 0, 0)
        assert total.nbytes < stats.checkpoint_bytes < 1000 and "made=7" in repr(stats)
        return session

    for session in run(client, "calls", body):
        assert session.version == 1  # after it has left
        with pytest.raises(exceptions.ClosedError, match="the rank has left"):
            session.barrier()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i2", "i4", "u4", "i8", "u8"])
def test_every_dtype(client, dtype):
    def body(session):
        return session.allreduce(np.arange(5).astype(dtype) + session.rank)

    for total in run(client, f"dtype {dtype}", body):
        assert total.dtype == np.dtype(dtype) and total.tolist() == [3 * i + 3 for i in range(5)]


@pytest.mark.parametrize(
    ("op", "dtype", "fold"),
    [
        ("prod", "i2", np.prod),
        ("min", "f8", min),
        (np.maximum, "f4", max),
        ("bit-and", "u4", np.bitwise_and.reduce),
        (np.bitwise_or, "i4", np.bitwise_or.reduce),
        ("bit-xor", "u8", np.bitwise_xor.reduce),
        ("mean", "f8", lambda values: sum(values) / len(values)),
    ],
)
def test_every_op(client, op, dtype, fold):
    results = run(
        client, f"op {dtype} {op}", lambda session: session.allreduce(np.full(4, session.rank + 1, dtype), op)
    )
    assert all((result == fold([1, 2, 3])).all() for result in results)


def test_arrays_of_every_form(alone):
    grid = np.arange(12.0).reshape(3, 4)
    for array in (grid[:, ::2], grid.T, np.asfortranarray(grid), grid[::-1], np.array(5, np.int64), np.zeros((0, 4))):
        total = alone.allreduce(array)
        assert (total.shape, total.dtype) == (array.shape, array.dtype) and (total == array).all()
        assert type(total) is np.ndarray and total.flags.c_contiguous and not np.may_share_memory(total, array)
    scalar = alone.allreduce(np.float32(2.5))
    assert type(scalar) is np.float32 and scalar == 2.5
    read_only = np.ones(3)
    read_only.flags.writeable = False
    assert alone.allreduce(read_only).flags.writeable
    out = np.zeros((3, 4))
    assert alone.allreduce(grid, out=out) is out and (out == grid).all()
    assert alone.allreduce(out, "prod", out=out) is out


def test_without_elements_nothing_is_prepared(alone):
    def prepare():
        raise AssertionError

    assert alone.allreduce(prepare=prepare, shape=(0, 3), dtype="f4").shape == (0, 3)
    assert alone.seq == 1 and alone.stats.prepared == 0


def test_tensors(client):
    torch = pytest.importorskip("torch")

    def body(session):
        given = torch.full((3, 2), session.rank + 1.0).T.bfloat16()
        total = session.allreduce(given)
        assert total.dtype == torch.bfloat16 and total.shape == (2, 3) and (total == 6).all()
        out = torch.zeros(2)
        assert session.allreduce(prepare=lambda: out.fill_(1), out=out) is out and out.tolist() == [3, 3]
        return session.broadcast({"w": total} if session.rank == 2 else None, 2)["w"].tolist()

    assert run(client, "tensors", body) == [[[6] * 3] * 2] * WORLD


def test_wrong_arguments_are_refused_at_once(alone):
    three, read_only = np.ones(3), np.ones(3)
    read_only.flags.writeable = False
    for call, kind, words in (
        (lambda: alone.allreduce([1.0]), TypeError, "allreduce: a NumPy array or a torch tensor .* not a .*list"),
        (lambda: alone.allreduce(), TypeError, "not None"),
        (lambda: alone.allreduce(np.array([None])), TypeError, "dtype object are Python objects"),
        (lambda: alone.allreduce(np.ma.ones(3)), TypeError, "MaskedArray"),
        (lambda: alone.allreduce(np.ones(3, bool)), ValueError, "dtype bool cannot be reduced; those of float16"),
        (lambda: alone.allreduce(np.ones(3, ">f4")), ValueError, "dtype >f4 cannot be reduced"),
        (lambda: alone.allreduce(three, "avg"), ValueError, "no op of reductions: 'avg'"),
        (lambda: alone.allreduce(three, "bit-or"), ValueError, "bit-or"),
        (lambda: alone.allreduce(three, out=read_only), ValueError, "out: the array is read-only"),
        (lambda: alone.allreduce(three, out=np.ones((3, 2))[:, 0]), ValueError, "out: shape .* not contiguous"),
        (lambda: alone.allreduce(three, out=np.ones(4)), ValueError, r"float64 of shape \(3,\), and the result"),
        (lambda: alone.allreduce(three, out=np.ones(3, "f4")), ValueError, "the result is float32"),
        (lambda: alone.allreduce(three, prepare=lambda: three), ValueError, "give an array, or prepare="),
        (lambda: alone.allreduce(three, shape=3), ValueError, "are for prepare="),
        (lambda: alone.allreduce(prepare=lambda: three), ValueError, "needs shape= and dtype=, or out="),
        (lambda: alone.allreduce(prepare=lambda: three, shape=4, out=three), ValueError, r"the shape \(3,\), not 4"),
        (lambda: alone.allreduce(prepare=lambda: three, shape=4, dtype="f8"), ValueError, r"prepare: float64 of shape"),
        (lambda: alone.allreduce(prepare=lambda: None, shape=4, dtype="f8"), TypeError, "prepare returned None"),
        (lambda: alone.allreduce(three, name=5), TypeError, "name=5"),
        (lambda: alone.broadcast(1, 1), ValueError, "root=1"),
        (lambda: alone.broadcast(1, "0"), TypeError, "root='0'"),
        (lambda: alone.broadcast(threading.Lock()), TypeError, "pickle"),
        (lambda: alone.checkpoint(threading.Lock()), TypeError, "pickle"),
        (lambda: alone.checkpoint(1), exceptions.ClosedError, "Load"),
    ):
        with pytest.raises(kind, match=words):
            call()
        assert alone.seq == 0
    assert alone.allreduce(three).tolist() == [1, 1, 1]


def test_results_end_with_their_last_reference(alone):
    """Nothing large waits for the collector of cycles."""
    calls = (
        lambda: alone.allreduce(np.ones(1000)),
        lambda: alone.allreduce(prepare=lambda: np.ones(1000), shape=1000, dtype="f8"),
        lambda: alone.allreduce(np.ones(1000), lambda a, b: a + b),
        lambda: alone.allreduce_async(np.ones(1000)).wait(),
        lambda: alone.broadcast(np.ones(1000)),
        lambda: alone.allgather(np.ones(1000))[0],
    )
    gc.collect()
    gc.disable()
    try:
        for call in calls:
            ref = weakref.ref(call())
            alone.barrier()  # the worker has let go of the call before it
            assert ref() is None
        # They have the memory of results.
        assert not [each for each in gc.get_objects() if type(each) is Functions]
    finally:
        gc.enable()


def test_more_than_a_call_can_have(client):
    # Memory that is neither touched nor reserved (MAP_NORESERVE).
    array = np.frombuffer(mmap.mmap(-1, (4 << 30) + 8, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000), np.uint8)
    with phalanx.spmd.join("huge", "worker0", world=1, client=client, peer_timeout=LIMIT_S) as session:
        with pytest.raises(exceptions.InvalidArgumentError, match="4294967304"):
            session.allreduce(array, out=array)
        with pytest.raises(exceptions.InvalidArgumentError, match="4294967304"):
            session.barrier()
        raised = pytest.raises(exceptions.InvalidArgumentError)
        with raised:
            session.leave()
        session._left = True


@pytest.mark.parametrize("value", [None, 5, "text", b"", b"bytes", [1, (2, {"a": 3})], np.float32(2), {1, 2}])
def test_broadcasts_of_values(client, value):
    for received in run(client, f"value {value!r}", lambda s: s.broadcast(value if s.rank == 0 else "another"), 2):
        assert received == value and type(received) is type(value)


def test_a_broadcast_array_is_a_copy_on_the_root_too(client):
    given = np.arange(100_000.0).reshape(100, 1000)

    def body(session):
        received = session.broadcast(given.T if session.rank == 1 else None, 1)
        received += session.rank  # writable, and not the root's
        return received

    for rank, received in enumerate(run(client, "copy", body)):
        assert (received == given.T + rank).all() and received.ctypes.data % 64 == 0
    assert given[0, 1] == 1


def test_values_keep_what_occurs_twice(client):
    def body(session):
        tied = np.ones(1000)
        received = session.broadcast({"in": tied, "out": tied})
        received["in"][0] = 5
        return received["out"][0], [part["x"] is part["y"] for part in session.allgather({"x": tied, "y": tied})]

    assert run(client, "tied", body, 2) == [(5, [True, True])] * 2


def test_allgather_of_any_shapes(client):
    def body(session):
        rank = session.rank
        alike = session.allgather(np.full((2, 3), rank, np.int32))
        assert [part.tolist() for part in alike] == [[[r] * 3] * 2 for r in range(WORLD)]
        others = session.allgather(np.full((rank,) * rank, rank, ["f4", "i8", "u1"][rank]))
        assert [(part.shape, part.dtype.str) for part in others] == [((), "<f4"), ((1,), "<i8"), ((2, 2), "|u1")]
        others[1][0] = 7  # writable
        return session.allgather(["a", {"b": rank}, None][rank])

    assert run(client, "shapes", body) == [["a", {"b": 1}, None]] * WORLD


def test_ranks_that_differ_in_a_call_all_get_the_error(client):
    def body(session):
        with pytest.raises(exceptions.InvalidArgumentError) as caught:
            session.allreduce(np.ones(2 + session.rank))
        assert "16 bytes" in str(caught.value) and "version 0, seq 0" in str(caught.value)
        with pytest.raises(exceptions.InvalidArgumentError, match="16 bytes"):
            session.barrier()  # the session is over
        session._left = True
        return True

    assert run(client, "differ", body, 2) == [True] * 2


# ---- prepare


def test_prepare_gives_the_input(client):
    def body(session):
        calls = []

        def prepare():
            calls.append(threading.get_ident())
            return np.full((2, 2), session.rank + 1, np.float32)[:, ::-1]

        total = session.allreduce(prepare=prepare, shape=(2, 2), dtype="f4")
        assert (total == 6).all() and calls == [threading.get_ident()]
        out = np.zeros(3)
        assert session.allreduce(prepare=lambda: np.ones(3), out=out) is out and out.tolist() == [3] * 3

        def fill():
            out[:] = session.rank
            return out

        session.allreduce(prepare=fill, out=out)
        scalar = session.allreduce(prepare=lambda: 2.0, shape=(), dtype="f8")
        assert scalar.shape == () and scalar == 6
        assert session.stats.prepared == 4
        return out.tolist()

    assert run(client, "prepare", body) == [[3] * 3] * WORLD


def test_a_prepare_that_raises_leaves_the_call_to_be_made(client):
    class Mine(Exception):
        pass

    def body(session):
        def prepare():
            raise Mine(session.rank)

        with pytest.raises(Mine) as caught:
            session.allreduce(prepare=prepare, shape=2, dtype="f8")
        assert caught.value.args == (session.rank,) and session.seq == 0
        return session.allreduce(prepare=lambda: np.ones(2), shape=2, dtype="f8").tolist()

    assert run(client, "raises", body, 2) == [[2, 2]] * 2


def test_a_call_within_prepare_is_refused(alone):
    def prepare():
        with pytest.raises(exceptions.ClosedError, match="another call of the session is under way"):
            alone.barrier()
        return np.ones(2)

    assert alone.allreduce(prepare=prepare, shape=2, dtype="f8").tolist() == [1, 1]


def test_functions_run_in_the_main_thread(alone):
    """A call of the main thread is made in another one, so that an interrupt ends it."""
    seen = []

    def prepare():
        seen.append(threading.current_thread())
        return np.ones(2)

    alone.allreduce(prepare=prepare, shape=2, dtype="f8")
    assert seen == [threading.main_thread()]

    def interrupted():
        signal.raise_signal(signal.SIGINT)
        return np.ones(2)

    # A process that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            alone.allreduce(prepare=interrupted, shape=2, dtype="f8")
    finally:
        signal.signal(signal.SIGINT, before)
    # An exception of prepare like any other.
    assert alone.allreduce(prepare=prepare, shape=2, dtype="f8").tolist() == [1, 1]


# ---- own functions


def join_words(into, other):
    return into + other


def test_own_functions_fold_in_the_order_of_ranks(client):
    def body(session):
        rank = session.rank
        assert session.allreduce("abc"[rank], join_words) == "abc"
        # Products of matrices: their order shows, and they are no fold of elements.
        matrix = np.array([[1.0, rank + 1], [0, 1]]) if rank % 2 else np.array([[1.0, 0], [rank + 1, 1]])
        kept = matrix.copy()
        product = session.allreduce(matrix, lambda a, b: a @ b)
        assert (matrix == kept).all()
        # Larger than what is gathered: along a tree. The function changes `into`.
        large = {rank: np.full(100_000, rank, np.float32), "sum": np.full(100_000, VALUES[rank])}

        def merge(into, other):
            into["sum"] += other.pop("sum")
            into.update(other)
            return into

        merged = session.allreduce(large, merge)
        assert sorted(map(str, merged)) == ["0", "1", "2", "sum"] and (large["sum"] == VALUES[rank]).all()
        out = np.zeros(2, np.float32)
        assert session.allreduce(VALUES[rank : rank + 1].repeat(2), lambda a, b: a + b, out=out) is out
        assert out.tolist() == [0, 0]  # (1e8 + 1) - 1e8
        assert session.seq == 4
        return product, merged["sum"]

    products, sums = zip(*run(client, "own", body))
    expected = np.array([[1.0, 0], [1, 1]]) @ np.array([[1.0, 2], [0, 1]]) @ np.array([[1.0, 0], [3, 1]])
    assert (same(products) == expected).all()
    assert (same(sums) == (VALUES[0] + VALUES[1]) + VALUES[2]).all()


def test_own_functions_of_one_rank(alone):
    given = [1, 2]
    result = alone.allreduce(given, join_words)
    assert result == given and result is not given
    assert alone.allreduce(op=join_words, prepare=lambda: {"a": 1}) == {"a": 1}
    assert alone.stats.prepared == 1
    for call, words in (
        (lambda: alone.allreduce(op=join_words), "give a value"),
        (lambda: alone.allreduce(1, join_words, prepare=lambda: 1), "give a value"),
        (lambda: alone.allreduce(1, join_words, shape=3), "for ops that have a name"),
    ):
        with pytest.raises(exceptions.InvalidArgumentError, match=words):
            call()


class Mine(Exception):
    pass


@pytest.mark.parametrize("count", [1, 500_000])
def test_an_own_function_that_raises_ends_the_session_of_its_rank(client, count):
    """The others wait for the next life of the rank."""
    raised = []

    def body(session):
        def fold(into, other):
            if session.rank == 0 and session.life == 0:
                raise Mine(session.rank)
            return into + other

        if session.rank > 0 or session.life > 0:
            return session.allreduce(bytes(count), fold)
        with pytest.raises(Mine) as caught:
            session.allreduce(bytes(count), fold)
        with pytest.raises(exceptions.CallCancelledError, match="a function of the program has thrown"):
            session.barrier()
        raised.append(caught.value.args)
        raise Died

    assert run(client, f"fold raises {count}", body) == [bytes(WORLD * count)] * WORLD
    assert raised == [(0,)]


def test_a_value_that_cannot_be_pickled_leaves_the_call_to_be_made(client):
    def body(session):
        with pytest.raises(TypeError, match="pickle"):
            session.allreduce(threading.Lock(), join_words)
        with pytest.raises(Mine):
            session.allreduce(op=join_words, prepare=lambda: (_ for _ in ()).throw(Mine))
        assert session.seq == 0
        return session.allreduce(op=join_words, prepare=lambda: [session.rank])

    assert run(client, "unpicklable", body) == [[0, 1, 2]] * WORLD


# ---- asynchronous calls


def test_calls_are_under_way_together(client):
    def body(session):
        rank, given = session.rank, [np.full(count, session.rank + i) for i, count in enumerate([1, 50_000] * 10)]
        calls = [session.allreduce_async(array) for array in given]
        scalar = session.allreduce_async(np.float64(rank))
        out = np.zeros(2)
        filled = session.allreduce_async(prepare=lambda: np.full(2, rank + 0.5), out=out)
        for i in reversed(range(20)):
            assert (calls[i].wait(LIMIT_S) == 3 * i + 3).all() and calls[i].done
            assert (given[i] == rank + i).all()
        assert filled.wait() is out and out.tolist() == [4.5, 4.5]
        assert type(scalar.wait()) is np.float64 and scalar.wait() == 3
        assert repr(scalar) == "<phalanx.spmd.SessionCall: ended>"
        assert session.allreduce_async(np.zeros(0)).wait().shape == (0,)
        assert session.seq == 23 and session.stats.prepared == 1
        # Nothing keeps the handle.
        session.allreduce_async(np.full(100_000, rank))
        session.load()
        session.checkpoint(None)
        return session.allreduce_async(np.ones(2)).wait().tolist()

    assert run(client, "async", body) == [[3, 3]] * WORLD


def test_calls_are_awaited(client):
    def body(session):
        async def main():
            calls = [session.allreduce_async(np.full(50_000, session.rank + i)) for i in range(5)]
            return [float((await call)[0]) for call in calls]

        return asyncio.run(main())

    assert run(client, "awaited", body) == [[3, 6, 9, 12, 15]] * WORLD


def test_wrong_asynchronous_calls_are_refused_at_once(alone):
    for call, kind, words in (
        (lambda: alone.allreduce_async([1.0]), TypeError, "allreduce_async: a NumPy array"),
        (lambda: alone.allreduce_async(np.ones(3), join_words), ValueError, "no op of reductions"),
        (lambda: alone.allreduce_async(np.ones(3), "bit-or"), ValueError, "bit-or"),
        (lambda: alone.allreduce_async(prepare=lambda: None, shape=2, dtype="f8"), TypeError, "returned None"),
    ):
        with pytest.raises(kind, match=words):
            call()
    assert alone.seq == 0 and alone.allreduce_async(np.ones(2)).wait().tolist() == [1, 1]


def test_an_error_of_an_asynchronous_call_ends_the_session(client):
    def body(session):
        right = session.allreduce_async(np.ones(2))
        wrong = session.allreduce_async(np.ones(2 + session.rank))
        assert right.wait().tolist() == [2, 2]
        with pytest.raises(exceptions.InvalidArgumentError, match="16 bytes"):
            wrong.wait()
        with pytest.raises(exceptions.InvalidArgumentError, match="16 bytes"):
            session.barrier()
        session._left = True
        return True

    assert run(client, "async error", body, 2) == [True] * 2


def test_a_wait_can_end_before_its_call(client):
    def body(session):
        if session.rank == 1:
            waited.wait(LIMIT_S)
        call = session.allreduce_async(np.ones(2))
        if session.rank == 0:
            with pytest.raises(exceptions.GetTimeoutError, match="not there within 0.01 s"):
                call.wait(0.01)
            assert not call.done and "under way" in repr(call)
            waited.set()
        return call.wait(LIMIT_S).tolist()

    waited = threading.Event()
    assert run(client, "wait ends", body, 2) == [[2, 2]] * 2


def test_a_rank_that_dies_among_asynchronous_calls_repeats_them(client):
    def body(session):
        session.load()
        prepared = []

        def prepare(i):
            prepared.append(i)
            return np.full(30_000, VALUES[(session.rank + i) % 3])

        calls = [session.allreduce_async(prepare=lambda i=i: prepare(i), shape=30_000, dtype="f4") for i in range(10)]
        if session.rank == 1 and session.life == 0:
            # Its own part of the calls can be with the others, or not.
            raise Died
        sums = [call.wait() for call in calls]
        assert len(prepared) == session.stats.prepared <= 10
        session.barrier()
        return np.concatenate(sums)

    same(run(client, "async deaths", body))
