"""Trees of arrays as one object: the leaves one after the other, and their structure.

A tree is a nest of exact dicts, OrderedDicts, lists, tuples, namedtuples and Nones with at least
one leaf. All leaves are exact ndarrays, exact CPU tensors, arrays of DLPack, or numbers: NumPy
scalars, and exact floats and ints of 64 bits. If the tree has anything else, or a key that is not a
plain scalar (or a tuple of scalars), the whole value is pickled.

Leaves are sorted in the payload by the type of their elements (in the order in which the types
first occur), with zeros between: arrays and tensors at multiples of 64 bytes, numbers at multiples
of their size. So each type is one range, and a tree of one type is one block that folds element by
element, including padding.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import struct
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Union

from phalanx import exceptions
from phalanx._values import dlpack, dtypes
from phalanx._values._wire import Layout, NotATree, aligned, check_order, malformed

_MAX_DEPTH = 64
# A tree with more numbers is pickled: each of them is a leaf, which costs more than its pickle.
MAX_NUMBERS = 256
_TOO_MANY = f"it has more than {MAX_NUMBERS} numbers: put them as an array"

LEAF, NONE, DICT, ORDERED, LIST, TUPLE, NAMED = "xzdoltn"


class Node(NamedTuple):
    """A part of a tree: its kind, its children, and their keys."""

    kind: str
    keys: tuple[Any, ...] = ()
    children: tuple[Node, ...] = ()
    # LEAF: the index; NAMED: "module:qualname"; ORDERED: the `_metadata`.
    extra: Any = None


# Kinds of leaves.
OF_ARRAY, OF_TENSOR, OF_SCALAR, OF_INT, OF_FLOAT = "", "t", "s", "int", "float"
# The leaf of a Python number has the dtype that NumPy gives it.
_NUMBERS = {OF_INT: Layout("<i8", (), "C"), OF_FLOAT: Layout("<f8", (), "C")}
_PACKED = {OF_INT: struct.Struct("<q"), OF_FLOAT: struct.Struct("<d")}


class Leaf(NamedTuple):
    """One array, tensor or number of a tree, and the range of its bytes."""

    layout: Layout
    kind: str
    offset: int
    nbytes: int

    @property
    def is_tensor(self) -> bool:
        return self.kind == OF_TENSOR

    @property
    def ndim(self) -> int:
        return len(self.layout.shape)

    @property
    def is_number(self) -> bool:
        """Whether the leaf is a NumPy scalar, an int or a float."""
        return self.kind not in (OF_ARRAY, OF_TENSOR)

    @property
    def dtype(self) -> str | None:
        """The reductions' name of the type of the elements; None if it cannot be reduced."""
        return dtypes.reduced_name(self.layout.code, self.is_tensor)

    def __str__(self) -> str:
        if self.kind in (OF_INT, OF_FLOAT):
            return f"{'an' if self.kind == OF_INT else 'a'} {self.kind}"
        what = {OF_ARRAY: "an array", OF_TENSOR: "a tensor", OF_SCALAR: "a NumPy scalar"}[self.kind]
        name = self.layout.code if self.is_tensor else dtypes.spoken_name(self.layout.code)
        shape = "" if self.kind == OF_SCALAR else f" and shape {self.layout.shape}"
        return f"{what} of {name}{shape}"


class Group(NamedTuple):
    """The range of a payload that has all elements of one type, with zeros between leaves.

    Attributes
    ----------
    dtype
        The reductions' name of the type; None if it cannot be reduced.
    name
        The name of the type for errors.
    offset, nbytes
        The range, in bytes.
    """

    dtype: str | None
    name: str
    offset: int
    nbytes: int


class Run(NamedTuple):
    """A range of a payload that a reduction folds as one type. It begins at the end of the previous run.

    Attributes
    ----------
    dtype
        The reductions' name of the type.
    end
        An offset in bytes. The end of the last run is the size of the payload.
    """

    dtype: str
    end: int


# The keys of a dict without other containers in it, else None; and the dtype, count, offset and shape
# (None: flat) of each leaf.
Views = tuple[Union[tuple[Any, ...], None], tuple[Any, ...]]


