"""Parameter servers: tables whose rows have lengths of their own."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref

import numpy as np
import programs_support
import pytest
from ps_support import KEYS, LIMIT_S, SERVERS, WORKERS, Mortal, Replay, run, serving

import phalanx
import phalanx.ps
from phalanx import exceptions

WIDTH = 6
# Rows of both servers, and one that is never pushed.
ALL_KEYS = np.array([*range(KEYS), 2**64 - 2, 2**64 - 1], np.uint64)
NEVER = 1 << 50

UPDATES = {
    "assign": {},
    "sum": {},
    "sgd": {"rate": 0.3},
    "momentum": {"rate": 0.3, "momentum": 0.7},
    "adagrad": {"rate": 0.3, "epsilon": 1e-6},
    "ftrl": {"rate": 0.3, "beta": 0.5, "l1": 0.1, "l2": 0.2},
}


def f4(*values):
    return np.array(values, np.float32)


@pytest.fixture
def alone(client, request):
    """A worker, with one server that has the tables "w" with lengths, and "fixed" and "dense" without."""
    job = f"lengths {request.node.name}"
    tables = {
        "w": {"keys": None, "lengths": True, "width": WIDTH, "sync": "asp"},
        "fixed": {"keys": None, "width": 2, "sync": "asp"},
        "dense": {"sync": "asp"},
    }
    with (
        serving(client, job, **tables),
        phalanx.ps.worker(job, "worker0", 1, client=client, peer_timeout=LIMIT_S) as worker,
    ):
        yield worker


class Lists:
    """What a table with "bsp" has after each clock, computed by NumPy one row after the other."""

    def __init__(self, dtype, update, **numbers):
        self._dtype, self._update, self._numbers = np.dtype(dtype), update, numbers
        self._rows = {}  # by key: a replay of `WIDTH` elements, and the length

    def row(self, key):
        replay, length = self._rows.get(key, (None, 0))
        return np.zeros(0, self._dtype) if replay is None else replay.w[:length]

    def turn(self, pushes):
        """Make the clock of these pushes: (keys, rows) in the order of workers, and of each one's pushes."""
        sums = {}
        for keys, rows in pushes:
            for key, row in zip(keys.tolist(), rows):
                before = sums.get(key)
                if before is None or self._update == "assign":
                    sums[key] = row.copy()
                    continue
                sums[key] = np.zeros(max(len(before), len(row)), self._dtype)
                sums[key][: len(before)] += before
                sums[key][: len(row)] += row
        for key, pushed in sums.items():
            if self._update == "assign":
                replay, length = Replay(WIDTH, self._dtype, "sum"), 0
                replay.w[: len(pushed)] = pushed
            else:
                made = Replay(WIDTH, self._dtype, self._update, **self._numbers)
                replay, length = self._rows.get(key, (made, 0))
                replay._update(slice(0, len(pushed)), pushed, **replay._numbers)
            self._rows[key] = (replay, max(length, len(pushed)))


def pushes(rank, clock):
    """Two pushes of a worker in a clock: the keys, and their rows."""
    draws = np.random.default_rng([rank, clock])
    for size in (len(ALL_KEYS), 5):
        keys = np.sort(draws.permutation(ALL_KEYS)[:size])
        # Sums of them depend on their order.
        scale = (1e8, 1, -1e8)[rank]
        yield keys, [(draws.normal(size=draws.integers(WIDTH + 1)) * scale).astype(np.float32) for _ in keys]


# ---- calls


