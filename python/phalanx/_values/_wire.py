"""What every kind of value shares: the metadata's head, bounds checks, orders and copies.

Nothing here imports NumPy. The format is told in README.md beside this file.
"""

from __future__ import annotations

import struct
import threading
from collections import namedtuple
from collections.abc import Callable, Sequence

from phalanx import exceptions

# Importing typing would take as long as all the rest of this package's import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, Union

    # "C", "F", or the axes from the slowest to the fastest.
    Order = Union[str, tuple[int, ...]]
    # The parts of a payload: where each begins, how long it is, and what writes it.
    Part = tuple[int, int, Callable[[memoryview], None]]

MAX_METADATA_BYTES = 4096
# Of the parts of one payload: no vector instruction and no cache line needs more.
ALIGNMENT = 64
# Below this, a copy under the GIL is over before a release of the GIL would have paid.
LARGE_COPY_BYTES = 64 * 1024

MAGIC = b"PHX"
VERSION = 1
HEAD = struct.Struct("<3sBB")

# No kind byte: the object has no metadata.
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

# In the byte behind the head of PICKLE and TREE: there are torch tensors inside.
HAS_TENSORS = 0x10


class NotATree(Exception):
    """Why a container is no tree of arrays, and where in it: pickle takes it then."""


def pack_head(kind: int) -> bytes:
    """Return the five bytes that all metadata of this package begins with."""
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


def malformed(what: str) -> exceptions.ValueFormatError:
    """Return the error that says what is wrong with an object."""
    return exceptions.ValueFormatError(f"not a value of phalanx: {what}")


def check_size(what: str, expected: int, actual: int) -> None:
    """Raise ValueFormatError unless an object has as many bytes as its metadata says."""
    if expected != actual:
        raise malformed(f"{what} needs {expected} bytes, the object has {actual}")


class Reader:
    """A cursor over metadata that never reads past its end.

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
        """Return everything that was not read yet."""
        return self.take(len(self._bytes) - self._at)

    def end(self) -> None:
        """Raise ValueFormatError if there is more."""
        if self._at != len(self._bytes):
            raise malformed(f"{len(self._bytes) - self._at} stray bytes at the end of metadata")


if TYPE_CHECKING:

    class Layout(NamedTuple):
        """The elements of one array or tensor: what they are and where each of them stands.

        `code` is a dtype's (``dtypes.py``), a torch dtype's name or a ``struct`` format; `order`
        says which axis is the fastest.
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
    ndim = len(layout.shape)
    if len(code) > MAX_METADATA_BYTES or ndim > 255:
        return None
    head = pack_head(kind) + _LAYOUT.pack(flags, ndim, len(code))
    metadata = head + code + struct.pack(f"<{ndim}Q", *layout.shape) + permutation
    return metadata if len(metadata) <= MAX_METADATA_BYTES else None


def parse_layout(metadata: bytes) -> Layout:
    """Return what `pack_layout` was given; raises ValueFormatError."""
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

    Axes of length one have no say, and a broadcast axis makes it "C".
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
    """Return the strides of a contiguous block, in units of what `itemsize` is in."""
    strides = [0] * len(layout.shape)
    step = itemsize
    for axis in reversed(slowest_first(layout)):
        strides[axis] = step
        step *= max(layout.shape[axis], 1)
    return tuple(strides)


def aligned(offset: int) -> int:
    """Return the first multiple of ALIGNMENT that is not below `offset`."""
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
    """Have `copier(target, source)` copy what is large; None: NumPy, which releases the GIL."""
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
    import numpy as np

    target = memoryview(np.empty(data.nbytes, np.uint8))
    copy_bytes(target, data, data.nbytes)
    return target


class Encoded:
    """A value on its way into an object.

    Made by one thread and used by one at a time. It refers to the value, whose bytes must not
    change until they are written.

    Attributes
    ----------
    metadata
        At most 4096 bytes, to be stored with the object.
    nbytes
        The size of the object in bytes.
    refs
        The 20-byte ids of the refs that were met inside the value.
    buffer
        All bytes of the object as one flat read-only memoryview of format "B", when they stand
        like that in memory already; else None.
    structure
        The TreeSpec that metadata has the digest of, and the object not: readers are to find it.
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
        """Write all `nbytes` bytes, padding included, in one pass.

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
    """Write parts in rising order of offset, and zeros between them and behind the last."""
    at = 0
    for offset, nbytes, write in parts:
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
    """Return the list that takes the ids of refs pickled by this thread now; None outside."""
    return _collections.current


class Collecting:
    """A context in which `collecting()` is a new list; nests."""

    __slots__ = ("_before", "refs")

    def __enter__(self) -> list[bytes]:
        self._before = _collections.current
        self.refs: list[bytes] = []
        _collections.current = self.refs
        return self.refs

    def __exit__(self, *error: object) -> None:
        _collections.current = self._before
