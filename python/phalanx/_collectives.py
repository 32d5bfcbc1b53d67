"""Reductions, allgather and barriers.

There are no groups, no ranks to join and no common start: every task that knows the refs takes
part. A task that runs again makes the same calls again. See docs/collectives.md for the steps and
the bytes on the wire.

Owns the options and elements of reductions, and `Reduction`, the handle of an open one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence

from phalanx import (
    _arguments,
    _calls,
    _native,
    _objects,
    _status,
    _values,
    _waiting,
    exceptions,
)
from phalanx._objects import failures, structures
from phalanx._connection import DEFAULT, Connection
from phalanx._native import ffi, lib, nanos
from phalanx._ref import ObjectRef, checked, id_for, ids_for, made_by, several
from phalanx._typing import Generic, TypeVar
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._typing import Op, Order, Root
    from phalanx._values.trees import TreeSpec
    from phalanx._waiting import Steps

    T = TypeVar("T", default=Any)
else:
    T = TypeVar("T")

# In the order of ReduceOp in phalanx/elements.h: the index is the number.
_OPS = ("sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor", "mean")
_UFUNCS = {
    "add": "sum",
    "multiply": "prod",
    "minimum": "min",
    "maximum": "max",
    "bitwise_and": "bit-and",
    "bitwise_or": "bit-or",
    "bitwise_xor": "bit-xor",
}


def op_number(op: Any) -> int:
    """Return the number of an op by its name or NumPy's ufunc of it."""
    name = op if isinstance(op, str) else _UFUNCS.get(getattr(op, "__name__", ""), "")
    if name not in _OPS:
        raise exceptions.InvalidArgumentError(
            f"no op of reductions: {op!r}; there are {', '.join(_OPS)} and NumPy's ufuncs of them"
        )
    return _OPS.index(name)


def reduced_names() -> dict[str, str]:
    """Return the reductions' names of NumPy's dtypes, in the order of DType in phalanx/elements.h."""
    from phalanx._values import dtypes

    return dtypes.REDUCED_NAMES


def _number_of(reduced: str) -> int:
    return list(reduced_names().values()).index(reduced)


def _dtype_number(dtype: Any) -> int:
    """Return the number of a caller's dtype: a NumPy or torch dtype, or the name of one."""
    names = reduced_names()
    spelled = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if spelled is None:
        spelled = getattr(dtype, "__name__", None) or str(dtype)
    # NumPy counts bytes and reductions count bits, so these two names have two meanings.
    if spelled in ("i8", "u8"):
        raise exceptions.InvalidArgumentError(
            f"dtype={spelled!r} has 8 bits here and 8 bytes in NumPy: give numpy.int8 or numpy.int64"
        )
    if spelled not in names.values() and spelled[1:].isdigit():
        import numpy as np

        with contextlib.suppress(TypeError):
            spelled = np.dtype(spelled).name
    name = names.get(spelled.removeprefix("torch."), spelled)
    if name not in names.values():
        raise exceptions.InvalidArgumentError(
            f"elements of {dtype!r} cannot be reduced; those of {', '.join(names)} can"
        )
    return _number_of(name)


# The library's number of each dtype, and the end of its run in bytes. For a single run the end is
# not used.
_Elements = list[tuple[int, int]]


@functools.lru_cache(256)
def _elements_in(metadata: bytes, nbytes: int) -> _Elements:
    """Return the elements of objects with this metadata and size.

    Raises
    ------
    ValueFormatError
        The size does not match the metadata.
    InvalidArgumentError
        The metadata is empty, so the dtype is unknown.
    """
    runs = _values.reduce_runs(metadata)
    if runs and runs[-1].end != nbytes:
        raise exceptions.ValueFormatError(
            f"an object of {nbytes} bytes has the metadata of a tree of {runs[-1].end}"
        )
    if runs:
        return [(_number_of(run.dtype), run.end) for run in runs]
    name = _values.reduce_dtype(metadata)
    if name is None:
        raise exceptions.InvalidArgumentError("the sources do not tell their dtype: give dtype=")
    return [(_number_of(name), 0)]


