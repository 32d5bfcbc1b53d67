"""Messages between the members of a job."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

import phalanx
from phalanx import exceptions


@pytest.fixture
def pair(client):
    """Two tasks of one job, in this process."""
    names = [phalanx.join("messages", f"worker{i}", world=2) for i in range(2)]
    names[0].wait_world(timeout=30)
    yield names
    for member in names:
        member.leave()


def test_messages_arrive_in_order_with_their_sender(pair):
    for i in range(50):
        pair[0].send(1, b"number %d" % i)
    for i in range(50):
        message = pair[1].receive(timeout=30)
        assert (message.rank, message.role, message.life) == (0, "worker", pair[0].life)
        assert message.data == b"number %d" % i
    with pytest.raises(exceptions.GetTimeoutError):
        pair[1].receive(timeout=0.01)


def test_any_buffer_is_sent(pair):
    pair[0].send(1, b"")
    pair[0].send(1, memoryview(bytearray(range(10)))[2:5])
    assert pair[1].receive(timeout=30).data == b""
    assert pair[1].receive(timeout=30).data == bytes([2, 3, 4])


def test_a_sender_waits_for_a_task_that_does_not_receive(pair):
    pair[0].send(1, bytes(1 << 20))
    with pytest.raises(exceptions.GetTimeoutError):
        pair[0].send(1, b"late", timeout=0.05)
    sender = threading.Thread(target=pair[0].send, args=(1, b"in time"))
    sender.start()
    assert len(pair[1].receive(timeout=30).data) == 1 << 20
    sender.join()
    assert pair[1].receive(timeout=30).data == b"in time"


def test_a_dead_task_gets_nothing(pair):
    pair[1].fail()
    with pytest.raises(exceptions.MemberUnavailableError):
        while True:
            pair[0].send(1, bytes(1 << 16), timeout=30)
    with pytest.raises(exceptions.ClosedError):
        pair[1].receive(timeout=30)


def test_bad_arguments_are_refused(pair):
    with pytest.raises(exceptions.InvalidArgumentError):
        pair[0].send(2, b"no such rank")
    with pytest.raises(exceptions.InvalidArgumentError):
        pair[0].send(1, bytes((1 << 20) + 1))
    with pytest.raises(exceptions.InvalidArgumentError):
        pair[0].send(-1, b"")


def test_async_for_takes_messages_until_the_member_ends(pair):
    async def collect():
        taken = []
        async for message in pair[1]:
            taken.append(message.data)
            if len(taken) == 3:
                pair[1].leave()
        return taken

    for i in range(3):
        pair[0].send(1, bytes([i]))
    assert asyncio.run(collect()) == [b"\x00", b"\x01", b"\x02"]


def test_a_message_that_arrives_after_a_cancelled_wait_is_the_next_one(pair):
    async def begin_and_cancel():
        wait = asyncio.ensure_future(anext(aiter(pair[1])))
        # One turn, in which the wait begins in its thread; that goes on for a while.
        await asyncio.sleep(0)
        wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await wait
        pair[0].send(1, b"first")
        pair[0].send(1, b"second")
        return pair[1].receive(timeout=30).data

    assert asyncio.run(begin_and_cancel()) == b"first"
    assert pair[1].receive(timeout=30).data == b"second"


def test_many_threads_receive_each_message_once(pair):
    taken = []

    def receive():
        with contextlib.suppress(exceptions.ClosedError):
            while True:
                taken.append(pair[1].receive().data)
                if len(taken) == 100:
                    pair[1].leave()

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(100):
        pair[0].send(1, bytes([i]))
    for thread in threads:
        thread.join()
    assert sorted(taken) == [bytes([i]) for i in range(100)]
