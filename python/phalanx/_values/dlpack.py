"""Arrays of other libraries, imported by DLPack."""

from __future__ import annotations

from typing import Any

# DLDeviceType of dlpack.h.
_CPU = 1
_DEVICES = {
    2: "CUDA",
    3: "CUDA host memory",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    9: "VPI",
    10: "ROCm",
    11: "ROCm host memory",
    12: "extension device",
    13: "CUDA managed memory",
    14: "oneAPI",
    15: "WebGPU",
    16: "Hexagon",
    17: "MAIA",
    18: "Trainium",
}
# Their arrays have more than elements, and only pickle restores that.
_PICKLED = ("pyarrow",)


def speaks(kind: type) -> bool:
    """Whether values of a type are imported as arrays by DLPack."""
    return (
        hasattr(kind, "__dlpack__")
        and hasattr(kind, "__dlpack_device__")
        and kind.__module__.partition(".")[0] not in _PICKLED
    )


def as_array(value: Any) -> Any:
    """Return an ndarray over the memory of `value`.

    Elements without a name in DLPack or NumPy (bfloat16) are read through ``__array__``.

    Raises
    ------
    TypeError
        The memory is on another device, or NumPy cannot read it.
    """
    import numpy as np

    name = f"{type(value).__module__}.{type(value).__qualname__}"
    device, number = value.__dlpack_device__()
    if int(device) != _CPU:
        where = _DEVICES.get(int(device), f"DLPack device type {int(device)}")
        raise TypeError(f"the {name} is on {where} {number}: only CPU arrays can be put")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if hasattr(value, "__array__"):
            array = np.asarray(value)
            if type(array) is np.ndarray and not array.dtype.hasobject:
                return array
        raise TypeError(f"NumPy cannot read the {name} by DLPack: {error}") from error
