"""The library's calls on objects: Put, Get and the short calls, below structures and failures.

Takes values in encoded form and returns the library's calls, or the steps to a result. `failures` and
`structures` use this module to store objects of their own; `_objects` adds both to puts and gets.
Any thread can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from phalanx import _native, _values, _waiting, exceptions
from phalanx._native import ffi, lib, nanos
from phalanx._ref import ObjectRef, checked, id_for, ids_for, reading, several
from phalanx._status import ObjectStatus
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from phalanx._connection import Connection
    from phalanx._values.trees import TreeSpec
    from phalanx._waiting import Steps

    # Returns the structure with a digest (`structures.find`).
    Find = Callable[[Connection, bytes], TreeSpec]
    # The view of an object, its metadata and its bytes. Without a view the bytes are a copy.
    Opened = tuple[Any, bytes, bytes | memoryview]

_values.use_copier(_native.copy)

# The bytes that are compared at once: their copies stay in the cache.
_PIECE = 1 << 18
# The largest object of which a Get copies the bytes: the memory of a view has an owner, which takes longer.
_MOST_COPIED = 8 << 10
_ROOM = 128 << 10
_MAX_COPIES = 512
# The memory that the library copies into. A call takes one of them, or makes one.
_rooms: list[tuple[Any, Any, Any]] = []
_new_bytes = ffi.new_allocator(should_clear_after_alloc=False)

# ---- writing


def put(
    connection: Connection,
    encoded: _values.Encoded,
    ref: ObjectRef | None,
    keep: bool | None,
    seconds: float | None,
    exist_ok: bool = True,
    stays: _native.Stay = _native.DEFAULT_STAY,
) -> Steps[ObjectRef]:
    """Put an encoded value whose structure is stored already, and return its ref; see `Client.put`."""
    # Another node can have the object: only the directory knows all of them.
    is_new = ref is None
    check = not exist_ok and ref is not None and checked(ref)._named
    deadline = _waiting.Deadline(seconds) if check else None
    if ref is None:
        # A new ref takes no hold before the put: the put itself returns one.
        ref = ObjectRef(_native.random_id(), connection._directory, client=connection)
        object_id = ref._id
    else:
        object_id = id_for(connection, ref)
        ref._reason = None
    keep = ref._named if keep is None else keep
    # The library copies an object without a file of its own. A larger one is written in place.
    if encoded.nbytes < _native.OWN_FILE_BYTES:
        source = encoded.buffer
        if source is None:
            source = bytearray(encoded.nbytes)
            encoded.write_into(memoryview(source))
        options, _kept = _native.put_options(
            encoded.metadata, seconds, not keep, encoded.refs, check, stays
        )
        with _native.bytes_of(source) as data:
            call = _waiting.owned(
                lib.phx_put(connection._ptr, object_id, data, encoded.nbytes, options), lib.phx_call_forget
            )
    else:
        from phalanx import _writing

        call = yield from _writing.write(connection, object_id, encoded, seconds, not keep, check, stays)
    yield Finish(call, None, "Put", object_id)
    existed = not is_new and _number(connection, call) == 1
    if existed and deadline is not None:
        yield from _check_same(connection, ref, encoded, deadline.left())
    ref._stored = None if existed and deadline is None else (encoded.metadata, encoded.nbytes)
    if not keep:
        _waiting.taken(call)
        ref._counts_with(connection)
    return ref


def _check_same(
    connection: Connection, ref: ObjectRef, encoded: _values.Encoded, seconds: float | None
) -> Steps[None]:
    """Check that an object which exists is the one that an encoded value makes.

    Raises
    ------
    ObjectExistsError
        It has other bytes or other metadata.
    """
    call = get(connection, [ref], seconds, free=_waiting.abandon)
    yield Finish(call, None, "Get", ref._id)
    view = ffi.new("phx_view*")
    if lib.phx_result_views(call, 0, 1, view) != 0:
        raise _native.last_error(connection._address)
    there = _native.view_bytes(view[0])
    same = _metadata(view[0]) == encoded.metadata and len(there) == encoded.nbytes
    if same and encoded.nbytes < _native.OWN_FILE_BYTES:
        same = _equal(encoded, there)
    elif same:
        same = yield _waiting.Work(lambda _: _equal(encoded, there))
    if not same:
        raise exceptions.ObjectExistsError(
            f"Put of {_native.shown(ref._id)}: another value exists under this name, and stays: delete it"
            " first, or put with exist_ok=True",
            ref.hex(),
            connection._address,
        )


def _equal(encoded: _values.Encoded, there: memoryview) -> bool:
    """Whether an encoded value has the bytes of an object of its size."""
    ours = encoded.buffer
    if ours is None:
        ours = memoryview(bytearray(encoded.nbytes))
        encoded.write_into(ours)
    # In pieces: a comparison of memoryviews is slow, and one of whole copies takes their memory.
    pieces = range(0, encoded.nbytes, _PIECE)
    return all(bytes(ours[at : at + _PIECE]) == bytes(there[at : at + _PIECE]) for at in pieces)


# ---- reading


def get(
    connection: Connection,
    refs: Sequence[ObjectRef],
    seconds: float | None,
    fail_if_lost: bool = True,
    free: Any = lib.phx_call_free,
) -> Any:
    """Return a call that ends when all objects are on this node, or one of them fails."""
    ids = ids_for(connection, refs)
    whole = (1 << 64) - 1
    return _waiting.owned(
        lib.phx_get(connection._ptr, ids, len(refs), 0, whole, fail_if_lost, nanos(seconds)), free
    )


def values_of(
    connection: Connection,
    call: Any,
    count: int,
    find: Find | None,
    copy: bool | None = None,
    out: Any = None,
    writable: object = None,
    allow_pickle: bool = True,
) -> list[Any]:
    """Return the values of a Get that has succeeded. None for `find`: they have no structures."""
    opened = views_of(connection, call, count)
    return decoded(connection, opened, find, copy, out, writable, allow_pickle)


def views_of(connection: Connection, call: Any, count: int) -> list[Opened]:
    """Return the view, the metadata and the bytes of each object of a Get that has succeeded.

    A small object has no view: its bytes are a copy.
    """
    opened: list[Opened] = []
    # Taken off the list: a finaliser can run in between and make a call of its own.
    try:
        room = _rooms.pop()
    except IndexError:
        place = _new_bytes("char[]", _ROOM)
        room = place, ffi.buffer(place, _ROOM), _new_bytes("uint64_t[]", 2 * _MAX_COPIES)
    place, text, sizes = room
    begin = 0
    while begin < count:
        end = min(count, begin + _MAX_COPIES)
        copied = lib.phx_result_copies(call, begin, end, _MOST_COPIED, place, _ROOM, sizes)
        if copied < 0:
            raise _native.last_error(connection._address)
        if copied == 0:
            opened.append(_view_of(connection, call, begin))
            begin += 1
            continue
        at = 0
        lengths = iter(ffi.unpack(sizes, 2 * copied))
        for length, nbytes in zip(lengths, lengths):
            middle = at + length
            at = middle + nbytes
            opened.append((None, text[at - nbytes - length : middle], text[middle:at]))
        begin += copied
    _rooms.append(room)
    return opened


def _view_of(connection: Connection, call: Any, index: int) -> Opened:
    view = ffi.new("phx_view*")
    if lib.phx_result_views(call, index, index + 1, view) != 0:
        raise _native.last_error(connection._address)
    return view, _metadata(view), _native.view_bytes(view)


def decoded(
    connection: Connection,
    opened: Sequence[Opened],
    find: Find | None,
    copy: bool | None = None,
    out: Any = None,
    writable: object = None,
    allow_pickle: bool = True,
) -> list[Any]:
    """Return the values of views."""
    if out is not None:
        _, metadata, data = opened[0]
        _values.copy_into(metadata, memoryview(data), out)
        return [out]
    as_it_is = copy is None and not writable
    decode_array, an_array = _values.decode_array, _values.AN_ARRAY
    return [
        decode_array(metadata, data)
        if as_it_is and metadata.startswith(an_array)
        else _value(connection, view, metadata, data, find, copy, writable, allow_pickle)
        for view, metadata, data in opened
    ]


def _metadata(view: Any) -> bytes:
    return ffi.buffer(view.metadata, view.metadata_size)[:] if view.metadata_size else b""


def _value(
    connection: Connection,
    view: Any,
    metadata: bytes,
    data: bytes | memoryview,
    find: Find | None,
    copy: bool | None,
    writable: object,
    allow_pickle: bool,
) -> Any:
    private = writable == "cow"
    if copy is None and (private or _values.wants_private_pages(metadata)):
        data = _native.private_bytes(view, data)
    # Arrays beside tensors in one tree stay read-only, although the tensors make all pages
    # private. A copy belongs to the caller.
    how = None if private or (copy and writable is None) else False if writable is None else writable
    with reading(connection):
        return _values.decode(
            metadata,
            memoryview(data),
            copy=copy,
            writable=how,
            allow_pickle=allow_pickle,
            find=find and partial(find, connection),
        )


# ---- managing


def _number(connection: Connection, call: Any) -> int:
    """Return the number that is the result of a call which has succeeded."""
    result = ffi.new("int64_t*")
    if lib.phx_result_number(call, result) != 0:
        raise _native.last_error(connection._address)
    return int(result[0])


def keep(connection: Connection, ref: ObjectRef, seconds: float | None) -> Steps[None]:
    """Keep an object until it is deleted; see `Client.keep`."""
    call = _waiting.owned(lib.phx_keep(connection._ptr, id_for(connection, ref), nanos(seconds)))
    yield Finish(call, seconds, "keep", ref._id)


def delete(
    connection: Connection, refs: ObjectRef | Iterable[ObjectRef], seconds: float | None
) -> Steps[None]:
    """Delete objects in the whole cluster; see `Client.delete`."""
    wanted = [refs] if isinstance(refs, ObjectRef) else several(refs, "delete", or_one=True)
    ids = [id_for(connection, ref, False) for ref in wanted]  # nothing is deleted if one of them is no ref

    def begin(object_id: bytes) -> Any:
        return _waiting.owned(lib.phx_delete(connection._ptr, object_id, nanos(seconds)))

    if len(ids) == 1:
        calls = [begin(ids[0])]
    else:
        # All deletes are in flight before the first wait.
        with connection._batch():
            calls = [begin(each) for each in ids]
    for object_id, call in zip(ids, calls):
        yield Finish(call, seconds, "Delete", object_id)


def replicate(connection: Connection, ref: ObjectRef, copies: int, seconds: float | None) -> Steps[int]:
    """Keep copies of an object on several hosts; see `Client.replicate`."""
    number = _native.copies_of(copies)
    object_id = id_for(connection, ref)
    call = _waiting.owned(lib.phx_replicate(connection._ptr, object_id, number, nanos(seconds)))
    yield Finish(call, seconds, "replicate", ref._id)
    return _number(connection, call)


def end_scope(
    connection: Connection, scope: str | tuple[str, int], seconds: float | None
) -> Steps[None]:
    """End a scope; see `Client.end_scope`."""
    name, number = _native.scope_of(scope)
    call = _waiting.owned(lib.phx_end_scope(connection._ptr, name, number, nanos(seconds)))
    yield Finish(call, seconds, "end of a scope", None)


def contains(connection: Connection, ref: ObjectRef, seconds: float | None) -> Steps[bool]:
    """Return whether the cluster has a complete copy of an object."""
    call = _waiting.owned(lib.phx_contains(connection._ptr, id_for(connection, ref), nanos(seconds)))
    yield Finish(call, seconds, "contains", ref._id)
    return _number(connection, call) == 1


def stat(connection: Connection, ref: ObjectRef, seconds: float | None) -> Steps[ObjectStatus]:
    """Return the state of an object in the cluster."""
    call = _waiting.owned(lib.phx_stat(connection._ptr, id_for(connection, ref), nanos(seconds)))
    yield Finish(call, seconds, "stat", ref._id)
    status = ffi.new("phx_object_status*")
    if lib.phx_result_status(call, status) != 0:
        raise _native.last_error(connection._address)
    return ObjectStatus(status)
