"""Arrays, NumPy scalars and arrays of other libraries."""

from __future__ import annotations

import gc
import math
import mmap
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from values_support import assert_same_array, private_pages, round_trip, stored

from phalanx import _values as values
from phalanx import exceptions

STRUCTURED = np.dtype([("id", "<i4"), ("at", ">f8", (2, 3)), ("name", "S3"), ("when", "<M8[ms]")])
ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
GAPPED = np.dtype({"names": ["x", "y"], "formats": ["u2", "f4"], "offsets": [6, 0], "itemsize": 16})
TITLED = np.dtype([(("a title", "a"), "i4"), ("b", "f4")])
NESTED = np.dtype([("outer", [("inner", "<i2"), ("rest", "U4")], (2,)), ("é", "?")])

DTYPES = [
    *"?bBhHiIlLqQefdgFDG",
    ">f4",
    ">i8",
    ">c16",
    "M8[ns]",
    "M8[25s]",
    "m8[D]",
    "M8",
    "S5",
    "U7",
    ">U2",
    "V9",
    STRUCTURED,
    ALIGNED,
    GAPPED,
    TITLED,
    NESTED,
]


def filled(dtype: object, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(dtype)
    numbers = np.arange(math.prod(shape), dtype="<i8").reshape(shape)
    if dtype.kind in "SU":
        return numbers.astype(dtype)
    if dtype.kind in "mM":
        return numbers.view(f"{dtype.kind}8").astype(dtype)
    if dtype.kind in "biufc":
        return numbers.astype(dtype)
    array = np.zeros(shape, dtype)
    if dtype.names:
        array[dtype.names[0]] = 1
    return array


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (2, 3, 4)], ids=str)
def test_an_array_keeps_its_dtype_and_shape_without_pickle(dtype, shape):
    array = filled(dtype, shape)
    back = round_trip(array, allow_pickle=False)
    assert_same_array(array, back)
    assert back.dtype.fields == array.dtype.fields
    assert back.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert not back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4),
        np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(6).reshape(1, 6, 1).T,
    ],
    ids=lambda array: str(array.strides),
)
def test_contiguous_axes_keep_their_order_and_need_no_copy(array):
    encoded = values.encode(array)
    assert encoded.buffer is not None
    assert np.shares_memory(np.frombuffer(encoded.buffer, np.uint8), array)
    back = values.decode(encoded.metadata, stored(encoded))
    assert_same_array(array, back)
    assert back.strides == array.strides or 1 in array.shape
    assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize(
    ("array", "strides"),
    [
        (np.arange(40).reshape(4, 10)[::2, ::3], (32, 8)),
        (np.arange(40).reshape(4, 10).T[::3, ::2], (8, 32)),
        (np.arange(12)[::-1], (8,)),
        (np.arange(24).reshape(2, 3, 4)[:, ::-1], (96, 32, 8)),
        (np.broadcast_to(np.arange(4), (3, 4)), (32, 8)),
        (np.broadcast_to(np.arange(3)[:, None], (3, 4)), (32, 8)),
    ],
)
def test_arrays_with_gaps_become_contiguous_in_the_order_closest_to_theirs(array, strides):
    encoded = values.encode(array)
    assert encoded.buffer is None
    back = values.decode(encoded.metadata, stored(encoded))
    assert_same_array(array, back)
    assert back.strides == strides


def test_the_bytes_of_an_array_are_its_elements_and_nothing_else():
    array = np.arange(5, dtype=np.float32)
    encoded = values.encode(array)
    assert bytes(stored(encoded)) == array.tobytes()
    folded = memoryview((array + array).tobytes())
    np.testing.assert_array_equal(values.decode(encoded.metadata, folded), array * 2)


def test_equal_metadata_means_equal_layout():
    array = np.zeros((3, 4), np.float32)
    same = np.ones((3, 4), np.float32)
    assert values.encode(array).metadata == values.encode(same).metadata
    others = [array.T, array.T.copy(), array.astype("f8"), array.astype(">f4"), array[:2], array[0]]
    for other in others:
        assert values.encode(other).metadata != values.encode(array).metadata


@pytest.mark.parametrize(
    "array",
    [np.arange(10), np.ones((5, 2)), np.ones((5, 2)).T, np.ones((2, 3, 4)).transpose(1, 0, 2)],
    ids=lambda array: str(array.strides),
)
def test_a_view_cannot_be_made_writable_and_holds_the_memory(array):
    encoded = values.encode(array)
    pages = mmap.mmap(-1, encoded.nbytes)
    encoded.write_into(memoryview(pages))
    view = values.decode(encoded.metadata, memoryview(pages).toreadonly())[1:]
    with pytest.raises(ValueError):
        view.flags.writeable = True
    with pytest.raises(ValueError):
        view[0] = 1
    gc.collect()
    with pytest.raises(BufferError):
        pages.close()
    np.testing.assert_array_equal(view, array[1:])
    del view
    pages.close()