@pytest.mark.parametrize("update", UPDATES)
def test_bsp_is_a_serial_replay_bit_for_bit(client, update):
    clocks = 8

    def work(worker):
        table = worker.table("w")
        assert table.spec.lengths is True and table.spec.width == WIDTH
        seen = []
        for clock in range(clocks):
            seen.append(table.pull(ALL_KEYS))
            for number, (keys, rows) in enumerate(pushes(worker.rank, clock)):
                if number == 0:
                    table.push(keys, np.concatenate(rows), [len(row) for row in rows], wait=False)
                else:
                    table.push(keys, rows)
            # Not even one's own pushes are seen before the clock has ended.
            assert (table.pull(ALL_KEYS).values == seen[-1].values).all()
            table.clock()
        return [*seen, table.pull(ALL_KEYS)]

    def serve(server):
        server.table(
            "w", lengths=True, width=WIDTH, split="hash", update=update, snapshot_every=3, **UPDATES[update]
        )

    results = run(client, f"lengths bsp {update}", serve, work)
    replay = Lists(np.float32, update, **UPDATES[update])
    lengths = []
    for clock in range(clocks + 1):
        rows = [replay.row(key) for key in ALL_KEYS.tolist()]
        for seen in results:
            assert seen[clock].lengths.tolist() == [len(row) for row in rows], clock
            assert seen[clock].values.tobytes() == np.concatenate(rows).tobytes(), clock
        lengths.append(seen[clock].lengths)
        if clock < clocks:
            replay.turn([push for rank in range(WORKERS) for push in pushes(rank, clock)])
    assert not lengths[0].any() and len(set(lengths[1])) > 2 and lengths[-1].max() == WIDTH
    # A row becomes shorter by "assign" alone.
    assert any((after < before).any() for before, after in zip(lengths, lengths[1:])) == (update == "assign")


def test_rows_of_two_workers(client):
    """As above, in numbers that can be read."""

    def work(worker):
        table, last = worker.table("sum"), worker.table("assign")
        if worker.rank == 0:
            assert table.push([3, 5], f4(1, 2, 7), [2, 1]) is None
            last.push([3, 5], [f4(1, 2), f4(3)])
        else:
            table.push([3], f4(10, 20, 30), [3])
            last.push([3], [f4()])
        table.clock()
        last.clock()
        assert last.pull([3, 5]).lengths.tolist() == [0, 1]
        return table.pull([3, 4, 5])

    def serve(server):
        for update in ("sum", "assign"):
            server.table(update, lengths=True, width=4, split="hash", update=update)

    for values, lengths in run(client, "lengths of two", serve, work, workers=2):
        assert (values.tolist(), lengths.tolist()) == ([11, 22, 30, 7], [3, 0, 1])
        assert values.dtype == np.float32 and lengths.dtype == np.int64


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_every_dtype(client, dtype):
    job = f"lengths {dtype}"
    table = {"keys": None, "lengths": True, "width": 3, "dtype": dtype, "sync": "asp", "split": "hash"}
    with serving(client, job, w=table), phalanx.ps.worker(job, "worker0", 1, client=client) as worker:
        w = worker.table("w")
        own = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8"}[dtype]
        after = w.push_pull([1, 2**64 - 1], np.arange(5, dtype=own), lengths=np.array([3, 2], np.uint8))
        assert isinstance(after, phalanx.ps.PulledRows) and after.values.dtype == own
        assert (after.values.tolist(), after.lengths.tolist()) == ([0, 1, 2, 3, 4], [3, 2])
        # The rows of a matrix are rows of one length.
        after = w.push_pull([1, 2], np.asfortranarray(np.ones((2, 2), own)))
        assert (after.values.tolist(), after.lengths.tolist()) == ([1, 2, 2, 1, 1], [3, 2])
        after = w.push_pull([1], (np.arange(6, dtype=own)[::2],))
        assert after.values.tolist() == [1, 4, 6]
        for none in (w.pull([]), w.push_pull([], []), w.push_pull([], np.empty(0, own), lengths=[])):
            assert none.values.dtype == own and none.values.shape == none.lengths.shape == (0,)
        none = w.pull([NEVER, NEVER + 1])
        assert none.values.shape == (0,) and none.lengths.tolist() == [0, 0]


