"""Encodes values into the bytes and metadata of objects, and decodes them. Pure Python; any thread.

README.md beside this file has the forms of values. NumPy, torch and cloudpickle are imported when a
value first needs them.
"""

from __future__ import annotations

import array as _array
import operator
import sys
from collections import OrderedDict

from phalanx import exceptions
from phalanx._values import _wire, plain
from phalanx._values._wire import Encoded, NotATree, collecting, use_copier

TYPE_CHECKING = False  # as in _wire.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from phalanx._values.packed_trees import Find, LazyTree, Read
    from phalanx._values.trees import Run, TreeSpec

    _Encoder = Callable[[Any], "Encoded | None"]
    _Decoder = Callable[[bytes, Any], Any]

__all__ = [
    "Encoded",
    "check_spec",
    "collecting",
    "copy_into",
    "decode",
    "difference",
    "encode",
    "encode_pickled",
    "flatten",
    "leaf_of",
    "metadata_for",
    "open_tree",
    "reduce_dtype",
    "reduce_runs",
    "structure_elsewhere",
    "structure_of",
    "unflatten",
    "use_copier",
    "wants_private_pages",
]

# ---- encoding


def _encode_tree(value: Any) -> Encoded:
    from phalanx._values import packed_trees

    return packed_trees.encode(value)


def _encode_dlpack(value: Any) -> Encoded | None:
    from phalanx._values import arrays, dlpack

    return arrays.encode(dlpack.as_array(value))


# By exact type. NumPy's and torch's types are added when the first value of the type is encoded, so
# that a program without them imports neither.
_encoders: dict[type, _Encoder] = {
    bytes: plain.encode_bytes,
    bytearray: plain.encode_bytearray,
    str: plain.encode_str,
    memoryview: plain.encode_memoryview,
    _array.array: plain.encode_array,
    type(None): plain.encode_plain,
    bool: plain.encode_plain,
    int: plain.encode_plain,
    float: plain.encode_plain,
    dict: _encode_tree,
    OrderedDict: _encode_tree,
    list: _encode_tree,
    tuple: _encode_tree,
}


def _find_encoder(kind: type) -> _Encoder | None:
    """Return the encoder for a type that is not in the table; None if the value must be pickled."""
    np = sys.modules.get("numpy")
    if np is not None and issubclass(kind, (np.ndarray, np.generic)):
        from phalanx._values import arrays

        if kind is np.ndarray:
            _encoders[kind] = arrays.encode
            return arrays.encode
        return arrays.encode_scalar if issubclass(kind, np.generic) else None
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        from phalanx._values import tensors

        if not tensors.is_tensor_type(kind):
            return None
        _encoders[kind] = tensors.encode
        return tensors.encode
    if issubclass(kind, tuple):
        return _encode_tree
    from phalanx._values import dlpack

    return _encode_dlpack if dlpack.speaks(kind) else None


def encode(value: Any, *, allow_pickle: bool = True) -> Encoded:
    """Encode a value as an object.

    Parameters
    ----------
    value
        Any value. Arrays, tensors, trees of them, bytes, text and plain numbers have their own
        forms; all other values are pickled.
    allow_pickle
        Whether pickle can be used.

    Returns
    -------
    Encoded
        It refers to the value: write its bytes before the value changes.

    Raises
    ------
    PickleRefusedError
        The value needs pickle, and `allow_pickle` is False.
    TypeError
        The memory of the value is on another device. Pickle can raise this and other errors too.
    """
    kind = type(value)
    encoder = _encoders.get(kind) or _find_encoder(kind)
    why = f"it is a {kind.__module__}.{kind.__qualname__}"
    if encoder is not None:
        try:
            encoded = encoder(value)
        except NotATree as error:
            why = str(error)
        else:
            if encoded is not None:
                return encoded
            why = (getattr(value, "dtype", None) and f"its dtype is {value.dtype}") or why
    if not allow_pickle:
        raise exceptions.PickleRefusedError(
            f"the value can only be put by pickle ({why}), and allow_pickle=False"
        )
    from phalanx._values import pickled

    return pickled.encode(value, why)


def encode_pickled(value: Any) -> Encoded:
    """Encode a value by pickle, whatever it is: what occurs twice in it occurs twice in the copy, too."""
    from phalanx._values import pickled

    return pickled.encode(value, "it was to be pickled")


# ---- decoding


