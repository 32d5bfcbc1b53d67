"""Parameter servers: calls of workers, consistencies, own updates, deaths, and what is refused."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from ps_support import KEYS, LIMIT_S, SERVERS, WORKERS, Died, Mortal, Replay, run, serving

import phalanx
import phalanx.ps
from phalanx import exceptions
from phalanx._jobs import ps_servers, ps_specs

WIDTH = 3
# Sums of them depend on their order.
VALUES = np.array([1e8, 1, -1e8], np.float32)


@pytest.fixture
def alone(client, request):
    """A worker, with one server that has the table "w" of KEYS keys, and answers no requests."""
    job = request.node.name
    with (
        serving(client, job, w={"dtype": "f64", "sync": "asp"}),
        phalanx.ps.worker(job, "worker0", 1, client=client, peer_timeout=LIMIT_S) as worker,
    ):
        yield worker


# ---- calls


def test_calls_of_every_kind(client):
    def serve(server):
        assert repr(server) == f"<phalanx.ps.Server: rank {server.rank} of {SERVERS}, life 0>"
        assert server.describe() == ""
        server.table("dense", keys=KEYS, width=WIDTH, dtype="i64", sync="asp", split="blocks", block=2)
        server.table("sparse", width=2, sync="asp", split="hash", update="assign", init="uniform", scale=0.5, seed=7)
        server.on_request(lambda request: server.describe().encode())

    def work(worker):
        rank = worker.rank
        assert (worker.workers, worker.servers, worker.life, worker.restarted) == (WORKERS, SERVERS, 0, False)
        assert repr(worker) == f"<phalanx.ps.Worker: rank {rank} of {WORKERS}, life 0, {SERVERS} servers>"
        worker.check()
        dense, sparse = worker.table("dense"), worker.table("sparse")
        assert (dense.spec.keys, dense.spec.width, dense.spec.dtype, dense.spec.split) == (KEYS, WIDTH, "i64", "blocks")
        assert (sparse.spec.keys, sparse.spec.init, sparse.spec.scale, sparse.spec.seed) == (0, "uniform", 0.5, 7)
        assert repr(sparse) == f"<phalanx.ps.Table 'sparse' of worker {rank}: asp, assign>"

        rows = np.arange(KEYS * WIDTH).reshape(KEYS, WIDTH)
        assert dense.push_dense(rows) is None
        dense.push([1, 4], rows[[1, 4]].astype(np.int64))
        dense.push(np.array([4], np.int32), np.asfortranarray(rows[3:6])[1:2])
        worker.barrier()
        expected = WORKERS * rows
        expected[1] += WORKERS * rows[1]
        expected[4] += WORKERS * 2 * rows[4]
        seen = dense.pull_dense()
        assert seen.dtype == np.int64 and seen.shape == (KEYS, WIDTH) and (seen == expected).all()
        out = np.zeros((2, WIDTH), np.int64)
        assert dense.pull(range(3, 5), out) is out and (out == expected[3:5]).all()
        worker.barrier()

        mine = np.array([rank, 2**64 - 1 - rank], np.uint64)
        first = sparse.pull(mine)
        assert first.shape == (2, 2) and (np.abs(first) < 0.5).all() and len(np.unique(first)) == 4
        after = sparse.push_pull(mine, first + 1)
        assert after.dtype == np.float32 and (after == first + 1).all()
        worker.barrier()
        every = [*range(WORKERS), *range(2**64 - WORKERS, 2**64)]
        assert (sparse.pull(every, wait=False).wait() >= 0.5).all()
        assert sparse.pull([]).shape == (0, 2)

        dense.clock()
        assert dense.clocks.own == 1 and dense.clocks.least in (0, 1) and sparse.clocks == (0, 0)
        reply = worker.request(rank % SERVERS, 5)
        assert reply.head == 5 and b"sparse" in reply.body
        return worker, dense

    for worker, dense in run(client, "rows", serve, work):
        with pytest.raises(exceptions.ClosedError):  # it has left
            dense.pull_dense()
        with pytest.raises(exceptions.ClosedError):
            worker.check()


@pytest.mark.parametrize("dtype", ["f4", np.float64, np.dtype("i4"), "i64"])
def test_every_dtype(client, dtype):
    def work(worker):
        table = worker.table("w")
        own = ps_specs.numpy_dtype(table.spec.dtype)
        table.push_dense(np.arange(KEYS, dtype=own))
        table.push(np.arange(2), np.ones((2, 1), own))
        table.clock()
        return table.pull_dense()

    for seen in run(client, f"dtype {dtype}", lambda server: server.table("w", keys=KEYS, dtype=dtype), work):
        assert seen.dtype == np.dtype("i8" if dtype == "i64" else dtype) and seen.shape == (KEYS,)
        expected = WORKERS * np.arange(KEYS)
        expected[:2] += WORKERS
        assert (seen == expected).all()


@pytest.mark.parametrize(("wire", "rounded"), [("f16", 1 + 2**-10), ("bf16", 1 + 2**-7), (np.float16, 1 + 2**-10)])
def test_values_travel_rounded(client, wire, rounded):
    def work(worker):
        table = worker.table("w")
        table.push_dense(np.full(KEYS, rounded + 2**-13, np.float32))
        return table.pull_dense()

    def serve(server):
        server.table("w", keys=KEYS, wire=wire, sync="asp")

    (seen,) = run(client, f"wire {wire}", serve, work, workers=1)
    assert (seen == np.float32(rounded)).all()


def test_calls_that_are_awaited(client):
    def serve(server):
        server.table("w", keys=KEYS, dtype="f64")
        server.on_request(lambda request: (request.head + 1, request.body * 2))

    def work(worker):
        table = worker.table("w")

        async def program():
            pushed = table.push_dense(np.full(KEYS, worker.rank + 1.0), wait=False)
            table.clock()
            pulled = table.pull_dense(wait=False)
            await pushed
            seen = await pulled
            assert pulled.done and await pulled is seen and "ended" in repr(pulled)
            assert (await table.pull([3, 5], wait=False)).tolist() == [6, 6]
            assert await worker.request(1, 7, b"ab", wait=False) == (8, b"abab")
            if worker.rank == 0:
                table.clock()
                parked = table.pull_dense(wait=False)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(parked, 0.05)
                await worker.barrier(wait=False)
                return (await parked).tolist()
            await worker.barrier(wait=False)
            table.clock()
            return seen.tolist()

        return asyncio.run(program())

    assert run(client, "awaited", serve, work) == [[6.0] * KEYS] * WORKERS


def test_requests(client):
    def answer(request):
        assert request.worker in range(WORKERS)
        if request.head == 1:
            return None
        if request.head == 2:
            return bytearray(request.body)
        if request.head == 3:
            return -request.head, memoryview(b"three")
        if request.head == 4:
            return "text"
        raise KeyError(f"no {request.head} for {request.worker}")

    def work(worker):
        for server in range(SERVERS):
            assert worker.request(server, 1) == (1, b"")
            assert worker.request(server, 2, np.arange(2, dtype="u1")) == (2, b"\0\1")
            reply = worker.request(server, 3)
            assert (reply.head, reply.body) == (-3, b"three")
            with pytest.raises(exceptions.PhalanxError, match="TypeError: the function of on_request returns"):
                worker.request(server, 4)
            with pytest.raises(exceptions.PhalanxError, match=f"KeyError: 'no -5 for {worker.rank}'"):
                worker.request(server, -5)
        for arguments, kind in (((SERVERS,), ValueError), (("0",), TypeError), ((0, 2**31), ValueError)):
            with pytest.raises(kind):
                worker.request(*arguments)

    run(client, "requests", lambda server: server.on_request(answer), work)


# ---- consistencies


UPDATES = {
    "sum": {},
    "sgd": {"rate": 0.3},
    "momentum": {"rate": 0.3, "momentum": 0.7},
    "adagrad": {"rate": 0.3, "epsilon": 1e-6},
    "ftrl": {"rate": 0.3, "beta": 0.5, "l1": 0.1, "l2": 0.2},
}


@pytest.mark.parametrize("update", UPDATES)
def test_bsp_is_a_serial_replay_bit_for_bit(client, update):
    clocks = 8

    def pushes(rank, clock):
        """Two pushes of a worker in a clock: the rows, and their values."""
        draws = np.random.default_rng([rank, clock])
        for size in (KEYS, 4):
            rows = np.sort(draws.permutation(KEYS)[:size])
            yield rows, (draws.normal(size=(size, WIDTH)) * VALUES[rank]).astype(np.float32)

    def work(worker):
        table = worker.table("w")
        seen = []
        for clock in range(clocks):
            seen.append(table.pull_dense())
            for rows, values in pushes(worker.rank, clock):
                table.push(rows, values, wait=False)
            # Not even one's own pushes are seen before the clock has ended.
            assert (table.pull([0, 5]) == seen[-1][[0, 5]]).all()
            table.clock()
        return [*seen, table.pull_dense()]

    def serve(server):
        server.table("w", keys=KEYS, width=WIDTH, update=update, snapshot_every=3, **UPDATES[update])

    results = run(client, f"bsp {update}", serve, work)
    replay = Replay((KEYS, WIDTH), np.float32, update, **UPDATES[update])
    for clock in range(clocks + 1):
        for seen in results:
            assert seen[clock].tobytes() == replay.w.tobytes(), clock
        if clock < clocks:
            replay.turn([push for rank in range(WORKERS) for push in pushes(rank, clock)])
    assert np.isfinite(replay.w).all() and replay.w.any()


def test_ssp_waits_for_who_is_too_far_behind(client):
    staleness = 2
    ahead = threading.Event()

    def work(worker):
        table = worker.table("w")
        one = np.ones(KEYS, np.float32)
        if worker.rank == 0:
            for _ in range(staleness + 1):
                seen = table.push_pull(range(KEYS), one)
                assert (seen >= table.clocks.own + 1).all()  # its own pushes
                table.clock()
            parked = table.pull_dense(wait=False)
            with pytest.raises(exceptions.GetTimeoutError, match="pull_dense of table 'w' by worker 0"):
                parked.wait(0.2)
            assert not parked.done and "under way" in repr(parked)
            ahead.set()
            return parked.wait(LIMIT_S).tolist()
        assert ahead.wait(LIMIT_S)
        assert table.clocks == (0, 0)
        assert (table.pull_dense() == staleness + 1).all()
        table.push_dense(10 * one)
        table.clock()
        return None

    def serve(server):
        server.table("w", keys=KEYS, sync="ssp", staleness=staleness)

    seen, _ = run(client, "ssp", serve, work, workers=2)
    assert seen == [13.0] * KEYS


def test_asp_waits_for_nothing(client):
    done = threading.Event()

    def work(worker):
        table = worker.table("w")
        if worker.rank != 0:
            assert done.wait(LIMIT_S)
            return table.clocks.own
        for clock in range(50):
            assert (table.push_pull(range(KEYS), np.ones(KEYS, np.float32)) == clock + 1).all()
            table.clock()
        done.set()
        return table.clocks.own

    assert run(client, "asp", lambda server: server.table("w", keys=KEYS, sync="asp"), work) == [50, 0, 0]


# ---- own updates


def test_own_update(client):
    threads = set()

    def update(keys, grads, rows):
        assert keys.dtype == np.uint64 and grads.shape == rows.shape == (len(keys), WIDTH)
        assert grads.dtype == rows.dtype == np.float64
        threads.add(threading.current_thread())
        grads *= 2  # its own
        rows += grads + keys[:, None]

    def work(worker):
        dense, sparse = worker.table("dense"), worker.table("sparse")
        for clock in range(3):
            seen = dense.pull_dense()
            assert (seen == clock * (2 * 6 + np.arange(KEYS)[:, None])).all()
            dense.push_dense(np.full((KEYS, WIDTH), worker.rank + 1.0))
            dense.clock()
        key = 1 << (40 + worker.rank)
        first = sparse.push_pull([key], np.full((1, WIDTH), 0.5))
        assert (first == key + 1).all()

    def serve(server):
        server.table("dense", keys=KEYS, width=WIDTH, dtype="f64", update=update)
        server.table("sparse", width=WIDTH, dtype="f64", sync="asp", split="hash", update=update)

    run(client, "own", serve, work)
    assert len(threads) == SERVERS and threading.main_thread() not in threads


@pytest.mark.parametrize("returns", [False, True])
def test_an_own_update_that_fails_ends_all_calls_for_its_table(client, monkeypatch, returns):
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error))

    def update(keys, grads, rows):
        if returns:
            return rows - grads
        raise ZeroDivisionError("too steep")

    words = "it changes its third argument" if returns else "ZeroDivisionError: too steep"

    def work(worker):
        bad, good = worker.table("bad"), worker.table("good")
        bad.push_dense(np.ones(KEYS, np.float32))
        bad.clock()
        for call in (bad.pull_dense, bad.clock, lambda: bad.push([0], np.ones(1, np.float32))):
            with pytest.raises(exceptions.TableFailedError, match=words) as error:
                call()
            assert "bad" in str(error.value)
        good.push_dense(np.ones(KEYS, np.float32))
        good.clock()
        return good.pull_dense().sum()

    def serve(server):
        server.table("bad", keys=KEYS, update=update)
        server.table("good", keys=KEYS)

    assert run(client, f"fails {returns}", serve, work) == [WORKERS * KEYS] * WORKERS
    assert [kind for kind, _, _ in shown] == [TypeError if returns else ZeroDivisionError] * SERVERS


def test_an_update_can_fail_with_any_code(client, monkeypatch):
    """As those of servers in C++ do: whatever it is, the table has failed, and the worker has not ended."""
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)

    def failing(code):
        def update(keys, grads, rows):
            monkeypatch.setattr(ps_servers, "UNKNOWN", code)
            raise ArithmeticError(f"code {code}")

        return update

    tables = {f"bad{code}": {"update": failing(code), "sync": "asp"} for code in range(1, 17)}
    with serving(client, "codes", good={}, **tables):
        worker = phalanx.ps.worker("codes", "worker0", 1, client=client, peer_timeout=LIMIT_S)
        for code in range(1, 17):
            table = worker.table(f"bad{code}")
            words = rf'table "bad{code}".*ArithmeticError: code {code}\b'
            with pytest.raises(exceptions.TableFailedError, match=words):
                table.push_pull([0], np.ones(1, np.float32))
            for call in (table.pull_dense, table.clock, partial(table.push, [0], np.ones(1, np.float32))):
                with pytest.raises(exceptions.TableFailedError, match=words):
                    call()
            worker.check()
        assert not worker.table("good").pull_dense().any()


def test_functions_run_in_the_thread_of_run(client):
    """Also if that is the main thread, whose call of the library is made in another one."""
    own = phalanx.Client(client.address)
    seen, results = [], []

    def update(keys, grads, rows):
        seen.append(threading.current_thread())
        rows += grads

    def work():
        with phalanx.ps.worker("main", "worker0", 1, client=own, peer_timeout=LIMIT_S) as worker:
            table = worker.table("w")
            table.push_dense(np.ones(KEYS, np.float32))
            table.clock()
            results.append(table.pull_dense().tolist())
            results.append(worker.request(0))

    thread = threading.Thread(target=work)
    with phalanx.ps.server("main", "server0", 1, client=client, peer_timeout=LIMIT_S) as server:
        server.table("w", keys=KEYS, update=update)
        server.on_request(lambda request: seen.append(threading.current_thread()))
        thread.start()
        server.run()
        with pytest.raises(exceptions.ClosedError):
            server.run()
        with pytest.raises(exceptions.ClosedError):
            server.table("late", keys=1)
    thread.join(LIMIT_S)
    assert seen == [threading.main_thread()] * 2 and results == [[1.0] * KEYS, (0, b"")]
    own.close()
    with pytest.raises(exceptions.ClosedError, match="has ended"):
        server.describe()


# ---- deaths


def test_a_worker_dies_and_goes_on(client):
    """The others wait for its next life, which begins at its clock and pushes the same again."""
    clocks, deaths = 6, {}

    def work(worker):
        table = worker.table("w")
        assert worker.restarted == (worker.life == 1) and table.clocks.own == deaths.get(worker.rank, 0)
        while table.clocks.own < clocks:
            clock = table.clocks.own
            assert (table.pull_dense() == 6 * clock).all()
            table.push_dense(np.full(KEYS, worker.rank + 1))
            if worker.rank == 1 and clock == 3 and not worker.restarted:
                deaths[1] = 3
                raise Died()
            table.clock()
        return table.pull_dense().tolist()

    results = run(client, "dies", lambda server: server.table("w", keys=KEYS, dtype="i64"), work)
    assert results == [[6 * clocks] * KEYS] * WORKERS and deaths == {1: 3}


@pytest.mark.parametrize("on_loss", ["drop", "fail"])
def test_a_worker_dies_for_good(client, on_loss):
    gone = threading.Event()

    def work(worker):
        table = worker.table("w")
        if worker.restarted:
            return None
        if worker.rank == 1:
            table.push_dense(np.full(KEYS, 10))
            worker.barrier()
            raise Died(gone)
        try:
            worker.barrier()
            if on_loss == "drop":
                table.push_dense(np.ones(KEYS, np.int64))
                table.clock()
                return table.pull_dense().tolist()
            with pytest.raises(exceptions.MemberUnavailableError, match="worker 1"):
                table.push_dense(np.ones(KEYS, np.int64))
                table.clock()
                table.pull_dense()
            return None
        finally:
            gone.set()

    def serve(server):
        server.table("w", keys=KEYS, dtype="i64", on_loss=on_loss)

    results = run(client, f"loss {on_loss}", serve, work, workers=2)
    assert results == [[1] * KEYS if on_loss == "drop" else None, None]


@pytest.mark.parametrize("update", ["sum", "own"])
def test_a_server_dies_and_nothing_is_lost(client, update):
    clocks, job, asked = 9, f"server dies {update}", []

    def serve(server):
        def own(keys, grads, rows):
            rows += grads

        server.table("w", keys=KEYS, dtype="i64", update=own if update == "own" else update, snapshot_every=2)
        server.on_request(Mortal(client, job, server, asked))

    def work(worker):
        table = worker.table("w")
        for clock in range(clocks):
            assert (table.pull_dense() == 6 * clock).all()
            table.push_dense(np.full(KEYS, worker.rank + 1), wait=False)
            if worker.rank == 0 and clock == 5:
                assert worker.request(1) == (0, b"life 2")
            table.clock()
        return table.pull_dense().tolist()

    assert run(client, job, serve, work) == [[6 * clocks] * KEYS] * WORKERS
    assert asked == [0, 2]  # the request was run twice


def test_members_that_have_died_are_seen(client):
    with phalanx.ps.server("seen", "server0", 1, client=client) as server:
        assert [(one.task, one.state) for one in server.members()] == [("server0", "live")]
        assert server.members("other") == []
        end = time.monotonic() + LIMIT_S
        with phalanx.ps.server("seen", "other0", 1, server_role="other", client=client):
            while not server.members("other"):
                assert time.monotonic() < end
        while server.members("other")[0].state == "live":
            assert time.monotonic() < end
        assert server.members("other")[0].state == "died"


def test_a_server_writes_what_it_has_to_its_directory(client, tmp_path):
    options = {"client": client, "peer_timeout": LIMIT_S}
    with (
        phalanx.ps.server("on disk", "server0", 1, checkpoint_dir=tmp_path, **options) as server,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        server.table("w", keys=KEYS, dtype="i64", snapshot_every=2)
        served = threads.submit(server.run)
        with phalanx.ps.worker("on disk", "worker0", 1, **options) as worker:
            table = worker.table("w")
            for clock in range(5):
                table.push_dense(np.full(KEYS, clock))
                table.clock()
                table.pull_dense()
            states = sorted(int(path.stem.rpartition("_")[2]) for path in tmp_path.iterdir())
        served.result(LIMIT_S)
    assert states == [0, 2, 4]
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_snapshots_loses_its_part(client):
    asked = []

    def serve(server):
        server.table("w", keys=KEYS, dtype="i64", sync="asp", snapshot_every=0)
        server.on_request(Mortal(client, "loses", server, asked))

    def work(worker):
        table = worker.table("w")
        table.push_dense(np.ones(KEYS, np.int64))
        assert worker.request(0) == (0, b"life 2")
        with pytest.raises(exceptions.TableFailedError, match='"w".*lost'):
            table.pull_dense()

    run(client, "loses", serve, work, servers=1, workers=1)
    assert asked == [0, 2]


# ---- what is refused


def test_wrong_arguments_of_calls_are_refused_at_once(alone):
    table = alone.table("w")
    two, read_only = np.ones(2), np.ones(2)
    read_only.flags.writeable = False
    for call, kind, words in (
        (lambda: table.push([2, 1], two), ValueError, r'"w".*\b1\b'),
        (lambda: table.push([2, 2], two, wait=False), ValueError, r'"w".*\b2\b'),
        (lambda: table.push([0, KEYS], two), ValueError, rf'"w".*\b{KEYS}\b'),
        (lambda: table.push([0, -1], two), ValueError, "-1 is not from 0"),
        (lambda: table.push(np.array([0, -1]), two), ValueError, "keys: -1 is negative"),
        (lambda: table.push([0, 2**64], two), ValueError, "is not from 0"),
        (lambda: table.push([0.5, 1.5], two), TypeError, "push: keys: an array of integers"),
        (lambda: table.push(1, two), TypeError, "an array of integers"),
        (lambda: table.push(two, two), ValueError, "dtype float64; integers"),
        (lambda: table.push(np.zeros((2, 1), int), two), ValueError, r"keys: the shape \(2, 1\)"),
        (lambda: table.push([0, 1], [1.0, 1.0]), TypeError, "push: vals: a NumPy array is expected, not a .*list"),
        (lambda: table.push([0, 1], None), TypeError, "not None"),
        (lambda: table.push([0, 1], np.ma.ones(2)), TypeError, "MaskedArray"),
        (lambda: table.push([0, 1], np.ones(2, "f4")), ValueError, "the dtype float32; table 'w' .* float64"),
        (lambda: table.push([0, 1], np.ones(2, ">f8")), ValueError, "the dtype >f8"),
        (lambda: table.push([0, 1], np.ones(3)), ValueError, r"the shape \(3,\); \(2,\) or \(2, 1\) is expected"),
        (lambda: table.push([0, 1], np.ones((1, 2))), ValueError, r"the shape \(1, 2\)"),
        (lambda: table.push_dense(two), ValueError, f"expected for {KEYS} keys"),
        (lambda: table.pull([0, 1], out=np.ones(2, int)), ValueError, "pull: out: the dtype int64"),
        (lambda: table.pull([0, 1], out=read_only), ValueError, "read-only"),
        (lambda: table.pull([0, 1], out=np.ones((2, 2))[:, 0]), ValueError, "not contiguous"),
        (lambda: table.pull([1, 0], wait=False), ValueError, '"w"'),
        (lambda: table.pull_dense(out=two), ValueError, f"expected for {KEYS} keys"),
        (lambda: table.push_pull([0, 1], two, out=np.ones(1)), ValueError, "push_pull: out"),
        (lambda: alone.table("none"), exceptions.InvalidArgumentError, "none.*w"),
        (lambda: alone.table(5), TypeError, "name=5"),
        (lambda: alone.request(0), exceptions.PhalanxError, "no requests"),
    ):
        with pytest.raises(kind, match=words) as error:
            call()
        assert error.type in (TypeError, exceptions.InvalidArgumentError, exceptions.PhalanxError)
    # Nothing was pushed.
    assert not table.pull_dense().any()
    table.push(np.array([0, 1], np.uint8), np.ones((2, 1)))
    assert table.pull([0, 1, 2]).tolist() == [1, 1, 0]


def test_wrong_tables_are_refused(client):
    with phalanx.ps.server("wrong tables", "server0", 1, client=client) as server:
        for options, kind, words in (
            ({"keys": -1}, ValueError, "table 'w': keys=-1"),
            ({"keys": 2.0}, TypeError, "keys=2.0"),
            ({"width": 0}, ValueError, "width"),
            ({"dtype": "f16"}, ValueError, "dtype='f16': one of f32, f64, i32, i64"),
            ({"dtype": None}, ValueError, "dtype=None"),
            ({"dtype": ">f4"}, ValueError, "dtype='>f4'"),
            ({"dtype": "f64", "wire": "f16"}, ValueError, "wire"),
            ({"sync": "SSP"}, ValueError, "sync='SSP': 'bsp', 'ssp' or 'asp' is expected"),
            ({"sync": 1}, ValueError, "sync=1"),
            ({"staleness": 1}, ValueError, "staleness"),
            ({"split": "blocks"}, ValueError, "block"),
            ({"update": "own"}, ValueError, "update='own'.*, or a function"),
            ({"update": "sgd", "dtype": "i32"}, ValueError, "sgd"),
            ({"rate": "0.1"}, TypeError, "rate='0.1': a number is expected"),
            ({"rate": float("nan")}, ValueError, "rate"),
            ({"init": "ones"}, ValueError, "init='ones'"),
            ({"init": "normal"}, ValueError, "scale"),
            ({"on_loss": "exclude"}, ValueError, "on_loss='exclude'"),
            ({"copies": 5000}, ValueError, "copies"),
            ({"snapshot_bytes": 0}, ValueError, "snapshot_bytes"),
            ({"seed": 2**64}, ValueError, "seed"),
        ):
            with pytest.raises(kind, match=words):
                server.table("w", **{"keys": 4, **options})
        server.table("w", update="add")
        with pytest.raises(exceptions.InvalidArgumentError, match="there is a table w"):
            server.table("w")
        with pytest.raises(ValueError, match="name"):
            server.table("")
        with pytest.raises(TypeError, match="a function is expected"):
            server.on_request("f")


def test_the_defaults_are_those_of_the_library():
    from phalanx._native import ffi, lib

    spec = ffi.new("phx_ps_table_spec*")
    lib.phx_ps_table_defaults(spec)
    spec.name = name = ffi.new("char[]", b"w")
    assert name is not None
    defaults = phalanx.ps.Server.table.__kwdefaults__
    given = {**defaults, "keys": 0, "wire": defaults["dtype"]}
    assert (defaults["keys"], defaults["wire"]) == (None, None)
    assert phalanx.ps.TableSpec("w", **given) == ps_specs.spec_of(spec)


def test_wrong_joins_are_refused(client):
    for join in (phalanx.ps.server, phalanx.ps.worker):
        for arguments, kind, words in (
            ((None, "task0", 1), ValueError, "PHALANX_JOB"),
            (("job", "task0", 0), ValueError, "world=0"),
            (("job", 5, 1), TypeError, "task=5"),
        ):
            with pytest.raises(kind, match=words):
                join(*arguments, client=client)
    with pytest.raises(TypeError, match="checkpoint_dir"):
        phalanx.ps.server("job", "task0", 1, client=client, checkpoint_dir=b"x")
    with pytest.raises(exceptions.PhalanxError, match="/absent"):
        phalanx.ps.server("job", "task0", 1, client=client, checkpoint_dir="/absent")
    with pytest.raises(exceptions.GetTimeoutError, match="no task of role server has joined"):
        phalanx.ps.worker("no servers", "worker0", 1, client=client, peer_timeout=0.1)
    with phalanx.ps.server("no workers", "server0", 1, client=client, peer_timeout=1) as server:
        server.table("w", keys=KEYS)
        with pytest.raises(exceptions.GetTimeoutError, match="no task of role worker has joined"):
            server.run()


def test_a_barrier_to_which_a_worker_does_not_come_ends_after_peer_timeout(client):
    with serving(client, "barrier"):
        worker = phalanx.ps.worker("barrier", "worker0", 2, client=client, peer_timeout=3)
        with pytest.raises(exceptions.GetTimeoutError, match=r"barrier 0 of workers waits for worker 1"):
            worker.barrier()
        worker.check()  # it goes on
