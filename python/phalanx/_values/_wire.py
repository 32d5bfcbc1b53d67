"""The parts that all kinds of values share: the metadata's head, bounds checks, orders and copies.

Does not import NumPy. README.md beside this file has the format.
"""

from __future__ import annotations

import struct
import threading
from collections import namedtuple
from collections.abc import Callable, Sequence

from phalanx import exceptions

# Not imported from typing: that import takes as long as the whole rest of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, Union

    # "C", "F", or the axes from the slowest to the fastest.
    Order = Union[str, tuple[int, ...]]
    # One part of a payload: its offset, its length, and the function that writes it.
    Part = tuple[int, int, Callable[[memoryview], None]]

MAX_METADATA_BYTES = 4096
# The alignment of each part of a payload. It suffices for vector instructions and cache lines.
ALIGNMENT = 64
# The longest text in metadata, which each copy of the object has.
_MAX_TEXT_BYTES = 200
# A smaller copy ends before releasing the GIL pays off.
LARGE_COPY_BYTES = 64 * 1024

MAGIC = b"PHX"
VERSION = 1
HEAD = struct.Struct("<3sBB")

# No kind byte: this object has no metadata.
NOTHING = -1
ARRAY = 1
SCALAR = 2
TENSOR = 3
PICKLE = 4
BYTES = 5
BYTEARRAY = 6
STR = 7
MEMORYVIEW = 8
PYARRAY = 9
PLAIN = 10
TREE = 11

# A flag in the byte behind the head of PICKLE and TREE: the value contains torch tensors.
HAS_TENSORS = 0x10
# A flag of PICKLE: the reason for the pickle is at the end of the metadata.
HAS_REASON = 0x20


class NotATree(Exception):
    """The reason why a container is not a tree of arrays, with the place. Pickle takes the value then."""


def pack_head(kind: int) -> bytes:
    """Return the first five bytes of all metadata of this package."""
    return HEAD.pack(MAGIC, VERSION, kind)


def parse_kind(metadata: bytes) -> int:
    """Return the kind byte of non-empty metadata.

    Raises
    ------
    ValueFormatError
        The metadata is too long, foreign, or of another version of the format.
    """
    if len(metadata) > MAX_METADATA_BYTES:
        raise malformed(f"metadata of {len(metadata)} bytes, more than {MAX_METADATA_BYTES}")
    if metadata[:3] != MAGIC:
        raise malformed(
            f"metadata begins with {bytes(metadata[:3])!r}, not {MAGIC!r}: another program's object"
        )
    if len(metadata) < HEAD.size:
        raise malformed(f"metadata of {len(metadata)} bytes is cut short")
    version, kind = metadata[3], metadata[4]
    if version != VERSION:
        raise malformed(f"value format {version}; this package reads format {VERSION}")
    return kind


def short(text: str) -> bytes:
    """Return text for metadata, cut off."""
    return text.encode("utf-8", "replace")[:_MAX_TEXT_BYTES]


def malformed(what: str) -> exceptions.ValueFormatError:
    """Return an error that describes a malformed object."""
    return exceptions.ValueFormatError(f"not a value of phalanx: {what}")


def check_size(what: str, expected: int, actual: int) -> None:
    """Raise ValueFormatError unless the object's size is the size from its metadata."""
    if expected != actual:
        raise malformed(f"{what} needs {expected} bytes, the object has {actual}")