def decode(
    metadata: bytes,
    data: memoryview,
    *,
    copy: bool | None = None,
    writable: object = None,
    allow_pickle: bool = True,
    find: Find | None = None,
) -> Any:
    """Return the value of an object.

    Parameters
    ----------
    metadata
        The metadata of the object. If it is empty, another program put the object, and the value
        is `data`.
    data
        All bytes of the object. Views of them keep an export of this memoryview alive.
        Read-only, or writable pages that belong to this caller alone.
    copy
        None: return views, and copies only if the type or read-only memory requires it (bytes,
        text; tensors from read-only pages). True: return a writable copy that belongs to the caller.
        False: raise ValueError instead of copying the elements of a tensor.
    writable
        None: arrays are writable if `data` is. False: arrays are read-only; tensors, and pickled
        values with tensors, follow `data`. Other values: raise ValueError unless `data` is writable.
    allow_pickle
        Whether pickled values can be read, and modules imported that define namedtuples.
    find
        A function from a digest to the structure of a tree whose object does not have its structure
        (`Encoded.structure`).

    Raises
    ------
    ValueFormatError
        The metadata is foreign or corrupt, or does not match the bytes. No code of the object ran.
    PickleRefusedError
        The value is pickled, and `allow_pickle` is False.
    ImportError
        The value needs a package that is not installed.
    """
    if copy is None and writable is None and metadata.startswith(AN_ARRAY):
        # The fast path: most values are arrays, and none of the cases below applies to them.
        return decode_array(metadata, data if type(data) is memoryview else memoryview(data))
    if type(data) is not memoryview or data.format != "B" or data.ndim != 1:
        data = _wire.as_bytes_view(data)
    kind = _wire.parse_kind(metadata) if metadata else _wire.NOTHING
    if kind == _wire.PICKLE and not allow_pickle:
        raise exceptions.PickleRefusedError("the object is a pickled value, and allow_pickle=False")
    if copy and kind != _wire.ARRAY and not _owns_its_memory(kind, metadata):
        data = _wire.private_copy(data)
    elif writable and data.readonly and not copy:
        raise ValueError("the object's pages are read-only: copy=True gives writable memory")
    if copy is False and data.readonly and wants_private_pages(metadata):
        raise ValueError("a tensor needs memory of its own, and copy=False")
    if kind == _wire.TREE:
        from phalanx._values import packed_trees

        return packed_trees.decode(metadata, data, writable, allow_pickle, find)
    if writable is False and kind != _wire.TENSOR and not wants_private_pages(metadata):
        data = data.toreadonly()
    decoder = _decoders.get(kind) or _load_decoder(kind)
    value = decoder(metadata, data)
    return value.copy(order="K") if copy and kind == _wire.ARRAY else value


# The first bytes of the metadata of every NumPy array.
AN_ARRAY = _wire.pack_head(_wire.ARRAY)


def decode_array(metadata: bytes, data: bytes | memoryview) -> Any:
    """Return a view of `data`, read-only if `data` is.

    The metadata must begin with AN_ARRAY. Equivalent to `decode` with default arguments.
    """
    decoder = _decoders.get(_wire.ARRAY) or _load_decoder(_wire.ARRAY)
    return decoder(metadata, data)


def _owns_its_memory(kind: int, metadata: bytes) -> bool:
    """Whether decoding copies anyway, because no part of the value is a view."""
    if kind == _wire.PICKLE:
        from phalanx._values import pickled

        return not pickled.has_buffers(metadata)
    return kind in _COPIED_ANYWAY


_COPIED_ANYWAY = (_wire.BYTES, _wire.BYTEARRAY, _wire.STR, _wire.PYARRAY, _wire.PLAIN)

_decoders: dict[int, _Decoder] = {
    _wire.NOTHING: lambda metadata, data: data,
    _wire.BYTES: plain.decode_bytes,
    _wire.BYTEARRAY: plain.decode_bytearray,
    _wire.STR: plain.decode_str,
    _wire.MEMORYVIEW: plain.decode_memoryview,
    _wire.PYARRAY: plain.decode_array,
    _wire.PLAIN: plain.decode_plain,
}


def _load_decoder(kind: int) -> _Decoder:
    if kind in (_wire.ARRAY, _wire.SCALAR):
        from phalanx._values import arrays

        _decoders[_wire.ARRAY] = arrays.decode
        _decoders[_wire.SCALAR] = arrays.decode_scalar
    elif kind == _wire.TENSOR:
        from phalanx._values import tensors

        _decoders[kind] = tensors.decode
    elif kind == _wire.PICKLE:
        from phalanx._values import pickled

        _decoders[kind] = pickled.decode
    else:
        raise _wire.malformed(f"kind {kind} of value, which this package does not know")
    return _decoders[kind]


def wants_private_pages(metadata: bytes) -> bool:
    """Whether `decode` needs writable private pages: True for values with torch tensors.

    Never raises. If the metadata is foreign, `decode` reports the error.
    """
    if len(metadata) <= _wire.HEAD.size or metadata[:3] != _wire.MAGIC:
        return False
    if metadata[4] in (_wire.PICKLE, _wire.TREE):
        return bool(metadata[5] & _wire.HAS_TENSORS)
    return metadata[4] == _wire.TENSOR