def _elements_like(dtype: Any, op: Any) -> _Elements:
    """Return the elements that a caller's `dtype` argument describes: a dtype, or a tree of arrays."""
    if isinstance(dtype, (dict, list, tuple)):
        like = _values.encode(dtype)
        elements = _elements_in(like.metadata, like.nbytes)
        _check_op(op, elements, like.metadata, lambda _: like.structure)
        return elements
    return [(_dtype_number(dtype), 0)]


@functools.lru_cache(256)
def _unsupported(name: str, numbers: tuple[int, ...]) -> str | None:
    """Return the first of these dtypes that does not support the op; None: all do."""
    names = list(reduced_names().values())
    for number in numbers:
        is_float = names[number][0] in "fb"
        if is_float if name.startswith("bit-") else not is_float and name == "mean":
            return names[number]
    return None


def _check_op(op: Any, elements: _Elements, metadata: bytes, find: Callable[[bytes], TreeSpec]) -> None:
    """Raise InvalidArgumentError if a leaf of a tree does not support the op; the error has its place.

    The library makes the same check, but knows no leaves.
    """
    name = _OPS[op_number(op)]
    dtype = _unsupported(name, tuple([number for number, _ in elements]))
    if dtype is None:
        return
    leaf = None
    # If the structure of the tree is gone, the library's error has to do.
    with contextlib.suppress(exceptions.ObjectLostError):
        leaf = _values.leaf_of(metadata, dtype, find)
    if leaf is not None:
        raise exceptions.InvalidArgumentError(f"no {name} of {dtype}, and {leaf}")


# ---- the steps of a reduction


def _begin(
    connection: Connection,
    verb: str,
    refs: Sequence[ObjectRef],
    op: Any,
    num_objects: int | None,
    order: str,
    dtype: Any,
    ref: ObjectRef | None,
    root: str,
    timeout: float | None,
    is_open: bool,
) -> Steps[tuple[Any, ObjectRef]]:
    wanted = several(refs, "reduce")
    if num_objects is not None:
        num_objects = _arguments.whole(num_objects, "num_objects", 1)
    deadline = _waiting.Deadline(connection._seconds(timeout))
    target = made_by(connection) if ref is None else checked(ref)
    metadata = b""
    if dtype is None:
        if not wanted:
            raise exceptions.InvalidArgumentError("a reduction of no sources")
        known = _stored_as(wanted)
        if known is None:
            known = yield from _first_of(connection, wanted, deadline, num_objects)
        metadata, nbytes = known
        # Reductions keep the digest of a tree's structure only, so its object must outlive the
        # sources.
        elements = _elements_in(metadata, nbytes)
        find = functools.partial(structures.find, connection, seconds=deadline.left())
        _check_op(op, elements, metadata, find)
        yield from structures.keep(connection, metadata, deadline.left())
    else:
        elements = _elements_like(dtype, op)
    options, kept = _reduce_options(
        elements, op, num_objects, order, root, deadline.left(), is_open, metadata
    )
    options.owned = not target._named
    target_id, ids = id_for(connection, target), ids_for(connection, wanted, sends_names=False)
    call = getattr(lib, verb)(connection._ptr, target_id, ids, len(wanted), options)
    return _waiting.owned(call, lib.phx_call_forget), target


def _stored_as(refs: Sequence[ObjectRef]) -> tuple[bytes, int] | None:
    """Return the metadata and size of the sources that this process has put, if these are all the same.

    The directory compares the other sources with them, so it is asked for nothing beforehand.
    """
    known = {ref._stored for ref in map(checked, refs) if ref._stored is not None}
    return known.pop() if len(known) == 1 else None


