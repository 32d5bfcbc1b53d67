"""Copies an object into memory of the caller."""

from __future__ import annotations

from typing import Any

from phalanx._values import arrays, tensors
from phalanx._values._wire import Layout


def copy_into(layout: Layout, is_tensor: bool, data: memoryview, out: Any) -> None:
    """Copy one array or tensor into another of the same shape and dtype.

    Raises
    ------
    TypeError
        `out` is of another kind than the object.
    ValueError
        The shapes or dtypes differ, or `out` is read-only.
    """
    import numpy as np

    if is_tensor and tensors.is_tensor_type(type(out)):
        if str(out.dtype) != f"torch.{layout.code}" or tuple(out.shape) != layout.shape:
            raise _unlike(layout, out)
        tensors.copy_into(layout, data, out)
    elif not is_tensor and isinstance(out, np.ndarray):
        source = arrays.view(layout, data)
        if source.dtype != out.dtype or source.shape != out.shape:
            raise _unlike(layout, out)
        np.copyto(out, source)
    else:
        expected = "a torch tensor" if is_tensor else "a NumPy array"
        raise TypeError(f"the object is {expected}, out= is a {type(out).__qualname__}")


def _unlike(layout: Layout, out: Any) -> ValueError:
    return ValueError(
        f"the object has dtype {layout.code} and shape {layout.shape}, "
        f"out= has {out.dtype} and {tuple(out.shape)}"
    )