def test_values_travel_rounded(client):
    table = {"keys": None, "lengths": True, "width": 3, "wire": "f16", "sync": "asp"}
    with serving(client, "lengths f16", w=table):
        with phalanx.ps.worker("lengths f16", "worker0", 1, client=client) as worker:
            seen = worker.table("w").push_pull([1, 2], f4(1 + 2**-13, 3, 1 + 2**-10), lengths=[2, 1])
            assert seen.values.tolist() == [1, 3, 1 + 2**-10]


def test_large_calls_are_cut_into_pieces(client):
    """Rows of several messages, some of them without elements."""
    rng = np.random.default_rng(7)
    keys = np.unique(rng.integers(2**63, size=60000).astype(np.uint64))
    lengths = rng.integers(0, WIDTH + 1, len(keys))
    values = rng.normal(size=lengths.sum())

    def work(worker):
        table = worker.table("w")
        if worker.rank == 0:
            table.push(keys, values, lengths)
        worker.barrier()
        seen = table.pull(keys)
        assert (seen.lengths == lengths).all() and (seen.values == values).all()
        some = table.pull(keys[::1000])
        assert (some.lengths == lengths[::1000]).all()

    def serve(server):
        server.table("w", lengths=True, width=WIDTH, dtype="f64", sync="asp", split="hash")

    run(client, "lengths large", serve, work, workers=2)


def test_calls_that_are_awaited(alone):
    table = alone.table("w")
    pushed = table.push([1, 2], [f4(1, 2), f4(3)], wait=False)
    pulled = table.pull([1, 2], wait=False)
    assert repr(pushed).startswith("<phalanx.ps.TableCall push of table 'w' by worker 0")
    assert pushed.wait(LIMIT_S) is None
    seen = pulled.wait(LIMIT_S)
    assert seen.values.tolist() == [1, 2, 3] and pulled.done and pulled.wait() is seen

    async def program():
        call = table.push_pull([2, 4], f4(1, 1, 1, 1), lengths=[3, 1], wait=False)
        both = await call
        assert await call is both
        one, other = await asyncio.gather(table.pull([1], wait=False), table.pull([4], wait=False))
        return both.values.tolist(), one.values.tolist(), other.values.tolist()

    assert asyncio.run(program()) == ([4, 1, 1, 1], [1, 2], [1])


@pytest.fixture
def no_collector():
    """What is freed is freed by its last reference."""
    gc.disable()
    yield
    gc.enable()


def test_values_that_are_pulled_keep_their_memory(alone, no_collector):
    table = alone.table("w")
    table.push([1, 2], [f4(1, 2), f4(3)])
    call = table.pull([1, 2], wait=False)
    rows = call.wait(LIMIT_S)
    library = weakref.ref(call._calls[0])
    one = rows.values[1:]
    del call, rows
    assert library() is not None
    one += 1  # its own
    assert one.tolist() == [3, 4] and table.pull([1, 2]).values.tolist() == [1, 2, 3]
    del one
    assert library() is None


def test_the_program_of_the_guide_runs():
    page = programs_support.ROOT / "docs" / "parameter-server.md"
    lines = page.read_text().splitlines()
    (blocks,) = (
        blocks
        for line, blocks in programs_support.sections_of(page).items()
        if lines[line - 1] == "### Rows with lengths of their own"
    )
    assert [block.language for block in blocks] == ["python"]
    programs_support.run_section(blocks)


# ---- own updates


