"""What a server says of a table of a parameter server, as the library's struct and as a value. Checks words and types;
the library checks the rest. Values and functions; any thread.
"""

from __future__ import annotations

from collections import namedtuple

from phalanx import _arguments, exceptions
from phalanx._native import ffi, lib, nanos, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NamedTuple

    class TableSpec(NamedTuple):
        """What a table is."""

        name: str
        keys: int
        width: int
        lengths: bool
        dtype: str
        wire: str
        sync: str
        staleness: int
        split: str
        block: int
        update: str
        rate: float
        momentum: float
        epsilon: float
        beta: float
        l1: float
        l2: float
        init: str
        scale: float
        seed: int
        on_loss: str
        snapshot_every: int
        copies: int
        snapshot_bytes: int

else:
    TableSpec = namedtuple(
        "TableSpec",
        "name keys width lengths dtype wire sync staleness split block update rate momentum epsilon beta l1 l2 init scale "
        "seed on_loss snapshot_every copies snapshot_bytes",
    )
    TableSpec.__doc__ = """What a table is: the arguments of `Server.table`. A value.

    Attributes
    ----------
    name : str
        1 to 255 bytes of UTF-8.
    keys : int
        A dense table has the keys 0 to ``keys - 1``. 0 (or None): a sparse one, with any keys of 64 bits, whose rows are
        made by the first push.
    width : int
        Elements of a row, 1 to 65,536; with `lengths`, the most of a row.
    lengths : bool
        Of sparse tables: each row has a length of its own, 0 to `width` elements, and begins with none. A push that is longer
        than its row lengthens it, by elements that are 0, and updates those elements that it has; with "assign" the row
        gets the length of the push.
    dtype : str
        Of the elements: "f32", "f64", "i32" or "i64"; as an argument also NumPy's dtype of one.
    wire : str
        How pushes and pulls travel: as `dtype` (None), or "f16" or "bf16" for "f32".
    sync, staleness : str, int
        "bsp": a pull has all pushes of the clocks before, and none of this one. "ssp": a worker is at most `staleness`
        clocks ahead of the slowest one. "asp": nothing waits.
    split, block : str, int
        Which server has a key: "range", equal ranges of the keys; "hash"; "blocks", runs of `block` keys in turn; "own",
        of sparse tables: as a function of the workers' program says (`Worker.table`).
    update : str
        What a push does to the values of its keys: "sum" (or "add"), "assign", and for floats "sgd", "momentum", "adagrad"
        and "ftrl". "own": a function of the server's program.
    rate, momentum, epsilon, beta, l1, l2 : float
        Of the updates that have them: `rate` of "sgd", "momentum" and "adagrad", and alpha of "ftrl"; `epsilon` of "adagrad";
        `beta`, `l1` and `l2` of "ftrl".
    init, scale, seed : str, float, int
        What a row has before its first push, the same in every life of a server: "zeros", "uniform" in
        ``[-scale, scale)``, or "normal" with the standard deviation `scale`, by seed and key.
    on_loss : str
        When a worker dies: "wait" for its next life, "drop" it and go on, or "fail" all calls for the table.
    snapshot_every, copies : int
        After so many clocks of all workers each part is written as an object with copies on `copies` other hosts; on all,
        if these are fewer. 0: never, and a server that dies loses its part.
    snapshot_bytes : int
        A worker keeps what it has pushed since the last snapshot. If that is more bytes, its pushes wait for a snapshot.
        0, with "asp": in proportion to the parts, 256 MiB at least.
    """

# In the order of phalanx/c_ps.h: the index is the number.
_SYNCS = ("bsp", "ssp", "asp")
_SPLITS = ("range", "hash", "blocks", "own")
_UPDATES = ("assign", "sum", "sgd", "momentum", "adagrad", "ftrl", "own")
_INITS = ("zeros", "uniform", "normal")
_ON_LOSS = ("wait", "drop", "fail")
_GROUPS = ("workers", "servers", "all")
# Numbers of phalanx/elements.h, and the names of NumPy.
_DTYPES = {"f32": (2, "float32"), "f64": (3, "float64"), "i32": (7, "int32"), "i64": (9, "int64")}
_WIRES = {**_DTYPES, "f16": (0, "float16"), "bf16": (1, "bfloat16")}
_MOST_32, _MOST_64 = (1 << 32) - 1, (1 << 64) - 1
_WHOLE = {
    "keys": _MOST_64,
    "width": _MOST_32,
    "staleness": _MOST_32,
    "block": _MOST_64,
    "seed": _MOST_64,
    "snapshot_every": _MOST_32,
    "copies": _MOST_32,
    "snapshot_bytes": _MOST_64,
}
_REAL = ("rate", "momentum", "epsilon", "beta", "l1", "l2", "scale")


