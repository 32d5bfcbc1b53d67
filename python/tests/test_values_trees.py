"""State dicts and pytrees as one object."""

from __future__ import annotations

import collections
import enum
import json
import sys
import types
import typing
import zlib

import numpy as np
import pytest
from values_support import address, assert_same_array, is_inside, private_pages, round_trip, stored

from phalanx import _values as values
from phalanx import exceptions

Point = collections.namedtuple("Point", "x y")


class State(typing.NamedTuple):
    step: np.ndarray
    moments: dict[str, np.ndarray]


def is_tree(value: object) -> bool:
    return values.encode(value).metadata[4] == 11


def layers(count: int, dtype: str = "f4") -> dict[str, np.ndarray]:
    return {
        f"decoder.layers.{i}.self_attention.{part}": np.full((i % 3 + 1, 5), i + j, dtype)
        for i in range(count)
        for j, part in enumerate(("weight", "bias"))
    }


def assert_same_tree(expected, actual):
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same_tree(expected[key], actual[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(expected, actual):
            assert_same_tree(one, other)
    elif isinstance(expected, (int, float, np.generic)):
        assert repr(actual) == repr(expected)
    elif expected is not None:
        assert_same_array(expected, actual)


TREES = [
    {"a": np.arange(3)},
    [np.arange(3), np.zeros((2, 2)).T],
    (np.arange(3),),
    collections.OrderedDict([("z", np.zeros(2)), ("a", np.ones(2))]),
    Point(np.zeros(2), [None, np.ones(1)]),
    State(np.array(3), {"m": np.zeros(2), "v": np.ones(2)}),
    {"deep": {"er": [({"x": np.zeros(1)},), [], {}, ()]}, 5: np.ones(1), (1, ("a", None)): None},
    {None: np.zeros(1), True: np.ones(1), -(2**62): np.zeros(0), "": np.zeros((0, 3))},
    {"s": np.zeros(2, [("a", "i4")]), "d": np.array(["2020"], "M8[D]"), "u": np.array(["é"])},
    layers(20),
    {"loss": 0.5, "step": 3},
    [-(2**63), 2**63 - 1, 0, -0.0, float("nan"), float("inf")],
    Point(np.float32(1.5), [np.int8(-1), (np.uint64(2**64 - 1), np.complex128(1j))]),
    {"w": np.arange(5, dtype="i1"), "n": np.int8(3), "m": [np.int8(4), np.arange(3, dtype="i1")]},
    {"b": np.bool_(True), "d": np.datetime64("2020-01-01"), "f": np.float16(2), "l": np.longdouble(1)},
    list(range(256)),
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_a_tree_keeps_its_structure_without_pickle(tree):
    assert is_tree(tree)
    back = round_trip(tree, allow_pickle=False)
    assert_same_tree(tree, back)
    assert_same_tree(tree, round_trip(tree, allow_pickle=False, copy=True))


def test_leaves_are_aligned_read_only_views_with_zeros_between():
    tree = {"a": np.arange(3, dtype="u1") + 1, "b": np.arange(5, dtype="u1") + 1}
    encoded = values.encode(tree)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data)
    for leaf in back.values():
        assert address(leaf) % 64 == 0
        assert is_inside(leaf, data)
        assert not leaf.flags.writeable
    assert bytes(data) == b"\1\2\3" + bytes(61) + b"\1\2\3\4\5"
    pages = private_pages(encoded)
    values.decode(encoded.metadata, pages)["a"][0] = 9
    assert pages[0] == 9
    assert not values.decode(encoded.metadata, pages, writable=False)["a"].flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        [None],
        [np.zeros(2), True],
        [np.zeros(2), 2**63],
        [np.str_("text")],
        [np.zeros(1, "i4,f4")[0]],
        [enum.IntEnum("Colour", "RED").RED],
        {"a": np.array([None])},
        {1.5: np.zeros(2)},
        {2**64: np.zeros(2)},
        collections.defaultdict(list, a=np.zeros(2)),
        [np.matrix([[1]])],
        {"a": {np.zeros(1).tobytes(): np.zeros(1)}},
    ],
    ids=repr,
)
def test_everything_else_in_a_container_makes_it_one_for_pickle(value):
    assert not is_tree(value)
    back = round_trip(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("items", [(1.0,), (1.0, 2.0, 3.0)])
def test_a_namedtuple_with_another_length_than_its_fields_is_no_tree(items):
    value = tuple.__new__(Point, items)
    assert not is_tree(value)
    with pytest.raises(TypeError, match=f"value has {len(items)} items for 2 fields"):
        values.flatten(value)


def test_a_namedtuple_that_cannot_be_imported_is_pickled():
    Local = collections.namedtuple("Local", "a")
    back = round_trip(Local(np.arange(2)))
    assert not is_tree(Local(np.arange(2)))
    assert back.a.tolist() == [0, 1]
    looped: list = [np.zeros(1)]
    looped.append(looped)
    back = round_trip(looped)
    assert back[1] is back


def test_attributes_of_an_ordered_dict_are_kept_or_it_is_pickled():
    plain = collections.OrderedDict(a=np.zeros(2))
    plain._metadata = {"": {"version": 1}}
    assert is_tree(plain)
    assert round_trip(plain, allow_pickle=False)._metadata == {"": {"version": 1}}
    plain._metadata = {"": {"version": {1}}}
    assert not is_tree(plain)
    assert round_trip(plain)._metadata == {"": {"version": {1}}}


# ---- reducible


def fold(objects: list[bytes], dtype: str) -> memoryview:
    return memoryview(sum(np.frombuffer(each, dtype) for each in objects).tobytes())


def test_a_tree_of_one_dtype_reduces_as_one_block():
    trees = [{"a": np.full(3, i, "f4"), "b": [np.full((5, 7), 2 * i, "f4")]} for i in range(4)]
    encoded = [values.encode(tree) for tree in trees]
    assert len({each.metadata for each in encoded}) == 1
    assert values.reduce_dtype(encoded[0].metadata) == "f32"
    result = fold([bytes(stored(each)) for each in encoded], "f4")
    back = values.decode(encoded[0].metadata, result)
    assert_same_tree({"a": np.full(3, 6, "f4"), "b": [np.full((5, 7), 12, "f4")]}, back)


USUAL = np.arange(6, dtype="f4").reshape(2, 3)


@pytest.mark.parametrize(
    "first, other",
    [
        ({"a": USUAL, "b": [USUAL]}, {"a": USUAL, "b": USUAL}),
        ({"a": [USUAL, USUAL]}, {"a": (USUAL, USUAL)}),
        ({"a": USUAL, "b": USUAL}, {"b": USUAL, "a": USUAL}),
        ({"1": USUAL}, {1: USUAL}),
        ({1: USUAL}, {True: USUAL}),
        ({"a": USUAL}, {"a": USUAL.astype("f8")}),
        ({"a": USUAL}, {"a": USUAL.astype(">f4")}),
        ({"a": USUAL}, {"a": np.asfortranarray(USUAL)}),
        ({"a": USUAL}, {"a": USUAL.T}),
        ({"a": USUAL}, {"a": USUAL.reshape(6)}),
        ({"a": USUAL, "b": USUAL[:0]}, {"a": USUAL, "b": USUAL[:1]}),
        ({"a": np.array(1, "f4")}, {"a": np.float32(1)}),
        ({"a": USUAL, "b": None}, {"a": USUAL}),
        ([USUAL.view("V4")], [USUAL.view([("x", "f4")])]),
        ([USUAL.astype("M8[s]")], [USUAL.astype("M8[ms]")]),
        ({"a": [USUAL], "b": USUAL}, {"a": [USUAL, USUAL]}),
        ({"a": np.ones(20_000), "b": [USUAL]}, {"a": [np.ones(20_000)], "b": USUAL}),
        ({"a": USUAL, "b": np.ones(3, "i2"), "c": np.ones(1, "f4")}, {"a": USUAL, "b": np.ones(3, "i4")}),
    ],
)
def test_trees_are_encoded_the_same_each_time(first, other):
    """The encoder remembers outlines of trees: each is written and read as when it was new."""
    # Interleaved, so that no tree takes what was remembered of the other one.
    seen = [(tree, values.encode(tree)) for tree in (first, other, first, other)]
    for (tree, encoded), (_, again) in zip(seen, seen[2:]):
        assert encoded.metadata == again.metadata
        assert bytes(stored(encoded)) == bytes(stored(again))
    assert len({each.metadata for _, each in seen}) == 2
    for tree, encoded in seen:
        assert_same_tree(tree, values.decode(encoded.metadata, stored(encoded)))


def test_a_remembered_tree_is_read_as_its_memory_allows():
    tree = {"a": USUAL, "b": USUAL[0]}
    for _ in range(2):
        encoded = values.encode(tree)
        data = bytearray(stored(encoded))
        values.decode(encoded.metadata, memoryview(data))["b"][0] = 7
        assert values.decode(encoded.metadata, memoryview(bytes(data)))["b"][0] == 7
        read_only = values.decode(encoded.metadata, memoryview(data), writable=False)
        with pytest.raises(ValueError, match="read-only"):
            read_only["a"][0] = 1
        with pytest.raises(exceptions.ValueFormatError, match="bytes"):
            values.decode(encoded.metadata, memoryview(data)[:-4])


def test_a_large_structure_is_compressed_into_the_metadata():
    tree = layers(150)
    encoded = values.encode(tree)
    assert len(encoded.metadata) <= 4096
    assert values.reduce_dtype(encoded.metadata) == "f32"
    assert encoded.nbytes == values.flatten(tree)[0].nbytes


def test_numbers_are_folded_beside_arrays():
    """Ints fold as int64 and floats as float64, in the ranges of such arrays."""
    tree = {"w": np.arange(3.0), "n": 3, "x": 0.5, "i": np.int64(4), "v": np.arange(5), "h": np.float16(2)}
    encoded = values.encode(tree)
    runs = values.reduce_runs(encoded.metadata)
    assert [run.dtype for run in runs] == ["f64", "i64", "f16"]
    # The numbers lie close behind the arrays, the next range begins at 64 bytes.
    assert [run.end for run in runs] == [64, 192, 194]
    data = bytearray(stored(encoded))
    begin = 0
    for run, kind in zip(runs, ("f8", "i8", "f2")):
        data[begin : run.end] = fold([bytes(data[begin : run.end])] * 3, kind)
        begin = run.end
    back = values.decode(encoded.metadata, memoryview(data))
    assert_same_tree({key: type(leaf)(leaf * 3) if np.isscalar(leaf) else leaf * 3 for key, leaf in tree.items()}, back)
    assert values.reduce_dtype(values.encode([1, 2]).metadata) == "i64"
    assert values.reduce_dtype(values.encode({"loss": 0.5, "all": np.ones(3)}).metadata) == "f64"


def test_numbers_are_read_one_by_one():
    encoded = values.encode({"a": np.arange(3), "n": 5, "deep": {"x": np.float32(2)}})
    lazy = values.open_tree(encoded.metadata, stored(encoded))
    assert lazy["n"] == 5 and type(lazy["n"]) is int
    assert type(lazy["deep"]["x"]) is np.float32


class Step(typing.NamedTuple):
    name: object
    rate: object


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"opt": [1, 2, np.ones(2), Step("adam", 3)]}, r"\(value\['opt'\]\[3\]\.name is a str\)"),
        ({"opt": [1, Step(np.ones(2, bool), 3)]}, r"value\['opt'\]\[1\]\.name is an array of bool and shape"),
        ([{"a": 1}, {(1, "b"): np.uint16(3)}], r"value\[1\]\[\(1, 'b'\)\] is a NumPy scalar of uint16,"),
        ({"n": 2**64}, r"value\['n'\] is an int of more than 64 bits"),
        ([{"flag": True}], r"value\[0\]\['flag'\] is a bool"),
        (list(range(257)), "more than 256 numbers"),
        ([np.ones(1), *range(257)], "more than 256 numbers"),
        (set(), r"it is a builtins\.set"),
        ({"long" * 1000: "x"}, r"^a pickled value \(value\['longlong"),
    ],
)
def test_the_leaf_that_cannot_be_folded_is_named(value, what):
    encoded = values.encode(value)
    assert len(encoded.metadata) < 300
    with pytest.raises(TypeError, match=what) as error:
        values.reduce_dtype(encoded.metadata)
    assert "cannot be reduced" in str(error.value)
    assert repr(round_trip(value)) == repr(value)


