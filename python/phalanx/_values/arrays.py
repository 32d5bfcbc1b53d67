"""NumPy arrays and scalars. The object's bytes are the elements; the metadata has dtype and shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from phalanx._values import dtypes
from phalanx._values._wire import (
    ARRAY,
    SCALAR,
    Encoded,
    Layout,
    check_size,
    malformed,
    order_of,
    pack_layout,
    parse_layout,
    slowest_first,
    strides_of,
)

if TYPE_CHECKING:
    from phalanx._values._wire import Order

_MAX_CACHED = 1024
_EMPTY = memoryview(b"")
# Any thread fills these caches: an entry never changes, and a lost entry only costs time. From
# (dtype, shape) of an array in C order to metadata, size, and whether memoryview can cast it.
_c_order_cache: dict[tuple[Any, ...], tuple[bytes, int, bool]] = {}
_document_cache: dict[tuple[Any, ...], list[Any]] = {}
_metadata_cache: dict[tuple[Any, ...], bytes] = {}
_layout_cache: dict[bytes, tuple[Any, ...]] = {}


def remember(cache: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry to a cache; a full cache is emptied first."""
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value


def layout_of(array: np.ndarray[Any, Any]) -> Layout | None:
    """Return the layout in which an exact ndarray is stored; None if it must be pickled."""
    code = dtypes.code_of(array.dtype)
    if code is None:
        return None
    return Layout(code, array.shape, order_in(array))


def order_in(array: np.ndarray[Any, Any]) -> Order:
    """Return the order in which an array is stored."""
    flags = array.flags
    if flags.c_contiguous:
        return "C"
    return "F" if flags.f_contiguous else order_of(array.shape, array.strides)


