"""Helpers for the tests of values: an object in memory, and the meaning of equal."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from phalanx import _values as values
from phalanx import exceptions

STALE = 0xAA


def stored(encoded: values.Encoded) -> memoryview:
    """Return page-aligned read-only memory with an object, written over stale bytes."""
    pages = mmap.mmap(-1, max(encoded.nbytes, 1))
    pages.write(bytes([STALE]) * encoded.nbytes)
    target = memoryview(pages)[: encoded.nbytes]
    encoded.write_into(target)
    return target.toreadonly()


def round_trip(value: Any, *, allow_pickle: bool = True, **how: Any) -> Any:
    """Return the value that a reader gets after a put."""
    encoded = values.encode(value, allow_pickle=allow_pickle)
    data = stored(encoded)
    if encoded.buffer is not None:
        assert bytes(encoded.buffer) == bytes(data)
        assert encoded.buffer.readonly
    assert len(encoded.metadata) <= 4096
    if encoded.structure is not None:
        how["find"] = lambda digest: values.structure_of(encoded.structure.to_bytes(), digest)
    return values.decode(encoded.metadata, data, allow_pickle=allow_pickle, **how)


def private_pages(encoded: values.Encoded) -> memoryview:
    """Return private writable memory with an object's bytes."""
    target = memoryview(bytearray(encoded.nbytes))
    encoded.write_into(target)
    return target


def address(array: np.ndarray) -> int:
    """Return the address of an array's elements."""
    return array.__array_interface__["data"][0]


def is_inside(array: np.ndarray, data: memoryview) -> bool:
    """Whether all elements of an array are in `data`."""
    begin = address(np.frombuffer(data, np.uint8))
    low, high = np.lib.array_utils.byte_bounds(array) if _HAS_UTILS else np.byte_bounds(array)
    return begin <= low and high <= begin + data.nbytes


_HAS_UTILS = hasattr(np.lib, "array_utils")


def assert_same_array(expected: np.ndarray, actual: np.ndarray) -> None:
    """Assert equal type, dtype, shape and bits of the elements."""
    assert type(actual) is type(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def mutations(metadata: bytes, count: int) -> Iterator[bytes]:
    """Yield metadata with a few bytes behind the version changed, removed or inserted."""
    noise = np.random.default_rng(7)
    for _ in range(count):
        mutated = bytearray(metadata)
        for _ in range(noise.integers(1, 4)):
            at = int(noise.integers(4, len(mutated) + 1))
            match noise.integers(0, 4):
                case 0 if at < len(mutated):
                    mutated[at] = int(noise.integers(0, 256))
                case 1 if at < len(mutated):
                    mutated[at] ^= 1 << int(noise.integers(0, 8))
                case 2:
                    del mutated[at:]
                case 3:
                    mutated[at:at] = noise.bytes(int(noise.integers(1, 9)))
        yield bytes(mutated)


def attempt(metadata: bytes, data: bytes) -> None:
    """Read an arbitrary object, and the whole value if decoding succeeds."""
    view = memoryview(data)
    calls = (
        lambda: values.decode(metadata, view, allow_pickle=False),
        lambda: values.decode(metadata, view, allow_pickle=False, copy=True),
        lambda: values.open_tree(metadata, view, allow_pickle=False).load(),
        lambda: values.reduce_dtype(metadata),
        lambda: values.reduce_runs(metadata),
    )
    for call in calls:
        try:
            repr(call())
        except (exceptions.ValueFormatError, exceptions.PickleRefusedError):
            pass
        except TypeError as error:
            assert "reduced" in str(error)
        except ImportError as error:
            assert error.name in ("ml_dtypes", "torch")
    values.wants_private_pages(metadata)
    values.structure_elsewhere(metadata)
