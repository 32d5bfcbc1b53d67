"""Arrays of calls of a parameter server: keys, rows that are pushed, and places for rows that are pulled. Checks their
shapes and dtypes; that keys increase, the library checks. Functions; any thread.
"""

from __future__ import annotations

import operator

from phalanx import exceptions
from phalanx._jobs import ps_specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._jobs.ps_specs import TableSpec


def keys_of(keys: Any, where: str) -> Any:
    """Return keys as an array of uint64: those of an array of integers, or of a sequence of ints.

    Raises
    ------
    TypeError
        They are no numbers that can be keys.
    InvalidArgumentError
        They are not one row of integers, or one of them is negative.
    """
    import numpy as np

    if not isinstance(keys, np.ndarray):
        try:
            numbers = [operator.index(key) for key in keys]
        except TypeError:
            raise TypeError(f"{where}: keys: an array of integers is expected, not {_kind(keys)}") from None
        for number in numbers:
            if not 0 <= number < 1 << 64:
                raise exceptions.InvalidArgumentError(f"{where}: keys: {number} is not from 0 to 2**64-1")
        return np.array(numbers, np.uint64)
    if keys.ndim != 1:
        raise exceptions.InvalidArgumentError(f"{where}: keys: the shape {keys.shape}; (n,) is expected")
    if keys.dtype.kind not in "ui":
        raise exceptions.InvalidArgumentError(f"{where}: keys: the dtype {keys.dtype}; integers are expected")
    if keys.dtype.kind == "i" and keys.size and keys.min() < 0:
        raise exceptions.InvalidArgumentError(f"{where}: keys: {keys.min()} is negative")
    return np.ascontiguousarray(keys, np.uint64)


def rows_of(values: Any, rows: int, spec: TableSpec, where: str) -> Any:
    """Return rows that are pushed, contiguous in C order.

    Raises
    ------
    TypeError
        No array.
    InvalidArgumentError
        Another dtype than the table's, or another shape than that of so many rows.
    """
    import numpy as np

    _check(values, rows, spec, where)
    return np.ascontiguousarray(values)


def place_of(out: Any, rows: int, spec: TableSpec, where: str) -> Any:
    """Return an array for so many rows: `out`, or a new one. Errors are those of `rows_of`, and what cannot be written."""
    import numpy as np

    if out is None:
        return np.empty((rows,) if spec.width == 1 else (rows, spec.width), ps_specs.numpy_dtype(spec.dtype))
    _check(out, rows, spec, where)
    if not out.flags.c_contiguous:
        raise exceptions.InvalidArgumentError(
            f"{where}: shape {out.shape} with strides {out.strides} is not contiguous in C order"
        )
    if not out.flags.writeable:
        raise exceptions.InvalidArgumentError(f"{where}: the array is read-only, and the result is written to it")
    return out


def _check(array: Any, rows: int, spec: TableSpec, where: str) -> None:
    import numpy as np

    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{where}: a NumPy array is expected, not {_kind(array)}")
    dtype = ps_specs.numpy_dtype(spec.dtype)
    if array.dtype != dtype:
        raise exceptions.InvalidArgumentError(
            f"{where}: the dtype {array.dtype}; table {spec.name!r} has elements of {dtype}"
        )
    if array.shape == (rows, spec.width) or (spec.width == 1 and array.shape == (rows,)):
        return
    expected = f"({rows},) or ({rows}, 1)" if spec.width == 1 else f"({rows}, {spec.width})"
    raise exceptions.InvalidArgumentError(
        f"{where}: the shape {array.shape}; {expected} is expected for {rows} keys of table {spec.name!r}"
    )


def _kind(value: Any) -> str:
    kind = type(value)
    return "None" if value is None else f"a {kind.__module__}.{kind.__qualname__}"