def test_memory_is_released_with_the_last_view():
    class Pages(bytearray):
        pass

    encoded = values.encode(np.arange(10.0).reshape(5, 2))
    pages = Pages(encoded.nbytes)
    gone = weakref.ref(pages)
    view = values.decode(encoded.metadata, memoryview(pages))
    slice_of_it = view.T[1:]
    del view, pages
    assert gone() is not None
    del slice_of_it
    assert gone() is None


def test_arrays_are_writable_if_the_pages_are_unless_requested_otherwise():
    encoded = values.encode(np.arange(3))
    pages = private_pages(encoded)
    view = values.decode(encoded.metadata, pages)
    view[0] = 7
    assert values.decode(encoded.metadata, pages, writable="cow")[0] == 7
    assert not values.decode(encoded.metadata, pages, writable=False).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        values.decode(encoded.metadata, pages.toreadonly(), writable=True)


def test_copy_gives_writable_memory_of_ones_own():
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    encoded = values.encode(array)
    data = stored(encoded)
    copied = values.decode(encoded.metadata, data, copy=True)
    assert copied.flags.writeable and copied.flags.owndata and copied.flags.f_contiguous
    copied[:] = 0
    assert_same_array(array, values.decode(encoded.metadata, data))


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.int64(-3),
        np.bool_(True),
        np.complex128(1j),
        np.float16(2),
        np.datetime64("2020-01-01", "D"),
        np.timedelta64(3, "ms"),
        np.str_("äb"),
        np.bytes_(b"ab"),
        np.zeros(1, STRUCTURED)[0],
    ],
    ids=lambda scalar: type(scalar).__name__,
)
def test_a_numpy_scalar_stays_one(scalar):
    back = round_trip(scalar, allow_pickle=False)
    assert type(back) is type(scalar)
    assert back.dtype == scalar.dtype
    assert back == scalar


def test_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "int4"):
        array = np.arange(4).astype(getattr(ml_dtypes, name)).reshape(2, 2)
        assert_same_array(array, round_trip(array, allow_pickle=False))
        assert_same_array(array, round_trip([array, 1])[0])
    scalar = ml_dtypes.bfloat16(1.5)
    assert type(round_trip(scalar, allow_pickle=False)) is ml_dtypes.bfloat16


def test_a_missing_ml_dtypes_is_named(monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    encoded = values.encode(np.zeros(2, ml_dtypes.float8_e5m2))
    data = stored(encoded)
    from phalanx._values import dtypes

    dtypes.dtype_of.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="install ml_dtypes"):
        values.decode(encoded.metadata, data)


@pytest.mark.parametrize(
    "array",
    [np.array([1, "a", None], object), np.zeros(2, [("a", "O")]), np.ndarray((3,), "S0")],
    ids=["objects", "object field", "no bytes"],
)
def test_an_array_without_plain_elements_needs_pickle(array):
    back = round_trip(array)
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()
    with pytest.raises(exceptions.PickleRefusedError, match="allow_pickle=False"):
        values.encode(array, allow_pickle=False)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="needs NumPy 2")
def test_variable_length_strings_need_pickle():
    array = np.array(["a", "long" * 100], np.dtypes.StringDType())
    assert round_trip(array).tolist() == array.tolist()


def test_a_dtype_too_long_for_metadata_needs_pickle():
    array = np.zeros(2, [(f"a field with a long name {i}", "f8") for i in range(300)])
    assert_same_array(array, round_trip(array))
    with pytest.raises(exceptions.PickleRefusedError):
        values.encode(array, allow_pickle=False)


def test_metadata_for_an_array_that_is_written_in_place():
    metadata, nbytes = values.metadata_for((2, 3), np.float32, "F")
    pages = memoryview(bytearray(nbytes))
    array = values.decode(metadata, pages)
    array[:] = [[1, 2, 3], [4, 5, 6]]
    assert array.flags.f_contiguous
    assert metadata == values.encode(array).metadata
    assert values.metadata_for(4, "u1")[1] == 4
    with pytest.raises(TypeError):
        values.metadata_for((2,), object)
    with pytest.raises(ValueError):
        values.metadata_for((-1,), "f4")


def test_copying_into_an_array_of_the_callers():
    array = np.arange(6.0).reshape(2, 3)
    encoded = values.encode(array)
    data = stored(encoded)
    out = np.zeros((2, 3), order="F")
    values.copy_into(encoded.metadata, data, out)
    np.testing.assert_array_equal(out, array)
    for wrong in (np.zeros((3, 2)), np.zeros((2, 3), "f4")):
        with pytest.raises(ValueError, match="float64|f8"):
            values.copy_into(encoded.metadata, data, wrong)
    with pytest.raises(TypeError, match="list"):
        values.copy_into(encoded.metadata, data, [1])


def test_a_target_of_another_size_is_refused():
    with pytest.raises(ValueError, match="24 bytes"):
        values.encode(np.arange(3)).write_into(memoryview(bytearray(23)))