def _reduced(
    connection: Connection,
    refs: Sequence[ObjectRef],
    dtype: Any,
    timeout: float | None,
    begin: Callable[..., Steps[tuple[Any, ObjectRef]]],
) -> Steps[tuple[Any, ObjectRef]]:
    """Reduce, wait until the result is committed, and return the call and the target.

    `begin`: `_begin` of these refs, without a timeout.
    """
    deadline = _waiting.Deadline(connection._seconds(timeout))
    while True:
        call, target = yield from begin(timeout=deadline.left())
        try:
            return (yield from _committed(connection, call, target, refs)), target
        except exceptions.InvalidArgumentError:
            if dtype is not None:
                raise
            # The error names a source that differs, but not in what.
            if all(source._stored is None for source in refs):
                yield from _alike(connection, list(refs), deadline.left())
                raise
            # Another process can have put other values under these refs since.
            for source in refs:
                source._stored = None


def _committed(connection: Connection, call: Any, target: ObjectRef, refs: Sequence[ObjectRef]) -> Steps[Any]:
    """Wait until the result of a call is committed, count its hold, and return the call."""
    # The cluster keeps the deadline: its error names the missing sources.
    yield from failures.finish(connection, call, None, "Reduce", target, refs)
    return _counted(connection, call, target)


def _counted(connection: Connection, call: Any, target: ObjectRef) -> Any:
    """Count the hold of a successful call with the result's ref, and return the call."""
    if target._named:
        return call
    call = _waiting.taken(call)
    target._counts_with(connection)
    return call


def _first_of(
    connection: Connection, refs: list[ObjectRef], deadline: _waiting.Deadline, needed: int | None = None
) -> Steps[tuple[bytes, int]]:
    """Return the metadata and size of the sources that exist; blocks until there is one.

    Raises
    ------
    InvalidArgumentError
        Sources differ. The fold works element by element, so it would not notice.
    Exception
        The exception of a producer, if fewer than `needed` (None: all) sources are left.
    """
    # Each failed source uses up one of the sources that the reduction can do without.
    found = yield from _alike(connection, refs, deadline.left())
    spare, pending = len(refs) - (needed or len(refs)), refs
    while found is None:
        done: list[ObjectRef] = []
        if pending:
            done, pending = yield from _objects.wait(connection, pending, 1, deadline.left())
        if not done:
            raise exceptions.GetTimeoutError(
                f"no source of the reduction came within {deadline.seconds} s",
                refs[0].hex(),
                connection.address,
            )
        for ref in done:
            try:
                # No name for the call: it would hold the object during the next wait.
                seconds = deadline.left()
                yield from failures.finish(
                    connection,
                    _calls.get(connection, [ref], seconds, free=_waiting.abandon),
                    None,
                    "Reduce",
                    ref,
                    [ref],
                )
            except Exception:
                spare -= 1
                if spare < 0:
                    raise
        found = yield from _alike(connection, refs, deadline.left())
    return found


def _alike(
    connection: Connection, refs: list[ObjectRef], seconds: float | None
) -> Steps[tuple[bytes, int] | None]:
    """Return the metadata and size of the sources that exist, all the same; None if there is none."""
    deadline = _waiting.Deadline(seconds)
    # All requests are in flight before the first wait.
    with connection._batch():
        calls = [
            _waiting.owned(lib.phx_stat(connection._ptr, id_for(connection, ref, False), nanos(seconds)))
            for ref in refs
        ]
    first = None
    status = ffi.new("phx_object_status*")
    for ref, call in zip(refs, calls):
        yield Finish(call, seconds, "stat", ref.id)
        lib.phx_result_status(call, status)
        if not status.known or status.deleted:
            continue
        found = (ffi.buffer(status.metadata, status.metadata_size)[:], status.size)
        if first is None:
            first = (found, ref)
        elif found != first[0]:
            one, other = _native.shown(first[1].id), _native.shown(ref.id)
            find = functools.partial(structures.find, connection, seconds=deadline.left())
            raise exceptions.InvalidArgumentError(
                f"sources {one} and {other} differ: {_difference(first[0][0], found[0], find)}",
                ref.hex(),
                connection.address,
            )
    return first and first[0]


def _difference(one: bytes, other: bytes, find: Callable[[bytes], TreeSpec]) -> str:
    """Return the difference of two sources by their metadata, for errors."""
    try:
        return _values.difference(one, other, find)
    except exceptions.PhalanxError as error:  # the structure of a tree is gone
        return str(error)


