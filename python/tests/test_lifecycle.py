"""Processes: forks, exits, daemons that die, sub-interpreters. Each case runs in its own interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from failures_support import AT_ONCE_S

import phalanx
from phalanx import exceptions

# The number of exits with all kinds of work pending; 200 in runs by hand.
_EXITS = int(os.environ.get("PHALANX_TEST_EXITS", "3"))


def run(code: str, expect: int = 0, timeout: float = 120) -> str:
    """Run a program, and return its output."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")},
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def test_import_is_light():
    code = """
import sys, phalanx
print(sorted({'numpy', 'torch', 'cloudpickle', 'asyncio', 'concurrent.futures'} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


def test_views_outlive_client_and_daemon():
    code = """
import numpy as np, phalanx, os, signal
c = phalanx.init()
view = c.get(c.put(np.ones(1 << 20)))
small = c.get(c.put(np.ones(8)))
phalanx.shutdown()
assert view.sum() == 1 << 20 and small.sum() == 8
c = phalanx.init()
again = c.get(c.put(np.ones(1 << 20)))
pid = int(os.popen(f"pgrep -P {os.getpid()} -x phalanx").read().split()[-1])
os.kill(pid, signal.SIGKILL)
try:
    c.get(c.ref(), timeout=60)
except ConnectionError as error:
    print('gone')
assert view.sum() == 1 << 20 and again.sum() == 1 << 20
"""
    assert run(code).strip() == "gone"


def test_forked_children_keep_their_views():
    code = """
import numpy as np, phalanx, os
c = phalanx.init(capacity=256 << 20)
view = c.get(c.put(np.full(1 << 18, 7.0)))
ready, told = os.pipe()
done, tell = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(ready, 1)
    ok = bool((view == 7).all())
    try:
        c.put(1)
        ok = False
    except phalanx.exceptions.ClosedError:
        pass
    # The functions of the package connect again.
    ok = ok and phalanx.get(phalanx.put(5)) == 5
    del view
    os.write(tell, b'y' if ok else b'n')
    os._exit(0)
del view
for i in range(100):
    ref = c.put(np.full(1 << 18, float(i)))
    c.delete(ref)
os.write(told, b'x')
print(os.read(done, 1))
os.waitpid(pid, 0)
"""
    assert run(code).strip() == "b'y'"


def test_a_forked_child_does_not_wait_for_its_parents_calls():
    code = """
