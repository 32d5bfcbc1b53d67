"""Values of sessions as bytes, which any rank and any life can read.

A value is pickled, so that what occurs twice in it occurs twice in the copy, too; the elements of its arrays
and tensors stay out of the pickle stream. A single NumPy array is its elements alone. The bytes are: u64 the size
of the metadata; the metadata (`_values`); zeros up to a multiple of 64; the value's own bytes; zeros up to a
multiple of 64. So many of them can follow each other, and arrays in them are aligned.

Functions without state.
"""

from __future__ import annotations

import struct

from phalanx import _values, exceptions
from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALIGNMENT = 64
_SIZES = struct.Struct("<QQ")  # of the metadata and of the value's own bytes


def memory(nbytes: int) -> Any:
    """Return new memory: an array of bytes that begins at a multiple of 64."""
    import numpy as np

    whole = np.empty(nbytes + ALIGNMENT - 1, np.uint8)
    begin = -whole.ctypes.data % ALIGNMENT
    return whole[begin : begin + nbytes]


def copied(pointer: Any, nbytes: int) -> Any:
    """Return new memory with so many bytes from a place in the library's memory."""
    made = memory(nbytes)
    if nbytes:
        lib.phx_copy(ffi.from_buffer(made), pointer, nbytes)
    return made


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def encoded(value: Any) -> Any:
    """Return the bytes of a value, in new memory. Raises the errors of pickle."""
    import numpy as np

    form = _values.encode(value) if type(value) is np.ndarray else _values.encode_pickled(value)
    begin = _aligned(_SIZES.size + len(form.metadata))
    made = memory(begin + _aligned(form.nbytes))
    head = _SIZES.pack(len(form.metadata), form.nbytes) + form.metadata
    made[: len(head)] = np.frombuffer(head, np.uint8)
    made[len(head) : begin] = 0
    form.write_into(memoryview(made[begin : begin + form.nbytes]))
    made[begin + form.nbytes :] = 0
    return made


def decoded(made: Any) -> Any:
    """Return the value of bytes in memory. Its arrays are views of that memory, and writable if it is.

    Raises
    ------
    ValueFormatError
        The bytes are no value of a session. Unpickling can raise any error.
    """
    view = memoryview(made)
    if view.nbytes < _SIZES.size:
        raise exceptions.ValueFormatError(f"{view.nbytes} bytes are no value of a session")
    metadata_size, nbytes = _SIZES.unpack(view[: _SIZES.size])
    begin = _aligned(_SIZES.size + metadata_size)
    if begin + nbytes > view.nbytes:
        raise exceptions.ValueFormatError(f"a value of {metadata_size} and {nbytes} bytes in {view.nbytes} bytes")
    metadata = bytes(view[_SIZES.size : _SIZES.size + metadata_size])
    return _values.decode(metadata, view[begin : begin + nbytes])