class Reader:
    """A cursor over metadata that never reads past the end.

    Parameters
    ----------
    metadata
        All of it; reading starts behind the head.
    """

    __slots__ = ("_at", "_bytes")

    def __init__(self, metadata: bytes) -> None:
        self._bytes = metadata
        self._at = HEAD.size

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of the next ``layout.size`` bytes."""
        return layout.unpack(self.take(layout.size))

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._at + count
        if end > len(self._bytes):
            raise malformed("metadata is cut short")
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def rest(self) -> bytes:
        """Return all bytes that are not read yet."""
        return self.take(len(self._bytes) - self._at)

    def end(self) -> None:
        """Raise ValueFormatError if bytes are left."""
        if self._at != len(self._bytes):
            raise malformed(f"{len(self._bytes) - self._at} stray bytes at the end of metadata")


if TYPE_CHECKING:

    class Layout(NamedTuple):
        """The elements of one array or tensor: their type and their places in memory.

        `code` is the code of a dtype (``dtypes.py``), the name of a torch dtype or a ``struct`` format;
        `order` is the order of the axes.
        """

        code: str
        shape: tuple[int, ...]
        order: Order
        requires_grad: bool = False
else:
    Layout = namedtuple("Layout", "code shape order requires_grad", defaults=(False,))


_LAYOUT = struct.Struct("<BBH")
_ORDERS: dict[int, Order] = {0: "C", 1: "F"}
_PERMUTED = 2
_REQUIRES_GRAD = 0x80


def pack_layout(kind: int, layout: Layout) -> bytes | None:
    """Return the metadata of a value that is one block of elements; None if it is too long."""
    code = layout.code.encode()
    if isinstance(layout.order, str):
        order, permutation = "CF".index(layout.order), b""
    else:
        order, permutation = _PERMUTED, bytes(layout.order)
    flags = order | (_REQUIRES_GRAD if layout.requires_grad else 0)
    # Such an array is pickled instead: one byte counts its axes.
    ndim = len(layout.shape)
    if len(code) > MAX_METADATA_BYTES or ndim > 255:
        return None
    head = pack_head(kind) + _LAYOUT.pack(flags, ndim, len(code))
    metadata = head + code + struct.pack(f"<{ndim}Q", *layout.shape) + permutation
    return metadata if len(metadata) <= MAX_METADATA_BYTES else None


def parse_layout(metadata: bytes) -> Layout:
    """Return the layout from the metadata of `pack_layout`; raises ValueFormatError."""
    reader = Reader(metadata)
    flags, ndim, code_length = reader.unpack(_LAYOUT)
    try:
        code = reader.take(code_length).decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed("a dtype that is no text") from error
    shape = reader.unpack(struct.Struct(f"<{ndim}Q"))
    order: Order | None = _ORDERS.get(flags & ~_REQUIRES_GRAD)
    if flags & ~_REQUIRES_GRAD == _PERMUTED:
        order = tuple(reader.take(ndim))
    reader.end()
    check_order(order, ndim)
    return Layout(code, shape, order, bool(flags & _REQUIRES_GRAD))  # type: ignore[arg-type]


def check_order(order: object, ndim: int) -> None:
    """Raise ValueFormatError unless `order` is "C", "F" or a permutation of the axes."""
    if order in ("C", "F"):
        return
    if not isinstance(order, tuple) or sorted(order) != list(range(ndim)):
        raise malformed(f"{order!r} is no order of {ndim} axes")


def order_of(shape: Sequence[int], strides: Sequence[int]) -> Order:
    """Return the order of contiguous axes that is closest to the given strides.

    Axes of length one are ignored, and an array with a broadcast axis is "C".
    """
    axes = [axis for axis, length in enumerate(shape) if length != 1]
    if 0 in shape or any(strides[axis] == 0 for axis in axes):
        return "C"
    by_stride = sorted(axes, key=lambda axis: -abs(strides[axis]))
    if by_stride == axes:
        return "C"
    if by_stride == axes[::-1]:
        return "F"
    return tuple([axis for axis in range(len(shape)) if shape[axis] == 1] + by_stride)


def slowest_first(layout: Layout) -> tuple[int, ...]:
    """Return the axes from the slowest to the fastest."""
    ndim = len(layout.shape)
    if layout.order == "C":
        return tuple(range(ndim))
    if layout.order == "F":
        return tuple(range(ndim))[::-1]
    return layout.order  # type: ignore[return-value]


def strides_of(layout: Layout, itemsize: int) -> tuple[int, ...]:
    """Return the strides of a contiguous block, in the unit of `itemsize`."""
    strides = [0] * len(layout.shape)
    step = itemsize
    for axis in reversed(slowest_first(layout)):
        strides[axis] = step
        step *= max(layout.shape[axis], 1)
    return tuple(strides)


def aligned(offset: int) -> int:
    """Return the smallest multiple of ALIGNMENT that is at least `offset`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def as_bytes_view(data: Any) -> memoryview:
    """Return `data` as a flat memoryview of bytes, read-only if `data` is."""
    view = data if type(data) is memoryview else memoryview(data)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    return view