def _reduce_options(
    elements: _Elements,
    op: Any,
    num_objects: int | None,
    order: str,
    root: str,
    seconds: float | None,
    is_open: bool,
    metadata: bytes = b"",
) -> tuple[Any, Any]:
    """Return the library's options of a reduction, and the memory that they point to.

    `metadata`: that of every source; empty: it is not compared.

    Keep that memory until the call is made.
    """
    if order not in ("arrival", "fixed") or root not in ("caller", "any"):
        raise exceptions.InvalidArgumentError(
            f"order={order!r}, root={root!r}: 'arrival' or 'fixed', 'caller' or 'any'"
        )
    options = ffi.new("phx_reduce_options*")
    runs = [] if len(elements) == 1 else [(end, number) for number, end in elements]
    options.dtype = elements[0][0]
    options.runs = kept_runs = ffi.new("phx_element_run[]", runs)
    options.num_runs = len(runs)
    options.source_metadata = kept_metadata = ffi.from_buffer(metadata)
    options.source_metadata_size = len(metadata)
    options.op = op_number(op)
    options.fixed_order = order == "fixed"
    options.open = is_open
    options.root_any = root == "any"
    options.owned = True
    options.num_objects = num_objects or 0
    options.timeout = nanos(seconds)
    return options, (kept_runs, kept_metadata)


def _keep_structure(connection: Connection, target: ObjectRef, timeout: float | None) -> Steps[None]:
    """Keep the structure of a result's tree if the call did not read the metadata of its sources."""
    deadline = _waiting.Deadline(connection._seconds(timeout))
    status = yield from _calls.stat(connection, target, deadline.left())
    yield from structures.keep(connection, status.metadata, deadline.left())


# ---- the verbs


class Reduction(Generic[T]):
    """An open reduction: a reduction that still accepts sources (`Client.open_reduction`).

    The reduction continues when this handle is dropped; the result is freed when the last ref to it
    is gone too. If every client that has opened it or added to it ends before `close`, the reduction
    ends with CallCancelledError, for readers of the result too. Any thread can use it.

    Attributes
    ----------
    ref : ObjectRef
        The ref of the result.
    """

    def __init__(self, client: Connection, ref: ObjectRef[T], call: Any) -> None:
        self.ref = ref
        self._connection = client
        self._call = call
        self._ended = False

    def __repr__(self) -> str:
        state = "ended" if lib.phx_call_ended(self._call) else "under way"
        return f"<phalanx.Reduction into {self.ref!r}: {state}>"

    def _repr_html_(self) -> str:
        return _status.code(repr(self))

    def add(self, refs: ObjectRef[T] | Iterable[ObjectRef[T]], timeout: float | None = 30.0) -> None:
        """Add sources.

        Raises
        ------
        InvalidArgumentError
            An object is a source already, or the reduction is closed.
        """
        self._connection._run(self._add(refs, timeout))

    def _add(self, refs: ObjectRef | Iterable[ObjectRef], timeout: float | None) -> Steps[None]:
        connection = self._connection
        wanted = [refs] if isinstance(refs, ObjectRef) else several(refs, "add", or_one=True)
        seconds = connection._seconds(timeout)
        call = _waiting.owned(
            lib.phx_add_sources(
                connection._ptr, self.ref.id, ids_for(connection, wanted), len(wanted), nanos(seconds)
            )
        )
        yield Finish(call, seconds, "adding sources", self.ref.id)

    def close(self, timeout: float | None = 30.0) -> ObjectRef[T]:
        """Close the reduction to new sources, and return its ref.

        A reduction over all sources ends when these sources are folded.
        """
        return self._connection._run(self._close(timeout))

    def _close(self, timeout: float | None) -> Steps[ObjectRef[T]]:
        connection = self._connection
        seconds = connection._seconds(timeout)
        call = _waiting.owned(lib.phx_close_reduction(connection._ptr, self.ref.id, nanos(seconds)))
        yield Finish(call, seconds, "closing the reduction", self.ref.id)
        return self.ref

    def wait(self, timeout: float | None = None) -> ObjectRef[T]:
        """Wait until the result is committed, and return its ref. Raises what `Client.reduce` raises."""
        return self._connection._run(self._wait(timeout))

    def _wait(self, timeout: float | None) -> Steps[ObjectRef[T]]:
        connection = self._connection
        yield from failures.finish(
            connection,
            self._call,
            connection._seconds(timeout),
            "Reduce",
            self.ref,
            [self.ref],
            cancel=False,
        )
        # The call holds the result once. A second wait must not count that hold again.
        if not self._ended:
            self._ended = True
            self._call = _counted(connection, self._call, self.ref)
            yield from _keep_structure(connection, self.ref, timeout)
        return self.ref