@pytest.mark.parametrize("dies", [False, True])
def test_own_update(client, dies):
    """Even keys have their elements changed, odd ones get other rows. With a death of a server, too."""
    clocks, job, asked = 7, f"lengths own {dies}", []

    def update(keys, grads, rows):
        assert keys.dtype == np.uint64 and len(keys) == len(grads) == len(rows)
        for at, key in enumerate(keys.tolist()):
            assert grads[at].dtype == rows[at].dtype == np.float64 and rows[at].ndim == grads[at].ndim == 1
            if key % 2 == 0 and len(rows[at]) > 0:
                rows[at][...] *= 2
                rows[at][0] += grads[at][0]
                grads[at][...] = np.nan  # its own
            elif len(rows[at]) + len(grads[at]) <= WIDTH:
                rows[at] = np.concatenate([rows[at], grads[at]])
            else:
                rows[at] = grads[at][:1]

    def serve(server):
        server.table("w", lengths=True, width=WIDTH, dtype="f64", split="hash", update=update, snapshot_every=2)
        server.on_request(Mortal(client, job, server, asked))

    keys = np.arange(9)

    def work(worker):
        table = worker.table("w")
        seen = []
        for clock in range(clocks):
            table.push(keys, [np.full(1 + worker.rank, 1.0 + key) for key in keys], wait=False)
            if dies and worker.rank == 0 and clock == 4:
                assert worker.request(1) == (0, b"life 2")
            table.clock()
            seen.append(table.pull(keys))
        return seen

    results = run(client, job, serve, work, workers=2)
    assert asked == ([0, 2] if dies else [])
    expected = {key: np.zeros(0) for key in keys.tolist()}
    for clock in range(clocks):
        for key, row in expected.items():
            pushed = np.array([2.0, 1.0]) * (1 + key)
            if key % 2 == 0 and len(row) > 0:
                row *= 2
                row[0] += pushed[0]
            elif len(row) + 2 <= WIDTH:
                expected[key] = np.concatenate([row, pushed])
            else:
                expected[key] = pushed[:1]
        for seen in results:
            assert seen[clock].lengths.tolist() == [len(row) for row in expected.values()], clock
            assert (seen[clock].values == np.concatenate(list(expected.values()))).all(), clock
    assert sorted({len(row) for row in expected.values()}) == [1, 2]


def test_own_updates_of_one_push(client):
    """With "asp"; a row can be taken from another key, become empty, or stay as it is."""
    pushed = []

    def update(keys, grads, rows):
        pushed.append([row.tolist() for row in grads])
        keys[:] = 0  # its own
        if len(rows) == 3:
            rows[0], rows[1] = rows[1], f4()
        else:
            rows[:] = grads

    table = {"keys": None, "lengths": True, "width": WIDTH, "sync": "asp", "update": update}
    with serving(client, "lengths one", w=table):
        with phalanx.ps.worker("lengths one", "worker0", 1, client=client) as worker:
            w = worker.table("w")
            w.push([1, 2, 3, 4], [f4(1), f4(), f4(3, 3, 3), f4(4, 4)])
            w.push([2, 4], [f4(2, 2), f4(5)])
            seen = w.push_pull([2, 3, 4], f4(), lengths=[0, 0, 0])
            assert (seen.values.tolist(), seen.lengths.tolist()) == ([3, 3, 3, 5], [3, 0, 1])
            assert w.pull([1]).values.tolist() == [1]
    assert pushed == [[[1], [], [3, 3, 3], [4, 4]], [[2, 2], [5]], [[], [], []]]


