"""Parameter servers: interrupts, what is kept and what is freed, and forks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import threading
import weakref

import numpy as np
import pytest
from ps_support import KEYS, LIMIT_S, Died, run, serving

import phalanx
import phalanx.ps
from phalanx import exceptions
from phalanx._jobs import ps_workers


@pytest.fixture
def alone(client, request):
    """A worker, with one server that has the table "w" of KEYS keys, and answers no requests."""
    job = request.node.name
    with (
        serving(client, job, w={"dtype": "f64", "sync": "asp"}),
        phalanx.ps.worker(job, "worker0", 1, client=client, peer_timeout=LIMIT_S) as worker,
    ):
        yield worker


# ---- interrupts


def _interrupting(call):
    """Interrupt the main thread while it is in `call`."""
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    # A process that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_interrupts(client):
    own = phalanx.Client(client.address)
    server = phalanx.ps.server("interrupts", "server0", 1, client=client, peer_timeout=LIMIT_S)
    server.table("w", keys=KEYS)
    _interrupting(server.run)
    with pytest.raises(exceptions.ClosedError, match="was interrupted"):
        server.run()
    with server:
        pass
    again = phalanx.ps.server("interrupts", "server0", 1, client=own, peer_timeout=LIMIT_S)
    assert again.life == 1
    again.table("w", keys=KEYS)
    thread = threading.Thread(target=again.run)
    thread.start()
    worker = phalanx.ps.worker("interrupts", "worker0", 2, client=client, peer_timeout=LIMIT_S)
    table = worker.table("w")
    table.push_dense(np.ones(KEYS, np.float32))
    table.clock()
    out = np.full(KEYS, 7, np.float32)
    _interrupting(lambda: table.pull_dense(out))  # worker 1 has not come
    _interrupting(worker.barrier)
    other = phalanx.Client(client.address)
    with phalanx.ps.worker("interrupts", "worker1", 2, client=other, peer_timeout=LIMIT_S) as second:
        second.table("w").clock()
        assert table.pull_dense().tolist() == [1] * KEYS
    assert (out == 7).all()  # nothing was written after the interrupt
    worker.leave()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    other.close()
    own.close()


def test_an_interrupt_in_a_function_ends_the_server(client):
    own = phalanx.Client(client.address)
    ended = threading.Event()

    def answer(request):
        signal.raise_signal(signal.SIGINT)

    def work():
        with phalanx.ps.worker("interrupted", "worker0", 1, client=own, peer_timeout=LIMIT_S) as worker:
            worker.request(0, wait=False)  # the server dies of it: an answer may come or not
            assert ended.wait(LIMIT_S)
            raise Died()

    def expecting():
        with pytest.raises(Died):
            work()

    thread = threading.Thread(target=expecting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with phalanx.ps.server("interrupted", "server0", 1, client=client, peer_timeout=LIMIT_S) as server:
            server.on_request(answer)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                server.run()
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)
        thread.join(LIMIT_S)
    assert not thread.is_alive()
    own.close()


# ---- memory


def test_a_pull_goes_on_without_its_handle(client):
    may_go = threading.Event()

    def work(worker):
        table = worker.table("w")
        if worker.rank == 1:
            assert may_go.wait(LIMIT_S)
            table.clock()
            return None
        table.push_dense(np.ones(KEYS, np.float32), wait=False)
        table.clock()
        out = np.zeros(KEYS, np.float32)
        table.pull_dense(out, wait=False)
        dropped = table.pull_dense(np.zeros(KEYS, np.float32), wait=False)
        array = weakref.ref(dropped._result(None))
        del dropped
        gc.collect()
        assert array() is not None
        may_go.set()
        assert table.pull_dense().tolist() == [1] * KEYS  # behind the others
        table.pull_dense()
        gc.collect()
        assert array() is None
        return out.tolist()

    assert run(client, "handles", lambda server: server.table("w", keys=KEYS), work, workers=2)[0] == [1] * KEYS


@pytest.fixture
def no_collector():
    """What is freed is freed by its last reference."""
    gc.disable()
    yield
    gc.enable()


def test_a_pull_that_has_ended_keeps_no_array(alone, no_collector):
    table = alone.table("w")

    def waited():
        call = table.pull_dense(wait=False)
        return call.wait(LIMIT_S)

    def awaited():
        async def program():
            return await table.pull_dense(wait=False)

        return asyncio.run(program())

    def polled():
        call = table.pull_dense(wait=False)
        while not call.done:
            pass
        return call._result(None)

    for pull in (table.pull_dense, waited, awaited, polled):
        array = weakref.ref(pull())
        assert array() is None, pull


def test_pulls_end_in_any_order(client, no_collector):
    with serving(client, "any order", slow={}, fast={"sync": "asp"}):
        worker = phalanx.ps.worker("any order", "worker0", 2, client=client, peer_timeout=LIMIT_S)
        slow, fast = worker.table("slow"), worker.table("fast")
        slow.clock()
        parked = slow.pull_dense(wait=False)  # worker 1 has not come
        array = weakref.ref(fast.pull_dense(wait=False)._result(None))
        assert array() is not None
        fast.pull_dense()  # behind it
        fast.clock()
        assert array() is None and not parked.done


def test_a_worker_dies_with_its_last_reference(client, no_collector):
    with serving(client, "last reference", w={}):
        worker = phalanx.ps.worker("last reference", "worker0", 2, client=client, peer_timeout=LIMIT_S)
        table = worker.table("w")
        table.clock()
        array = weakref.ref(table.pull_dense(wait=False)._result(None))  # worker 1 has not come
        assert array() is not None
        last = weakref.ref(worker)
        del worker, table
        assert last() is None and array() is None


# ---- threads and fork


def test_a_push_pull_that_waits_in_the_library_holds_up_no_other_thread(alone, monkeypatch):
    """Whether there is room is asked before the call, and another thread can take it in between."""
    begun, may_go = threading.Event(), threading.Event()
    library = ps_workers.lib

    class Full:
        def __getattr__(self, name):
            return getattr(library, name)

        def phx_ps_push_pull_rows(self, *arguments):
            begun.set()
            assert may_go.wait(LIMIT_S)
            return library.phx_ps_push_pull_rows(*arguments)

    monkeypatch.setattr(ps_workers, "lib", Full())
    table = alone.table("w")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(table.push_pull, [0], np.ones(1))
        assert begun.wait(LIMIT_S)
        assert table.pull([0], wait=False).wait(LIMIT_S).tolist() == [0]
        may_go.set()
        assert waits.result(LIMIT_S).tolist() == [1]


def test_after_fork(alone):
    table = alone.table("w")
    ended = table.pull_dense(wait=False)
    assert not ended.wait(LIMIT_S).any()
    with alone._lock:  # as another thread can hold it
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            calls = [table.pull_dense, table.clock, lambda: table.clocks, lambda: table.push([0], np.ones(1))]
            calls += [alone.check, alone.barrier, alone.leave, lambda: alone.table("w"), lambda: alone.request(0)]
            for number, call in enumerate(calls, 1):
                try:
                    call()
                except exceptions.ClosedError:
                    continue
                os._exit(number)
            os._exit(0 if ended.done and not ended.wait().any() else 100)
    assert os.waitpid(child, 0)[1] == 0
    table.push([0], np.ones(1))
    assert table.pull([0]).tolist() == [1]
