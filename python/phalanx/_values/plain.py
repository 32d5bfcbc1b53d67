"""Bytes, text, flat memory and Python's scalars: short paths without pickle."""

from __future__ import annotations

import array
import math
import struct

from phalanx._values._wire import (
    BYTEARRAY,
    BYTES,
    MEMORYVIEW,
    PLAIN,
    PYARRAY,
    STR,
    Encoded,
    Layout,
    Reader,
    check_size,
    malformed,
    pack_head,
    pack_layout,
    parse_layout,
)

TYPE_CHECKING = False  # as in _wire.py
if TYPE_CHECKING:
    from typing import Any

_BYTES = pack_head(BYTES)
_BYTEARRAY = pack_head(BYTEARRAY)
_STR = pack_head(STR)
_PLAIN = pack_head(PLAIN)

_INT64 = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_MEMORY_FORMATS = "bBhHiIlLqQnNfd?c"
_ARRAY_CODES = "bBhHiIlLqQfd"
# The characters of these formats in struct: signed, unsigned or floating, of any width.
_SIGNED = "bhilqn"
_UNSIGNED = "BHILQN"
_REDUCED = ("i8", "u8", "i16", "i32", "u32", "i64", "u64", "f32", "f64")


def encode_bytes(value: bytes) -> Encoded:
    """Encode exact bytes."""
    return Encoded(_BYTES, len(value), memoryview(value))


def encode_bytearray(value: bytearray) -> Encoded:
    """Encode an exact bytearray."""
    return Encoded(_BYTEARRAY, len(value), memoryview(value).toreadonly())


def encode_str(value: str) -> Encoded:
    """Encode exact text, lone surrogates included."""
    text = value.encode("utf-8", "surrogatepass")
    return Encoded(_STR, len(text), memoryview(text))


def encode_memoryview(value: memoryview) -> Encoded:
    """Encode a memoryview. Memory with gaps becomes contiguous, in C order.

    Raises
    ------
    TypeError
        The format is not one native type.
    """
    if value.format not in _MEMORY_FORMATS or len(value.format) != 1:
        raise TypeError(
            f"a memoryview of format {value.format!r} cannot be put: use numpy.asarray(view)"
        )
    flat = value if value.c_contiguous else memoryview(value.tobytes())
    layout = Layout(value.format, tuple(value.shape or ()), "C")
    metadata = pack_layout(MEMORYVIEW, layout)
    if metadata is None:
        raise TypeError(f"a memoryview of {value.ndim} dimensions cannot be put")
    # memoryview.cast refuses a shape with a zero.
    buffer = flat.cast("B").toreadonly() if value.nbytes else memoryview(b"")
    return Encoded(metadata, value.nbytes, buffer)


def encode_array(value: array.array[Any]) -> Encoded | None:
    """Encode an exact array.array; None if it has characters, whose width depends on the platform."""
    if value.typecode not in _ARRAY_CODES:
        return None
    metadata = pack_layout(PYARRAY, Layout(value.typecode, (len(value),), "C"))
    assert metadata is not None
    nbytes = len(value) * value.itemsize
    buffer = memoryview(value).cast("B").toreadonly() if nbytes else memoryview(b"")
    return Encoded(metadata, nbytes, buffer)


def encode_plain(value: bool | int | float | None) -> Encoded:
    """Encode None, or an exact bool, int or float.

    A float is one f64, and an int of 64 bits is one i64: both can be reduced.
    """
    payload = b""
    if value is None:
        tag = b"n"
    elif value is True or value is False:
        tag = b"t" if value else b"f"
    elif type(value) is float:
        tag, payload = b"d", _DOUBLE.pack(value)
    elif -(2**63) <= value < 2**63:
        tag, payload = b"q", _INT64.pack(value)
    else:
        assert type(value) is int
        tag, payload = b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return Encoded(_PLAIN + tag, len(payload), memoryview(payload))


def decode_bytes(metadata: bytes, data: memoryview) -> bytes:
    """Return a copy, because bytes own their memory."""
    Reader(metadata).end()
    return bytes(data)


def decode_bytearray(metadata: bytes, data: memoryview) -> bytearray:
    """Return a copy."""
    Reader(metadata).end()
    return bytearray(data)


def decode_str(metadata: bytes, data: memoryview) -> str:
    """Return text; raises ValueFormatError if it is not UTF-8."""
    Reader(metadata).end()
    try:
        return str(data, "utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise malformed(f"text that is no UTF-8: {error}") from error


def _parse_elements(metadata: bytes, data: memoryview, codes: str) -> Layout:
    layout = parse_layout(metadata)
    if len(layout.code) != 1 or layout.code not in codes or layout.order != "C":
        raise malformed(f"{layout.code[:80]!r} is no format of flat memory")
    itemsize = struct.calcsize(layout.code)
    expected = math.prod(layout.shape) * itemsize
    check_size(f"memory of format {layout.code!r} and shape {layout.shape}", expected, data.nbytes)
    return layout


def decode_memoryview(metadata: bytes, data: memoryview) -> memoryview:
    """Return a view of `data` with the original format and shape."""
    layout = _parse_elements(metadata, data, _MEMORY_FORMATS)
    if data.nbytes == 0:
        return data if layout.code == "B" else data.cast(layout.code)  # type: ignore[call-overload]
    try:
        return data.cast(layout.code, layout.shape)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError) as error:
        raise malformed(f"no memoryview of shape {layout.shape}: {error}") from error


def decode_array(metadata: bytes, data: memoryview) -> array.array[Any]:
    """Return a copy, because an array.array owns its memory."""
    layout = _parse_elements(metadata, data, _ARRAY_CODES)
    value: array.array[Any] = array.array(layout.code)
    value.frombytes(data)
    return value


def decode_plain(metadata: bytes, data: memoryview) -> bool | int | float | None:
    """Return None, a bool, an int or a float."""
    reader = Reader(metadata)
    tag = reader.take(1)
    reader.end()
    if tag in (b"d", b"q"):
        check_size("a number", 8, data.nbytes)
        return (_DOUBLE if tag == b"d" else _INT64).unpack(data)[0]  # type: ignore[no-any-return]
    if tag == b"i":
        return int.from_bytes(data, "little", signed=True)
    check_size("a constant", 0, data.nbytes)
    constants = {b"n": None, b"t": True, b"f": False}
    if tag not in constants:
        raise malformed(f"{tag!r} is no kind of plain value")
    return constants[tag]


def reduced_name(metadata: bytes) -> str | None:
    """Return the reductions' name of a Python number's type; None if it cannot be reduced."""
    tag = Reader(metadata).rest()
    return {b"d": "f64", b"q": "i64"}.get(tag)


def reduced_name_of_format(code: str) -> str | None:
    """Return the reductions' name of a ``struct`` format; None if it cannot be reduced."""
    if len(code) != 1 or code not in _MEMORY_FORMATS:
        return None
    letter = "i" if code in _SIGNED else "u" if code in _UNSIGNED else "f" if code in "fd" else "x"
    name = f"{letter}{struct.calcsize(code) * 8}"
    return name if name in _REDUCED else None