def test_own_updates_that_leave_wrong_rows_end_all_calls_for_their_table(client, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error[0]))

    def longer(rows):
        rows.append(f4(1))

    def leaves(row):
        def update(rows):
            rows[1] = row

        return update

    cases = {
        "long": (leaves(np.zeros(WIDTH + 1, "f4")), "key 8: 7 elements; rows of table 'long' have 0 to 6"),
        "dtype": (leaves(np.zeros(2)), "key 8: the dtype float64; table 'dtype' has elements of float32"),
        "shape": (leaves(np.zeros((1, 2), "f4")), r"key 8: the shape \(1, 2\); \(length,\) is expected"),
        "kind": (leaves([1.0]), "key 8: a NumPy array is expected, not a builtins.list"),
        "many": (longer, "3 rows for 2 keys of table 'many'"),
        "fewer": (lambda rows: rows.pop(), "1 rows for 2 keys"),
        "raises": (lambda rows: rows[2], "IndexError: list index out of range"),
        "returns": (lambda rows: rows, "it changes its third argument"),
    }

    def own(change, returns):
        def update(keys, grads, rows):
            result = change(rows)
            return result if returns else None

        return update

    tables = {
        name: {
            "keys": None,
            "lengths": True,
            "width": WIDTH,
            "sync": "asp",
            "update": own(change, name == "returns"),
        }
        for name, (change, _) in cases.items()
    }
    with serving(client, "lengths wrong", **tables):
        worker = phalanx.ps.worker("lengths wrong", "worker0", 1, client=client, peer_timeout=LIMIT_S)
        for name, (_, words) in cases.items():
            with pytest.raises(exceptions.TableFailedError, match=words) as error:
                worker.table(name).push_pull([7, 8], f4(1, 2), lengths=[1, 1])
            assert f'"{name}"' in str(error.value)
        worker.check()
    wrong = exceptions.InvalidArgumentError
    assert shown == [wrong, wrong, wrong, TypeError, wrong, wrong, IndexError, TypeError]


# ---- deaths


@pytest.mark.parametrize("update", ["sum", "assign", "adagrad"])
def test_a_server_dies_and_nothing_is_lost(client, update):
    clocks, job, asked = 9, f"lengths die {update}", []

    def serve(server):
        server.table("w", lengths=True, width=WIDTH, split="hash", update=update, snapshot_every=2)
        server.on_request(Mortal(client, job, server, asked))

    def work(worker):
        table = worker.table("w")
        for clock in range(clocks):
            for keys, rows in pushes(worker.rank, clock):
                table.push(keys, rows, wait=False)
            if worker.rank == 0 and clock == 5:
                assert worker.request(1) == (0, b"life 2")
            table.clock()
            table.pull(ALL_KEYS[:1])
        return table.pull(ALL_KEYS)

    results = run(client, job, serve, work, workers=2)
    assert asked == [0, 2]
    replay = Lists(np.float32, update, **({"rate": 0.1, "epsilon": 1e-8} if update == "adagrad" else {}))
    for clock in range(clocks):
        replay.turn([push for rank in range(2) for push in pushes(rank, clock)])
    rows = [replay.row(key) for key in ALL_KEYS.tolist()]
    for seen in results:
        assert seen.lengths.tolist() == [len(row) for row in rows]
        assert seen.values.tobytes() == np.concatenate(rows).tobytes()


# ---- what is refused