def copy_into(metadata: bytes, data: memoryview, out: Any) -> None:
    """Copy an object that is one array or tensor into an array or tensor of the caller.

    Raises
    ------
    TypeError
        The object or `out` is not an array or tensor.
    ValueError
        The shapes or dtypes differ.
    """
    kind = _wire.parse_kind(metadata) if metadata else _wire.NOTHING
    if kind not in (_wire.ARRAY, _wire.SCALAR, _wire.TENSOR):
        raise TypeError("out= is for objects that are one array or tensor")
    from phalanx._values import outputs

    outputs.copy_into(_wire.parse_layout(metadata), kind == _wire.TENSOR, data, out)


def metadata_for(shape: int | tuple[int, ...], dtype: Any, order: str = "C") -> tuple[bytes, int]:
    """Return the metadata and the size in bytes of an array that will be written in place.

    `decode` of this metadata and the writable memory is the array.

    Raises
    ------
    TypeError
        Only pickle can store this dtype.
    ValueError
        The shape is negative, or the order is neither "C" nor "F".
    """
    from phalanx._values import arrays

    try:
        sizes: Any = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        lengths = tuple(operator.index(length) for length in sizes)
    except TypeError:
        raise TypeError(f"shape {shape!r}: a whole number or a tuple of whole numbers is expected") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape {lengths} is negative")
    if order not in ("C", "F"):
        raise ValueError(f"order {order!r} is neither 'C' nor 'F'")
    return arrays.metadata_for(lengths, dtype, order)


# ---- trees


def flatten(tree: Any) -> tuple[TreeSpec, Encoded]:
    """Encode a tree of arrays so that it can be reduced, even if its structure is large.

    Returns
    -------
    spec
        The structure. Trees of equal structure have equal specs (``spec.digest``).
    encoded
        The leaves only. The metadata has the structure if it fits, else the digest of it.

    Raises
    ------
    TypeError
        The value is not a tree of arrays.
    """
    from phalanx._values import packed_trees

    try:
        return packed_trees.flatten(tree)
    except NotATree as error:
        raise TypeError(f"no tree of arrays: {error}") from error


def unflatten(
    spec: TreeSpec, data: memoryview, *, writable: object = None, allow_pickle: bool = True
) -> Any:
    """Return the tree with this structure and leaves that are views of `data`.

    Raises
    ------
    ValueFormatError
        `data` has another size.
    """
    from phalanx._values import packed_trees

    return packed_trees.unflatten(spec, data, writable, allow_pickle)


def check_spec(spec: TreeSpec, metadata: bytes) -> None:
    """Raise ValueFormatError unless an object is a flattened tree of exactly this structure."""
    from phalanx._values import packed_trees

    if not metadata or _wire.parse_kind(metadata) != _wire.TREE:
        raise _wire.malformed("the object is no tree")
    packed_trees.check_spec(spec, metadata)


def structure_elsewhere(metadata: bytes) -> bytes | None:
    """Return the digest of a structure that is not in the tree's object; None for all other objects.

    Never raises. If the metadata is foreign, `decode` reports the error.
    """
    if len(metadata) <= _wire.HEAD.size or metadata[:3] != _wire.MAGIC or metadata[4] != _wire.TREE:
        return None
    from phalanx._values import packed_trees

    try:
        return packed_trees.digest_in(metadata)
    except exceptions.ValueFormatError:
        return None


def structure_of(text: Any, digest: bytes) -> TreeSpec:
    """Return the spec from the bytes of `TreeSpec.to_bytes`; raise ValueFormatError if its digest differs."""
    from phalanx._values.trees import TreeSpec

    spec = TreeSpec.from_bytes(text) if isinstance(text, bytes) else None
    if spec is None or spec.digest != digest:
        raise _wire.malformed("what stands for a tree's structure is another's")
    return spec


def open_tree(
    metadata: bytes,
    source: memoryview | Read,
    *,
    copy: bool = False,
    allow_pickle: bool = True,
) -> LazyTree:
    """Return a mapping that makes each value when its key is read.

    Parameters
    ----------
    metadata
        The metadata of an object that is a dict of arrays.
    source
        The bytes of the object; or a function that returns ``[offset, offset + nbytes)`` of them.
    copy
        Whether leaves are private writable copies.
    allow_pickle
        Whether modules that define namedtuples can be imported.

    Raises
    ------
    ValueFormatError
        The object is not a dict of arrays, or it is corrupt.
    """
    from phalanx._values import packed_trees

    if not metadata or _wire.parse_kind(metadata) != _wire.TREE:
        raise _wire.malformed("the object is no tree of arrays")
    return packed_trees.open_tree(metadata, source, copy, allow_pickle)


# ---- reductions


