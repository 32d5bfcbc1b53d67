"""Arrays of calls of a parameter server: keys, rows that are pushed, their lengths, and places for rows that are pulled.
Checks their shapes and dtypes; that keys increase, the library checks. Functions; any thread.
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


def lists_of(vals: Any, lengths: Any, keys: Any, spec: TableSpec, where: str) -> tuple[Any, Any]:
    """Return rows with lengths that are pushed: their elements, one row behind the other, and the lengths, as uint32.

    Raises
    ------
    TypeError
        No array, or lengths that are no integers.
    InvalidArgumentError
        Another dtype than the table's, or lengths that the values or the table cannot have; the message names the key.
    """
    import numpy as np

    if lengths is not None:
        _check_dtype(vals, spec, f"{where}: vals")
        if vals.ndim != 1:
            raise exceptions.InvalidArgumentError(
                f"{where}: vals: the shape {vals.shape}; with lengths, (elements,) is expected"
            )
        return np.ascontiguousarray(vals), _lengths_of(lengths, keys, len(vals), spec, f"{where}: lengths")
    if isinstance(vals, np.ndarray) and vals.ndim == 1:
        raise exceptions.InvalidArgumentError(
            f"{where}: lengths: each row of table {spec.name!r} has a length of its own: give an array of the lengths, or "
            "as vals a sequence of arrays"
        )
    try:
        rows = list(vals)
    except TypeError:
        raise TypeError(f"{where}: vals: a sequence of NumPy arrays is expected, not {_kind(vals)}") from None
    return join(rows, keys, spec, f"{where}: vals")


def join(rows: list[Any], keys: Any, spec: TableSpec, where: str) -> tuple[Any, Any]:
    """Return rows with lengths as `lists_of` does, whose errors these are; of an array for each key."""
    import numpy as np

    if len(rows) != len(keys):
        raise exceptions.InvalidArgumentError(
            f"{where}: {len(rows)} rows for {len(keys)} keys of table {spec.name!r}"
        )
    for key, row in zip(keys.tolist(), rows):
        _check_dtype(row, spec, f"{where}: key {key}")
        if row.ndim != 1:
            raise exceptions.InvalidArgumentError(
                f"{where}: key {key}: the shape {row.shape}; (length,) is expected"
            )
        _check_length(len(row), key, spec, where)
    # NumPy joins no list without arrays.
    none = np.empty(0, ps_specs.numpy_dtype(spec.dtype))
    return np.concatenate([none, *rows]), np.array([len(row) for row in rows], np.uint32)


def split(values: Any, lengths: Any) -> list[Any]:
    """Return views of rows of these lengths that lie one behind the other."""
    ends = lengths.cumsum().tolist()
    return [values[begin:end] for begin, end in zip([0, *ends], ends)]


def refuse_lengths(lengths: Any, spec: TableSpec, where: str) -> None:
    """Raise InvalidArgumentError for lengths that are given, of a table that has none."""
    if lengths is not None:
        raise exceptions.InvalidArgumentError(
            f"{where}: lengths: table {spec.name!r} has none, each of its rows has {spec.width} elements"
        )


def refuse_place(out: Any, spec: TableSpec, where: str) -> None:
    """Raise InvalidArgumentError for a place that is given, of a table with lengths."""
    if out is not None:
        raise exceptions.InvalidArgumentError(
            f"{where}: out: the lengths of rows of table {spec.name!r} are known when they have come, so they are "
            "returned in new arrays"
        )


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


def _lengths_of(lengths: Any, keys: Any, elements: int, spec: TableSpec, where: str) -> Any:
    import numpy as np

    if isinstance(lengths, np.ndarray):
        if lengths.dtype.kind not in "ui":
            raise TypeError(f"{where}: the dtype {lengths.dtype}; integers are expected")
        if lengths.ndim != 1:
            raise exceptions.InvalidArgumentError(f"{where}: the shape {lengths.shape}; (n,) is expected")
    else:
        try:
            # Numbers of any size.
            lengths = np.array([operator.index(length) for length in lengths], object)
        except TypeError:
            raise TypeError(f"{where}: an array of integers is expected, not {_kind(lengths)}") from None
    if len(lengths) != len(keys):
        raise exceptions.InvalidArgumentError(
            f"{where}: {len(lengths)} for {len(keys)} keys of table {spec.name!r}"
        )
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= spec.width:
        for key, length in zip(keys.tolist(), lengths.tolist()):
            _check_length(length, key, spec, where)
    if lengths.sum() != elements:
        raise exceptions.InvalidArgumentError(
            f"{where}: their sum is {lengths.sum()}, and vals has {elements} elements, for table {spec.name!r}"
        )
    return np.ascontiguousarray(lengths, np.uint32)


def _check_length(length: int, key: int, spec: TableSpec, where: str) -> None:
    if not 0 <= length <= spec.width:
        raise exceptions.InvalidArgumentError(
            f"{where}: key {key}: {length} elements; rows of table {spec.name!r} have 0 to {spec.width}"
        )


def _check_dtype(array: Any, spec: TableSpec, where: str) -> None:
    import numpy as np

    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{where}: a NumPy array is expected, not {_kind(array)}")
    dtype = ps_specs.numpy_dtype(spec.dtype)
    if array.dtype != dtype:
        raise exceptions.InvalidArgumentError(
            f"{where}: the dtype {array.dtype}; table {spec.name!r} has elements of {dtype}"
        )


def _check(array: Any, rows: int, spec: TableSpec, where: str) -> None:
    _check_dtype(array, spec, where)
    if array.shape == (rows, spec.width) or (spec.width == 1 and array.shape == (rows,)):
        return
    expected = f"({rows},) or ({rows}, 1)" if spec.width == 1 else f"({rows}, {spec.width})"
    raise exceptions.InvalidArgumentError(
        f"{where}: the shape {array.shape}; {expected} is expected for {rows} keys of table {spec.name!r}"
    )


def _kind(value: Any) -> str:
    kind = type(value)
    return "None" if value is None else f"a {kind.__module__}.{kind.__qualname__}"
