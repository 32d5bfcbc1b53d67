"""Trees as objects: where the structure is stored, the writer of the leaves, and lazy reading.

Metadata is flags, then one of these:

- the structure, as JSON or compressed;
- its length in bytes, if it does not fit: it is at the head of the payload, padded to 64 bytes; then
  a leaf that keeps such a tree from being reduced;
- its digest, if the payload has leaves only and readers find the structure elsewhere; then the size
  of the payload and, if the tree can be reduced, the name of the one element type, or the name and
  end of each run of several ("f32:128,i64:136").
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from phalanx import exceptions
from phalanx._values import arrays, dtypes, tensors, trees
from phalanx._values._wire import (
    HAS_TENSORS,
    HEAD,
    LARGE_COPY_BYTES,
    MAX_METADATA_BYTES,
    TREE,
    Encoded,
    Reader,
    aligned,
    as_bytes_view,
    check_size,
    copy_bytes,
    malformed,
    pack_head,
    private_copy,
    short,
    write_parts,
)
from phalanx._values.trees import Leaf, Node, Run, TreeSpec

if TYPE_CHECKING:
    from phalanx._values._wire import Part

_FLAGS = struct.Struct("<B")
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 16
_IN_METADATA, _COMPRESSED, _IN_PAYLOAD, _ELSEWHERE = range(4)
_WHERE = 0x0F

_MAX_CACHED = 64
# Every NumPy has arrays of so many axes; more are an error that `arrays.view` reports.
_MAX_AXES = 32
_metadata_cache: dict[bytes, Union[bytes, None]] = {}
_spec_cache: dict[bytes, TreeSpec] = {}
_form_cache: dict[tuple[Any, ...], _Form] = {}

# Returns the bytes [offset, offset + nbytes) of an object.
Read = Callable[[int, int], memoryview]
# Returns the structure with a digest.
Find = Callable[[bytes], TreeSpec]


# ---- writing


class _Form(NamedTuple):
    """What trees of one outline share (`trees.outline_of`): the next one is not scanned.

    Attributes
    ----------
    order
        The indices of the leaves in the order of the payload.
    gaps
        The zeros before each of them, if the payload is made by bytes.join; else empty.
    """

    metadata: bytes
    spec: TreeSpec
    order: tuple[int, ...]
    gaps: tuple[bytes, ...]

    def encode(self, leaves: list[Any]) -> Encoded:
        if not self.gaps:
            return _encoded(self.metadata, self.spec, leaves)
        pieces = [piece for gap, index in zip(self.gaps, self.order) for piece in (gap, leaves[index])]
        return Encoded(self.metadata, self.spec.nbytes, memoryview(b"".join(pieces)))


def _form_of(metadata: bytes, spec: TreeSpec, leaves: list[Any]) -> _Form:
    order = sorted(range(len(leaves)), key=lambda index: spec.leaves[index].offset)
    gaps, at = [], 0
    # A larger payload is written in place, without a copy before.
    if spec.nbytes <= LARGE_COPY_BYTES and _can_be_joined(leaves):
        for leaf in (spec.leaves[index] for index in order):
            gaps.append(bytes(leaf.offset - at))
            at = leaf.offset + leaf.nbytes
    return _Form(metadata, spec, tuple(order), tuple(gaps))


def encode(value: Any) -> Encoded:
    """Encode a tree with its structure, or with the digest if the structure is long and the leaves can be
    reduced.

    Raises
    ------
    NotATree
        The value is not a tree.
    """
    arrays_found: list[Any] = []
    outline = trees.outline_of(value, arrays_found)
    form = None if outline is None else _form_cache.get(outline)
    if form is not None:
        return form.encode(arrays_found)
    spec, leaves = trees.scan(value)
    metadata = _whole_metadata(spec)
    if metadata is not None:
        if outline is not None:
            if len(_form_cache) >= _MAX_CACHED:
                _form_cache.clear()
            _form_cache[outline] = _form_of(metadata, spec, leaves)
        return _encoded(metadata, spec, leaves)
    if spec.runs:
        # A structure inside the payload would be folded like elements, so it becomes an object of
        # its own.
        encoded = _encoded(_elsewhere(spec), spec, leaves)
        encoded.structure = spec
        return encoded
    text = spec.to_bytes()
    why = short(_spoken_leaf(spec, None))
    return _encoded(_pack(_IN_PAYLOAD, spec, _LENGTH.pack(len(text)) + why), spec, leaves, text)


def _can_be_joined(leaves: list[Any]) -> bool:
    """Whether bytes.join takes these arrays; it refuses dtypes without a buffer, such as datetime64."""
    try:
        return len(b"".join(leaves)) == sum(leaf.nbytes for leaf in leaves)
    except (TypeError, ValueError, BufferError):
        return False


def flatten(value: Any) -> tuple[TreeSpec, Encoded]:
    """Encode the leaves of a tree only. The caller stores the structure, which is returned too.

    Raises
    ------
    NotATree
        The value is not a tree.
    """
    spec, leaves = trees.scan(value)
    return spec, _encoded(_whole_metadata(spec) or _elsewhere(spec), spec, leaves)


def _elsewhere(spec: TreeSpec) -> bytes:
    runs = spec.runs
    several = ",".join(f"{run.dtype}:{run.end}" for run in runs)
    described = runs[0].dtype if len(runs) == 1 else several
    return _pack(_ELSEWHERE, spec, spec.digest + _LENGTH.pack(spec.nbytes) + described.encode())


def _pack(where: int, spec: TreeSpec, body: bytes) -> bytes:
    flags = where | (HAS_TENSORS if spec.has_tensors else 0)
    return pack_head(TREE) + _FLAGS.pack(flags) + body


def _whole_metadata(spec: TreeSpec) -> bytes | None:
    """Return metadata with the structure inside; None if it does not fit."""
    text = spec.to_bytes()
    if text in _metadata_cache:
        return _metadata_cache[text]
    room = MAX_METADATA_BYTES - HEAD.size - _FLAGS.size
    packed = trees.compress(text)
    body = min(text, packed, key=len)
    where = _IN_METADATA if body is text else _COMPRESSED
    metadata = _pack(where, spec, body) if len(body) <= room else None
    if len(_metadata_cache) >= _MAX_CACHED:
        _metadata_cache.clear()
    _metadata_cache[text] = metadata
    return metadata


def _encoded(metadata: bytes, spec: TreeSpec, leaves: list[Any], text: bytes = b"") -> Encoded:
    begin = aligned(len(text))
    parts: list[Part] = [
        (begin + leaf.offset, leaf.nbytes, _writer_of(leaf, value))
        for leaf, value in zip(spec.leaves, leaves)
    ]
    parts.sort(key=lambda part: part[:2])
    # Sorted by offset for `write_parts`: leaves are numbered by the tree, not by their place.
    if text:
        parts.insert(0, (0, len(text), lambda target: copy_bytes(target, text, len(text))))
    return Encoded(metadata, begin + spec.nbytes, None, lambda target: write_parts(target, parts))


def _writer_of(leaf: Leaf, value: Any) -> Callable[[memoryview], None]:
    if leaf.is_number:
        return lambda target: trees.write_number(leaf, value, target)
    codec: Any = tensors if leaf.is_tensor else arrays

    def write(target: memoryview) -> None:
        if codec is arrays and leaf.layout.order == "C":
            flat = arrays.flat_bytes(value)
            if flat is not None:
                copy_bytes(target, flat, leaf.nbytes)
                return
        codec.write(leaf.layout, value, target)

    return write


# ---- reading


def digest_in(metadata: bytes) -> bytes | None:
    """Return the digest of a structure that is in neither metadata nor payload; None if it is in one.

    Raises ValueFormatError.
    """
    reader = Reader(metadata)
    where = reader.unpack(_FLAGS)[0] & _WHERE
    return bytes(reader.take(_DIGEST_BYTES)) if where == _ELSEWHERE else None


def spec_in(metadata: bytes, read: Read | None, find: Find | None = None) -> tuple[TreeSpec, int]:
    """Return the structure of an object, and the offset of its first leaf.

    Raises
    ------
    ValueFormatError
        The object is corrupt, or does not have its structure.
    """
    spec = _spec_cache.get(metadata)
    if spec is not None:
        return spec, 0
    reader = Reader(metadata)
    where = reader.unpack(_FLAGS)[0] & _WHERE
    if where == _IN_PAYLOAD and read is not None:
        (length,) = reader.unpack(_LENGTH)
        return TreeSpec.from_bytes(bytes(read(0, length))), aligned(length)
    if where == _ELSEWHERE and find is not None:
        return find(bytes(reader.take(_DIGEST_BYTES))), 0
    if where not in (_IN_METADATA, _COMPRESSED):
        raise malformed("the tree's structure is not in its metadata: unflatten(spec, data)")
    text = reader.rest()
    spec = TreeSpec.from_bytes(trees.decompress(text) if where == _COMPRESSED else text)
    if len(_spec_cache) >= _MAX_CACHED:
        _spec_cache.clear()
    _spec_cache[bytes(metadata)] = spec
    return spec, 0


def reader_of(data: memoryview) -> Read:
    """Return a Read over an object whose bytes are all here."""

    def read(offset: int, nbytes: int) -> memoryview:
        if offset + nbytes > data.nbytes:
            raise malformed(f"{nbytes} bytes at {offset} of {data.nbytes}")
        return data[offset : offset + nbytes]

    return read


def decode(
    metadata: bytes,
    data: memoryview,
    writable: object = None,
    allow_pickle: bool = True,
    find: Find | None = None,
) -> Any:
    """Return a tree whose leaves are views of `data`; raises ValueFormatError."""
    spec, begin = spec_in(metadata, reader_of(data), find)
    check_size("a tree", begin + spec.nbytes, data.nbytes)
    return _build(spec, data[begin:] if begin else data, writable, allow_pickle)


def _build(spec: TreeSpec, data: memoryview, writable: object, allow_pickle: bool) -> Any:
    # Tensors need writable pages; `writable=False` makes only the arrays over them read-only.
    array_data = data.toreadonly() if writable is False else data
    keys, views = _views_of(spec)
    if views:
        frombuffer = sys.modules["numpy"].frombuffer
        # frombuffer keeps the memoryview, and with it the export, alive.
        made = [
            frombuffer(array_data, dtype, count, offset)
            if shape is None
            else frombuffer(array_data, dtype, count, offset).reshape(shape)
            for dtype, count, offset, shape in views
        ]
        if keys is not None:
            return dict(zip(keys, made))
        return trees.build(spec.root, made.__getitem__, allow_pickle)

    def leaf(index: int) -> Any:
        described = spec.leaves[index]
        end = described.offset + described.nbytes
        source = data if described.kind == trees.OF_TENSOR else array_data
        return _view(described, source[described.offset : end])

    return trees.build(spec.root, leaf, allow_pickle)


def _views_of(spec: TreeSpec) -> trees.Views:
    """Return how NumPy makes the leaves; no views unless all leaves are arrays in C order with elements."""
    if spec.views is None:
        usual = all(
            leaf.kind == trees.OF_ARRAY and leaf.layout.order == "C" and leaf.nbytes and leaf.ndim <= _MAX_AXES
            for leaf in spec.leaves
        )
        views: list[Any] = []
        for leaf in spec.leaves if usual else ():
            dtype = dtypes.dtype_of(leaf.layout.code)
            shape = None if leaf.ndim == 1 else leaf.layout.shape
            views.append((dtype, leaf.nbytes // dtype.itemsize, leaf.offset, shape))
        root = spec.root
        is_flat = root.kind == trees.DICT and all(child.kind == trees.LEAF for child in root.children)
        spec.views = root.keys if is_flat else None, tuple(views)
    return spec.views


def _view(leaf: Leaf, data: memoryview) -> Any:
    """Return an array or tensor over `data`, or a number."""
    if leaf.kind == trees.OF_ARRAY:
        return arrays.view(leaf.layout, data)
    return tensors.view(leaf.layout, data) if leaf.is_tensor else trees.read_number(leaf, data)


def unflatten(
    spec: TreeSpec, data: memoryview, writable: object = None, allow_pickle: bool = True
) -> Any:
    """Return the tree with the payload `data`; raises ValueFormatError if the sizes differ."""
    data = as_bytes_view(data)
    check_size("a tree of this structure", spec.nbytes, data.nbytes)
    return _build(spec, data, writable, allow_pickle)


def check_spec(spec: TreeSpec, metadata: bytes) -> None:
    """Raise ValueFormatError unless `metadata` belongs to a tree of exactly this structure."""
    reader = Reader(metadata)
    where = reader.unpack(_FLAGS)[0] & _WHERE
    if where == _ELSEWHERE:
        same = reader.take(_DIGEST_BYTES) == spec.digest
    else:
        same = where != _IN_PAYLOAD and spec_in(metadata, None)[0] == spec
    if not same:
        raise malformed("the object is a tree of another structure")


def reduced_runs(metadata: bytes) -> tuple[Run, ...]:
    """Return the runs that a reduction of such objects folds; raises TypeError if there are none."""
    reader = Reader(metadata)
    where = reader.unpack(_FLAGS)[0] & _WHERE
    if where == _IN_PAYLOAD:
        raise TypeError(f"{_stored_leaf(reader)}, which cannot be reduced")
    if where == _ELSEWHERE:
        reader.take(_DIGEST_BYTES)
        (nbytes,) = reader.unpack(_LENGTH)
        runs = _parse_runs(reader.rest(), nbytes)
        if not runs:
            raise TypeError("a tree with elements of a dtype that has no sums cannot be reduced")
        return runs
    spec = spec_in(metadata, None)[0]
    if not spec.runs:
        raise TypeError(f"{_spoken_leaf(spec, None)}, which cannot be reduced")
    return spec.runs


def _stored_leaf(reader: Reader) -> str:
    """Return the leaf that keeps a tree with its structure in the payload from being reduced."""
    reader.take(_LENGTH.size)
    return reader.rest().decode("utf-8", "replace")


def _spoken_leaf(spec: TreeSpec, dtype: str | None) -> str:
    """Return the place and the type of the first leaf with elements of a type; None: not reducible."""
    for index, leaf in enumerate(spec.leaves):
        if leaf.dtype == dtype:
            return f"{spec.path_of(index)} is {leaf}"
    return "the tree has another structure"


def leaf_of(metadata: bytes, dtype: str, find: Find | None) -> str:
    """Return the place and the type of the first leaf with elements of this type, for errors."""
    return _spoken_leaf(spec_in(metadata, None, find)[0], dtype)


def difference(one: bytes, other: bytes, find: Find | None) -> str:
    """Return the first difference of two trees, for errors."""
    for metadata in (one, other):
        reader = Reader(metadata)
        if reader.unpack(_FLAGS)[0] & _WHERE == _IN_PAYLOAD:
            return f"{_stored_leaf(reader)}, which cannot be reduced"
    first, second = spec_in(one, None, find)[0], spec_in(other, None, find)[0]
    for index, (left, right) in enumerate(zip(first.leaves, second.leaves)):
        if left._replace(offset=0) == right._replace(offset=0):
            continue
        place = first.path_of(index)
        if place != second.path_of(index):
            break
        return f"{place} is {left} in the one and {right} in the other"
    return "the trees have other keys"


def _parse_runs(described: bytes, nbytes: int) -> tuple[Run, ...]:
    if not described:
        return ()
    text = described.decode("ascii", "replace")
    if ":" not in text:
        text = f"{text}:{nbytes}"
    runs: list[Run] = []
    for part in text.split(","):
        # The metadata comes from other processes: a run must end on a boundary that the writer can
        # produce.
        name, _, end = part.partition(":")
        known = name in dtypes.REDUCED_NAMES.values() and end.isdigit() and len(end) < 20
        begin = runs[-1].end if runs else 0
        if not known or begin % 64 != 0 or (begin >= int(end) and nbytes > 0):
            raise malformed(f"{part[:40]!r} as a run of elements")
        runs.append(Run(name, int(end)))
    if runs[-1].end != nbytes:
        raise malformed(f"runs of elements that end at {runs[-1].end} of {nbytes}")
    return tuple(runs)


# ---- one key at a time


class LazyTree(Mapping[Any, Any]):
    """A dict of arrays that makes each array when its key is read.

    Values that are dicts are LazyTrees too; all others are made whole. Any thread.

    Parameters
    ----------
    node
        A dict.
    spec
        The spec of the whole tree.
    read
        Returns ranges of the payload, which begins with the first leaf.
    copy
        Whether each leaf is a private writable copy.
    allow_pickle
        Whether modules that define namedtuples can be imported.
    """

    __slots__ = ("_allow_pickle", "_children", "_copy", "_node", "_read", "_spec")

    def __init__(
        self, node: Node, spec: TreeSpec, read: Read, copy: bool, allow_pickle: bool
    ) -> None:
        self._node = node
        self._spec = spec
        self._read = read
        self._copy = copy
        self._allow_pickle = allow_pickle
        self._children = dict(zip(node.keys, node.children))

    def __getitem__(self, key: Any) -> Any:
        node = self._children[key]
        if node.kind in (trees.DICT, trees.ORDERED):
            return LazyTree(node, self._spec, self._read, self._copy, self._allow_pickle)
        return trees.build(node, self._leaf, self._allow_pickle)

    def _leaf(self, index: int) -> Any:
        leaf = self._spec.leaves[index]
        data = as_bytes_view(self._read(leaf.offset, leaf.nbytes))
        if self._copy:
            data = private_copy(data)
        return _view(leaf, data)

    def load(self) -> Any:
        """Return the whole value, as it was put."""
        return trees.build(self._node, self._leaf, self._allow_pickle)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __repr__(self) -> str:
        return f"<LazyTree: {', '.join(map(repr, self._children))}>"


def open_tree(
    metadata: bytes, source: memoryview | Read, copy: bool = False, allow_pickle: bool = True
) -> LazyTree:
    """Return a LazyTree over an object that is a dict of arrays.

    Raises
    ------
    ValueFormatError
        The object is corrupt, or not a dict.
    """
    read = source if callable(source) else reader_of(as_bytes_view(source))
    spec, begin = spec_in(metadata, read)
    if not callable(source):
        check_size("a tree", begin + spec.nbytes, as_bytes_view(source).nbytes)
    if spec.root.kind not in (trees.DICT, trees.ORDERED):
        raise exceptions.ValueFormatError("the object is no dict: it has no keys to get one by one")
    shifted = read if begin == 0 else lambda offset, nbytes: read(begin + offset, nbytes)
    return LazyTree(spec.root, spec, shifted, copy, allow_pickle)