class TreeSpec:
    """The structure of a tree and the layout of its payload. Constant; any thread.

    Attributes
    ----------
    nbytes
        The size of the payload in bytes.
    groups
        One for each type of elements; together they cover the payload except padding.
    runs
        The runs of a reduction, one for each type with elements; empty if a type cannot be reduced.
    views
        A cache of `packed_trees`. None: it is empty.
    """

    __slots__ = ("_digest", "_json", "groups", "leaves", "nbytes", "root", "runs", "views")

    def __init__(self, text: bytes) -> None:
        self.root, leaves = _parse(text)
        self.leaves, self.groups, self.nbytes = _lay_out(leaves)
        self._json = text
        self._digest: bytes | None = None
        self.runs = self._runs()
        self.views: Views | None = None

    @property
    def dtype(self) -> str | None:
        """The reductions' name of the type of all elements; None if there are several types, or no name."""
        return self.groups[0].dtype if len(self.groups) == 1 else None

    def _runs(self) -> tuple[Run, ...]:
        present = [group for group in self.groups if group.nbytes > 0]
        if not present:
            present = [group for group in self.groups if group.dtype is not None][:1]
        ends = [*(group.offset for group in present[1:]), self.nbytes]
        runs = tuple(Run(group.dtype, end) for group, end in zip(present, ends) if group.dtype is not None)
        return runs if len(runs) == len(present) else ()

    @property
    def has_tensors(self) -> bool:
        """Whether some leaves are torch tensors."""
        return any(leaf.is_tensor for leaf in self.leaves)

    def path_of(self, index: int) -> str:
        """Return the place of a leaf in the tree, as Python code: "value['opt'][3].name"."""
        return _spoken(_path_of(self.root, index))

    @property
    def digest(self) -> bytes:
        """16 bytes that are equal only for equal structures."""
        if self._digest is None:
            self._digest = hashlib.blake2b(self._json, digest_size=16).digest()
        return self._digest

    def to_bytes(self) -> bytes:
        """Return the structure in the form that `from_bytes` reads. Equal structures give equal bytes."""
        return self._json

    @classmethod
    def from_bytes(cls, text: bytes) -> TreeSpec:
        """Return the spec from the bytes of `to_bytes`; raises ValueFormatError."""
        text = bytes(text)
        spec = _specs.get(text)
        if spec is None:
            spec = cls(text)
            if len(_specs) >= _MAX_CACHED:
                _specs.clear()
            if len(text) <= _MAX_CACHED_BYTES:
                _specs[text] = spec
        return spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        types = ", ".join(group.name for group in self.groups)
        return f"<TreeSpec: {len(self.leaves)} leaves of {types}, {self.nbytes} bytes>"


_MAX_CACHED = 64
_MAX_CACHED_BYTES = 64 << 10
_specs: dict[bytes, TreeSpec] = {}


