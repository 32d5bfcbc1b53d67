"""Values that are pickled, and values with short paths."""

from __future__ import annotations

import array
import collections
import dataclasses
import gc
import pickle
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from values_support import (
    address,
    assert_same_array,
    is_inside,
    private_pages,
    round_trip,
    stored,
)

from phalanx import _values as values
from phalanx import exceptions

# ---- short paths


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"some bytes",
        bytearray(b"some bytes"),
        bytearray(),
        "",
        "tëxt \U0001f600 \ud800",
        None,
        True,
        False,
        0,
        -(2**63),
        2**63,
        -(2**63) - 1,
        10**50,
        1.5,
        float("inf"),
        array.array("d", [1.5, 2.5]),
        array.array("B"),
        array.array("q", [-1]),
    ],
    ids=repr,
)
def test_plain_values_need_no_pickle(value):
    back = round_trip(value, allow_pickle=False)
    assert type(back) is type(value)
    assert back == value
    assert getattr(back, "typecode", None) == getattr(value, "typecode", None)


def test_a_nan_and_a_negative_zero_keep_their_bits():
    for value in (float("nan"), -0.0):
        assert struct.pack("d", round_trip(value, allow_pickle=False)) == struct.pack("d", value)


def test_subclasses_of_plain_types_are_pickled():
    class Name(str):
        pass

    assert type(round_trip(Name("a"))) is not str
    assert round_trip(collections.Counter("aab")) == collections.Counter("aab")
    with pytest.raises(exceptions.PickleRefusedError, match="Name"):
        values.encode(Name("a"), allow_pickle=False)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abcdef"),
        memoryview(bytearray(b"abcdef")),
        memoryview(bytes(24)).cast("d"),
        memoryview(bytes(range(24))).cast("i", (2, 3)),
        memoryview(bytes(8)).cast("q", ()),
        memoryview(b"abcdef")[::2],
        memoryview(b""),
        memoryview(b"").cast("d"),
    ],
    ids=lambda view: f"{view.format}{view.shape}",
)
def test_a_memoryview_is_decoded_as_a_read_only_view(view):
    encoded = values.encode(view, allow_pickle=False)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data, allow_pickle=False)
    assert (back.format, back.shape, back.tolist()) == (view.format, view.shape, view.tolist())
    assert back.readonly
    assert back.obj is data.obj


def test_a_memoryview_of_a_foreign_format_is_refused():
    with pytest.raises(TypeError, match=r"numpy\.asarray"):
        values.encode(memoryview(np.zeros(2, ">f4")))


def test_an_object_without_metadata_is_its_bytes():
    data = memoryview(b"from another language")
    view = values.decode(b"", data)
    assert view.readonly and view.obj is data.obj
    assert bytes(view) == b"from another language"
    copied = values.decode(b"", data, copy=True)
    assert not copied.readonly
    assert values.decode(b"", memoryview(bytearray(3)), writable=False).readonly


# ---- pickle


@dataclasses.dataclass
class Record:
    name: str
    data: np.ndarray


class Base:
    def __init__(self, item):
        self.item = item


def test_a_value_without_its_own_form_is_pickled():
    assert round_trip({"a": 1, "b": [1, 2, {3}]}) == {"a": 1, "b": [1, 2, {3}]}
    assert round_trip(lambda x: x + 1)(2) == 3
    assert round_trip(Record("n", np.arange(3))).name == "n"
    assert round_trip(ValueError("why")).args == ("why",)

    @dataclasses.dataclass
    class Local:
        x: int

    assert round_trip(Local(3)).x == 3


def test_arrays_inside_are_aligned_read_only_views_of_the_object():
    value = {
        "name": "mixed",
        "plain": np.arange(1000),
        "fortran": np.asfortranarray(np.ones((3, 4))),
        "dates": np.array(["2020-01-01"], "M8[ns]"),
        "nested": [Record("r", np.arange(7, dtype=">i2")), (np.float32(3), np.arange(3)[::-1])],
        "empty": np.zeros((0, 3)),
        "zero": np.array(5),
        "strings": np.array(["a", "bc"]),
    }
    encoded = values.encode(value)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    pairs = [(value[key], back[key]) for key in value if isinstance(value[key], np.ndarray)]
    pairs.append((value["nested"][0].data, back["nested"][0].data))
    pairs.append((value["nested"][1][1], back["nested"][1][1]))
    for expected, actual in pairs:
        assert_same_array(expected, actual)
        assert actual.flags.f_contiguous == expected.flags.f_contiguous or expected.ndim == 1
        if actual.size:
            assert address(actual) % 64 == 0
            assert is_inside(actual, data)
            assert not actual.flags.writeable
    assert not any(bytes(data)[i : i + 8] == b"\xaa" * 8 for i in range(len(data) - 8))


