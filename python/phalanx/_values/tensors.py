"""torch tensors on the CPU, as views of memory. Imports torch only when the first tensor is met.

Values keep dtype, shape and the order of their axes (including channels_last). A tensor that
requires grad is restored as a leaf that requires grad, without its graph, grad or hooks.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from phalanx._values._wire import (
    TENSOR,
    Encoded,
    Layout,
    check_size,
    malformed,
    order_of,
    pack_layout,
    parse_layout,
    private_copy,
    slowest_first,
    strides_of,
)

if TYPE_CHECKING:
    import torch

# The size of an element in bytes, by dtype. A constant table, because sizes are checked before
# torch is imported.
_ITEMSIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}


def _torch() -> Any:
    module = sys.modules.get("torch")
    if module is not None:
        return module
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "the value is a torch tensor: install phalanx[torch] to read it", name="torch"
        ) from error
    return torch


def is_tensor_type(kind: type) -> bool:
    """Whether values of this very type are stored as tensors."""
    module = sys.modules.get("torch")
    return module is not None and kind is getattr(module, "Tensor", None)


def is_tensor_subclass(kind: type) -> bool:
    """Whether values of a type are tensors of a subclass, which only pickle restores."""
    module = sys.modules.get("torch")
    return module is not None and issubclass(kind, module.Tensor) and kind is not module.Tensor


def check_device(tensor: torch.Tensor) -> None:
    """Raise TypeError unless the memory of a tensor is on the CPU."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"the tensor is on {tensor.device}: only CPU tensors can be put; use .cpu()"
        )


def layout_of(tensor: torch.Tensor) -> Layout | None:
    """Return the layout in which an exact tensor is stored; None if it must be pickled.

    Raises
    ------
    TypeError
        The tensor is on another device.
    """
    check_device(tensor)
    name = str(tensor.dtype).partition(".")[2]
    if name not in _ITEMSIZES or tensor.layout is not _torch().strided or vars(tensor):
        return None
    shape = tuple(tensor.shape)
    return Layout(name, shape, order_of(shape, tensor.stride()), tensor.requires_grad)


def flat_array(layout: Layout, tensor: torch.Tensor) -> Any:
    """Return a tensor's elements in memory order, as an ndarray of bytes; None if memory has gaps."""
    flat = tensor.detach().permute(slowest_first(layout))
    if not flat.is_contiguous() or flat.is_conj() or flat.is_neg():
        return None
    return flat.reshape(-1).view(_torch().uint8).numpy()


def flat_bytes(layout: Layout, tensor: torch.Tensor) -> memoryview | None:
    """Return a tensor's elements in memory order; None if memory has gaps."""
    if tensor.numel() == 0:
        return memoryview(b"")
    flat = flat_array(layout, tensor)
    return None if flat is None else memoryview(flat).toreadonly()


def encode(tensor: torch.Tensor) -> Encoded | None:
    """Encode an exact tensor; None if it must be pickled."""
    layout = layout_of(tensor)
    metadata = None if layout is None else pack_layout(TENSOR, layout)
    if layout is None or metadata is None:
        return None
    nbytes = tensor.numel() * tensor.element_size()
    buffer = flat_bytes(layout, tensor)
    return Encoded(metadata, nbytes, buffer, lambda target: write(layout, tensor, target))


def write(layout: Layout, tensor: torch.Tensor, target: memoryview) -> None:
    """Write the elements of a tensor with any strides. Releases the GIL."""
    if target.nbytes:
        _view(layout, target, tensor.dtype).copy_(tensor.detach())


def _dtype_of(layout: Layout) -> Any:
    dtype = getattr(_torch(), layout.code, None)
    if dtype is None:
        raise malformed(f"the torch that is installed has no dtype {layout.code}")
    return dtype


def _view(layout: Layout, data: memoryview, dtype: Any) -> torch.Tensor:
    torch = _torch()
    if data.nbytes == 0:
        return torch.empty(layout.shape, dtype=dtype)  # type: ignore[no-any-return]
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype)
    return flat.as_strided(layout.shape, strides_of(layout, 1))  # type: ignore[no-any-return]


def size_of(layout: Layout) -> int:
    """Return the number of bytes of a block of elements; raises ValueFormatError."""
    itemsize = _ITEMSIZES.get(layout.code)
    if itemsize is None:
        raise malformed(f"{layout.code[:80]!r} is no dtype of tensors")
    return math.prod(layout.shape) * itemsize


def view(layout: Layout, data: memoryview) -> torch.Tensor:
    """Return a tensor over `data`, or over a private copy if `data` is read-only.

    torch does not support read-only memory: a write to it would end the process.
    """
    expected = size_of(layout)
    dtype = _dtype_of(layout)
    check_size(f"a tensor of {layout.code} and shape {layout.shape}", expected, data.nbytes)
    if layout.requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise malformed(f"a tensor of {layout.code} that requires grad")
    if data.readonly and data.nbytes:
        data = private_copy(data)
    try:
        tensor = _view(layout, data, dtype)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise malformed(f"no tensor of shape {layout.shape}: {error}") from error
    return tensor.requires_grad_() if layout.requires_grad else tensor


def decode(metadata: bytes, data: memoryview) -> torch.Tensor:
    """Return a tensor over `data`; raises ValueFormatError."""
    return view(parse_layout(metadata), data)


def copy_into(layout: Layout, data: memoryview, out: torch.Tensor) -> None:
    """Copy the elements at `data` into a tensor of the same shape and dtype."""
    import numpy as np

    check_size("a tensor", size_of(layout), data.nbytes)
    target = flat_array(layout, out)
    if target is not None:
        np.copyto(target, np.frombuffer(data, np.uint8) if data.nbytes else target)
        return
    with _torch().no_grad():
        out.copy_(view(layout, data))
