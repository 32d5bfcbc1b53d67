"""Parameter servers: barriers of groups, and tables whose split is a function of the program."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from ps_support import KEYS, LIMIT_S, SERVERS, WORKERS, Died, run, serving

import phalanx
import phalanx.ps
from phalanx import exceptions

# ---- slicers


def _server_of(keys):
    return (~keys % np.uint64(5)) % np.uint64(SERVERS)


def test_a_slicer_names_the_server_of_each_key(client):
    seen = {}

    def serve(server):
        def update(keys, grads, rows):
            seen.setdefault(server.rank, set()).update(keys.tolist())
            rows += grads

        server.table("w", width=2, dtype="i64", sync="asp", split="own", update=update)

    keys = np.array([0, 1, 2, 3, 4, 5, 99, 2**64 - 2, 2**64 - 1], np.uint64)
    rows = np.arange(2 * len(keys)).reshape(-1, 2)

    def work(worker):
        table = worker.table("w", slicer=_server_of)
        assert table.spec.split == "own"
        table.push(keys, rows)
        worker.barrier()
        assert (table.pull(keys) == WORKERS * rows).all()
        worker.barrier()
        # Other words of integers will do.
        other = worker.table("w", lambda given: _server_of(given).astype("i2").tolist())
        assert (other.push_pull(keys[3:], rows[3:]) >= (WORKERS + 1) * rows[3:]).all()
        for dtype in ("u1", "i1", "u2", "i2", "i4", "u8"):
            small = worker.table("w", lambda given, dtype=dtype: _server_of(given).astype(dtype))
            assert (small.pull(keys[:3]) == WORKERS * rows[:3]).all()

    run(client, "slicer", serve, work)
    servers = _server_of(keys)
    assert seen == {rank: set(keys[servers == rank].tolist()) for rank in range(SERVERS)}


def test_what_a_slicer_raises_is_the_error_of_the_call(client):
    with (
        serving(client, "wrong slicer", w={"dtype": "f64", "sync": "asp", "split": "own", "keys": None}),
        phalanx.ps.worker("wrong slicer", "worker0", 1, client=client, peer_timeout=LIMIT_S) as worker,
    ):
        result = None

        def slicer(keys):
            if isinstance(result, BaseException):
                raise result
            return np.zeros(len(keys), int) if result is None else result

        for arguments in (("w",), ("w", None)):
            with pytest.raises(exceptions.InvalidArgumentError, match=r"its split is own, and there is no slicer"):
                worker.table(*arguments)
        with pytest.raises(TypeError, match="slicer"):
            worker.table("w", 5)
        table = worker.table("w", slicer)
        where = r'table "w" of worker 0 at clock 0: '
        for result, words in (  # noqa: B007
            (KeyError("none"), r"for 2 keys from 4 to 7 its slicer has raised KeyError: 'none'"),
            ([0], r"for 2 keys from 4 to 7 its slicer has raised ValueError: .*\(1,\) for 2 keys"),
            ([0.0, 0.0], r"for 2 keys from 4 to 7 its slicer has raised TypeError: it returned float64"),
            ([0, -1], r"its slicer drops key 7"),
            ([0, 1], r"its slicer names server 1 for key 7; there are 1"),
            (np.array([2**64 - 1, 0], np.uint64), r"its slicer names server 2147483647 for key 4"),
            ([-(2**60), 0], r"its slicer names server -2 for key 4"),
        ):
            for call in (
                lambda: table.push([4, 7], np.ones(2)),
                lambda: table.pull([4, 7], wait=False),
                lambda: table.push_pull([4, 7], np.ones(2)),
            ):
                with pytest.raises(exceptions.InvalidArgumentError, match=where + words) as raised:
                    call()
                if isinstance(result, Exception):
                    assert raised.value.__cause__ is result
            with pytest.raises(exceptions.InvalidArgumentError, match="the clock has not ended"):
                table.clock()
        for result in (KeyboardInterrupt(), SystemExit(3)):  # noqa: B007
            with pytest.raises(type(result)):
                table.push([4, 7], np.ones(2))
            with pytest.raises(exceptions.InvalidArgumentError, match="the clock has not ended"):
                table.clock()
        result = None
        table.push([4, 7], np.ones(2))
        assert (table.pull([4, 7]) == 1).all()  # nothing else has come
        with pytest.raises(exceptions.InvalidArgumentError, match="key 4 after key 7"):
            table.pull([7, 4])
        # A worker that is over says so, but for an interrupt; and the error is no later call's.
        worker.leave()
        result = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            table.pull([4, 7])
        result = KeyError("late")
        with pytest.raises(exceptions.PhalanxError) as ended:
            table.pull([4, 7])
        assert not isinstance(ended.value, exceptions.InvalidArgumentError)
        assert ended.value.__cause__ is None and table._sliced[0].take_error() is None


def test_only_sparse_tables_of_the_programs_split_have_a_slicer(client):
    with (
        serving(client, "no slicer", w={}),
        phalanx.ps.worker("no slicer", "worker0", 1, client=client, peer_timeout=LIMIT_S) as worker,
        pytest.raises(exceptions.InvalidArgumentError, match="its split is range, and there is a slicer"),
    ):
        worker.table("w", _server_of)
    with phalanx.ps.server("dense", "server0", 1, client=client) as server:
        with pytest.raises(exceptions.InvalidArgumentError, match="split is own, which only sparse"):
            server.table("w", keys=KEYS, split="own")


# ---- barriers


def test_barriers_of_each_group(client):
    come = []

    def serve(server):
        server.table("w", keys=KEYS)
        come.append(server.rank)
        server.barrier(timeout=LIMIT_S)
        assert len(come) >= SERVERS
        thread = threading.Thread(target=together, args=(server,))
        threads.append(thread)
        thread.start()

    threads, arrived = [], []

    def together(task):
        for epoch in range(5):
            arrived.append(epoch)
            task.barrier("all", epoch=epoch)
            assert arrived.count(epoch) == SERVERS + WORKERS

    def work(worker):
        together(worker)
        worker.barrier("workers", epoch=7)
        worker.barrier("workers", epoch=3)  # those before have ended, too
        worker.barrier(wait=False).wait()
        for group in ("servers", "everybody", None):
            with pytest.raises(exceptions.InvalidArgumentError, match="group"):
                worker.barrier(group)
        with pytest.raises(exceptions.InvalidArgumentError, match="epoch"):
            worker.barrier(epoch=2**64 - 1)

    run(client, "groups", serve, work)
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert len(arrived) == 5 * (SERVERS + WORKERS)


def test_a_server_begins_a_barrier_of_all_before_it_runs(client):
    begun = []

    def serve(server):
        server.table("w", keys=KEYS)
        call = server.barrier("all", timeout=LIMIT_S, wait=False)
        begun.append(call)
        with pytest.raises(exceptions.GetTimeoutError, match=f"barrier of all by server {server.rank}"):
            call.wait(0.05)
        server.barrier()
        assert len(begun) == SERVERS and not call.done

    run(client, "begun", serve, lambda worker: worker.barrier("all"))
    for call in begun:
        assert call.wait(LIMIT_S) is None and call.done and "ended" in repr(call)


def test_a_barrier_of_a_server_ends_with_it(client):
    with phalanx.ps.server("gone", "server1", 2, client=client, peer_timeout=LIMIT_S) as server:
        call = server.barrier(wait=False)
        with pytest.raises(exceptions.InvalidArgumentError, match="epoch"):
            server.barrier(epoch=2**64 - 1, wait=False)
    with pytest.raises(exceptions.CallCancelledError, match="the server is gone"):
        call.wait(LIMIT_S)


def test_a_next_life_passes_barriers_that_have_ended(client):
    lives = []

    def work(worker):
        table = worker.table("w")
        worker.barrier(epoch=0)
        while table.clocks.own < 4:
            table.push_dense(np.ones(KEYS, np.float32))
            table.clock()
            if worker.rank == 1 and table.clocks.own == 2 and not worker.restarted:
                lives.append(worker.life)
                raise Died()
            worker.barrier(epoch=table.clocks.own)
        assert (table.pull_dense() == 4 * WORKERS).all()

    run(client, "next life", lambda server: server.table("w", keys=KEYS), work)
    assert lives == [0]


def test_a_barrier_with_a_timeout_can_be_called_again(client):
    with serving(client, "again"):
        first = phalanx.ps.worker("again", "worker0", 2, client=client, peer_timeout=LIMIT_S)
        message = r"barrier 0 of workers waits for worker 1 \(has not joined\)"
        with pytest.raises(exceptions.GetTimeoutError, match=message):
            first.barrier(timeout=1.5)
        with phalanx.Client(client.address) as other:
            second = phalanx.ps.worker("again", "worker1", 2, client=other, peer_timeout=LIMIT_S)
            second.barrier()  # the first one has come
            first.barrier()
            first.barrier(epoch=0)
            waits = second.barrier(wait=False)
            first.barrier()
            waits.wait(LIMIT_S)


def test_a_worker_that_has_died_is_not_waited_for_or_fails_as_the_table_says(client):
    for on_loss in ("drop", "fail"):
        with serving(client, on_loss, w={"on_loss": on_loss}):
            first = phalanx.ps.worker(on_loss, "worker0", 2, client=client, peer_timeout=LIMIT_S)
            with phalanx.Client(client.address) as other, pytest.raises(Died):
                with phalanx.ps.worker(on_loss, "worker1", 2, client=other, peer_timeout=LIMIT_S):
                    raise Died()
            if on_loss == "drop":
                first.barrier()
                continue
            with pytest.raises(exceptions.MemberUnavailableError, match="worker 1 has died in life 0"):
                first.barrier()
