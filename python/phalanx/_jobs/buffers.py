"""The memory of arrays for calls of groups: checked, in order, and packed if there are many.

An array is used in place. A nest of arrays becomes a few calls: a large array is one by itself, and
small ones of one dtype are copied together, in the order of the nest, which all members share.

Values and functions, but for `Scratch`, which a group owns and uses under its lock.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

from phalanx import exceptions
from phalanx._native import ffi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# An array from this size on is a call by itself: its copies would take longer than the start of a call.
DIRECT_BYTES = 256 << 10
# The most bytes that are packed into one call. While a call is under way the next one is packed.
PACKED_BYTES = 4 << 20
_LEAST_SCRATCH = 64 << 10
_MAX_SCRATCHES = 8


class Memory:
    """The elements of an array in place, of a dtype that reductions have a number for, or none (None)."""

    __slots__ = ("_kind", "dtype", "flat", "nbytes", "pointer")

    def __init__(self, flat: Any, dtype: int | None, kind: Any) -> None:
        self.flat = flat
        self.nbytes: int = flat.nbytes
        # Keeps the memory alive, and its size.
        self.pointer: Any = ffi.from_buffer(flat) if flat.nbytes else ffi.NULL
        self.dtype = dtype
        self._kind = kind

    @property
    def spoken(self) -> str:
        """The name of the dtype."""
        return str(self._kind)


@functools.lru_cache(256)
def _number_of(dtype: Any, torch: bool) -> int | None:
    """Return the number of a dtype of NumPy or torch in phalanx/elements.h; None: it cannot be reduced."""
    from phalanx._values import dtypes

    code = str(dtype).removeprefix("torch.") if torch else dtypes.code_of(dtype)
    reduced = None if code is None else dtypes.reduced_name(code, torch)
    return None if reduced is None else list(dtypes.REDUCED_NAMES.values()).index(reduced)


def torch_of(value: Any) -> Any:
    """Return the module torch if a value is a tensor."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def memory_of(value: Any, where: str, written: bool = True) -> Memory:
    """Return the memory of an array or tensor; `where` names it in errors, and `written` says what for.

    Raises
    ------
    TypeError
        The value is no array or tensor with plain elements in the memory of this machine.
    InvalidArgumentError
        The array is read-only, or its elements are not contiguous in C order.
    """
    import numpy as np

    torch = torch_of(value)
    if torch is not None:
        return _of_tensor(torch, value, where)
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        kind = type(value)
        raise TypeError(
            f"{where}: a NumPy array or a torch tensor of the CPU is expected, not "
            f"{'None' if value is None else f'a {kind.__module__}.{kind.__qualname__}'}"
        )
    if value.dtype.hasobject:
        raise TypeError(f"{where}: elements of dtype {value.dtype} are Python objects, which cannot be sent")
    if not value.flags.c_contiguous:
        raise exceptions.InvalidArgumentError(
            f"{where}: shape {value.shape} with strides {value.strides} is not contiguous in C order; "
            "give numpy.ascontiguousarray(...) of it"
        )
    if written and not value.flags.writeable:
        raise exceptions.InvalidArgumentError(f"{where}: the array is read-only, and the result is written to it")
    # As bytes: not every dtype exports its memory.
    flat = np.asarray(value).reshape(-1).view(np.uint8) if value.nbytes else np.empty(0, np.uint8)
    return Memory(flat, _number_of(value.dtype, False), value.dtype)


def _of_tensor(torch: Any, tensor: Any, where: str) -> Memory:
    if tensor.device.type != "cpu":
        raise TypeError(f"{where}: the tensor is on {tensor.device}; only CPU tensors can be sent")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{where}: a tensor of layout {tensor.layout} is not one piece of memory")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise exceptions.InvalidArgumentError(
            f"{where}: shape {tuple(tensor.shape)} with strides {tensor.stride()} is not contiguous; "
            "give .contiguous() of it"
        )
    flat = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return Memory(flat, _number_of(tensor.dtype, True), tensor.dtype)


def output_like(value: Any, shape: tuple[int, ...]) -> Any:
    """Return a new array or tensor of the dtype of `value`."""
    import numpy as np

    return np.empty(shape, value.dtype) if torch_of(value) is None else value.new_empty(shape)


def check_apart(one: Memory, other: Memory, where: str) -> None:
    """Raise InvalidArgumentError if the memory of an input and of an output overlap."""
    import numpy as np

    if np.may_share_memory(one.flat, other.flat):
        raise exceptions.InvalidArgumentError(f"{where}: array and out share memory")


# ---- nests of arrays


def leaves_of(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays of a nest of dicts, lists and tuples, with their places.

    The values of a dict come in the order of its sorted keys, so that members need not fill it in
    the same order.
    """
    if isinstance(value, dict):
        try:
            keys = sorted(value)
        except TypeError:
            raise TypeError(f"{where}: the keys of the dict cannot be sorted: all text, or all numbers") from None
        for key in keys:
            yield from leaves_of(value[key], f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from leaves_of(each, f"{where}[{index}]")
    else:
        yield where, value


def packed(memories: list[Memory], by_dtype: bool) -> list[list[Memory]]:
    """Return what goes into each call, in the order of the calls.

    Memory that occurs twice (tied weights) goes into one call once. Calls of several memories have at
    most PACKED_BYTES. With `by_dtype` they have one dtype.
    """
    calls: list[list[Memory]] = []
    filling: dict[int | None, tuple[list[Memory], int]] = {}
    seen: set[tuple[int, int]] = set()
    for memory in memories:
        place = (int(ffi.cast("uintptr_t", memory.pointer)), memory.nbytes)
        if memory.nbytes == 0 or place in seen:
            continue
        seen.add(place)
        if memory.nbytes >= DIRECT_BYTES:
            calls.append([memory])
            continue
        key = memory.dtype if by_dtype else None
        into, nbytes = filling.get(key, ([], PACKED_BYTES))
        if nbytes + memory.nbytes > PACKED_BYTES:
            into, nbytes = [], 0
            calls.append(into)
        into.append(memory)
        filling[key] = (into, nbytes + memory.nbytes)
    return calls


class Scratch:
    """Memory into which arrays are packed, kept for later calls. Its owner's lock protects it."""

    def __init__(self) -> None:
        self._free: list[Any] = []

    def take(self, nbytes: int) -> Any:
        """Return an array of at least so many bytes."""
        import numpy as np

        for index, each in enumerate(self._free):
            if each.nbytes >= nbytes:
                return self._free.pop(index)
        return np.empty(1 << max(nbytes - 1, _LEAST_SCRATCH - 1).bit_length(), np.uint8)

    def give_back(self, array: Any) -> None:
        if len(self._free) < _MAX_SCRATCHES:
            self._free.append(array)


def pack(memories: list[Memory], scratch: Any) -> Memory:
    """Copy memories of one call into scratch memory, one after the other."""
    offset = 0
    for memory in memories:
        scratch[offset : offset + memory.nbytes] = memory.flat
        offset += memory.nbytes
    return Memory(scratch[:offset], memories[0].dtype, memories[0]._kind)


def unpack(memories: list[Memory], flat: Any) -> None:
    """Copy a result back into the memories of its call."""
    offset = 0
    for memory in memories:
        memory.flat[:] = flat[offset : offset + memory.nbytes]
        offset += memory.nbytes