def test_the_difference_of_two_values_is_named():
    def difference(one, other):
        return values.difference(values.encode(one).metadata, values.encode(other).metadata, None)

    tree = {"w": np.ones(3), "opt": [Step(1, 0.5)]}
    assert difference(tree, {**tree, "opt": [Step(1, 3)]}) == (
        "value['opt'][0].rate is a float in the one and an int in the other"
    )
    assert difference(tree, {**tree, "w": np.ones(4)}) == (
        "value['w'] is an array of float64 and shape (3,) in the one and an array of float64 and shape (4,) in the other"
    )
    assert difference(tree, {**tree, "more": 1}) == difference(tree, {"v": np.ones(4)}) == "the trees have other keys"
    assert difference(np.ones(3), tree) == "the one is an array of float64 and shape (3,), the other a tree"
    assert difference(1, 1.5) == "the one is an int, the other a float"
    assert difference(np.ones(3), "text") == "the one is an array of float64 and shape (3,), the other a str"
    assert "order of their axes" in difference(np.ones((2, 2)), np.asfortranarray(np.ones((2, 2))))


def random_keys(count: int) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(1)
    return {noise.bytes(30).hex(): np.full(3, i, "f4") for i in range(count)}


def test_a_structure_that_does_not_fit_is_stored_beside_the_leaves():
    tree = random_keys(300)
    encoded = values.encode(tree)
    assert len(encoded.metadata) < 50 and encoded.nbytes == encoded.structure.nbytes
    assert values.reduce_dtype(encoded.metadata) == "f32"
    digest = values.structure_elsewhere(encoded.metadata)
    assert digest == encoded.structure.digest
    text = encoded.structure.to_bytes()
    assert values.structure_of(text, digest) == encoded.structure
    for other in (text.replace(b"f4", b"f8"), bytearray(text), None):
        with pytest.raises(exceptions.ValueFormatError):
            values.structure_of(other, digest)
    assert_same_tree(tree, round_trip(tree, allow_pickle=False))
    for other in ({"a": np.ones(3)}, np.ones(3), "text"):
        assert values.structure_elsewhere(values.encode(other).metadata) is None