def test_the_reader_decides_whether_arrays_inside_are_writable():
    """Also of arrays that were read-only when they were put, such as those of an earlier get."""
    frozen = np.arange(3)
    frozen.flags.writeable = False
    value = [np.arange(5), frozen, np.asfortranarray(np.ones((2, 3)))[:, ::2], np.zeros((0, 2)), "x"]
    encoded = values.encode(value)
    pages = private_pages(encoded)
    free = values.decode(encoded.metadata, pages)
    for array in free[:-1]:
        array += 1
    assert_same_array(values.decode(encoded.metadata, pages)[1], np.arange(1, 4))
    for data, how in ((pages, {"writable": False}), (stored(encoded), {})):
        back = values.decode(encoded.metadata, data, **how)
        assert not any(array.flags.writeable for array in back[:-1] if array.size)
    data = stored(encoded)
    copied = values.decode(encoded.metadata, data, copy=True)
    for expected, array in zip(value[:-1], copied):
        assert array.size == 0 or not is_inside(array, data)
        array += 1
        assert_same_array(array, np.ascontiguousarray(expected) + 1)
    assert frozen.tolist() == [0, 1, 2] and not frozen.flags.writeable


def test_a_copy_of_a_value_without_views_is_not_copied_twice(monkeypatch):
    copies = []
    monkeypatch.setattr(values._wire, "private_copy", lambda data: copies.append(data.nbytes) or bytearray(data))
    for value in ("text", b"bytes", 5, {"a": ["text", {1}]}, ValueError("why")):
        encoded = values.encode(value)
        assert repr(values.decode(encoded.metadata, stored(encoded), copy=True)) == repr(value)
    assert copies == []


def test_views_inside_hold_the_memory():
    encoded = values.encode({"a": np.arange(10), "b": "x"})
    pages = bytearray(encoded.nbytes)
    encoded.write_into(memoryview(pages))
    held = values.decode(encoded.metadata, memoryview(pages))["a"]
    with pytest.raises(BufferError):
        pages.clear()
    del held
    pages.clear()


SUBCLASSES = [
    np.matrix([[1, 2], [3, 4]]),
    np.rec.array([(1, 2.0), (3, 4.0)], names="a,b"),
    np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]], [[0, 1], [0, 0]], fill_value=7),
    np.ma.MaskedArray(np.arange(5), hard_mask=True),
    np.ma.MaskedArray([(1, 2.0)], [(0, 1)], [("a", "i4"), ("b", "f8")]),
]


@pytest.mark.parametrize("value", SUBCLASSES, ids=lambda value: type(value).__name__)
def test_subclasses_keep_their_type_over_the_objects_memory(value):
    encoded = values.encode(value)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    assert type(back) is type(value)
    assert back.dtype == value.dtype and back.dtype.type is value.dtype.type
    assert back.tolist() == value.tolist()
    plain = back.data if isinstance(back, np.ma.MaskedArray) else back.view(np.ndarray)
    assert is_inside(plain, data)
    assert not plain.flags.writeable
    if isinstance(value, np.ma.MaskedArray):
        assert back.fill_value == value.fill_value
        assert back.hardmask == value.hardmask
        assert (back.mask is np.ma.nomask) == (value.mask is np.ma.nomask)
        np.testing.assert_array_equal(back.mask, value.mask)


class Tagged(np.ndarray):
    def __reduce__(self):
        return tagged, (np.asarray(self), self.tag)


def tagged(data, tag):
    array = data.view(Tagged)
    array.tag = tag
    return array


def test_a_subclass_that_pickles_itself_is_asked():
    back = round_trip(tagged(np.arange(3), "t"))
    assert type(back).__name__ == "Tagged" and back.tag == "t"


def test_a_memory_mapped_file_is_decoded_as_one(tmp_path):
    mapped = np.memmap(tmp_path / "file", "i4", "w+", shape=(5,))
    mapped[:] = 3
    assert round_trip([mapped, 1])[0].tolist() == [3] * 5
    assert isinstance(round_trip(mapped), np.memmap)