def _copy_with_numpy(target: memoryview, source: Any) -> None:
    import numpy as np

    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


_copier: Callable[[memoryview, Any], None] = _copy_with_numpy


def use_copier(copier: Callable[[memoryview, Any], None] | None) -> None:
    """Use `copier(target, source)` for large copies; None: NumPy, which releases the GIL."""
    global _copier
    _copier = copier or _copy_with_numpy


def copy_bytes(target: memoryview, source: Any, nbytes: int) -> None:
    """Copy contiguous bytes into a flat memoryview of the same length."""
    if nbytes >= LARGE_COPY_BYTES:
        _copier(target, source)
    else:
        target[:] = source


def private_copy(data: memoryview) -> memoryview:
    """Return writable memory of this process alone with the same bytes."""
    if data.nbytes < LARGE_COPY_BYTES:
        return memoryview(bytearray(data))
    # numpy.empty leaves the pages untouched, where bytearray would write zeros first.
    import numpy as np

    target = memoryview(np.empty(data.nbytes, np.uint8))
    copy_bytes(target, data, data.nbytes)
    return target


class Encoded:
    """A value in the form of an object.

    One thread at a time can use it. It refers to the value, whose bytes must not change until they are
    written.

    Attributes
    ----------
    metadata
        At most 4096 bytes, stored with the object.
    nbytes
        The size of the object in bytes.
    refs
        The 20-byte ids of the refs inside the value.
    buffer
        All bytes of the object as one flat read-only memoryview of format "B", if memory has them
        in this form already; else None.
    structure
        The TreeSpec if the metadata has its digest only, for the caller to put; else None.
    """

    __slots__ = ("_write", "buffer", "metadata", "nbytes", "refs", "structure")

    def __init__(
        self,
        metadata: bytes,
        nbytes: int,
        buffer: memoryview | None,
        write: Callable[[memoryview], None] | None = None,
        refs: Sequence[bytes] = (),
    ) -> None:
        self.metadata = metadata
        self.nbytes = nbytes
        self.buffer = buffer
        self.refs = refs
        self.structure: Any = None
        self._write = write

    def write_into(self, target: memoryview) -> None:
        """Write all `nbytes` bytes, including padding, in one pass.

        Parameters
        ----------
        target
            Writable, contiguous, of exactly `nbytes` bytes.

        Raises
        ------
        ValueError
            `target` has another size.
        """
        target = as_bytes_view(target)
        if target.nbytes != self.nbytes:
            raise ValueError(f"the value has {self.nbytes} bytes, its target {target.nbytes}")
        if self.buffer is not None:
            copy_bytes(target, self.buffer, self.nbytes)
        elif self._write is not None:
            self._write(target)


def write_parts(target: memoryview, parts: Sequence[Part]) -> None:
    """Write parts in order of offset, and zeros into the gaps and behind the last part."""
    at = 0
    for offset, nbytes, write in parts:
        # The memory is recycled: without the zeros a reader could see bytes of an earlier object.
        if offset > at:
            target[at:offset] = bytes(offset - at)
        if nbytes:
            write(target[offset : offset + nbytes])
        at = offset + nbytes
    if at < target.nbytes:
        target[at:] = bytes(target.nbytes - at)


class _Collections(threading.local):
    current: list[bytes] | None = None


_collections = _Collections()


def collecting() -> list[bytes] | None:
    """Return the list for the ids of refs that this thread pickles now; None outside `Collecting`."""
    return _collections.current


class Collecting:
    """A context in which `collecting()` is a new list. Contexts can be nested."""

    __slots__ = ("_before", "refs")

    def __enter__(self) -> list[bytes]:
        self._before = _collections.current
        self.refs: list[bytes] = []
        _collections.current = self.refs
        return self.refs

    def __exit__(self, *error: object) -> None:
        _collections.current = self._before
