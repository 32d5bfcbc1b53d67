"""Codes of NumPy dtypes, and their names in reductions.

A code is text that describes a dtype completely and is read without pickle:

- ``"<f4"``, ``"|b1"``, ``"<M8[25s]"``: the value of ``dtype.str``;
- ``"bfloat16"``, ``"int4"``: a type of ml_dtypes, by its name there;
- ``{"n": names, "f": codes, "o": offsets, "z": itemsize, ...}`` as JSON: a structured dtype, with
  ``"t"`` its titles, ``"a"`` if it is aligned, ``"r"`` if its scalars are records; a sub-array
  inside is ``[code, shape]``.
"""
from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

from phalanx._values._wire import malformed

if TYPE_CHECKING:
    import numpy as np

_PLAIN = re.compile(
    r"[<>|][biufcSUVmM][0-9]{1,10}"
    r"(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)(/[0-9]{1,9})?\])?",
    re.ASCII,
)
_EXTENSION = re.compile(r"(bfloat16|u?int[124]|float[468]_[a-z0-9_]{1,20})", re.ASCII)
_MAX_DEPTH = 16

# From the names of NumPy and torch to the names of reductions, for all elements that can be
# reduced; in the order of DType in phalanx/elements.h.
REDUCED_NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
}


def _native_code(name: str, reduced: str) -> str:
    """Return the code of a dtype in little-endian order, the only one that the kernels can fold."""
    if name == "bfloat16":
        return name
    nbytes = int(reduced[1:]) // 8
    return f"{'|' if nbytes == 1 else '<'}{reduced[0]}{nbytes}"


_REDUCED = {_native_code(name, reduced): reduced for name, reduced in REDUCED_NAMES.items()}


def reduced_name(code: str, torch: bool) -> str | None:
    """Return the reductions' name of a dtype code; None if it cannot be reduced."""
    return (REDUCED_NAMES if torch else _REDUCED).get(code)


def spoken_name(code: str) -> str:
    """Return the name of a dtype for error texts: NumPy's, with the byte order if it is foreign."""
    if not _PLAIN.fullmatch(code):
        return "with fields" if code.startswith("{") else code
    try:
        dtype = dtype_of(code)
    except ValueError:
        return code
    return f"{dtype.newbyteorder('=').name} in big-endian order" if code[0] == ">" else dtype.name


def code_of(dtype: np.dtype[Any]) -> str | None:
    """Return the code of a dtype; None if only pickle can store its elements."""
    described = _describe(dtype)
    if described is None or isinstance(described, str):
        return described
    return json.dumps(described, separators=(",", ":"), ensure_ascii=False)


def _describe(dtype: np.dtype[Any]) -> Any:
    if dtype.itemsize == 0 or dtype.hasobject:
        return None
    if dtype.subdtype is not None:
        base = _describe(dtype.subdtype[0])
        return None if base is None else [base, list(dtype.subdtype[1])]
    if dtype.names is not None:
        return _describe_fields(dtype)
    if dtype.type.__module__ == "ml_dtypes":
        return dtype.name if _EXTENSION.fullmatch(dtype.name) else None
    return dtype.str if dtype.isbuiltin != 2 and _PLAIN.fullmatch(dtype.str) else None


def _describe_fields(dtype: np.dtype[Any]) -> dict[str, Any] | None:
    import numpy as np

    if dtype.type not in (np.void, np.record):
        return None
    assert dtype.fields is not None and dtype.names is not None
    fields = [dtype.fields[name] for name in dtype.names]
    described: dict[str, Any] = {
        "n": list(dtype.names),
        "f": [_describe(field[0]) for field in fields],
        "o": [field[1] for field in fields],
        "z": dtype.itemsize,
    }
    titles = [field[2] if len(field) > 2 else None for field in fields]
    if None in described["f"] or not all(isinstance(each, (str, type(None))) for each in titles):
        return None
    if any(title is not None for title in titles):
        described["t"] = titles
    if dtype.isalignedstruct:
        described["a"] = 1
    if dtype.type is np.record:
        described["r"] = 1
    return described


@functools.lru_cache(512)
def dtype_of(code: str) -> np.dtype[Any]:
    """Return the dtype of a code.

    Raises
    ------
    ValueFormatError
        The text is not a code, or NumPy does not know the dtype.
    ImportError
        The dtype is in ml_dtypes, which is not installed.
    """
    described: Any = code
    if code.startswith("{"):
        try:
            described = json.loads(code)
        except (ValueError, RecursionError) as error:
            raise malformed(f"dtype {code[:80]!r} is no JSON") from error
    try:
        dtype = _build(described, 0)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise malformed(f"{code[:80]!r} is no dtype: {error}") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise malformed(f"{code[:80]!r} is no dtype of plain elements")
    return dtype


def _build(described: Any, depth: int) -> np.dtype[Any]:
    import numpy as np

    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(described, str):
        if _EXTENSION.fullmatch(described):
            return _build_extension(described)
        if not _PLAIN.fullmatch(described):
            raise ValueError("unknown")
        return np.dtype(described)
    if isinstance(described, list):
        base, shape = described
        return np.dtype((_build(base, depth + 1), tuple(int(length) for length in shape)))
    spec = {
        "names": described["n"],
        "formats": [_build(each, depth + 1) for each in described["f"]],
        "offsets": described["o"],
        "itemsize": described["z"],
    }
    if "t" in described:
        spec["titles"] = described["t"]
    dtype: np.dtype[Any] = np.dtype(spec, align=bool(described.get("a")))  # type: ignore[call-overload]
    return np.dtype((np.record, dtype)) if described.get("r") else dtype


def _build_extension(name: str) -> np.dtype[Any]:
    import numpy as np

    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(
            f"the array's dtype is {name}: install ml_dtypes to read it", name="ml_dtypes"
        ) from error
    scalar = getattr(ml_dtypes, name, None)
    if not isinstance(scalar, type):
        raise ValueError(f"the ml_dtypes that is installed has no {name}")
    return np.dtype(scalar)