def test_identity_inside_a_pickled_value_is_kept():
    shared = np.arange(3)
    first, second, _ = round_trip([shared, shared, "x"])
    assert first is second


def test_pickle_is_refused_on_both_sides():
    with pytest.raises(exceptions.PickleRefusedError, match=r"value\['b'\] is a str"):
        values.encode({"a": np.zeros(2), "b": "x"}, allow_pickle=False)
    with pytest.raises(exceptions.PickleRefusedError, match="Base"):
        values.encode(Base(1), allow_pickle=False)
    encoded = values.encode(Base(1))
    with pytest.raises(exceptions.PickleRefusedError):
        values.decode(encoded.metadata, stored(encoded), allow_pickle=False)


def test_errors_of_pickling_are_raised():
    with pytest.raises(TypeError, match="lock"):
        values.encode([threading.Lock()])
    assert values.collecting() is None


def test_a_value_is_read_by_another_process(tmp_path):
    encoded = values.encode({"f": lambda x: x * 2, "a": np.arange(4)})
    (tmp_path / "metadata").write_bytes(encoded.metadata)
    (tmp_path / "data").write_bytes(stored(encoded))
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from phalanx import _values
folder = {str(tmp_path)!r}
data = memoryview(open(folder + "/data", "rb").read())
value = _values.decode(open(folder + "/metadata", "rb").read(), data)
assert value["f"](value["a"][3]) == 6
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_dropping_an_unwritten_value_is_silent(monkeypatch):
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    for value in ({"a": np.arange(3), "b": "x"}, {"b": "x"}):
        cycle = [values.encode(value)]
        cycle.append(cycle)
        del cycle
        gc.collect()
    assert complaints == []


# ---- refs