def test_large_copies_go_through_the_copier_that_was_set():
    calls = []

    def copier(target, source):
        calls.append(target.nbytes)
        target[:] = source

    values.use_copier(copier)
    try:
        array = np.arange(100_000)
        assert_same_array(array, round_trip(array))
        round_trip({"a": array, "b": 1})
    finally:
        values.use_copier(None)
    assert calls.count(array.nbytes) == 2


def test_threads_may_encode_and_decode_at_once():
    arrays = [np.full((i % 7 + 1, 3), i % 100, f"<i{2 ** (i % 4)}") for i in range(200)]
    failures = []

    def work():
        for array in arrays:
            back = round_trip(array)
            if back.dtype != array.dtype or not np.array_equal(back, array):
                failures.append(array)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- DLPack


class Foreign:
    """An array of another library."""

    def __init__(self, array, device=(1, 0)):
        self._array = array
        self._device = device

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._device


def test_an_array_of_another_library_is_decoded_as_an_ndarray():
    array = np.arange(12.0).reshape(3, 4)
    for source in (array, array.T, array[::2, ::3]):
        assert_same_array(source, round_trip(Foreign(source), allow_pickle=False))
    tree = round_trip({"a": Foreign(array)}, allow_pickle=False)
    assert_same_array(array, tree["a"])


@pytest.mark.parametrize(
    ("device", "name"), [((2, 1), "CUDA 1"), ((99, 0), "DLPack device type 99")]
)
def test_an_array_on_another_device_is_refused_by_name(device, name):
    for value in (Foreign(np.zeros(2), device), [Foreign(np.zeros(2), device)]):
        with pytest.raises(TypeError, match=f"Foreign is on {name}"):
            values.encode(value)


def test_a_result_can_be_exported_where_numpy_can_say_read_only():
    view = round_trip(np.arange(3))
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        taken = np.from_dlpack(view)
        assert not taken.flags.writeable
        assert np.shares_memory(taken, view)
    else:
        with pytest.raises(BufferError):
            view.__dlpack__()


def test_jax_arrays():
    jnp = pytest.importorskip("jax.numpy")
    back = round_trip(jnp.arange(6.0).reshape(2, 3), allow_pickle=False)
    assert type(back) is np.ndarray
    np.testing.assert_array_equal(back, np.arange(6.0).reshape(2, 3))
    half = round_trip(jnp.ones(3, jnp.bfloat16), allow_pickle=False)
    assert half.dtype.name == "bfloat16"
    tree = round_trip({"w": jnp.ones((2, 2)), "b": (jnp.zeros(3),)}, allow_pickle=False)
    assert tree["w"].shape == (2, 2)


# ---- names for reductions


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("f2", "f16"),
        ("f4", "f32"),
        ("f8", "f64"),
        ("i1", "i8"),
        ("u1", "u8"),
        ("i2", "i16"),
        ("i4", "i32"),
        ("u4", "u32"),
        ("i8", "i64"),
        ("u8", "u64"),
        (np.longlong, "i64"),
    ],
)
def test_dtypes_that_reduce(dtype, name):
    assert values.reduce_dtype(values.encode(np.zeros(2, dtype)).metadata) == name
    assert values.reduce_dtype(values.encode(np.zeros(2, dtype)[0]).metadata) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros(2, "u2"), "uint16"),
        (np.zeros(2, ">f4"), "float32 in big-endian order"),
        (np.zeros(2, "?"), "bool"),
        (np.zeros(2, "c8"), "complex64"),
        (np.zeros(2, "m8[s]"), r"timedelta64\[s\]"),
        (np.zeros(2, "g"), "float128|longdouble"),
        (np.zeros(2, STRUCTURED), "with fields"),
        (np.zeros(2, object), "pickled"),
        (b"abc", "bytes"),
        ("abc", "str"),
        (None, "no float"),
    ],
)
def test_dtypes_that_do_not_reduce_are_named(value, name):
    with pytest.raises(TypeError, match=name):
        values.reduce_dtype(values.encode(value).metadata)


def test_other_values_that_reduce():
    assert values.reduce_dtype(b"") is None
    assert values.reduce_dtype(values.encode(1.5).metadata) == "f64"
    assert values.reduce_dtype(values.encode(3).metadata) == "i64"
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = values.encode(np.zeros(2, ml_dtypes.bfloat16)).metadata
    assert values.reduce_dtype(half) == "bf16"


# ---- imports


def test_nothing_heavy_is_imported_before_it_is_needed():
    script = """
import sys
from phalanx import _values
encoded = _values.encode(b"abc")
assert _values.decode(encoded.metadata, encoded.buffer) == b"abc"
_values.encode("text"), _values.encode(None), _values.encode(3)
heavy = {"numpy", "torch", "cloudpickle", "pickle", "json", "typing"} & set(sys.modules)
assert not heavy, heavy
"""
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    subprocess.run([sys.executable, "-S", "-c", path + script], check=True)
