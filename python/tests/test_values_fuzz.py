"""Properties over many values, and metadata and bytes that this package has not written."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from values_support import assert_same_array, attempt, is_inside, mutations, round_trip, stored

from phalanx import _values as values

hypothesis = pytest.importorskip("hypothesis")
import hypothesis.extra.numpy as hnp  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

SETTINGS = hypothesis.settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)

PLAIN_DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(endianness="?", min_len=1),
    hnp.unicode_string_dtypes(endianness="?", min_len=1),
)
DTYPES = st.one_of(PLAIN_DTYPES, hnp.array_dtypes(PLAIN_DTYPES, max_size=4, allow_subarrays=True))


@st.composite
def arrays(draw):
    """Arrays of all kinds of dtypes, with axes permuted, sliced and reversed."""
    dtype = draw(DTYPES)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    base = np.zeros(shape, dtype)
    raw = base.reshape(-1).view(np.uint8) if base.size else base
    if base.size and not dtype.hasobject and dtype.kind in "iufc":
        raw[:] = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 255, raw.size)
    array = base.transpose(draw(st.permutations(range(base.ndim)))) if base.ndim else base
    if base.ndim:
        array = array[draw(hnp.basic_indices(array.shape, allow_ellipsis=False))]
    return np.asarray(array)


def contiguous(array):
    return array.flags.c_contiguous or array.flags.f_contiguous


@SETTINGS
@hypothesis.given(arrays())
def test_any_array_comes_back(array):
    encoded = values.encode(array, allow_pickle=False)
    data = stored(encoded)
    back = values.decode(encoded.metadata, data, allow_pickle=False)
    assert_same_array(array, back)
    assert not back.flags.writeable or back.size == 0
    if contiguous(array):
        assert encoded.buffer is not None
        assert back.flags.c_contiguous == array.flags.c_contiguous
        assert back.flags.f_contiguous == array.flags.f_contiguous
    if array.size:
        assert is_inside(back, data)
    assert_same_array(array, round_trip([array, "pickled"])[0])


LEAVES = st.one_of(st.none(), arrays())
KEYS = st.one_of(st.text(max_size=5), st.integers(-(2**62), 2**62), st.none(), st.booleans())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4).map(collections.OrderedDict),
    ),
    max_leaves=12,
)


def assert_same(expected, actual):
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(map(repr, actual)) == list(map(repr, expected))
        expected, actual = list(expected.values()), list(actual.values())
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(expected, actual):
            assert_same(one, other)
    elif expected is not None:
        assert_same_array(expected, actual)


@hypothesis.settings(SETTINGS, max_examples=100)
@hypothesis.given(TREES)
def test_any_tree_comes_back(tree):
    assert_same(tree, round_trip(tree))
    assert_same([tree, "x"][:1], round_trip([tree, "x"])[:1])


@SETTINGS
@hypothesis.given(st.one_of(st.binary(), st.text(), st.integers(), st.floats(), st.none()))
def test_any_plain_value_comes_back(value):
    back = round_trip(value, allow_pickle=False)
    assert type(back) is type(value)
    assert back == value or value != value


SAMPLES = [
    values.encode(sample)
    for sample in (
        np.arange(6, dtype="f4").reshape(2, 3),
        np.zeros((2, 3, 4)).transpose(1, 0, 2),
        np.zeros(2, [("a", "<i4"), ("b", ">f8", (2,))]),
        np.array(["2020"], "M8[D]"),
        np.float32(1),
        {"a": np.zeros(3), "b": [np.ones((2, 2), "f4").T, None]},
        {f"key {i}": np.zeros(i, "f4") for i in range(40)},
        {"pickled": 1, "array": np.arange(10), "dates": np.array(["2020"], "M8[D]")},
        memoryview(bytes(24)).cast("d", (3,)),
        b"bytes",
        "text",
        5,
    )
]


@SETTINGS
@hypothesis.given(st.binary(max_size=80), st.binary(max_size=80), st.booleans())
def test_random_bytes_are_an_error(metadata, data, ours):
    attempt(b"PHX\x01" + metadata if ours else metadata, data)


@pytest.mark.parametrize("encoded", SAMPLES, ids=lambda encoded: encoded.metadata[4])
def test_mutated_metadata_is_an_error_or_another_value(encoded):
    data = bytes(stored(encoded))
    for index, metadata in enumerate(mutations(encoded.metadata, 400)):
        attempt(metadata, data)
        attempt(metadata, data[: index % (len(data) + 1)])


def test_a_mutated_table_of_buffers_never_reads_elsewhere():
    value = {"a": np.arange(100), "b": np.arange(50), "c": "x"}
    encoded = values.encode(value)
    data = bytes(stored(encoded))
    noise = np.random.default_rng(11)
    for _ in range(2000):
        mutated = bytearray(data)
        at = int(noise.integers(0, 32))
        mutated[at] = int(noise.integers(0, 256))
        try:
            back = values.decode(encoded.metadata, memoryview(bytes(mutated)))
        except ValueError:
            continue
        assert all(is_inside(back[key], memoryview(back[key].base.base)) for key in "ab")