def _lay_out(leaves: Sequence[Leaf]) -> tuple[tuple[Leaf, ...], tuple[Group, ...], int]:
    """Return the leaves with their offsets, the groups, and the size of the payload."""
    by_element: dict[str, list[int]] = {}
    for index, leaf in enumerate(leaves):
        by_element.setdefault(leaf.dtype or leaf.layout.code, []).append(index)
    placed: dict[int, Leaf] = {}
    groups = []
    end = 0
    for element, indices in by_element.items():
        begin = end = aligned(end)
        for index in indices:
            leaf = leaves[index]
            # Numbers lie close together; 64 bytes for each would be eight times their size.
            offset = -(-end // leaf.nbytes) * leaf.nbytes if leaf.is_number else aligned(end)
            placed[index] = leaf._replace(offset=offset)
            end = offset + leaf.nbytes
        dtype = leaves[indices[0]].dtype
        groups.append(Group(dtype, dtype or dtypes.spoken_name(element), begin, end - begin))
    return tuple(placed[index] for index in range(len(leaves))), tuple(groups), end


# ---- from a value


def scan(value: Any) -> tuple[TreeSpec, list[Any]]:
    """Return the spec of a tree and its leaves, in the order of the spec.

    Raises
    ------
    NotATree
        The value is not a tree.
    TypeError
        A leaf is on another device.
    """
    scanner = _Scanner()
    structure = scanner.visit(value, None, 0)
    if not scanner.values:
        raise NotATree("no array and no number in it")
    document = [structure, scanner.described]
    text = json.dumps(document, separators=(",", ":")).encode()
    return TreeSpec.from_bytes(text), scanner.values


def outline_of(tree: Any, arrays: list[Any]) -> tuple[Any, ...] | None:
    """Return the kinds, keys, dtypes and shapes of a usual tree, which are equal only for equal structures.

    None: the tree has something else than arrays in C order in dicts with text as keys, lists and
    tuples, and `scan` decides. Adds the arrays to `arrays` in the order of the leaves.
    """
    np = sys.modules.get("numpy")
    return None if np is None else _outline(tree, arrays, np.ndarray, 0)


def _outline(tree: Any, arrays: list[Any], ndarray: type, depth: int) -> tuple[Any, ...] | None:
    kind = type(tree)
    parts: list[Any] = [kind]
    children = tree
    if kind is dict:
        keys = tuple(tree)
        if set(map(type, keys)) != {str}:
            return None
        parts.append(keys)
        children = tree.values()
    elif (kind is not list and kind is not tuple) or depth > _MAX_DEPTH:
        return None
    for child in children:
        if type(child) is ndarray:
            dtype = child.dtype
            # Dtypes with fields can be equal although their codes differ.
            if dtype.names is not None or not child.flags.c_contiguous:
                return None
            arrays.append(child)
            parts.append((dtype, child.shape))
            continue
        inner = _outline(child, arrays, ndarray, depth + 1)
        if inner is None:
            return None
        parts.append(inner)
    return tuple(parts)


# The place of a value in its tree: the place of its container, its key there, and whether the key
# is the name of a field.
Path = Union["tuple[Path, Any, bool]", None]


def _spoken(path: Path) -> str:
    keys = []
    while path is not None:
        path, key, is_field = path
        keys.append(f".{key}" if is_field else f"[{key!r}]")
    return "value" + "".join(reversed(keys))


def _path_of(root: Node, index: int) -> Path:
    """Return the place of the leaf with this index; a linear search, for errors."""
    open_nodes: list[tuple[Node, Path]] = [(root, None)]
    while open_nodes:
        node, path = open_nodes.pop()
        if node.kind == LEAF and node.extra == index:
            return path
        keys = node.keys or range(len(node.children))
        is_field = node.kind == NAMED
        open_nodes.extend((child, (path, key, is_field)) for key, child in zip(keys, node.children))
    return None


class _Scanner:
    """Converts a tree into the JSON document of its structure, and collects the leaves."""

    def __init__(self) -> None:
        np = sys.modules.get("numpy")
        self._ndarray = None if np is None else np.ndarray
        self._numbers = 0
        self.values: list[Any] = []
        self.described: list[Any] = []

    def visit(self, value: Any, path: Path, depth: int) -> Any:
        """Return the document of a value; raises NotATree."""
        kind = type(value)
        if kind is self._ndarray:
            return self._add_array(value, path)
        if value is None:
            return None
        if kind is float or kind is int:
            if kind is int and not -(2**63) <= value < 2**63:
                raise NotATree(f"{_spoken(path)} is an int of more than 64 bits")
            return self._add_number(value, OF_INT if kind is int else OF_FLOAT)
        if depth > _MAX_DEPTH:
            raise NotATree(f"nested more than {_MAX_DEPTH} deep")
        if kind is dict or kind is OrderedDict:
            keys = [_key_document(key, path) for key in value]
            children = [self.visit(child, (path, key, False), depth + 1) for key, child in value.items()]
            extra = None if kind is dict else _attributes_of(value, path)
            document = [DICT if kind is dict else ORDERED, keys, children]
            return document if extra is None else [*document, extra]
        if kind is list or kind is tuple or is_named_tuple(kind):
            if len(value) > MAX_NUMBERS:
                # The usual long list: found out without a visit of each number.
                kinds = list(map(type, value[: MAX_NUMBERS + 1]))
                if kinds.count(int) + kinds.count(float) > MAX_NUMBERS:
                    raise NotATree(_TOO_MANY)
            named = kind is not list and kind is not tuple
            if named and len(value) != len(kind._fields):
                raise NotATree(f"{_spoken(path)} has {len(value)} items for {len(kind._fields)} fields")
            places: Iterable[Any] = kind._fields if named else range(len(value))
            children = [
                self.visit(child, (path, key, named), depth + 1) for key, child in zip(places, value)
            ]
            if named:
                return [NAMED, list(kind._fields), children, _name_of(kind, path)]
            return [LIST if kind is list else TUPLE, children]
        return self._add_other(value, kind, path)

    def _add_array(self, array: Any, path: Path) -> int:
        from phalanx._values import arrays

        document = arrays.leaf_document(array)
        if document is None:
            raise NotATree(f"{_spoken(path)} is an array of {array.dtype}")
        self.values.append(array)
        self.described.append(document)
        return 0

    def _add_other(self, leaf: Any, kind: type, path: Path) -> int:
        from phalanx._values import tensors

        if tensors.is_tensor_type(kind):
            layout = tensors.layout_of(leaf)
            if layout is None:
                raise NotATree(f"{_spoken(path)} is a tensor of {leaf.dtype} and {leaf.layout}")
            self.values.append(leaf)
            code = ("g:" if layout.requires_grad else "t:") + layout.code
            self.described.append(_leaf_document(code, layout))
            return 0
        ours = tensors.is_tensor_subclass(kind)
        if self._ndarray is not None:
            np = sys.modules["numpy"]
            # Text and records have other forms than one element: NumPy cuts zeros off text.
            if issubclass(kind, np.generic) and not issubclass(kind, (np.character, np.void)):
                spelled = dtypes.code_of(leaf.dtype)
                if spelled is not None:
                    return self._add_number(leaf, f"{OF_SCALAR}:{spelled}")
            ours = ours or issubclass(kind, (self._ndarray, np.generic))
        if ours or not dlpack.speaks(kind):
            raise NotATree(f"{_spoken(path)} is a {kind.__name__}")
        return self._add_array(dlpack.as_array(leaf), path)

    def _add_number(self, leaf: Any, described: str) -> int:
        self._numbers += 1
        if self._numbers > MAX_NUMBERS:
            raise NotATree(_TOO_MANY)
        self.values.append(leaf)
        self.described.append(described)
        return 0


def _leaf_document(code: str, layout: Layout) -> list[Any]:
    """[code, shape] and, unless it is C, the order. Tensors: "t:" code, or "g:" if they require grad."""
    if layout.order == "C":
        return [code, layout.shape]
    return [code, layout.shape, layout.order]


def is_named_tuple(kind: type) -> bool:
    """Whether a type was made by ``namedtuple`` or ``NamedTuple``."""
    fields = getattr(kind, "_fields", None)
    return (
        kind.__bases__ == (tuple,)
        and type(fields) is tuple
        and all(type(field) is str for field in fields)
    )


def _key_document(key: Any, path: Path) -> Any:
    kind = type(key)
    if kind is str or key is None or kind is bool or (kind is int and abs(key) < 2**63):
        return key
    if kind is tuple:
        return [_key_document(part, path) for part in key]
    raise NotATree(f"{_spoken(path)} has the key {key!r} of type {kind.__name__}")


def _attributes_of(value: OrderedDict[Any, Any], path: Path) -> Any:
    """Return torch's attributes of a state dict: versions, as plain text and numbers."""
    attributes = vars(value)
    if not attributes:
        return None
    known = attributes.get("_metadata")
    if len(attributes) == 1 and isinstance(known, dict):
        try:
            plain = json.loads(json.dumps(known, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            plain = None
        if plain == known:
            return plain
    raise NotATree(f"{_spoken(path)} has attributes of its own")


def _name_of(kind: type, path: Path) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or _look_up(kind.__module__, kind.__qualname__) is not kind:
        raise NotATree(f"{_spoken(path)} is a {kind.__qualname__} that cannot be imported by name")
    return name


def _look_up(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


# ---- from JSON: the structure with leaves in order, then the leaves


def _parse(text: bytes) -> tuple[Node, list[Leaf]]:
    try:
        structure, described = json.loads(text)
        leaves = [_parse_leaf(each) for each in described]
        counter = iter(range(len(leaves)))
        root = _parse_node(structure, counter, 0)
        if next(counter, None) is not None or not leaves:
            raise ValueError("leaves that are nowhere in the structure")
    except exceptions.ValueFormatError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise malformed(f"corrupt structure of a tree: {error or type(error).__name__}") from error
    return root, leaves


def _parse_key(document: Any) -> Any:
    if isinstance(document, list):
        return tuple(_parse_key(part) for part in document)
    if document is not None and type(document) not in (str, int, bool):
        raise ValueError(f"{document!r} as a key")
    return document


def _parse_node(document: Any, counter: Iterator[int], depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if document is None:
        return Node(NONE)
    if type(document) is int and document == 0:
        index = next(counter, None)
        if index is None:
            raise ValueError("more leaves in the structure than are described")
        return Node(LEAF, extra=index)
    kind = document[0]
    if kind in (LIST, TUPLE):
        keys, (children,), extra = [], document[1:], None
    elif kind in (DICT, ORDERED, NAMED):
        keys, children, *more = document[1:]
        (extra,) = more or [None]
    else:
        raise ValueError(f"{kind!r} as a kind of node")
    if not isinstance(children, list) or not isinstance(keys, list):
        raise ValueError("children that are no list")
    if kind in (DICT, ORDERED, NAMED) and len(keys) != len(children):
        raise ValueError(f"{len(keys)} keys of {len(children)} children")
    if kind == NAMED and not (isinstance(extra, str) and ":" in extra):
        raise ValueError("a namedtuple without a name")
    if kind == ORDERED and not (extra is None or isinstance(extra, dict)):
        raise ValueError("attributes that are no dict")
    return Node(
        kind,
        tuple(_parse_key(key) for key in keys),
        tuple(_parse_node(child, counter, depth + 1) for child in children),
        extra,
    )


def _parse_number(described: str) -> Leaf:
    from phalanx._values import arrays

    layout = _NUMBERS.get(described)
    if layout is not None:
        return Leaf(layout, described, 0, 8)
    kind, _, code = described.partition(":")
    if kind != OF_SCALAR:
        raise ValueError(f"a leaf {described!r}")
    layout = Layout(code, (), "C")
    return Leaf(layout, OF_SCALAR, 0, arrays.size_of(layout))


def _parse_leaf(document: Any) -> Leaf:
    from phalanx._values import arrays, tensors

    if type(document) is str:
        return _parse_number(document)
    code, lengths, *more = document
    (order,) = more or ["C"]
    shape = tuple(lengths)
    if type(code) is not str or not all(type(each) is int and 0 <= each for each in shape):
        raise ValueError(f"a leaf of shape {shape!r}")
    order = tuple(order) if isinstance(order, list) else order
    check_order(order, len(shape))
    is_tensor = code[:2] in ("t:", "g:")
    layout = Layout(code[2:] if is_tensor else code, shape, order, code[:2] == "g:")
    size = (tensors if is_tensor else arrays).size_of(layout)
    return Leaf(layout, OF_TENSOR if is_tensor else OF_ARRAY, 0, size)


def compress(text: bytes) -> bytes:
    """Compress a structure."""
    return zlib.compress(text, 9)


def decompress(packed: bytes) -> bytes:
    """Return a decompressed structure; raises ValueFormatError.

    zlib expands a byte to at most 1032: 4 MiB for the largest metadata.
    """
    try:
        machine = zlib.decompressobj()
        text = machine.decompress(packed)
    except zlib.error as error:
        raise malformed(f"corrupt structure of a tree: {error}") from error
    if not machine.eof or machine.unused_data:
        raise malformed("corrupt structure of a tree: it does not end where it should")
    return text


# ---- numbers


def write_number(leaf: Leaf, value: Any, target: memoryview) -> None:
    """Write the element of a number."""
    packed = _PACKED.get(leaf.kind)
    target[:] = value.tobytes() if packed is None else packed.pack(value)


def read_number(leaf: Leaf, data: memoryview) -> Any:
    """Return a number: a NumPy scalar, an int or a float."""
    packed = _PACKED.get(leaf.kind)
    if packed is not None:
        return packed.unpack(data)[0]
    from phalanx._values import arrays

    return arrays.view(leaf.layout, data)[()]


# ---- to a value


def build(node: Node, leaf: Callable[[int], Any], allow_import: bool) -> Any:
    """Return the value of a node; `leaf(index)` returns the leaves."""
    if node.kind == LEAF:
        return leaf(node.extra)
    if node.kind == NONE:
        return None
    children = [build(child, leaf, allow_import) for child in node.children]
    if node.kind == LIST:
        return children
    if node.kind == TUPLE:
        return tuple(children)
    if node.kind == DICT:
        return dict(zip(node.keys, children))
    if node.kind == ORDERED:
        ordered = OrderedDict(zip(node.keys, children))
        if node.extra is not None:
            ordered._metadata = OrderedDict(node.extra)  # type: ignore[attr-defined]
        return ordered
    return tuple.__new__(_named_tuple(node, allow_import), children)


def _named_tuple(node: Node, allow_import: bool) -> Any:
    module, _, qualname = node.extra.partition(":")
    if module not in sys.modules:
        if not allow_import:
            raise exceptions.PickleRefusedError(
                f"the value has a {node.extra}, whose module is not imported yet, and "
                "allow_pickle=False"
            )
        try:
            importlib.import_module(module)
        except (ValueError, TypeError) as error:
            raise malformed(f"{node.extra[:80]!r} names no namedtuple") from error
    kind = _look_up(module, qualname)
    if not (isinstance(kind, type) and is_named_tuple(kind)):
        raise malformed(f"{node.extra} is no namedtuple here")
    if kind._fields != node.keys:  # type: ignore[attr-defined]
        raise malformed(f"{node.extra} has other fields here")
    return kind