def leaf_document(array: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return the description of an array in a tree's structure; None if it must be pickled."""
    dtype = array.dtype
    order = order_in(array)
    key = (dtype, array.shape, order)
    document = _document_cache.get(key)
    if document is None:
        code = dtypes.code_of(dtype)
        if code is None:
            return None
        document = [code, array.shape] if order == "C" else [code, array.shape, order]
        if dtype.names is None:
            remember(_document_cache, key, document)
    return document


def metadata_of(array: np.ndarray[Any, Any], kind: int = ARRAY) -> bytes | None:
    """Return the metadata of an exact ndarray; None if it must be pickled."""
    dtype = array.dtype
    key = (dtype, array.shape, order_in(array), kind)
    metadata = _metadata_cache.get(key)
    if metadata is not None:
        return metadata
    layout = layout_of(array)
    metadata = None if layout is None else pack_layout(kind, layout)
    # Dtypes with fields can be equal although their codes differ, so they are not cached.
    if metadata is not None and dtype.names is None:
        remember(_metadata_cache, key, metadata)
    return metadata


def flat_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return an array's elements in memory order, as bytes; None if the memory has gaps."""
    if not array.flags.c_contiguous:
        # The transposed view has the order of the memory, so it is contiguous unless there are
        # gaps.
        order = order_of(array.shape, array.strides)
        array = array.transpose(slowest_first(Layout("", array.shape, order)))
        if not array.flags.c_contiguous:
            return None
    return array.reshape(-1).view(np.uint8)


def flat_bytes(array: np.ndarray[Any, Any]) -> memoryview | None:
    """Return an array's elements in memory order; None if the memory has gaps."""
    if array.size == 0:
        return _EMPTY
    flat = flat_array(array)
    return None if flat is None else flat.data.toreadonly()


def encode(array: np.ndarray[Any, Any], kind: int = ARRAY) -> Encoded | None:
    """Encode an exact ndarray; None if it must be pickled."""
    if kind == ARRAY and array.flags.c_contiguous:
        known = _c_order_cache.get((array.dtype, array.shape))
        if known is not None and known[2]:
            return Encoded(known[0], known[1], memoryview(array).cast("B").toreadonly())
    metadata = metadata_of(array, kind)
    if metadata is None:
        return None
    nbytes = array.nbytes
    buffer = flat_bytes(array)
    if buffer is not None:
        if kind == ARRAY and array.flags.c_contiguous and array.dtype.names is None:
            known = metadata, nbytes, _is_castable(array)
            remember(_c_order_cache, (array.dtype, array.shape), known)
        return Encoded(metadata, nbytes, buffer)
    # The memory has gaps: one pass closes them while it writes into the object.
    layout = parse_layout(metadata)
    return Encoded(metadata, nbytes, None, lambda target: write(layout, array, target))


def _is_castable(array: np.ndarray[Any, Any]) -> bool:
    try:
        return memoryview(array).cast("B").nbytes == array.nbytes
    except (TypeError, ValueError, BufferError):
        return False


def encode_scalar(scalar: np.generic) -> Encoded | None:
    """Encode a NumPy scalar; None if it must be pickled."""
    return encode(np.asarray(scalar), SCALAR)


def write(layout: Layout, array: np.ndarray[Any, Any], target: memoryview) -> None:
    """Write the elements of an array with any strides. Releases the GIL."""
    np.copyto(_view(target, array.dtype, layout), array)


def _view(data: memoryview, dtype: np.dtype[Any], layout: Layout) -> np.ndarray[Any, Any]:
    if data.nbytes == 0:
        return np.ndarray(layout.shape, dtype, data, 0, strides_of(layout, dtype.itemsize))
    # Unlike ndarray(), frombuffer() keeps the memoryview, and with it the export, alive.
    flat = np.frombuffer(data, dtype)
    if isinstance(layout.order, str):
        if len(layout.shape) == 1:
            return flat
        return flat.reshape(layout.shape, order=layout.order)  # type: ignore[call-overload, no-any-return]
    return np.ndarray(layout.shape, dtype, flat, 0, strides_of(layout, dtype.itemsize))


def size_of(layout: Layout) -> int:
    """Return the number of bytes of a block of elements."""
    return math.prod(layout.shape) * dtypes.dtype_of(layout.code).itemsize


def view(layout: Layout, data: memoryview) -> np.ndarray[Any, Any]:
    """Return an array over `data`, writable if `data` is; raises ValueFormatError."""
    dtype = dtypes.dtype_of(layout.code)
    nbytes = math.prod(layout.shape) * dtype.itemsize
    if nbytes != data.nbytes:
        check_size(_name(layout, dtype), nbytes, data.nbytes)
    return _checked_view(data, dtype, layout)


def _checked_view(data: memoryview, dtype: np.dtype[Any], layout: Layout) -> np.ndarray[Any, Any]:
    try:
        return _view(data, dtype, layout)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise malformed(f"no array of shape {layout.shape}: {error}") from error


def _name(layout: Layout, dtype: np.dtype[Any]) -> str:
    return f"an array of {dtype} and shape {layout.shape}"


def decode(metadata: bytes, data: bytes | memoryview) -> np.ndarray[Any, Any]:
    """Return an array over `data`; raises ValueFormatError."""
    known = _layout_cache.get(metadata)
    if known is None:
        layout = parse_layout(metadata)
        dtype = dtypes.dtype_of(layout.code)
        is_flat = len(layout.shape) == 1 and layout.shape[0] > 0
        known = dtype, layout, math.prod(layout.shape) * dtype.itemsize, is_flat
        remember(_layout_cache, bytes(metadata), known)
    dtype, layout, nbytes, is_flat = known
    length = len(data) if type(data) is bytes else memoryview(data).nbytes
    if nbytes != length:
        check_size(_name(layout, dtype), nbytes, length)
    if is_flat:
        return np.frombuffer(data, dtype)
    return _checked_view(memoryview(data), dtype, layout)


def decode_scalar(metadata: bytes, data: memoryview) -> Any:
    """Return a NumPy scalar; a structured scalar is a view."""
    array = decode(metadata, data)
    if array.ndim != 0:
        raise malformed(f"a scalar of shape {array.shape}")
    return array[()]


def metadata_for(shape: tuple[int, ...], dtype: Any, order: str) -> tuple[bytes, int]:
    """Return the metadata and size of an array that will be written in place.

    Raises
    ------
    TypeError
        The elements cannot be written in place.
    """
    wanted = np.dtype(dtype)
    code = dtypes.code_of(wanted)
    metadata = None if code is None else pack_layout(ARRAY, Layout(code, shape, order))
    if metadata is None:
        raise TypeError(f"dtype {wanted} cannot be written in place: put such an array instead")
    return metadata, math.prod(shape) * wanted.itemsize