# ---- the steps of the other verbs; `Collectives` documents the arguments


def reduce(
    connection: Connection,
    refs: Sequence[ObjectRef],
    op: Any,
    num_objects: int | None,
    order: str,
    dtype: Any,
    ref: ObjectRef | None,
    root: str,
    timeout: float | None,
) -> Steps[ObjectRef]:
    refs = several(refs, "reduce")
    begin = functools.partial(
        _begin, connection, "phx_reduce", refs, op, num_objects, order, dtype, ref, root, is_open=False
    )
    _, target = yield from _reduced(connection, refs, dtype, timeout, begin)
    if dtype is not None:
        yield from _keep_structure(connection, target, timeout)
    return target


def open_reduction(
    connection: Connection,
    refs: Sequence[ObjectRef],
    op: Any,
    dtype: Any,
    num_objects: int | None,
    ref: ObjectRef | None,
    timeout: float | None,
) -> Steps[Reduction[Any]]:
    call, target = yield from _begin(
        connection, "phx_reduce", refs, op, num_objects, "arrival", dtype, ref, "caller", timeout, True
    )
    return Reduction(connection, target, call)


def allreduce(
    connection: Connection,
    refs: Sequence[ObjectRef],
    op: Any,
    ref: ObjectRef,
    num_objects: int | None,
    order: str,
    dtype: Any,
    timeout: float | None,
) -> Steps[Any]:
    refs = several(refs, "allreduce")
    begin = functools.partial(
        _begin, connection, "phx_all_reduce", refs, op, num_objects, order, dtype, ref, "any", is_open=False
    )
    call, _ = yield from _reduced(connection, refs, dtype, timeout, begin)
    opened = _calls.views_of(connection, call, 1)
    if dtype is not None:
        yield from structures.keep(connection, opened[0][1], connection._seconds(timeout))
    return (yield from _objects.opened_values(connection, opened))[0]


def reduce_scatter(
    connection: Connection,
    refs: Sequence[ObjectRef],
    targets: Sequence[ObjectRef],
    index: int,
    op: Any,
    dtype: Any,
    timeout: float | None,
) -> Steps[Any]:
    import numpy as np

    wanted, targets = several(refs, "reduce_scatter"), several(targets, "reduce_scatter")
    index = _arguments.whole(index, "index")
    if len(targets) != len(wanted) or index >= len(wanted):
        raise exceptions.InvalidArgumentError(
            f"part {index} of {len(wanted)} sources and {len(targets)} targets: reduce_scatter takes as many"
            " targets as sources, and index counts from 0"
        )
    target_ids = ids_for(connection, targets)
    deadline = _waiting.Deadline(connection._seconds(timeout))
    metadata, nbytes = yield from _first_of(connection, wanted, deadline)
    number = (
        _dtype_number(dtype) if dtype is not None else _number_of(_values.reduce_dtype(metadata) or "f32")
    )
    options, _ = _reduce_options([(number, 0)], op, None, "arrival", "caller", deadline.left(), False)
    options.owned = not targets[index]._named
    call = _waiting.owned(
        lib.phx_reduce_scatter(
            connection._ptr,
            target_ids,
            ids_for(connection, wanted),
            len(wanted),
            index,
            nbytes,
            options,
        )
    )
    # The cluster keeps the deadline: its error names the missing sources.
    yield from failures.finish(connection, call, None, "Reduce", targets[index], wanted)
    if not targets[index]._named:
        targets[index]._counts_with(connection)
    views = ffi.new("phx_view[1]")
    if lib.phx_result_views(call, 0, 1, views) != 0:
        raise _native.last_error(connection.address)
    # The metadata describes a whole source, so it cannot decode the part.
    spelled = list(reduced_names())[number]
    if spelled == "bfloat16":
        import ml_dtypes

        return np.frombuffer(_native.view_bytes(views[0]), ml_dtypes.bfloat16)
    return np.frombuffer(_native.view_bytes(views[0]), spelled)