def test_a_structure_that_does_not_fit_stands_in_the_payload_if_it_cannot_be_reduced():
    tree = {**random_keys(300), "n": np.arange(3), "m": np.zeros(2, bool)}
    encoded = values.encode(tree)
    assert len(encoded.metadata) < 100
    assert_same_tree(tree, round_trip(tree, allow_pickle=False))
    data = stored(encoded)
    for leaf in values.decode(encoded.metadata, data).values():
        assert address(leaf) % 64 == 0
    with pytest.raises(TypeError, match=r"value\['m'\] is an array of bool"):
        values.reduce_runs(encoded.metadata)


@pytest.mark.parametrize("keys", [3, 300])
def test_metadata_has_the_runs_of_a_tree_of_several_dtypes(keys):
    tree = {**random_keys(keys), "n": np.arange(3), "e": np.zeros((0, 2), "f8"), "h": np.ones(5, "f2")}
    encoded = values.encode(tree)
    runs = values.reduce_runs(encoded.metadata)
    assert [run.dtype for run in runs] == ["f32", "i64", "f16"], "those that have elements"
    assert [run.end % 64 for run in runs] == [0, 0, 10]
    assert runs[-1].end == encoded.nbytes
    with pytest.raises(TypeError, match="f32, i64, f16"):
        values.reduce_dtype(encoded.metadata)
    data = bytearray(stored(encoded))
    begin = 0
    for run, kind in zip(runs, ("f4", "i8", "f2")):
        data[begin : run.end] = fold([bytes(data[begin : run.end])] * 2, kind)
        begin = run.end
    doubled = values.unflatten(values.flatten(tree)[0], memoryview(data))
    assert_same_tree({key: leaf * leaf.dtype.type(2) for key, leaf in tree.items()}, doubled)