def test_wrong_arguments_of_calls_are_refused_at_once(alone):
    table, fixed, dense = (alone.table(name) for name in ("w", "fixed", "dense"))
    three = f4(1, 2, 3)
    # Of a table with lengths.
    for call, kind, words in (
        (lambda: table.push([1, 2], three), ValueError, "push: lengths: each row of table 'w' has a length of its"),
        (lambda: table.push([1, 2], three, [1]), ValueError, "push: lengths: 1 for 2 keys of table 'w'"),
        (lambda: table.push([1, 2], three, [1, 1]), ValueError, "their sum is 2, and vals has 3 elements"),
        (lambda: table.push([1, 2], three, [1, 1], wait=False), ValueError, "their sum is 2"),
        (lambda: table.push([1, 2], three, [4, -1]), ValueError, "key 2: -1 elements; rows of table 'w' have 0 to 6"),
        (lambda: table.push([1, 2], three, np.array([4, -1])), ValueError, "key 2: -1 elements"),
        (lambda: table.push([1, 2], np.ones(8, "f4"), [1, 7]), ValueError, "key 2: 7 elements; .* 0 to 6"),
        (lambda: table.push([1, 2], three, [1, 2**64 + 2]), ValueError, "key 2: 18446744073709551618 elements"),
        (lambda: table.push([1, 2], three, [1.0, 2.0]), TypeError, "push: lengths: an array of integers"),
        (lambda: table.push([1, 2], three, np.array([1.0, 2.0])), TypeError, "lengths: the dtype float64; integers"),
        (lambda: table.push([1, 2], three, 3), TypeError, "lengths: an array of integers is expected, not a .*int"),
        (lambda: table.push([1, 2], three, np.array([[1, 2]])), ValueError, r"lengths: the shape \(1, 2\)"),
        (lambda: table.push([1, 2], three[None], [1, 2]), ValueError, r"vals: the shape \(1, 3\); with lengths"),
        (lambda: table.push([1, 2], [f4(1), f4(2)], [1, 1]), TypeError, "vals: a NumPy array is expected, not a .*list"),
        (lambda: table.push([1, 2], np.ones(3), [1, 2]), ValueError, "vals: the dtype float64; table 'w' .* float32"),
        (lambda: table.push([1, 2], [f4(1)]), ValueError, "push: vals: 1 rows for 2 keys"),
        (lambda: table.push([1, 2], [f4(1), np.ones(1)]), ValueError, "vals: key 2: the dtype float64"),
        (lambda: table.push([1, 2], [f4(1), 2.0]), TypeError, "vals: key 2: a NumPy array is expected"),
        (lambda: table.push([1, 2], [f4(1), np.ones((1, 1), "f4")]), ValueError, r"key 2: the shape \(1, 1\)"),
        (lambda: table.push([1, 2], [f4(1), np.ones(7, "f4")]), ValueError, "vals: key 2: 7 elements; .* 0 to 6"),
        (lambda: table.push([1], 2.0), TypeError, "push: vals: a sequence of NumPy arrays is expected, not a .*float"),
        (lambda: table.push([2, 1], three, [1, 2]), ValueError, r'"w".*\b1\b'),
        (lambda: table.push([1, -1], three, [1, 2]), ValueError, "-1 is not from 0"),
        (lambda: table.push_dense(three), ValueError, "table 'w' is sparse"),
        (lambda: table.pull([1], np.ones(1, "f4")), ValueError, "pull: out: the lengths of rows of table 'w' are known"),
        (lambda: table.pull([1, 1], wait=False), ValueError, '"w"'),
        (lambda: table.push_pull([1], f4(1), np.ones(1, "f4"), lengths=[1]), ValueError, "push_pull: out: the lengths"),
        (lambda: table.push_pull([1], f4(1), lengths=[2]), ValueError, "push_pull: lengths: their sum is 2"),
        (lambda: table.push_pull([1], f4(1)), ValueError, "push_pull: lengths: each row"),
    ):
        with pytest.raises(kind, match=words) as error:
            call()
        assert error.type in (TypeError, exceptions.InvalidArgumentError)
    assert not table.pull([1, 2]).lengths.any()  # nothing was pushed
    # Of tables without them.
    for call, words in (
        (lambda: fixed.push([1], f4(1, 2), [2]), "push: lengths: table 'fixed' has none, each of its rows has 2"),
        (lambda: fixed.push_pull([1], f4(1, 2), lengths=[2]), "push_pull: lengths: table 'fixed' has none"),
        (lambda: dense.push([1], f4(1), [1]), "push: lengths: table 'dense' has none, each of its rows has 1"),
    ):
        with pytest.raises(exceptions.InvalidArgumentError, match=words):
            call()
    assert not fixed.pull([1]).any()


def test_wrong_tables_are_refused(client):
    with phalanx.ps.server("wrong lengths", "server0", 1, client=client) as server:
        for options, kind, words in (
            ({"keys": 4}, ValueError, "lengths is set, which only sparse tables have"),
            ({"init": "uniform", "scale": 1.0}, ValueError, "init is not zeros"),
            ({"lengths": 1}, TypeError, "table 'w': lengths=1: True or False is expected"),
            ({"lengths": None}, TypeError, "lengths=None"),
        ):
            with pytest.raises(kind, match=words):
                server.table("w", **{"lengths": True, **options})
        server.table("w", lengths=True)