def reduce_runs(metadata: bytes) -> tuple[Run, ...]:
    """Return the runs of elements of a tree of several dtypes; an empty tuple for other objects.

    Raises
    ------
    TypeError
        The object is a tree that cannot be reduced.
    ValueFormatError
        The metadata is foreign or corrupt.
    """
    if not metadata or _wire.parse_kind(metadata) != _wire.TREE:
        return ()
    from phalanx._values import packed_trees

    runs = packed_trees.reduced_runs(metadata)
    return runs if len(runs) > 1 else ()


def reduce_dtype(metadata: bytes) -> str | None:
    """Return the reductions' name of the elements of an object.

    Returns
    -------
    str or None
        "f16", "bf16", "f32", "f64", "i8", "u8", "i16", "i32", "u32", "i64" or "u64". None if the
        metadata is empty, because the dtype is unknown then.

    Raises
    ------
    TypeError
        The object is not one block of such elements; the message names its kind.
    ValueFormatError
        The metadata is foreign or corrupt.
    """
    if not metadata:
        return None
    kind = _wire.parse_kind(metadata)
    if kind == _wire.TREE:
        from phalanx._values import packed_trees

        runs = packed_trees.reduced_runs(metadata)
        if len(runs) > 1:
            names = ", ".join(run.dtype for run in runs)
            raise TypeError(f"a tree of several dtypes ({names}) cannot be reduced as elements of one")
        return runs[0].dtype
    if kind == _wire.PLAIN:
        name, what = plain.reduced_name(metadata), "a Python value that is no float or small int"
    elif kind in (_wire.MEMORYVIEW, _wire.PYARRAY):
        code = _wire.parse_layout(metadata).code
        name, what = plain.reduced_name_of_format(code), f"memory of format {code!r}"
    elif kind in (_wire.ARRAY, _wire.SCALAR, _wire.TENSOR):
        from phalanx._values import dtypes

        code = _wire.parse_layout(metadata).code
        name = dtypes.reduced_name(code, kind == _wire.TENSOR)
        what = f"dtype {dtypes.spoken_name(code)}"
    elif kind == _wire.PICKLE:
        from phalanx._values import pickled

        name, what = None, f"a pickled value ({pickled.reason_of(metadata)})"
    else:
        name, what = None, _KIND_NAMES.get(kind, f"kind {kind} of value")
    if name is None:
        raise TypeError(f"{what} cannot be reduced")
    return name


def leaf_of(metadata: bytes, dtype: str, find: Find | None) -> str | None:
    """Return the place and the type of a tree's first leaf whose elements have a type, for errors.

    Parameters
    ----------
    dtype
        The reductions' name of the type.

    Returns
    -------
    str or None
        As in "value['opt'][3].name is an int". None if the object is not a tree.
    """
    if not metadata or _wire.parse_kind(metadata) != _wire.TREE:
        return None
    from phalanx._values import packed_trees

    return packed_trees.leaf_of(metadata, dtype, find)


def difference(one: bytes, other: bytes, find: Find | None) -> str:
    """Return why two objects cannot be sources of one reduction, for errors.

    The metadata are different, or the sizes.
    """
    kinds = [_wire.parse_kind(each) if each else _wire.NOTHING for each in (one, other)]
    if kinds == [_wire.TREE, _wire.TREE]:
        from phalanx._values import packed_trees

        return packed_trees.difference(one, other, find)
    for kind, each in zip(kinds, (one, other)):
        if kind == _wire.PICKLE:
            from phalanx._values import pickled

            return f"a pickled value ({pickled.reason_of(each)}) cannot be reduced"
    spoken = [_spoken(kind, each) for kind, each in zip(kinds, (one, other))]
    if spoken[0] != spoken[1]:
        return f"the one is {spoken[0]}, the other {spoken[1]}"
    return "in their sizes, or in the order of their axes"


def _spoken(kind: int, metadata: bytes) -> str:
    from phalanx._values import trees

    if kind == _wire.PLAIN:
        return {b"d": "a float", b"q": "an int"}.get(metadata[_wire.HEAD.size :], "a Python value")
    if kind in _LEAVES:
        layout = _wire.parse_layout(metadata)
        return str(trees.Leaf(layout, getattr(trees, _LEAVES[kind]), 0, 0))
    return _KIND_NAMES.get(kind, "an object of another kind")


_LEAVES = {_wire.ARRAY: "OF_ARRAY", _wire.SCALAR: "OF_SCALAR", _wire.TENSOR: "OF_TENSOR"}


_KIND_NAMES = {
    _wire.NOTHING: "an object without metadata",
    _wire.PICKLE: "a pickled value",
    _wire.TREE: "a tree",
    _wire.MEMORYVIEW: "a memoryview",
    _wire.PYARRAY: "an array.array",
    _wire.BYTES: "a bytes object",
    _wire.BYTEARRAY: "a bytearray",
    _wire.STR: "a str",
}