def reduced_from(connection: Connection, ref: ObjectRef, seconds: float | None) -> Steps[list[ObjectRef]]:
    call = _waiting.owned(lib.phx_reduced_from(connection._ptr, id_for(connection, ref), nanos(seconds)))
    yield Finish(call, seconds, "reduced_from", ref.id)
    count = lib.phx_result_count(call)
    ids = ffi.new("char[]", max(1, count * _native.ID_BYTES))
    if lib.phx_result_ids(call, ids) != 0:
        raise _native.last_error(connection.address)
    packed = ffi.buffer(ids, count * _native.ID_BYTES)[:]
    size = _native.ID_BYTES
    return [
        ObjectRef(packed[i * size : (i + 1) * size], connection.directory, client=connection)
        for i in range(count)
    ]


def allgather(
    connection: Connection, refs: Sequence[ObjectRef], index: int, seconds: float | None
) -> Steps[list[Any]]:
    wanted = several(refs, "allgather")
    ids, own = ids_for(connection, wanted), _arguments.whole(index, "index")
    call = _waiting.owned(lib.phx_all_gather(connection._ptr, ids, len(wanted), own, nanos(seconds)))
    yield from failures.finish(connection, call, seconds, "allgather", None, wanted)
    return (yield from _objects.values_of(connection, call, len(wanted)))


def barrier(
    connection: Connection, name: str, participants: int, index: int, seconds: float | None
) -> Steps[None]:
    spelled = _arguments.utf8(name, "name")
    count, own = _arguments.whole(participants, "participants", 1), _arguments.whole(index, "index")
    call = _waiting.owned(
        lib.phx_barrier(connection._ptr, spelled, len(spelled), count, own, nanos(seconds))
    )
    # The cluster keeps the deadline: one here could end a call whose barrier has been passed.
    yield Finish(call, None, f"barrier {name!r}", None)