class Ref:
    """A stand-in for ObjectRef: pickling it adds its id to the current collection."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity

    def __reduce__(self):
        collection = values.collecting()
        if collection is not None:
            collection.append(self.identity)
        return Ref, (self.identity,)


def test_refs_inside_are_collected():
    refs = [Ref(bytes([i]) * 20) for i in range(3)]
    encoded = values.encode({"a": refs[0], "b": [refs[1], (refs[2],)]})
    assert sorted(encoded.refs) == [ref.identity for ref in refs]
    assert list(values.encode(np.zeros(3)).refs) == []
    assert values.collecting() is None
    pickle.dumps(refs)


class Putting:
    """An object that puts another object while it is pickled."""

    def __reduce__(self):
        self.inner = values.encode([Ref(b"i" * 20), "x"])
        return str, ("put",)


def test_collections_nest_and_survive_errors():
    putting = Putting()
    encoded = values.encode([Ref(b"a" * 20), putting, Ref(b"b" * 20)])
    assert encoded.refs == [b"a" * 20, b"b" * 20]
    assert putting.inner.refs == [b"i" * 20]
    with pytest.raises(TypeError):
        values.encode([Ref(b"a" * 20), threading.Lock()])
    assert values.collecting() is None


def test_each_thread_has_its_own_collection():
    barrier = threading.Barrier(2)

    class Meeting(Ref):
        def __reduce__(self):
            barrier.wait(10)
            reduced = super().__reduce__()
            barrier.wait(10)
            return reduced

    found = {}

    def work(name):
        found[name] = values.encode([Meeting(name * 20), "x"]).refs

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {b"a": [b"a" * 20], b"b": [b"b" * 20]}


# ---- pandas and Arrow


def test_a_data_frame_is_a_view_of_the_object():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "i": np.arange(1000),
            "f": np.linspace(0, 1, 1000),
            "g": np.ones(1000),
            "t": pd.date_range("2020-01-01", periods=1000),
            "s": ["text"] * 1000,
            "c": pd.Categorical(["a", "b"] * 500),
        },
        index=pd.RangeIndex(1000, name="row"),
    )
    encoded = values.encode(frame)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    pd.testing.assert_frame_equal(frame, back)
    for column in ("i", "f", "t"):
        assert is_inside(back[column].to_numpy(), data), column
    assert not back["i"].to_numpy().flags.writeable
    assert back["f"].sum() == frame["f"].sum()
    copied = values.decode(encoded.metadata, data, copy=True)
    copied.loc[0, "i"] = 5


def test_an_arrow_table_has_its_buffers_in_the_object():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": list(range(5000)), "s": ["x", None] * 2500})
    encoded = values.encode(table)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    assert back.equals(table)
    begin = address(np.frombuffer(data, np.uint8))
    for chunk in back["a"].chunks + back["s"].chunks:
        for buffer in chunk.buffers():
            assert buffer is None or begin <= buffer.address < begin + data.nbytes
    del data
    assert back["a"][4999].as_py() == 4999
    copied = values.decode(encoded.metadata, stored(encoded), copy=True)
    assert all(b is None or b.is_mutable for b in copied["a"].chunk(0).buffers() + copied["s"].chunk(0).buffers())
    # A table that was read from an object, whose buffers are read-only, is put again.
    again = values.encode(back)
    assert not any(b and b.is_mutable for b in values.decode(again.metadata, stored(again))["a"].chunk(0).buffers())
    second = values.decode(again.metadata, stored(again), copy=True)
    assert second.equals(table) and all(b is None or b.is_mutable for b in second["s"].chunk(0).buffers())
    assert round_trip(pa.array([1, 2, 3])).equals(pa.array([1, 2, 3]))


def test_a_slice_of_a_table_does_not_take_the_table_along():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": np.arange(100_000)})
    encoded = values.encode(table.slice(5, 10))
    assert encoded.nbytes < 10_000
    assert round_trip(table.slice(5, 10)).equals(table.slice(5, 10))
    batch = table.to_batches()[0].slice(7, 3)
    assert values.encode(batch).nbytes < 10_000
    assert round_trip(batch).equals(batch)


def test_a_slice_of_an_arrow_array_does_not_take_the_array_along():
    pa = pytest.importorskip("pyarrow")
    columns = [
        pa.array(range(100_000)),
        pa.array([None, "some text"] * 50_000),
        pa.array([[i] for i in range(50_000)]),
        pa.array([{"a": i, "b": None} for i in range(50_000)]),
        pa.array(["x", "y"] * 50_000).dictionary_encode(),
        pa.chunked_array([list(range(50_000)), list(range(50_000))]),
    ]
    for column in columns:
        for piece in (column.slice(5, 10), column.slice(3, 0), column.slice(len(column) - 1)):
            assert values.encode(piece).nbytes < 10_000
            back = round_trip(piece)
            assert type(back) is type(piece) and back.type == piece.type and back.equals(piece)
        assert round_trip(column).equals(column)


# ---- frames from outside


BODY = struct.Struct("<BQI")
HEAD = b"PHX\x01\x04"


@pytest.mark.parametrize(
    ("flags", "stream", "count", "data"),
    [
        (0, 100, 0, b""),
        (0, 2**64 - 1, 0, bytes(10)),
        (0, 4, 2**32 - 1, bytes(64)),
        (0, 4, 1, struct.pack("<QQ", 0, 4) + bytes(64)),
        (0, 4, 1, struct.pack("<QQ", 2**63, 2**63) + bytes(64)),
        (0, 4, 1, struct.pack("<QQ", 64, 2**64 - 1) + bytes(64)),
        (0, 4, 1, struct.pack("<QQ", 79, 2) + bytes(64)),
        (0, 4, 0, b"N"),
        (0, 1, 0, b"N"),
        (0, 0, 0, b""),
    ],
)
def test_a_corrupt_frame_is_an_error(flags, stream, count, data):
    with pytest.raises(exceptions.ValueFormatError):
        values.decode(HEAD + BODY.pack(flags, stream, count), memoryview(data))


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        (b"P", "another program"),
        (b"PHX", "cut short"),
        (b"PHX\x01", "cut short"),
        (b"JSON{}", "another program"),
        (b"PHX\x02\x01", "value format 2; this package reads format 1"),
        (b"PHX\x01\x00", "kind 0"),
        (b"PHX\x01\xff", "kind 255"),
        (b"PHX\x01\x01", "cut short"),
        (b"PHX\x01\x05x", "stray"),
        (b"PHX\x01\x01\x00\x01\x03\x00|S0" + bytes([3, 0, 0, 0, 0, 0, 0, 0]), "plain elements"),
        (b"PHX\x01\x01\x00\x00\x02\x00|O", "no dtype"),
        (b"PHX\x01\x0az", "no kind of plain"),
        (b"PHX\x01" + bytes(5000), "5004 bytes"),
    ],
)
def test_foreign_metadata_is_an_error_that_says_what_is_wrong(metadata, what):
    with pytest.raises(exceptions.ValueFormatError, match=what):
        values.decode(metadata, memoryview(b""))
    assert values.wants_private_pages(metadata) in (True, False)