def test_impossible_runs_are_corrupt():
    metadata = values.encode({**random_keys(300), "n": np.arange(3)}).metadata
    told = metadata[metadata.index(b"f32:") :]
    for bad in (b"f32:64", b"f32:64,i64:64", b"f32:64,i64", b"x:64,i64:72", b"f32:-1,i64:72", b"f32:64,i64:99", b"f32:0,i64:72", b"f32:60,i64:72"):
        with pytest.raises(exceptions.ValueFormatError):
            values.reduce_runs(metadata.removesuffix(told) + bad)


def test_flattened_trees_of_any_size_reduce():
    trees = [{key: leaf * i for key, leaf in random_keys(300).items()} for i in range(1, 4)]
    pairs = [values.flatten(tree) for tree in trees]
    spec, first = pairs[0]
    assert all(each == spec and each.digest == spec.digest for each, _ in pairs)
    assert spec.dtype == values.reduce_dtype(first.metadata) == "f32"
    values.check_spec(spec, first.metadata)
    result = fold([bytes(stored(each)) for _, each in pairs], "f4")
    assert_same_tree(
        {key: leaf * 6 for key, leaf in random_keys(300).items()}, values.unflatten(spec, result)
    )
    again = type(spec).from_bytes(spec.to_bytes())
    assert again == spec and again.digest == spec.digest and again.nbytes == spec.nbytes
    with pytest.raises(exceptions.ValueFormatError, match="unflatten"):
        values.decode(first.metadata, stored(first))
    with pytest.raises(exceptions.ValueFormatError):
        values.unflatten(spec, result[:-1])


