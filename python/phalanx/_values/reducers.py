"""Reducers that move the bytes of arrays, tensors and Arrow tables out of a pickle stream.

A reducer returns a tuple like ``__reduce__``, or None to leave the value to its own ``__reduce__``.
Streams name the rebuild functions, so their names and arguments cannot change.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

from phalanx._values._wire import Layout

Reducer = Callable[[Any], "tuple[Any, ...] | None"]

# Only types of these packages and of Python are cached, because they live as long as the process.
_CACHED = ("builtins", "numpy", "torch", "pyarrow")
_cache: dict[type, Reducer | None] = {}


def reducer_for(kind: type) -> Reducer | None:
    """Return the reducer for values of a type; None for most types."""
    try:
        return _cache[kind]
    except KeyError:
        pass
    found = _find(kind)
    if kind.__module__.partition(".")[0] in _CACHED:
        _cache[kind] = found
    return found


def _find(kind: type) -> Reducer | None:
    np = sys.modules.get("numpy")
    if np is not None and issubclass(kind, np.ndarray):
        return _find_array(kind, np)
    torch = sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return reduce_tensor
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and kind in (arrow.Table, arrow.RecordBatch):
        return reduce_arrow
    if arrow is not None and issubclass(kind, (arrow.Array, arrow.ChunkedArray)):
        return reduce_column
    if arrow is not None and issubclass(kind, arrow.Buffer):
        return reduce_buffer
    return None


def _find_array(kind: type, np: Any) -> Reducer | None:
    if kind is np.ndarray:
        return reduce_array
    if kind is np.ma.MaskedArray:
        return reduce_masked
    # A subclass with a pickle method of its own restores more than elements.
    for name in ("__reduce__", "__reduce_ex__", "__setstate__", "__getstate__"):
        if getattr(kind, name, None) is not getattr(np.ndarray, name, None):
            return None
    return reduce_array


def _leave_out(array: Any) -> tuple[Any, ...] | None:
    """Return (dtype, shape, order, buffer) of an array of plain elements; None for others."""
    from phalanx._values import arrays

    np = sys.modules["numpy"]
    if array.dtype.hasobject or array.dtype.itemsize == 0:
        return None
    plain = array.view(np.ndarray)
    if plain.size == 0:
        # NumPy's own reducer drops a foreign byte order.
        return plain.dtype, plain.shape, arrays.order_in(plain), b""
    flat = arrays.flat_array(plain)
    if flat is None:
        plain = plain.copy(order="K")
        flat = arrays.flat_array(plain)
    assert flat is not None
    return plain.dtype, plain.shape, arrays.order_in(plain), _out_of_band(flat)


class _Memory:
    """The memory of a read-only array, as NumPy reads it: writable."""

    def __init__(self, array: Any) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._owner = array


def _out_of_band(flat: Any) -> pickle.PickleBuffer:
    """Return the bytes of an array as a buffer outside the stream.

    Pickle would mark the buffer of a read-only array, and so the array that any reader gets. The
    reader decides whether its array is writable (`copy=True`), not the array that was put. Only the
    pickler reads this memory.
    """
    if not flat.flags.writeable:
        flat = sys.modules["numpy"].asarray(_Memory(flat))
    return pickle.PickleBuffer(flat)


def reduce_array(array: Any) -> tuple[Any, ...] | None:
    """Reduce an ndarray, or a subclass without state of its own, to a buffer outside the stream."""
    parts = _leave_out(array)
    return None if parts is None else (rebuild_array, (type(array), *parts))


def rebuild_array(kind: type, dtype: Any, shape: tuple[int, ...], order: Any, buffer: Any) -> Any:
    """Return an array over `buffer`, constructed as unpickling does: not as a view of an array."""
    import numpy as np

    from phalanx._values._wire import strides_of

    # Unlike ndarray(), frombuffer() keeps an export of the buffer.
    # No element of an empty array can be written, but `array += 1` must work.
    flat = np.frombuffer(buffer, np.uint8) if len(buffer) else bytearray()
    strides = strides_of(Layout("", shape, order), dtype.itemsize)
    return np.ndarray.__new__(kind, shape, dtype, flat, 0, strides)


def reduce_masked(array: Any) -> tuple[Any, ...] | None:
    """Move the bytes of a masked array and of its mask out of the stream."""
    np = sys.modules["numpy"]
    if type(array.data) is not np.ndarray:
        return None
    mask = None if array.mask is np.ma.nomask else array.mask
    state = (array.data, mask, array._fill_value, array.hardmask, dict(array._optinfo))
    return rebuild_masked, state


def rebuild_masked(data: Any, mask: Any, fill_value: Any, hard: bool, optinfo: Any) -> Any:
    """Return a masked array over the given arrays."""
    import numpy as np

    array = np.ma.MaskedArray(
        data, np.ma.nomask if mask is None else mask, copy=False, hard_mask=hard
    )
    state: Any = array
    state._fill_value = fill_value
    state._optinfo.update(optinfo)
    return state


def reduce_tensor(tensor: Any) -> tuple[Any, ...] | None:
    """Move the bytes of a tensor or parameter out of the stream.

    Tensors that share memory no longer share it after unpickling, unless they are the same object.
    """
    from phalanx._values import tensors

    torch = sys.modules["torch"]
    tensors.check_device(tensor)
    parameter = isinstance(tensor, torch.nn.Parameter)
    plain = tensor.data if parameter else tensor
    layout = None if vars(tensor) else tensors.layout_of(plain)
    if layout is None or tensor._backward_hooks:
        return None
    flat = tensors.flat_array(layout, plain)
    if flat is None:
        plain = plain.detach().resolve_conj().resolve_neg().contiguous()
        layout = layout._replace(order="C")
        flat = tensors.flat_array(layout, plain)
    kind = "parameter" if parameter else "tensor"
    buffer = pickle.PickleBuffer(flat) if tensor.numel() else b""
    return rebuild_tensor, (kind, *layout[:3], tensor.requires_grad, buffer)


def rebuild_tensor(
    kind: str, code: str, shape: tuple[int, ...], order: Any, requires_grad: bool, buffer: Any
) -> Any:
    """Return a tensor or parameter over `buffer`, or over a copy if `buffer` is read-only."""
    from phalanx._values import tensors
    from phalanx._values._wire import as_bytes_view

    data = as_bytes_view(buffer)
    if kind == "parameter":
        plain = tensors.view(Layout(code, shape, order), data)
        return sys.modules["torch"].nn.Parameter(plain, requires_grad)
    return tensors.view(Layout(code, shape, order, requires_grad), data)


def reduce_buffer(buffer: Any) -> tuple[Any, ...] | None:
    """Move the bytes of an Arrow buffer out of the stream, as those of an array."""
    if buffer.size == 0 or not buffer.is_cpu:
        return None
    import numpy as np

    return sys.modules["pyarrow"].py_buffer, (_out_of_band(np.frombuffer(buffer, np.uint8)),)


def reduce_arrow(table: Any) -> tuple[Any, ...] | None:
    """Copy a slice of a table out of its parent's buffers, because pickle would store all of them."""
    if not _is_slice(table):
        return None
    # Its buffers are stored one by one, as those of a whole table, so that copies are writable.
    reduced: tuple[Any, ...] = _own_copy(table).__reduce__()
    return reduced


def reduce_column(column: Any) -> tuple[Any, ...] | None:
    """Copy a slice of an array or a chunked array, as that of a table."""
    if not _is_slice(column):
        return None
    arrow = sys.modules["pyarrow"]
    own = _own_copy(arrow.Table.from_arrays([column], [""])).column(0)
    if isinstance(column, arrow.Array):
        own = own.combine_chunks()
    # Arrow's format has no place for a type that only this program knows.
    if own.type != column.type or type(own) is not type(column):
        return None
    reduced: tuple[Any, ...] = own.__reduce__()
    return reduced


def _is_slice(data: Any) -> bool:
    """Whether Arrow data uses less than half of its buffers."""
    total: int = data.get_total_buffer_size()
    return total > 2 * data.nbytes + 4096


def _own_copy(table: Any) -> Any:
    """Return a table or record batch with buffers of its own."""
    arrow = sys.modules["pyarrow"]
    import pyarrow.ipc  # noqa: F401  (makes it an attribute of pyarrow)

    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    with arrow.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_next_batch() if isinstance(table, arrow.RecordBatch) else reader.read_all()
