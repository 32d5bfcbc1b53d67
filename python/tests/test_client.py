"""Put, get, wait and manage, against the daemons in the package."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
import typing
from datetime import timedelta

import numpy as np
import pytest
from failures_support import raises

import phalanx
from phalanx import _calls, _native, _tools, _waiting, exceptions

LARGE = (3 << 20) // 8


@pytest.mark.parametrize("size", [0, 1, 128, 1 << 16, (1 << 17) - 1, 1 << 17, LARGE])
def test_arrays_round_trip(client, size):
    value = np.arange(size, dtype=np.float64)
    got = client.get(client.put(value))
    assert type(got) is np.ndarray and got.dtype == value.dtype and got.shape == value.shape
    assert not got.flags.writeable
    assert np.array_equal(got, value)


@pytest.mark.parametrize("value", [b"bytes", "text", None, 7, {"a": [1, 2]}, [np.ones(3)], lambda: 5])
def test_any_value_round_trips(client, value):
    got = client.get(client.put(value))
    if callable(value):
        assert got() == value()
    elif isinstance(value, list):
        assert np.array_equal(got[0], value[0])
    else:
        assert got == value


def test_read_only_write_is_an_error_and_no_crash(client):
    got = client.get(client.put(np.zeros(LARGE)))
    with pytest.raises(ValueError):
        got[0] = 1
    with pytest.raises(ValueError):
        got.flags.writeable = True


@pytest.mark.parametrize("size", [16, LARGE])
def test_private_pages_are_this_callers_alone(client, size):
    ref = client.put(np.zeros(size))
    mine = client.get(ref, writable="cow")
    mine[:] = 5
    assert client.get(ref).sum() == 0
    assert client.get(ref, writable="cow").sum() == 0
    assert mine.sum() == 5 * size


# ---- names


def test_an_object_keeps_the_name_of_its_ref(client):
    name = f"job/größe/{os.getpid()}"
    ref = client.ref(name)
    assert (ref.name, ref.name_space) == (name, "default")
    assert repr(ref) == f"ObjectRef({ref.hex()}, name={name!r})"
    client.put(np.zeros(LARGE), ref)
    status = client.stat(phalanx.ObjectRef.from_hex(ref.hex()))
    assert (status.name, status.name_space) == (name, "default")
    assert f"name={name!r}" in repr(status)
    client.delete(ref)


def test_a_pickled_ref_takes_its_name_along(client):
    ref = phalanx.ObjectRef.from_name("x", "batch")
    assert repr(ref) == f"ObjectRef({ref.hex()}, name='x', name_space='batch')"
    again = pickle.loads(pickle.dumps(ref))
    assert (again.name, again.name_space) == ("x", "batch")
    inner = client.get(client.put({"inner": ref}))["inner"]
    assert inner == ref and inner.name == "x"
    client.put(1, again)
    assert client.stat(ref).name_space == "batch"
    client.delete(again)


def test_a_ref_without_a_name_has_none(client):
    ref = client.put(1)
    assert ref.name is None and ref.name_space is None
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    assert client.stat(ref).name is None and client.stat(ref).name_space is None


def test_any_text_names_a_ref_but_only_printable_names_are_kept(client):
    for name in ("two\nlines", "x" * 256, ""):
        ref = client.ref(name)
        assert ref.name == name
        assert client.get(client.put(5, ref)) == 5
        assert client.stat(ref).name is None
        client.delete(ref)


def test_errors_show_names(client):
    ref = client.ref("never put")
    shown = f'"never put" ({ref.hex()})'
    with raises(exceptions.GetTimeoutError, after=0.1) as caught:
        client.get(ref, timeout=0.1)
    assert shown in str(caught.value) and caught.value.ref == ref.hex()
    with raises(exceptions.ObjectDeletedError) as caught:
        client.delete(ref)
    assert shown in str(caught.value) and caught.value.ref == ref.hex()
    client.put(np.zeros(LARGE), ref)
    with raises(exceptions.ObjectExistsError) as caught:
        client.put(np.zeros(2 * LARGE), ref)
    assert shown in str(caught.value) and f'("{ref.name}"' not in str(caught.value)
    client.delete(ref)


@pytest.mark.parametrize("size", [4, LARGE])
def test_another_value_under_a_name_is_an_error(client, size):
    ref = client.ref(f"once/{size}")
    client.put(np.full(size, 1.0), ref)
    client.put(np.full(size, 1.0), ref)  # a task that runs again
    with pytest.raises(exceptions.ObjectExistsError, match="exist_ok") as caught:
        client.put(np.full(size, 2.0), ref)
    assert caught.value.ref == ref.hex() and "once/" in str(caught.value)
    # As many bytes of another dtype or shape are another value, too.
    with pytest.raises(exceptions.ObjectExistsError):
        client.put(np.full(size, 1.0).view(np.int64), ref)
    with pytest.raises(exceptions.ObjectExistsError):
        client.put(np.full((size // 2, 2), 1.0), ref)
    assert client.put(np.full(size, 2.0), ref, exist_ok=True) == ref
    assert client.get(ref)[0] == 1.0
    client.delete(ref)
    client.put(np.full(size, 2.0), ref)
    assert client.get(ref)[0] == 2.0
    client.delete(ref)


@pytest.mark.parametrize("value", [b"bytes", "text", 7, {"a": [1, 2]}, [np.ones(3), np.zeros(LARGE)], None])
def test_the_same_value_under_a_name_is_no_error(client, value):
    ref = client.ref("again")
    client.put(value, ref)
    client.put(value, ref)
    with pytest.raises(exceptions.ObjectExistsError):
        client.put("another", ref)
    client.delete(ref)


def test_a_put_under_a_name_and_its_comparison_share_the_time(client, clock, monkeypatch):
    named = client.ref("shared/time")
    client.put(7, named)
    given = []
    number, get = _calls._number, _calls.get

    def later(*args):
        clock.now += 2  # the time that the put takes
        return number(*args)

    def record(connection, refs, seconds, **options):
        given.append(seconds)
        return get(connection, refs, None, **options)

    monkeypatch.setattr(_calls, "_number", later)
    monkeypatch.setattr(_calls, "get", record)
    client.put(7, named, timeout=5)
    assert given == [3]
def _left(client, ref):
    left = client.stat(ref).ttl
    assert left is not None
    return left


@pytest.mark.parametrize("size", [4, LARGE])
def test_an_object_is_deleted_when_its_time_to_live_has_passed(client, size):
    ref = client.put(np.ones(size), ttl=0.3)
    seen = client.get(ref)
    # The node serves its copy until it hears of the deletion.
    with pytest.raises(exceptions.ObjectDeletedError, match="time to live had passed"):
        while True:
            client.get(ref)
    assert seen.sum() == size  # the value stays valid
    assert client.stat(ref).deleted and client.stat(ref).ttl is None
    client.put(np.zeros(size), ref)
    assert client.get(ref).sum() == 0


def test_what_is_left_of_a_time_to_live_is_shown_and_not_renewed(client):
    ref = client.ref("session/7")
    client.put("value", ref, ttl=timedelta(hours=1))
    assert 3500 < _left(client, ref) <= 3600
    client.put("value", ref, ttl=9000)
    assert _left(client, ref) <= 3600
    assert "ttl=" in repr(client.stat(ref))
    client.delete(ref)
    with client.create(4, "f4", ttl=np.float32(60)) as draft:
        draft.array[:] = 1
    assert 50 < _left(client, draft.ref) <= 60
    for endless in (None, float("inf"), 1e12, timedelta.max):
        assert client.stat(client.put(1, ttl=endless)).ttl is None


@pytest.mark.parametrize("ttl", [0, -1, -0.0, float("nan"), timedelta(0), timedelta(seconds=-3)])
def test_a_time_to_live_is_positive(client, ttl):
    with pytest.raises(ValueError, match="ttl="):
        client.put(1, ttl=ttl)
    with pytest.raises(exceptions.InvalidArgumentError, match="ttl="):
        client.create(4, "f4", ttl=ttl)
    with pytest.raises(TypeError, match="ttl='5s': a number of seconds"):
        client.put(1, ttl="5s")


def test_another_value_under_a_ref_without_a_name_is_dropped(client):
    ref = client.put(np.ones(3))
    client.put(np.zeros(3), ref)
    assert client.get(ref).sum() == 3


def test_the_target_of_a_reduction_keeps_its_name(client):
    sources = [client.put(np.full(4, i)) for i in range(3)]
    total = client.reduce(sources, ref=client.ref("total"))
    assert client.stat(phalanx.ObjectRef.from_hex(total.hex())).name == "total"
    client.delete(total)


def test_copy_and_out(client):
    ref = client.put(np.arange(4.0))
    mine = client.get(ref, copy=True)
    mine[0] = 9
    out = np.empty(4)
    assert client.get(ref, out=out) is out
    assert np.array_equal(out, np.arange(4.0))
    with pytest.raises(ValueError):
        client.get(ref, out=np.empty(5))


class Model:
    def __init__(self, size: int) -> None:
        self.name = "m"
        self.w = np.ones(size)


class Pair(typing.NamedTuple):
    left: object
    right: object


def _frame(size):
    frame = pytest.importorskip("pandas").DataFrame({"i": np.arange(size), "f": np.ones(size)})
    return frame.assign(s="text")


def _add_to_frame(frame):
    frame.loc[0, "i"] = 41
    frame["f"] += 1
    frame.iloc[1, 1] = 7.0
    return [float(frame["i"][0]), float(frame["f"][0]), float(frame["f"][1])]


def _add_to_series(series):
    # Since pandas 3, to_numpy() is read-only in any case.
    series.iloc[0] += 1
    return [float(series.iloc[0])]


def _add_to_arrow(table):
    for column in table.columns:
        for buffer in column.chunk(0).buffers():
            if buffer is not None:
                np.frombuffer(buffer, np.uint8)[:] = 0
    return [table["a"][1].as_py()]


def _add(array):
    array += 1
    return array.ravel()[:2].tolist()


# By kind: the value of a size, and a write that returns what it made of the value.
WRITES = {
    "array": (np.ones, _add),
    "fortran": (lambda size: np.ones((size, 2), order="F"), _add),
    "dict": (lambda size: {"w": np.ones(size), "n": 1}, lambda value: _add(value["w"])),
    "list": (lambda size: [np.ones(size), {"b": np.ones(2)}], lambda value: _add(value[0]) + _add(value[1]["b"])),
    "tuple": (lambda size: Pair(np.ones(size), None), lambda value: _add(value.left)),
    "many": (
        lambda size: {f"{i:0100}": np.ones(size // 64) for i in range(300)},
        lambda value: [x for leaf in value.values() for x in _add(leaf)],
    ),
    "pickled dict": (lambda size: {"w": np.ones(size), "s": "text"}, lambda value: _add(value["w"])),
    "instance": (Model, lambda value: _add(value.w)),
    "masked": (lambda size: np.ma.ones(size), _add),
    "record": (lambda size: np.ones(size, "i4,f4").view(np.recarray), lambda value: _add(value["f0"])),
    "memoryview": (lambda size: memoryview(bytes(size)), lambda value: _add(np.asarray(value))),
    "bytearray": (bytearray, lambda value: _add(np.frombuffer(value, np.uint8))),
    "data frame": (_frame, _add_to_frame),
    "series": (lambda size: _frame(size)["f"], _add_to_series),
    "arrow": (lambda size: pytest.importorskip("pyarrow").table({"a": np.arange(size)}), _add_to_arrow),
    "arrow slice": (
        lambda size: pytest.importorskip("pyarrow").table({"a": np.arange(9 * size)}).slice(size, size),
        _add_to_arrow,
    ),
    "tensor": (lambda size: pytest.importorskip("torch").ones(size), lambda value: _add(value)),
    "state dict": (
        lambda size: {"t": pytest.importorskip("torch").ones(size), "a": np.ones(3)},
        lambda value: _add(value["t"]) + _add(value["a"]),
    ),
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("size", [64, LARGE])
def test_a_copy_of_any_value_is_writable(client, kind, size):
    make, write = WRITES[kind]
    ref = client.put(make(size))
    expected = write(client.get(ref, copy=True))
    # Nobody else sees the writes, and a value that was read can be put and copied again.
    assert write(client.get(client.put(client.get(ref)), copy=True)) == expected
    assert ref.get(copy=True) is not None
    if kind not in ("bytearray", "tensor", "state dict"):
        with pytest.raises((ValueError, TypeError)):
            write(client.get(ref))


def test_several_at_once_in_order(client):
    refs = [client.put(np.full(10, i)) for i in range(100)]
    assert [int(value[0]) for value in client.get(refs)] == list(range(100))
    assert client.get([]) == []


def test_a_list_of_small_and_large_objects(client):
    sizes = [0, 3, 1023, 1025, 7, LARGE, 0, 20_000, *range(700), 9_000, 1]
    values = [np.arange(size, dtype=np.float64) for size in sizes] + [b"bytes", {"a": np.ones(3)}, "text"]
    refs = [client.put(value) for value in values]
    for options in ({}, {"copy": True}, {"writable": "cow"}):
        got = client.get(refs, **options)
        for value, back in zip(values, got):
            if isinstance(value, np.ndarray):
                assert back.dtype == value.dtype and np.array_equal(back, value)
                assert back.flags.writeable == bool(options) or back.size == 0
        assert got[-3] == b"bytes" and got[-2]["a"].sum() == 3 and got[-1] == "text"
    small = client.get(refs[2])
    del refs
    gc.collect()
    assert np.array_equal(small, values[2])


def test_threads_get_lists_at_once(client):
    refs = [client.put(np.full(16, i)) for i in range(1500)]
    wrong = []

    def work(part):
        for _ in range(5):
            got = client.get(refs[part::4])
            wrong.extend(i for i, array in zip(range(part, 1500, 4), got) if (array != i).any())

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_put_again_keeps_the_first(client):
    ref = client.ref()
    client.put(np.zeros(4), ref)
    client.put(np.ones(4), ref)
    assert client.get(ref).sum() == 0
    with pytest.raises(exceptions.ObjectExistsError) as caught:
        client.put(np.ones(5), ref)
    assert isinstance(caught.value, ValueError) and caught.value.ref == ref.hex()


def test_get_waits_for_put(client):
    ref = client.ref()
    timer = threading.Timer(0.05, lambda: client.put("late", ref))
    timer.start()
    assert client.get(ref, timeout=30) == "late"
    timer.join()


def test_timeouts(client):
    ref = client.ref()
    for seconds in (0, 0.05):
        with pytest.raises(TimeoutError) as caught:
            client.get(ref, timeout=seconds)
        assert caught.value.ref == ref.hex()
    with pytest.raises(ValueError):
        client.get(ref, timeout=-1)
    client.put(1, ref)
    assert client.get(ref, timeout=0) == 1


def test_default_timeout_from_the_environment(client, monkeypatch):
    monkeypatch.setenv("PHALANX_TIMEOUT", "0.05")
    with phalanx.Client(client.address) as other, pytest.raises(exceptions.GetTimeoutError):
        other.get(other.ref())
    monkeypatch.setenv("PHALANX_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="PHALANX_TIMEOUT"):
        phalanx.Client(client.address)


def test_names(client):
    ref = phalanx.ObjectRef.from_name("weights/7")
    client.put("named", ref)
    assert client.get(phalanx.ObjectRef.from_name("weights/7")) == "named"
    assert client.get(phalanx.ObjectRef.from_hex(ref.hex())) == "named"
    assert ref != phalanx.ObjectRef.from_name("weights/7", "other")
    with pytest.raises(ValueError):
        phalanx.ObjectRef.from_hex("abc")
    client.delete(ref)


def test_refs_are_values(client):
    ref = client.put(1)
    again = pickle.loads(pickle.dumps(ref))
    assert again == ref and hash(again) == hash(ref) and len({ref, again}) == 1
    assert client.get(again) == 1
    assert client.get(client.get(client.put({"inner": ref}))["inner"]) == 1
    with pytest.raises(TypeError):
        client.get("not a ref")


def test_wait_keeps_the_order(client):
    here = [client.put(i) for i in range(3)]
    absent = client.ref()
    done, pending = client.wait([here[0], absent, here[1], here[2]], num_returns=3, timeout=30)
    assert done == here and pending == [absent]
    for seconds in (0, 0.05):
        done, pending = client.wait([absent], timeout=seconds)
        assert done == [] and pending == [absent]
    # 0: what is on this node already.
    assert client.wait([here[0], absent, here[1]], timeout=0) == ([here[0], here[1]], [absent])
    with pytest.raises(ValueError):
        client.wait([absent], num_returns=2)


def test_as_completed(client):
    first, second = client.ref(), client.ref()
    came = client.as_completed([first, second], timeout=30)
    client.put(2, second)
    assert next(came) == second
    client.put(1, first)
    assert list(came) == [first]
    with pytest.raises(TimeoutError):
        list(client.as_completed([client.ref()], timeout=0.05))


def test_the_time_of_as_completed_begins_with_the_call(client, clock):
    came = client.as_completed([client.ref()], timeout=30)
    clock.now += 30
    with pytest.raises(TimeoutError, match="30 s"):
        next(came)


def test_delete_is_told_apart_from_unknown(client):
    ref = client.put(np.ones(LARGE))
    view = client.get(ref)
    assert client.contains(ref) and client.stat(ref).complete
    client.delete(ref)
    with pytest.raises(exceptions.ObjectDeletedError) as caught:
        client.get(ref)
    assert isinstance(caught.value, KeyError)
    assert not client.contains(ref) and client.stat(ref).deleted
    assert view.sum() == LARGE  # mapped pages stay
    assert not client.stat(client.ref()).known


def test_what_a_producer_raised(client):
    class Local(Exception):
        pass

    ref = client.ref()
    try:
        raise LookupError("no such shard of the data")
    except LookupError as error:
        ref.set_exception(error)
    with pytest.raises(LookupError, match="no such shard") as caught:
        client.get(ref)
    assert "test_what_a_producer_raised" in str(caught.value.__cause__)

    long = client.ref()
    long.set_exception(ValueError("x" * 5000))
    with pytest.raises(ValueError, match="x{5000}"):
        client.get(long)

    # allow_pickle=False unpickles nothing of the exception.
    gadget = client.ref()
    gadget.set_exception(Gadget())
    Gadget.ran = 0
    with pytest.raises(exceptions.ProducerError, match="Gadget") as refused:
        client.get(gadget, allow_pickle=False)
    assert Gadget.ran == 0 and "Gadget" in str(refused.value.__cause__)

    # SystemExit of a producer must not end the reader.
    ending = client.ref()
    ending.set_exception(SystemExit(3))
    with pytest.raises(exceptions.ProducerError):
        client.get(ending)

    unpicklable = client.ref()
    unpicklable.set_exception(Local("here only"))
    with pytest.raises(exceptions.ProducerError, match="here only"):
        client.get(unpicklable)


class Gadget(Exception):
    """An exception that records that it was unpickled."""

    ran = 0

    def __init__(self, *args: object) -> None:
        super().__init__("Gadget")

    def __reduce__(self):
        return _unpickled, ()


def _unpickled():
    Gadget.ran += 1
    return Gadget()


def test_a_later_put_takes_a_failure_back(client):
    ref = client.ref()
    ref.set_exception(RuntimeError("first try"))
    client.put("second try", ref)
    assert client.get(ref, timeout=30) == "second try"


def test_pickle_refused(client):
    with pytest.raises(TypeError, match="allow_pickle"):
        client.put(object(), allow_pickle=False)
    ref = client.put({1, 2})
    with pytest.raises(exceptions.PickleRefusedError):
        client.get(ref, allow_pickle=False)


@pytest.mark.parametrize("size", [16, LARGE])
def test_drafts(client, size):
    with client.create((size,), "f8") as draft:
        array = draft.array
        array[:] = 2
    array[0] = 100  # goes to a private copy
    assert client.get(draft.ref)[0] == 2 and client.get(draft.ref).sum() == 2 * size
    assert array.sum() == 2 * size + 98
    with pytest.raises(exceptions.ClosedError):
        draft.seal()

    with pytest.raises(ZeroDivisionError), client.create((size,), "f8") as dropped:
        kept = dropped.array
        kept[:] = 0
        1 / 0  # noqa: B018
    kept[:] = 1
    assert not client.stat(dropped.ref).complete
    del draft, array, kept


@pytest.mark.parametrize("end", ["seal", "drop", "forget"])
def test_a_seal_that_was_interrupted(nodes, end, monkeypatch):
    clients, daemons, _ = nodes
    draft = clients[0].create(10, "f8")
    draft.array[:] = 2
    daemons[0].signal(signal.SIGSTOP)

    def interrupted(*args, **options):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(_waiting, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draft.seal()
    with pytest.raises(exceptions.ClosedError):
        draft.publish(8)
    ref = phalanx.ObjectRef(draft.ref.id)
    ref._named = True
    if end == "drop":
        draft.drop()
    daemons[0].signal(signal.SIGCONT)
    if end == "seal":
        assert clients[0].get(draft.seal()).sum() == 20
    del draft
    while not clients[0].stat(ref, timeout=60).deleted:
        pass


def test_store_full_is_a_memory_error(client):
    with pytest.raises(MemoryError) as caught:
        client.put(np.zeros(1 << 29, np.uint8), timeout=0.2)
    assert isinstance(caught.value, exceptions.StoreFullError)


def test_streams(client):
    value = np.random.default_rng(1).integers(0, 255, 5 << 20, np.uint8)
    ref = client.put(value)
    got = b"".join(bytes(piece) for piece in client.stream(ref, 1 << 16))
    assert got == value.tobytes()
    with pytest.raises(TimeoutError):
        next(client.stream(client.ref(), timeout=0.05))
    with pytest.raises(ValueError):
        next(client.stream(ref, 0))


def test_futures(client):
    ref = client.ref()
    future, other = ref.future(), client.ref().future()
    client.put("soon", ref)
    assert future.result(timeout=30) == "soon"
    assert other.cancel() and other.cancelled()
    failed = client.ref()
    failed.set_exception(LookupError("nothing"))
    with pytest.raises(LookupError):
        failed.future().result(timeout=30)


def test_ctrl_c_ends_a_wait_within_100_ms(client):
    # A process that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt_a_wait(client)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_a_wait(client):
    ref = client.ref()
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(0.1, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.get(ref, timeout=30)
    assert time.monotonic() - sent[0] < 1  # 100 ms, with a margin for a busy machine
    timer.join()
    client.put(1, ref)
    assert client.get(ref) == 1


def test_threads(client):
    refs = [client.ref() for _ in range(64)]
    seen: list[int] = []

    def read(ref):
        seen.append(client.get(ref, timeout=60))

    threads = [threading.Thread(target=read, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    for i, ref in enumerate(refs):
        client.put(i, ref)
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(64))


def test_closing(client):
    with phalanx.Client(client.address) as other:
        ref = other.put(np.ones(LARGE))
        view = other.get(ref)
    assert view.sum() == LARGE
    with pytest.raises(exceptions.ClosedError):
        other.get(ref)
    other.close()


def test_no_node_is_a_connection_error(tmp_path):
    with pytest.raises(ConnectionError, match="nobody.sock"):
        phalanx.Client(str(tmp_path / "nobody.sock"), connect_timeout=0.5)


def test_ref_of_another_cluster(client, nodes):
    theirs = nodes[0][0].put(1)
    with raises(exceptions.ForeignRefError):
        client.get(theirs)


def test_dropped_views_free_memory(client):
    """Dropping a view, on any thread, frees its pages for the node."""
    for _ in range(60):
        ref = client.put(np.ones(4 * LARGE))
        view = client.get(ref)
        client.delete(ref)
        del view
    gc.collect()
    client.put(np.ones(4 * LARGE), timeout=30)


def test_errors_can_be_pickled():
    for name in dir(exceptions):
        kind = getattr(exceptions, name)
        if isinstance(kind, type) and issubclass(kind, exceptions.PhalanxError):
            error = pickle.loads(pickle.dumps(kind("what", "ab" * 20, "unix:/x")))
            assert type(error) is kind and (str(error), error.ref) == ("what", "ab" * 20)


def test_status_and_tree(nodes):
    clients, _, _ = nodes
    ref = clients[0].put(np.ones(LARGE))
    assert clients[1].get(ref, timeout=60).sum() == LARGE
    assert "n1" in str(clients[0].tree(ref))
    assert clients[0].tree(ref)._repr_svg_().count("<text") == len(str(clients[0].tree(ref)).splitlines())
    assert "n2" in str(clients[2].status())
    with pytest.raises(exceptions.PhalanxError):
        clients[0].tree(clients[0].ref())


def test_a_command_that_does_not_answer(client, monkeypatch, tmp_path):
    stuck = tmp_path / "phalanx"
    os.mkfifo(tmp_path / "pipe")
    stuck.write_text(f"#!/bin/sh\nread line < '{tmp_path}/pipe'\n")
    stuck.chmod(0o700)
    monkeypatch.setattr(_native, "EXECUTABLE", str(stuck))
    monkeypatch.setattr(_tools, "_PATIENCE_S", 0.1)
    with pytest.raises(exceptions.GetTimeoutError, match="phalanx status"):
        client.status()


def test_signatures_do_not_show_the_client():
    import inspect

    assert list(inspect.signature(phalanx.stat).parameters) == ["ref", "timeout"]