def test_another_structure_is_an_error():
    spec, one = values.flatten({"a": np.zeros(2)})
    values.check_spec(spec, one.metadata)
    for other in ({"b": np.zeros(2)}, {"a": np.zeros(3)}, random_keys(300)):
        with pytest.raises(exceptions.ValueFormatError, match="another structure"):
            values.check_spec(spec, values.flatten(other)[1].metadata)
    with pytest.raises(exceptions.ValueFormatError, match="no tree"):
        values.check_spec(spec, values.encode(np.zeros(2)).metadata)
    with pytest.raises(TypeError, match=r"value\['a'\] is a bool"):
        values.flatten({"a": True})


def test_mixed_dtypes_stand_in_one_range_each():
    tree = {
        "w": np.full(5, 1, "f4"),
        "n": np.array(3, "i8"),
        "v": np.full(20, 2, "f4"),
        "m": np.array([True]),
        "k": np.array([4], "i8"),
    }
    spec, encoded = values.flatten(tree)
    assert [group.dtype for group in spec.groups] == ["f32", "i64", None]
    with pytest.raises(TypeError, match="bool"):
        values.reduce_runs(encoded.metadata)
    assert spec.dtype is None and spec.runs == ()
    result = bytearray(stored(encoded))
    for group in spec.groups:
        part = result[group.offset : group.offset + group.nbytes]
        assert group.offset % 64 == 0
        if group.dtype:
            kind = {"f32": "f4", "i64": "i8"}[group.dtype]
            part = fold([part, part], kind)
        result[group.offset : group.offset + group.nbytes] = part
    doubled = values.unflatten(spec, memoryview(result))
    for key in ("w", "n", "v", "k"):
        np.testing.assert_array_equal(doubled[key], tree[key] * 2)
    assert_same_array(doubled["m"], tree["m"])


@pytest.mark.parametrize(
    ("dtype", "name"), [("u2", "uint16"), (">f4", "float32 in big-endian"), ("?", "bool")]
)
def test_a_tree_of_a_dtype_that_does_not_reduce_names_it(dtype, name):
    with pytest.raises(TypeError, match=name):
        values.reduce_dtype(values.encode([np.zeros(2, dtype)]).metadata)


# ---- lazily


def test_only_the_ranges_of_requested_keys_are_read():
    tree = {"a": np.arange(10), "b": {"c": np.arange(5.0), "d": [np.zeros(3), None]}}
    for value in (tree, {**random_keys(300), **tree, "flag": np.array(True)}):
        encoded = values.encode(value)
        data = stored(encoded)
        reads = []

        def read(offset, nbytes, data=data, reads=reads):
            reads.append((offset, nbytes))
            return data[offset : offset + nbytes]

        lazy = values.open_tree(encoded.metadata, read)
        assert list(lazy) == list(value) and len(lazy) == len(value) and "b" in lazy
        reads.clear()
        inner = lazy["b"]
        assert reads == []
        assert_same_array(tree["b"]["c"], inner["c"])
        assert [nbytes for _, nbytes in reads] == [40]
        assert_same_tree(tree["b"]["d"], inner["d"])
        assert_same_tree(value, lazy.load())
        with pytest.raises(KeyError):
            lazy["nothing"]