def spec_of(spec: Any) -> TableSpec:
    """Return the library's struct as a value."""
    words = {"sync": _SYNCS, "split": _SPLITS, "update": _UPDATES, "init": _INITS, "on_loss": _ON_LOSS}
    fields = {field: getattr(spec, field) for field in TableSpec._fields}
    fields.update({field: known[fields[field]] for field, known in words.items()})
    fields.update(name=text(spec.name), lengths=bool(spec.lengths), dtype=name_of(spec.dtype), wire=name_of(spec.wire))
    return TableSpec(**fields)


def name_of(number: int) -> str:
    """Return the name of the dtype with this number of the library."""
    return next(name for name, (known, _) in _WIRES.items() if known == number)


def numpy_dtype(dtype: str) -> Any:
    """Return NumPy's dtype for the dtype of a table."""
    import numpy as np

    return np.dtype(_DTYPES[dtype][1])


def library_spec(name: str, spelled: Any, update: Any, given: dict[str, Any]) -> Any:
    """Return the library's struct for the arguments of `Server.table`. `spelled` is the memory of the name."""
    where = f"table {_arguments.shown(name)}"
    spec = ffi.new("phx_ps_table_spec*")
    lib.phx_ps_table_defaults(spec)
    spec.name = spelled
    for field, most in _WHOLE.items():
        setattr(spec, field, _arguments.whole(given[field] or 0, f"{where}: {field}", most=most))
    spec.lengths = _flag(given["lengths"], f"{where}: lengths")
    for field in _REAL:
        setattr(spec, field, _real(given[field], f"{where}: {field}"))
    spec.dtype = _dtype(given["dtype"], f"{where}: dtype", _DTYPES)
    spec.wire = spec.dtype if given["wire"] is None else _dtype(given["wire"], f"{where}: wire", _WIRES)
    spec.sync = _word(given["sync"], f"{where}: sync", _SYNCS)
    spec.split = _word(given["split"], f"{where}: split", _SPLITS)
    spec.init = _word(given["init"], f"{where}: init", _INITS)
    spec.on_loss = _word(given["on_loss"], f"{where}: on_loss", _ON_LOSS)
    if callable(update):
        spec.update = _UPDATES.index("own")
    else:
        word = "sum" if update == "add" else update
        spec.update = _word(word, f"{where}: update", _UPDATES[:-1], ", or a function")
    return spec


def barrier_arguments(group: Any, epoch: Any, timeout: Any) -> tuple[int, Any]:
    """Return the number of a group, and the library's struct, for the arguments of a barrier."""
    options = ffi.new("phx_ps_barrier_options*")
    number = _word(group, "barrier: group", _GROUPS)
    if epoch is not None:
        options.has_epoch, options.epoch = 1, _arguments.whole(epoch, "barrier: epoch", most=_MOST_64 - 1)
    if timeout is not None:
        # 0 stands for the default there.
        options.timeout = nanos(_arguments.seconds_of(timeout)) or 1
    return number, options


def _word(value: Any, name: str, words: Sequence[str], more: str = "") -> int:
    """Return the number of a word."""
    if isinstance(value, str) and value in words:
        return words.index(value)
    expected = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
    raise exceptions.InvalidArgumentError(f"{name}={_arguments.shown(value)}: {expected} is expected{more}")


def _flag(value: Any, name: str) -> int:
    if value is True or value is False:
        return int(value)
    raise TypeError(f"{name}={_arguments.shown(value)}: True or False is expected")


def _real(value: Any, name: str) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"{name}={_arguments.shown(value)}: a number is expected")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={_arguments.shown(value)}: a number is expected") from None


def _dtype(value: Any, name: str, known: dict[str, tuple[int, str]]) -> int:
    """Return the number of a dtype: of a name as in the library, or of what NumPy takes for a dtype."""
    import numpy as np

    if isinstance(value, str) and value in known:
        return known[value][0]
    try:
        dtype = None if value is None else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is not None and dtype.isnative:
        for number, spelled in known.values():
            if dtype.name == spelled:
                return number
    raise exceptions.InvalidArgumentError(f"{name}={_arguments.shown(value)}: one of {', '.join(known)} is expected")