class Collectives(Connection):
    """The reductions and collectives of `Client`. Any thread can use it."""

    def reduce(
        self,
        refs: Sequence[ObjectRef[T]],
        op: Op = "sum",
        *,
        num_objects: int | None = None,
        order: Order = "arrival",
        dtype: Any = None,
        ref: ObjectRef[T] | None = None,
        root: Root = "caller",
        timeout: float | None = DEFAULT,
    ) -> ObjectRef[T]:
        """Reduce objects into one. Returns its ref when the result is committed.

        The sources can be put before or after the call, on any node. The result has the structure, shapes
        and types of the first source in the list that was folded: an int stays an int.

        Parameters
        ----------
        refs
            Refs of arrays, tensors, numbers or trees of them, all of the same structure, size and
            dtypes. A tree is reduced leaf by leaf, each in its own dtype, and every dtype must support
            the op: "mean" needs floats. An int is an int64, which wraps around, and a float a float64.
        op
            "sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor" (integers), "mean" (floats), or
            the NumPy ufunc (`numpy.add`).
        num_objects
            Fold only so many sources, those that are ready first; the others need not exist. None: all.
        order
            "arrival": fold sources as they become ready. "fixed": the strict left fold of `refs`,
            bit for bit the same every time.
        dtype
            The dtype of the elements: NumPy's, torch's, or its name; or, for trees of several dtypes,
            a tree like the sources. None: the dtype of a source that this process has put, else of the
            first source, which the caller's node fetches.
        ref
            The ref of the result; None: a new one. The same call with the same `ref`, from any node,
            joins the reduction.
        root
            "caller": the result is on this node. "any": the cluster chooses the node.
        timeout
            Seconds; the limit of the call and of the reduction.

        Raises
        ------
        InvalidArgumentError
            A source has another size, is given twice, or cannot be reduced this way. Or sources
            differ in structure, shape or dtype; with `dtype` only the sizes are compared.
        TypeError
            A value, or a leaf, which is named, has no elements that can be folded.
        ObjectExistsError
            `ref` belongs to another object or reduction.
        GetTimeoutError
            Too few sources arrived in time.
        Exception
            The exception of a producer, if too few sources are left without its object.
        """
        return self._run(reduce(self, refs, op, num_objects, order, dtype, ref, root, timeout))

    def open_reduction(
        self,
        refs: Sequence[ObjectRef[T]],
        op: Op = "sum",
        *,
        dtype: Any,
        num_objects: int | None = None,
        ref: ObjectRef[T] | None = None,
        timeout: float | None = DEFAULT,
    ) -> Reduction[T]:
        """Start a reduction that accepts more sources until it is closed. Arguments are those of `reduce`."""
        return self._run(open_reduction(self, refs, op, dtype, num_objects, ref, timeout))

    def allreduce(
        self,
        refs: Sequence[ObjectRef[T]],
        op: Op = "sum",
        *,
        ref: ObjectRef[T],
        num_objects: int | None = None,
        order: Order = "arrival",
        dtype: Any = None,
        timeout: float | None = DEFAULT,
    ) -> T:
        """Reduce, and return the result. Every participant makes the same call and gets the same bits.

        Parameters
        ----------
        ref
            The ref of the result, the same for all participants.

        Returns
        -------
        value
            As from `get`. Each node keeps a copy of it until the last ref to it is gone.
        """
        return self._run(allreduce(self, refs, op, ref, num_objects, order, dtype, timeout))

    def reduce_scatter(
        self,
        refs: Sequence[ObjectRef],
        targets: Sequence[ObjectRef],
        index: int,
        op: Op = "sum",
        *,
        dtype: Any = None,
        timeout: float | None = DEFAULT,
    ) -> Any:
        """Reduce part `index` of all sources into ``targets[index]``, and return it as a flat array.

        With n sources and n targets, task `index` of n makes the call. The parts are consecutive, and as
        equal as whole elements allow.
        """
        return self._run(reduce_scatter(self, refs, targets, index, op, dtype, timeout))

    def reduced_from(self, ref: ObjectRef[T], timeout: float | None = DEFAULT) -> list[ObjectRef[T]]:
        """Return the sources of a result, in the order in which they were folded.

        Raises
        ------
        ObjectDeletedError
            The object was never made, or it was deleted.
        """
        return self._run(reduced_from(self, ref, self._seconds(timeout)))

    def allgather(self, refs: Sequence[ObjectRef[T]], index: int, timeout: float | None = DEFAULT) -> list[T]:
        """Return the values of n tasks' objects; called by task `index` of the n.

        The tasks fetch around a ring, so no two transfers share a link.
        """
        return self._run(allgather(self, refs, index, self._seconds(timeout)))

    def barrier(self, name: str, participants: int, index: int, timeout: float | None = DEFAULT) -> None:
        """Return when all `participants` have called it with the same name, each with its own index.

        A name is for one barrier: use ``f"{job}/step/{k}"`` for round k of a job with an id of its own. A
        call that ended before all had arrived, such as by its timeout, can be repeated until it returns.
        With a timeout of milliseconds each call can end before it has arrived.

        Each barrier leaves one empty object. When every participant has passed, and none will run again,
        ``delete(ref(f"barrier/0/{name}"))`` deletes it.

        Raises
        ------
        ObjectExistsError
            This participant has passed the barrier. A task that runs again can ignore the error: all
            have arrived.
        GetTimeoutError
            Not all have arrived in time.
        """
        self._run(barrier(self, name, participants, index, self._seconds(timeout)))