def test_lazy_leaves_are_views_or_copies():
    encoded = values.encode({"a": np.arange(4)})
    data = stored(encoded)
    view = values.open_tree(encoded.metadata, data)["a"]
    assert is_inside(view, data) and not view.flags.writeable
    copied = values.open_tree(encoded.metadata, data, copy=True)["a"]
    copied[0] = 9
    assert view[0] == 0


def test_only_dicts_open_lazily():
    for value in ([np.zeros(2)], np.zeros(2)):
        encoded = values.encode(value)
        with pytest.raises(exceptions.ValueFormatError):
            values.open_tree(encoded.metadata, stored(encoded))


# ---- from outside


def crafted(structure: object, leaves: object) -> bytes:
    return b"PHX\x01\x0b\x00" + json.dumps([structure, leaves]).encode()


LEAF = ["<f4", [2]]


@pytest.mark.parametrize(
    ("structure", "leaves"),
    [
        (0, []),
        (["l", [0, 0]], [LEAF]),
        (["l", [0]], [LEAF, LEAF]),
        (["d", ["a"], [0, 0]], [LEAF, LEAF]),
        (["d", [{}], [0]], [LEAF]),
        (["d", [1.5], [0]], [LEAF]),
        (["q", [0]], [LEAF]),
        (["l"], [LEAF]),
        (["l", [0], 1, 2], [LEAF]),
        ([], [LEAF]),
        ("l", [LEAF]),
        (["l", "00"], [LEAF, LEAF]),
        ({"l": [0]}, [LEAF]),
        (["n", ["x"], [0]], [LEAF]),
        (["n", ["x"], [0], "os"], [LEAF]),
        (["o", ["x"], [0], 3], [LEAF]),
        (0, [["|O", [2]]]),
        (0, [["<f4", [-1]]]),
        (0, [["<f4", [2.0]]]),
        (0, [["<f4", 2]]),
        (0, [["<f4", [2], [1]]]),
        (0, [["<f4", [2], "X"]]),
        (0, [["t:nothing", [2]]]),
        (0, [[None, [2]]]),
        (0, ["s"]),
        (0, ["s:|O"]),
        (0, ["int:<i8"]),
        (0, ["bool"]),
        (0, 3),
    ],
)
def test_a_corrupt_structure_is_an_error(structure, leaves):
    with pytest.raises(exceptions.ValueFormatError):
        values.decode(crafted(structure, leaves), memoryview(bytes(8)))


def test_deep_and_huge_structures_are_errors():
    deep = b"PHX\x01\x0b\x00" + b"[" * 4000
    with pytest.raises(exceptions.ValueFormatError):
        values.decode(deep, memoryview(b""))
    bomb = b"PHX\x01\x0b\x01" + zlib.compress(bytes(4 << 20), 9)[:4080]
    with pytest.raises(exceptions.ValueFormatError):
        values.decode(bomb, memoryview(b""))
    head = b"PHX\x01\x0b\x02" + (2**64 - 1).to_bytes(8, "little")
    with pytest.raises(exceptions.ValueFormatError):
        values.decode(head, memoryview(bytes(100)))


def test_the_class_of_a_namedtuple_is_checked():
    data = memoryview(bytes(8))
    for name in ("os:system", "os:nothing", "builtins:tuple", "collections:OrderedDict"):
        with pytest.raises(exceptions.ValueFormatError, match="no namedtuple"):
            values.decode(crafted(["n", ["x"], [0], name], [LEAF]), data)
    name = f"{__name__}:Point"
    with pytest.raises(exceptions.ValueFormatError, match="other fields"):
        values.decode(crafted(["n", ["x"], [0], name], [LEAF]), data)


def test_no_module_is_imported_for_a_namedtuple_when_pickle_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_points.py").write_text(
        "import collections\nP = collections.namedtuple('P', 'x')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    metadata = crafted(["n", ["x"], [0], "a_module_of_points:P"], [LEAF])
    with pytest.raises(exceptions.PickleRefusedError):
        values.decode(metadata, memoryview(bytes(8)), allow_pickle=False)
    assert "a_module_of_points" not in sys.modules
    assert values.decode(metadata, memoryview(bytes(8))).x.tolist() == [0, 0]
    assert isinstance(sys.modules.pop("a_module_of_points"), types.ModuleType)
