"""Messages between the members of a job, and what members print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading

import pytest

import phalanx
from phalanx import _native, exceptions

# So many of the longest messages leave before the receiver has taken any of them.
LONG_IN_WINDOW = 3


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
    long, in_time = bytes(1 << 20), bytes([1]) * (1 << 20)
    for _ in range(LONG_IN_WINDOW):
        pair[0].send(1, long)
    with pytest.raises(exceptions.GetTimeoutError):
        pair[0].send(1, long, timeout=0.05)
    sender = threading.Thread(target=pair[0].send, args=(1, in_time))
    sender.start()
    for _ in range(LONG_IN_WINDOW):
        assert pair[1].receive(timeout=30).data == long
    sender.join()
    assert pair[1].receive(timeout=30).data == in_time


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


# ---- texts for the output of the launch

_PRINTS = """
import os, subprocess, sys
import phalanx

with phalanx.join() as member:
    if len(sys.argv) > 1:
        member.print(f"child of {member.task}")
    else:
        print("of the task", flush=True)
        for i in range(50):
            member.print(f"{member.task} {i}")
        member.print("two\\nlines\\n")
        member.print("")
        sys.stdout = open("/dev/full", "w")
        print("lost")
        member.print("broken output")
        sys.stdout = open(os.devnull, "w")
        sys.stdout.close()
        member.print("closed output")
        # With a shell between, and no descriptor of the task's. The child joins as a next life.
        member.leave()
        subprocess.run(["sh", "-c", '"$@"', "sh", sys.executable, __file__, "again"], check=True)
"""


def test_texts_are_printed_by_the_launch(tmp_path):
    program = tmp_path / "prints.py"
    program.write_text(_PRINTS)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    where = os.path.dirname(os.path.dirname(phalanx.__file__))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [where, environment.get("PYTHONPATH")]))
    command = [_native.EXECUTABLE, "launch", "-n2", "--", sys.executable, str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    for task in ("worker0", "worker1"):
        printed = [line for line in lines if line.startswith(task)]
        assert printed == [f"{task} {i}" for i in range(50)]
        assert lines.count(f"child of {task}") == 1
        assert lines.count(f"[{task}] of the task") == 1
    assert (lines.count("two"), lines.count("lines"), len(lines)) == (2, 2, 112)
    assert (lines.count("broken output"), lines.count("closed output")) == (2, 2)


def test_without_a_launch_texts_go_to_the_own_output(pair, capfd):
    print("first")
    pair[0].print("second")
    pair[1].print("third\n")
    assert capfd.readouterr().out.splitlines()[-3:] == ["first", "second", "third"]


def test_a_launch_that_has_ended_prints_nothing(client, monkeypatch):
    monkeypatch.setenv("PHALANX_PRINT", "/nonexistent/print")
    with phalanx.join("printing", "worker0", world=1) as member:
        with pytest.raises(exceptions.DisconnectedError, match="the launch has ended"):
            member.print("late")
        with pytest.raises(TypeError):
            member.print(b"bytes")  # type: ignore[arg-type]