import phalanx, os, signal
c = phalanx.init()
absent, here = c.ref(), c.put(1)
came = c.as_completed([here, absent])
assert next(came) == here
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    try:
        next(came)
    except phalanx.exceptions.ClosedError as error:
        os._exit(7 if 'fork' in str(error) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run(code).strip() == "7"


def test_a_forked_child_has_no_part_in_the_members_of_its_parent():
    code = """
import asyncio, os, signal, phalanx
member = phalanx.join('fork', 'worker0', world=1)

async def iterate():
    async for _ in member:
        pass

async def main():
    loop = asyncio.get_running_loop()
    # The child has this executor, and none of its threads.
    await loop.run_in_executor(None, member.check)
    # A thread of the parent that receives.
    waiting = asyncio.ensure_future(iterate())
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        calls = [
            member.check, member.members, member.leave, member.fail, member.wait_world, member.receive,
            lambda: member.on_member(print), lambda: member.send(0, b''), lambda: iterate().send(None),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except phalanx.exceptions.ClosedError as error:
                if 'fork' in str(error):
                    continue
            except Exception as error:
                print(error)
            os._exit(number)
        with member:
            pass
        os._exit(77)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    member.check()
    waiting.cancel()

asyncio.run(main())
"""
    assert run(code).strip() == "77"


def test_a_forked_child_has_no_locks_that_are_held():
    code = """
import os, sys, threading, phalanx
c = phalanx.init()
future = c.future(c.ref())
homes = [vars(m) for n, m in sys.modules.items() if n.startswith('phalanx')]
homes += [vars(c), vars(c._futures)]
def locks():
    kinds = (type(threading.Lock()), type(threading.RLock()))
    return [value for home in homes for value in home.values() if isinstance(value, kinds)]
held = threading.Event()
def hold():
    for lock in locks():
        lock.acquire()
    held.set()
    threading.Event().wait()
assert len(locks()) >= 3
threading.Thread(target=hold, daemon=True).start()
held.wait()
pid = os.fork()
if pid == 0:
    os._exit(7 if all(lock.acquire(blocking=False) for lock in locks()) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os._exit(0)
"""
    assert run(code).strip() == "7"


def test_a_draft_whose_end_is_refused_is_as_before():
    """A drop fails if there is no memory for the arrays that still use the pages."""
    code = """
import logging, resource, numpy as np, phalanx  # not to be read when memory is scarce
from phalanx import exceptions
c = phalanx.init(capacity=256 << 20)

class scarce:
    def __enter__(self):
        size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

def refused(end):
    try:
        with scarce():
            end()
    except exceptions.StoreFullError:
        return True

shape = (32 << 20) // 8
sealed, dropped = c.create(shape, 'f8'), c.create(shape, 'f8')
array = sealed.array
array[:] = 1
assert refused(sealed.seal) and refused(sealed.seal)
array[0], sealed.array[1] = 2, 3
assert c.get(sealed.seal()).sum() == shape + 3
array[0] = 100
assert c.get(sealed.ref)[0] == 2
for gone in (array, sealed):
    del gone
del array

other = dropped.array
assert refused(dropped.drop)
dropped.array[0] = 1
dropped.drop()
assert not c.stat(dropped.ref).complete
other[0] = 2

try:
    with c.create(shape, 'f8') as draft:
        kept = draft.array
        limit = scarce()
        limit.__enter__()
        raise ZeroDivisionError
except ZeroDivisionError:
    limit.__exit__()
    print('mine')
draft.drop()
"""
    assert run(code).strip() == "mine"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method):
    code = f"""
import multiprocessing, numpy as np, phalanx
def task(ref, address):
    with phalanx.Client(address) as c:
        return float(c.get(ref).sum())
if __name__ == '__main__':
    c = phalanx.init()
    ref = c.put(np.ones(1 << 18))
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.starmap(task, [(ref, c.address)] * 4))
"""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        done = subprocess.run(
            [sys.executable, script.name], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([float(1 << 18)] * 4)


@pytest.mark.parametrize("attempt", range(_EXITS))
def test_exit_with_everything_under_way(attempt):
    code = """
import threading, numpy as np, phalanx
c = phalanx.init()
refs = [c.ref() for _ in range(20)]
futures = [ref.future() for ref in refs]
threading.Thread(target=lambda: c.get(refs[0]), daemon=True).start()
views = [c.get(c.put(np.ones(1 << 18))) for _ in range(4)]
draft = c.create((1 << 18,), 'f8')
array = draft.array
stream = c.stream(c.put(np.ones(1 << 18)))
next(stream)
print('end')
"""
    assert run(code).strip() == "end"


def test_sigint_in_a_program():
    code = """
import phalanx, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
c = phalanx.init()
print('waiting', flush=True)
c.get(c.ref())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().strip() == "waiting"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and process.returncode != 0


def test_node_killed_under_a_get(nodes):
    clients, daemons, _ = nodes
    ref = clients[0].put(np.ones(1 << 18))
    assert clients[1].get(ref, timeout=60).sum() == 1 << 18
    daemons[0].kill()
    assert clients[2].get(ref, timeout=60).sum() == 1 << 18
    with pytest.raises(exceptions.DisconnectedError):
        clients[0].get(clients[0].ref(), timeout=60)


def test_directory_restarted_under_a_wait(nodes):
    clients, _, cluster = nodes
    ref = clients[0].ref()
    future = clients[1].future(ref)
    cluster.shards[0].kill()
    cluster.restart_shard(0)
    cluster.wait_for_nodes(3)
    clients[0].put("there", ref)
    # A shard that starts waits one lease of 2 s for its nodes to register, then it adopts objects.
    assert future.result(timeout=4 + AT_ONCE_S) == "there"


def test_ten_thousand_refs_with_few_descriptors():
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import numpy as np, phalanx
c = phalanx.init()
refs = [c.put(np.full(128, i)) for i in range(10000)]
values = c.get(refs)
assert all(int(v[0]) == i for i, v in enumerate(values))
large = [c.get(c.put(np.ones(1 << 17))) for _ in range(100)]
assert sum(v.sum() for v in large) == 100 << 17
print('ok')
"""
    assert run(code).strip() == "ok"


def test_a_refused_put_in_a_cycle_of_garbage_is_collected():
    code = """
import gc, sys
import phalanx

gc.disable()
for value in (b'small', bytes(1 << 22), memoryview(bytes(1 << 22))):
    phalanx.init(capacity=1 << 20)
    ref = phalanx.put(value[:1])
    try:
        phalanx.get(ref, out=memoryview(bytearray(7)))
    except (ValueError, TypeError) as error:
        error.itself = error
    try:
        phalanx.put(memoryview(b'xx'), ref)
    except phalanx.exceptions.PhalanxError as error:
        error.itself = error
    else:
        sys.exit('was not refused')
    try:
        phalanx.put(value, timeout=0)
    except phalanx.exceptions.PhalanxError as error:
        error.itself = error
    gc.collect()
    phalanx.shutdown()
print('works')
"""
    assert run(code).split() == ["works"]


@pytest.mark.parametrize("kind", ["as_completed", "wait"])
def test_a_wait_in_a_cycle_of_garbage_is_collected(kind):
    """The collector can free the calls of a generator before it closes the generator."""
    code = """
import asyncio, gc, os, phalanx
from phalanx import _calls
gc.disable()
client = phalanx.init()
aio = phalanx.AsyncClient.of(client)
get = _calls.get
def get_later(*arguments, **options):
    gc.collect(0)  # the generator, but not its last call, becomes a member of an older generation
    return get(*arguments, **options)
_calls.get = get_later
def as_completed():
    arriving = client.as_completed([client.put(1), *[client.ref() for _ in range(9)]])
    next(arriving)
    cycle = [arriving]
    cycle.append(cycle)
def wait():
    async def main():
        task = asyncio.ensure_future(aio.wait([client.ref() for _ in range(9)]))
        await asyncio.sleep(0)
        assert not task.done()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # the task is destroyed
    loop.run_until_complete(main())
    loop.close()
for _ in range(20):
    KIND()
    gc.collect()
print(client.get(client.put("end")))
"""
    # The C library overwrites memory that is freed.
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code.replace("KIND", kind)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


# ---- sub-interpreters: a clear error, and no harm to the main interpreter

_KINDS = ["", "'legacy'"] if sys.version_info >= (3, 13) else [""]

_INSIDE = """
try:
    import phalanx
except ImportError as error:
    assert error.name == "phalanx" and "sub-interpreter" in str(error), error
    print("refused", flush=True)
"""


@pytest.mark.parametrize("first", ["inside", "outside"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_sub_interpreter_is_refused(first, kind):
    code = f"""
inside = {_INSIDE!r}
try:
    import _interpreters as interpreters
    execute = interpreters.exec
except ImportError:
    import sys
    if {kind!r}:
        print('refused\\\\nworks')  # there is one kind only
        sys.exit()
    import _xxsubinterpreters as interpreters
    execute = interpreters.run_string
if {first!r} == 'outside':
    import phalanx
other = interpreters.create({kind})
failed = execute(other, inside)
assert failed is None, failed
import phalanx
assert phalanx.get(phalanx.put('works')) == 'works'
interpreters.destroy(other)
print(phalanx.get(phalanx.put('works')))
"""
    assert run(code).split() == ["refused", "works"]
