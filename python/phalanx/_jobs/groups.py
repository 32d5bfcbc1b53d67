"""Groups: collectives of all members of a role, on arrays in place. The guide is docs/jobs.md.

Owns the calls that are under way, with the memory that they read and write: the library writes results
until a call has ended, whether a handle of it is left or not. A call that nothing can wait for any more,
because the group is gone too, is cancelled before its memory is freed.

Threads: any can use a group. A lock makes the start of a call one step; the calls of several threads
get their numbers in the order of their starts. In a child of fork every call raises ClosedError.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial

from phalanx import _arguments, _collectives, _native, _waiting, exceptions
from phalanx._jobs import buffers
from phalanx._jobs.buffers import Memory, memory_of
from phalanx._native import ffi, lib, nanos
from phalanx._typing import Generic, TypeVar, overload
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from phalanx._connection import Connection
    from phalanx._typing import OnLoss, Op
    from phalanx._waiting import Steps

    T = TypeVar("T", default=Any)
    Arrays = TypeVar("Arrays")
else:
    T = TypeVar("T")

_ABORTED = 10
_ON_LOSS = ("wait", "exclude", "fail")  # in the order of phalanx/c.h: the index is the number
# Inputs above this size take one of the 64 buffers that a node gives a client.
_INLINE_BYTES = 64 << 10
# The most such calls of a group at once: of calls that wait, enough to keep the nodes busy.
_MOST_LARGE, _MOST_LARGE_WAITING = 48, 16
# The most calls of any size: with 512 under way, the library would wait where no interrupt is seen.
_MOST = 500
# PHX_UNTIL_RELEASED.
_UNTIL_RELEASED = -1
# Limits of `retain` and `retain_copies`, as in group_call.h.
_MOST_KEPT, _MOST_COPIES = 1024, 16
# The greatest number of a call, as in group_wire.h, and of a `mark`.
_MOST_NUMBER, _MOST_MARK = 1 << 62, (1 << 64) - 1


def _release(_kept: Any, call: Any) -> None:
    """End a call of the library, and free it; the memory is kept until then."""
    _waiting.abandon(call)


def _large(memories: Sequence[Memory]) -> bool:
    """Whether a call of these memories, of which the first is the input, takes a buffer of the node."""
    return bool(memories) and memories[0].nbytes > _INLINE_BYTES


class _Part:
    """One call of the library. `packed` are the memories whose result is in `scratch` at its end.

    `start` makes the call: one of the library's functions and its arguments, the group first.
    """

    __slots__ = ("_calls", "_kept", "_start", "large", "packed", "scratch")

    def __init__(
        self, start: Sequence[Any], kept: tuple[Memory, ...], packed: Sequence[Memory] = (), scratch: Any = None
    ) -> None:
        self._start = start
        self._kept = kept
        self._calls: list[Any] = []
        self.large = _large(kept)
        self.packed = packed
        self.scratch = scratch

    def begin(self) -> None:
        """Make the call. If an interrupt ends this, `begun` says whether the call was made.

        The library's function can take long, and an interrupt meanwhile is raised at the next step of the
        interpreter. So one step makes the call and stores its handle, with the memory: without a handle the
        library would write into memory that can be freed, and nothing would say whether the call has a number.
        """
        function, *arguments = self._start
        owned = partial(ffi.gc, destructor=partial(_release, self._kept))
        self._calls.extend(map(owned, filter(None, map(function, *zip(arguments)))))
        if not self._calls:
            raise _native.last_error()

    @property
    def begun(self) -> bool:
        return bool(self._calls)

    @property
    def call(self) -> Any:
        """The library's call. Only if it has begun."""
        return self._calls[0]

    @property
    def ended(self) -> bool:
        """Whether the call has ended, or was never made."""
        return not self._calls or bool(lib.phx_call_ended(self.call))


def _cancel(parts: Sequence[_Part]) -> None:
    for part in parts:
        if part.begun:
            lib.phx_cancel(part.call)


class GroupCall(Generic[T]):
    """A call of a group that is under way: what its methods return with ``wait=False``.

    ``call.wait()`` or ``await call`` returns the result, which is in the arrays from then on. The
    call goes on without this handle, and without a task that awaits it. Any thread can use it.
    """

    def __init__(self, group: Group, what: str, parts: list[_Part], result: T) -> None:
        self._group = group
        self._what = what
        self._parts = parts
        self._result = result
        self._copying = threading.Lock()

    def __repr__(self) -> str:
        state = "ended" if all(part.ended for part in self._parts) else "under way"
        return f"<phalanx.GroupCall {self._what}: {state}>"

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error, as far as this client knows."""
        # Without a thread of its own the client reads answers only when a call drives it.
        lib.phx_poll(self._group._connection._ptr, 0)
        return all(part.ended for part in self._parts)

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the call has ended, and return its result.

        Parameters
        ----------
        timeout
            Seconds, for this wait alone; None: no limit. The call has the limit of its group.

        Returns
        -------
        The arrays of the call, or those of ``out``; None for a barrier.

        Raises
        ------
        GetTimeoutError
            This wait took too long, and another one is possible; or the call did, which names the
            missing ranks. `done` distinguishes them.
        PhalanxError
            The errors of `Group`.
        """
        result = self._group._connection._run(self._wait(_arguments.seconds_of(timeout)))
        with self._group._lock:
            self._group._pop_ended()
        return result

    def __await__(self) -> Generator[Any, None, T]:
        from phalanx import _asyncio

        return _asyncio.run(self._group._connection, self._wait(None)).__await__()

    def _wait(self, seconds: float | None) -> Steps[T]:
        deadline = _waiting.Deadline(seconds)
        for index, part in enumerate(self._parts):
            left = deadline.left() if index else seconds
            try:
                # A waiter that ends must not cancel the call: another one can wait for it.
                yield Finish(part.call, left, self._what, None, cancel=False)
            except exceptions.PhalanxError as error:
                raise self._group._error_of(error, self._what) from None
            self._unpack(part)
        return self._result

    def _unpack(self, part: _Part) -> None:
        """Copy the result of several arrays back, once."""
        if not part.packed:
            return
        # Of several threads all return after the copy. One that is interrupted leaves it to the next.
        with self._copying:
            scratch = part.scratch
            if scratch is not None:
                buffers.unpack(part.packed, scratch)
                part.scratch = None
                self._group._give_back(scratch)


class GroupProgress:
    """Where a group was when a member entered it, as `Group.progress` returns it.

    Attributes
    ----------
    ended : int
        The last call that had ended. The member's first call is the next one.
    boot, released, mark : int
        What the newest of the ended calls that all members have made (any but broadcast and reduce) has said by
        `Group.keep`. If the member's first call has ended for others, which make it again, it can be that one.
    """

    __slots__ = ("boot", "ended", "mark", "released")

    def __init__(self, progress: Any) -> None:
        self.ended: int = progress.ended
        self.boot: int = progress.keep.boot
        self.released: int = progress.keep.released
        self.mark: int = progress.keep.mark

    def __repr__(self) -> str:
        return (
            f"GroupProgress(ended={self.ended}, boot={self.boot}, released={self.released}, mark={self.mark})"
        )


class Group:
    """Collectives of all members of a role of a job. Made by `Member.group`.

    All members make the same calls in the same order. A call ends when its result is in the arrays of
    this member. All members get the same bits. With ``wait=False`` a method returns a `GroupCall`, and the
    next call can be made: calls take effect in the order in which they were made. The arrays of such a
    call are kept alive; their elements must neither be read nor changed until it has ended. A call copies
    its input before it returns (32 MiB take some milliseconds), and waits before that while 48 calls with
    inputs above 64 KiB are under way.

    Arrays are NumPy arrays and torch tensors of the CPU, contiguous in C order, and writable where
    something is written to them. Elements that are folded are f16, bf16 (torch, ml_dtypes), f32, f64,
    and integers of 8 to 64 bits (no u16); others, with any dtype but objects.

    Any thread can use a group. Calls of several threads get their numbers in the order of their starts,
    which must be the same on all members: have one thread make the calls.

    Raises
    ------
    TypeError, InvalidArgumentError
        An argument cannot be sent: no array, not contiguous, read-only, of a dtype that has no fold, an `out` of
        another size. The method itself raises it, also with ``wait=False``, on this member alone: nothing was
        sent, the call has no number, and the other members wait for this one. It makes the call again, with
        right arguments, or ends; another call would take the place of this one.
    InvalidArgumentError
        The members differ in the call, or what they all gave is wrong. The call fails on all of them, names both
        sides, and the group goes on with the next call. With ``wait=False`` the wait raises it. `calls` counts
        such a call, and none that was not sent.
    MemberUnavailableError
        A member has ended, with ``on_loss="fail"``, or the root has.
    GroupResultLostError
        Some members have their parts of the result, and this one cannot get its part any more.
    GetTimeoutError
        The group's timeout has passed; the message names the missing ranks.
    StoreFullError
        A node has no room for a large call, or the groups of this client have 64 calls with inputs above 64 KiB
        under way. The call fails on all members.
    MemberEndedError, ClosedError
        This member has ended or left.
    KeyboardInterrupt
        A wait was interrupted. This member's part of the call goes on at its node, without a result here. If
        it was a nest of which some arrays had not been sent yet, later calls raise CallCancelledError, since
        this member's calls are not those of the others any more. An interrupt while an input is copied is
        raised after that, as one of the wait. One that comes earlier leaves the call unmade.

    After an interrupt or an error the elements of the arrays that a call writes are undefined.
    """

    def __init__(
        self,
        connection: Connection,
        member: Any,
        on_loss: OnLoss,
        timeout: float | None,
        retain: int | Literal["until released"] = 0,
        retain_copies: int = 2,
    ) -> None:
        if on_loss not in _ON_LOSS:
            raise exceptions.InvalidArgumentError(
                f"on_loss={_arguments.shown(on_loss)}: 'fail', 'wait' or 'exclude' is expected"
            )
        seconds = _arguments.seconds_of(timeout)
        calls = (
            _UNTIL_RELEASED if retain == "until released" else _arguments.whole(retain, "retain", most=_MOST_KEPT)
        )
        copies = _arguments.whole(retain_copies, "retain_copies", least=1, most=_MOST_COPIES)
        options = ffi.new("phx_group_options*", (_ON_LOSS.index(on_loss), nanos(seconds), calls, copies))
        self._connection = connection
        self._member = member
        self._ptr = ffi.gc(_native.checked(lib.phx_group_of(member, options)), lib.phx_group_free)
        self._name = f"{_native.text(lib.phx_member_job(member))}/{_native.text(lib.phx_member_role(member))}"
        self._rank = int(lib.phx_member_rank(member))
        self._world = int(lib.phx_member_world(member))
        self._on_loss = on_loss
        self._until_released = calls == _UNTIL_RELEASED
        self._lock = threading.Lock()
        # Guarded by `_lock`.
        self._keep = {"boot": 0, "released": 0, "mark": 0}
        self._under_way: deque[_Part] = deque()
        self._out_of_step: str | None = None
        self._scratch = buffers.Scratch()

    def __repr__(self) -> str:
        return f"<phalanx.Group {self._name}: rank {self._rank} of {self._world}, on_loss={self._on_loss!r}>"

    @property
    def rank(self) -> int:
        """The place of this member: 0 to ``world - 1``."""
        return self._rank

    @property
    def world(self) -> int:
        """The number of members."""
        return self._world

    @property
    def calls(self) -> int:
        """The number of the last call that has ended here, from 1; 0: none so far.

        Calls are numbered through all lives of the members. The arrays of a nest can take several calls.
        """
        return int(lib.phx_group_calls(self._ptr))

    @property
    def members_of_last_call(self) -> int:
        """How many members took part in the last call that has ended here."""
        return int(lib.phx_group_members_of_last_call(self._ptr))

    # ---- arrays in place: one, or a nest of dicts, lists and tuples of them

    @overload
    def allreduce(self, arrays: Arrays, op: Op = ..., *, wait: Literal[True] = ...) -> Arrays: ...
    @overload
    def allreduce(self, arrays: Arrays, op: Op = ..., *, wait: Literal[False]) -> GroupCall[Arrays]: ...
    def allreduce(self, arrays: Any, op: Op = "sum", *, wait: bool = True) -> Any:
        """Replace every member's array by the fold of all members' arrays, element by element.

        Parameters
        ----------
        arrays
            An array of one dtype and size on all members, or a dict, list or tuple of arrays, or a nest
            of these. A dict is taken in the order of its sorted keys. Small arrays of one dtype travel
            together, large ones alone.
        op
            "sum", "prod", "min", "max", "bit-and", "bit-or", "bit-xor" (integers) or "mean" (floats), or
            NumPy's ufunc of one. A mean is divided by the number of members that took part.
        wait
            False: return a `GroupCall` at once.

        Returns
        -------
        ``arrays``, with the result in it.
        """
        number = _collectives.op_number(op)
        return self._in_place("allreduce", arrays, wait, True, partial(self._allreduce, number))

    @overload
    def reduce(self, arrays: Arrays, op: Op = ..., root: int = ..., *, wait: Literal[True] = ...) -> Arrays: ...
    @overload
    def reduce(
        self, arrays: Arrays, op: Op = ..., root: int = ..., *, wait: Literal[False]
    ) -> GroupCall[Arrays]: ...
    def reduce(self, arrays: Any, op: Op = "sum", root: int = 0, *, wait: bool = True) -> Any:
        """As `allreduce`, for the member with the rank `root`; the other members' arrays stay as they are."""
        number, to = _collectives.op_number(op), _arguments.whole(root, "root")
        return self._in_place("reduce", arrays, wait, True, partial(self._reduce, number, to))

    @overload
    def broadcast(self, arrays: Arrays, root: int = ..., *, wait: Literal[True] = ...) -> Arrays: ...
    @overload
    def broadcast(self, arrays: Arrays, root: int = ..., *, wait: Literal[False]) -> GroupCall[Arrays]: ...
    def broadcast(self, arrays: Any, root: int = 0, *, wait: bool = True) -> Any:
        """Replace every member's arrays by those of the member with the rank `root`.

        The arrays, one or a nest as in `allreduce`, have the same sizes on all members, and any dtype but
        objects.
        """
        of = _arguments.whole(root, "root")
        return self._in_place("broadcast", arrays, wait, False, partial(self._broadcast, of))

    # ---- from one array to another

    @overload
    def allgather(self, array: Any, out: Any = ..., *, wait: Literal[True] = ...) -> Any: ...
    @overload
    def allgather(self, array: Any, out: Any = ..., *, wait: Literal[False]) -> GroupCall[Any]: ...
    def allgather(self, array: Any, out: Any = None, *, wait: bool = True) -> Any:
        """Return the arrays of all members, of one size, in the order of ranks.

        Parameters
        ----------
        array
            An array of any dtype but objects.
        out
            Where the result goes: ``world`` times the bytes of `array`, in any shape. None: a new array of
            shape ``(world, *array.shape)``.
        wait
            False: return a `GroupCall` at once.
        """
        given = memory_of(array, "allgather: array", written=False)
        if out is None:
            out = buffers.output_like(array, (self._world, *array.shape))

        def start(*places: Any) -> Sequence[Any]:
            return (lib.phx_group_all_gather, self._ptr, *places)

        return self._between("allgather", given, out, given.nbytes * self._world, wait, start)

    @overload
    def reduce_scatter(
        self, array: Any, op: Op = ..., out: Any = ..., *, wait: Literal[True] = ...
    ) -> Any: ...
    @overload
    def reduce_scatter(
        self, array: Any, op: Op = ..., out: Any = ..., *, wait: Literal[False]
    ) -> GroupCall[Any]: ...
    def reduce_scatter(self, array: Any, op: Op = "sum", out: Any = None, *, wait: bool = True) -> Any:
        """Fold the arrays of all members, and return this member's part of the result.

        Parameters
        ----------
        array
            An array of one dtype and size on all members, with ``world`` equal parts along its first axis.
        op
            As in `allreduce`.
        out
            Where the result goes: an array of the dtype and size of one part. None: a new one.
        wait
            False: return a `GroupCall` at once.
        """
        number = _collectives.op_number(op)
        given = memory_of(array, "reduce_scatter: array", written=False)
        dtype = _reduced(given, "reduce_scatter: array")
        if out is None:
            out = buffers.output_like(array, (self._rows("reduce_scatter", array), *array.shape[1:]))

        def start(*places: Any) -> Sequence[Any]:
            return (lib.phx_group_reduce_scatter, self._ptr, dtype, *places, number)

        return self._between("reduce_scatter", given, out, given.nbytes // self._world, wait, start)

    @overload
    def all_to_all(self, array: Any, out: Any = ..., *, wait: Literal[True] = ...) -> Any: ...
    @overload
    def all_to_all(self, array: Any, out: Any = ..., *, wait: Literal[False]) -> GroupCall[Any]: ...
    def all_to_all(self, array: Any, out: Any = None, *, wait: bool = True) -> Any:
        """Send part r of the array to rank r, and return what the members have sent, in the order of ranks.

        Parameters
        ----------
        array
            An array of any dtype but objects, with ``world`` equal parts along its first axis, of one size
            on all members.
        out
            Where the result goes: an array of as many bytes. None: a new one of the same shape.
        wait
            False: return a `GroupCall` at once.
        """
        given = memory_of(array, "all_to_all: array", written=False)
        self._rows("all_to_all", array)
        if out is None:
            out = buffers.output_like(array, array.shape)

        def start(*places: Any) -> Sequence[Any]:
            return (lib.phx_group_all_to_all, self._ptr, *places)

        return self._between("all_to_all", given, out, given.nbytes, wait, start)

    @overload
    def barrier(self, *, wait: Literal[True] = ...) -> None: ...
    @overload
    def barrier(self, *, wait: Literal[False]) -> GroupCall[None]: ...
    def barrier(self, *, wait: bool = True) -> Any:
        """Return when all members have called it."""
        part = _Part((lib.phx_group_barrier, self._ptr), ())
        return self._call("barrier", [((), lambda: part)], None, wait)

    @overload
    def result(self, call: int, out: Any = ..., *, wait: Literal[True] = ...) -> Any: ...
    @overload
    def result(self, call: int, out: Any = ..., *, wait: Literal[False]) -> GroupCall[Any]: ...
    def result(self, call: int, out: Any = None, *, wait: bool = True) -> Any:
        """Return the kept result of a call that has ended: of an earlier life of this member, or its own.

        Takes no part of the other members, and no number. It needs a group with ``retain``. What is kept
        are the results of allreduce, broadcast and allgather, and that a barrier has ended.

        Parameters
        ----------
        call
            The number of the call, from 1. A nest that took several calls has several results.
        out
            Where the result goes: an array or tensor of as many bytes as the call's. None for a barrier.
        wait
            False: return a `GroupCall` at once.

        Returns
        -------
        ``out``, with the result in it.

        Raises
        ------
        CallNotEndedError
            The call has not ended: this life has to make it, or another member has.
        GroupResultLostError
            The result is not kept any more (the message says which are), or the call has failed.
        InvalidArgumentError
            Results of this kind of call are not kept, or `out` has another size.
        """
        number = _arguments.whole(call, "call", most=_MOST_NUMBER)
        memories: tuple[Memory, ...] = () if out is None else (memory_of(out, "result: out"),)
        place = (ffi.NULL, 0) if out is None else (memories[0].pointer, memories[0].nbytes)
        part = _Part((lib.phx_group_result, self._ptr, number, *place), memories)
        return self._call("result", [(memories, lambda: part)], out, wait)

    def keep(self, *, boot: int | None = None, released: int | None = None, mark: int | None = None) -> None:
        """Let the calls that follow say which results a member in its next life can still ask for.

        It needs a group with ``retain="until released"``. All members say the same in one call; the nodes free
        the others when a call that says so has ended that every member has made: any but broadcast and reduce.
        A value that is left out stays as it is, at first 0; `boot` and `released` never fall. A next life begins with
        those of `progress`.

        Parameters
        ----------
        boot
            Results of the calls 1 to `boot` are kept as long as the group lives.
        released
            Results of the calls after `boot` up to this one are not needed any more. Less than the number of
            the call that says so, and not less than `boot`.
        mark
            The program's own, such as the number of the checkpoint after `released`.

        Raises
        ------
        InvalidArgumentError
            The group does not keep results until they are released, or a value is out of range.
        """
        if not self._until_released:
            raise exceptions.InvalidArgumentError('keep: needs a group with retain="until released"')
        self._check_process()
        with self._lock:
            keep, before = {}, self._keep
            for name, value in (("boot", boot), ("released", released)):
                keep[name] = before[name] if value is None else _arguments.whole(value, name, most=_MOST_NUMBER)
                if keep[name] < before[name]:
                    raise exceptions.InvalidArgumentError(f"{name}={value}: it was {before[name]}, and does not fall")
            keep["mark"] = before["mark"] if mark is None else _arguments.whole(mark, "mark", most=_MOST_MARK)
            self._keep = keep
            lib.phx_group_set_keep(self._ptr, ffi.new("phx_group_keep*", keep))

    def progress(self) -> GroupProgress:
        """Return where the group was when this life of the member entered it.

        It is the same for all lives that entered together. A member in its first life, or with the others of a
        group without a live member, gets zeros. `calls` counts the calls before this life from then on.

        Raises
        ------
        GetTimeoutError
            The nodes have not agreed within the group's timeout.
        """
        self._check_process()
        return self._connection._run(self._progress())

    def _progress(self) -> Steps[GroupProgress]:
        call = _waiting.owned(lib.phx_group_progress_of(self._ptr))
        what = f"progress of {self._name}"
        try:
            yield Finish(call, None, what, None)
        except exceptions.PhalanxError as error:
            raise self._error_of(error, what) from None
        progress = ffi.new("phx_group_progress*")
        if lib.phx_result_group_progress(call, progress) != 0:
            raise _native.last_error(self._connection.address)
        return GroupProgress(progress)

    # ---- for the methods

    def _check_process(self) -> None:
        """Raise ClosedError in a child of fork: the lock can have been held at the fork."""
        if self._connection.forked:
            lib.phx_member_status(self._member)
            raise _native.last_error(self._connection.address)

    def _rows(self, what: str, array: Any) -> int:
        """Return the rows of a part of an array."""
        if array.ndim and array.shape[0] % self._world == 0:
            return int(array.shape[0]) // self._world
        raise exceptions.InvalidArgumentError(
            f"{what}: array has the shape {tuple(array.shape)}, which has no {self._world} equal parts along its "
            "first axis"
        )

    def _in_place(
        self, what: str, arrays: Any, wait: bool, folds: bool, start: Callable[[Memory], Sequence[Any]]
    ) -> Any:
        """Make the calls for the arrays of a nest; `start` returns what makes one of the library."""
        memories = []
        for where, value in buffers.leaves_of(arrays, f"{what}: arrays"):
            memory = memory_of(value, where)
            if folds:
                _reduced(memory, where)
            memories.append(memory)
        if not memories:
            raise exceptions.InvalidArgumentError(f"{what}: arrays has no array in it")

        # Without an element there is one call, which the library refuses on all members.
        calls = buffers.packed(memories, by_dtype=folds) or [[memories[0]]]
        return self._call(what, [(call, partial(self._part_of, call, start)) for call in calls], arrays, wait)

    def _part_of(self, memories: list[Memory], start: Callable[[Memory], Sequence[Any]]) -> _Part:
        if len(memories) == 1:
            return _Part(start(memories[0]), (memories[0],))
        scratch = self._scratch.take(sum(memory.nbytes for memory in memories))
        together = buffers.pack(memories, scratch)
        return _Part(start(together), (together, *memories), memories, scratch)

    def _between(
        self, what: str, given: Memory, out: Any, nbytes: int, wait: bool, start: Callable[..., Sequence[Any]]
    ) -> Any:
        """Make a call from one array to another, which must have so many bytes."""
        target = memory_of(out, f"{what}: out")
        if target.spoken != given.spoken:
            raise exceptions.InvalidArgumentError(
                f"{what}: out has the dtype {target.spoken}, and array {given.spoken}"
            )
        if target.nbytes != nbytes:
            raise exceptions.InvalidArgumentError(
                f"{what}: out has {target.nbytes} bytes; {nbytes} are expected for an array of {given.nbytes} "
                f"bytes in a group of {self._world}"
            )
        buffers.check_apart(given, target, what)

        part = _Part(start(given.pointer, given.nbytes, target.pointer, target.nbytes), (given, target))
        return self._call(what, [((given,), lambda: part)], out, wait)

    def _call(
        self, what: str, calls: list[tuple[Sequence[Memory], Callable[[], _Part]]], result: Any, wait: bool
    ) -> Any:
        """Make calls of the library, each by its function, and wait for them if the caller does."""
        self._check_process()
        what = f"{what} of {self._name}"
        parts: list[_Part] = []
        try:
            with self._lock:
                self._begin(what, calls, parts, wait)
            call = GroupCall(self, what, parts, result)
            return call.wait() if wait else call
        except BaseException:
            _cancel(parts)  # nothing has the handle, and the caller can free or reuse the arrays
            raise

    def _begin(
        self,
        what: str,
        calls: list[tuple[Sequence[Memory], Callable[[], _Part]]],
        parts: list[_Part],
        wait: bool,
    ) -> None:
        """Make calls of the library, and append them to `parts`. Under the lock."""
        if self._out_of_step is not None:
            raise exceptions.CallCancelledError(self._out_of_step, None, self._connection.address)
        self._pop_ended()
        try:
            for memories, part_of in calls:
                if _large(memories):
                    self._make_room(_MOST_LARGE_WAITING if wait else _MOST_LARGE, what, large=True)
                elif len(self._under_way) >= _MOST:
                    self._make_room(_MOST, what, large=False)
                part = part_of()
                # Before the call, so that an interrupt after it finds it here.
                parts.append(part)
                self._under_way.append(part)
                part.begin()
        except BaseException:
            begun = sum(part.begun for part in parts)
            if 0 < begun < len(calls):
                self._out_of_step = (
                    f"{what} was interrupted after {begun} of its {len(calls)} calls, so that this member's "
                    "calls are not those of the others any more: join again"
                )
            raise

    def _pop_ended(self) -> None:
        """Keep calls that have ended, and their memory, no longer. Under the lock."""
        # They end in their order, but for errors.
        while self._under_way and self._under_way[0].ended:
            self._under_way.popleft()

    def _make_room(self, most: int, what: str, large: bool) -> None:
        """Wait until fewer than `most` calls, or `large` calls, are under way. Under the lock."""
        while True:
            calls = [part.call for part in self._under_way if (part.large or not large) and not part.ended]
            if len(calls) < most:
                return
            _waiting.some(calls[:1], 1, None, lambda: f"earlier calls of the group before {what}")

    def _give_back(self, scratch: Any) -> None:
        with self._lock:
            self._scratch.give_back(scratch)

    def _error_of(self, error: exceptions.PhalanxError, what: str) -> exceptions.PhalanxError:
        """Return the error of a call of a group for that of another call with the same status."""
        code = lib.phx_member_status(self._member)
        if code == _ABORTED:
            return exceptions.MemberEndedError(_native.text(lib.phx_error()), None, error.node)
        details = (error.message, error.ref, error.node)
        if type(error) is exceptions.DisconnectedError and code == 0:
            return exceptions.MemberUnavailableError(*details)
        if type(error) is exceptions.StreamVoidError:  # Aborted
            return exceptions.GroupResultLostError(*details)
        if what.startswith("result of "):
            if type(error) is exceptions.ObjectDeletedError:  # NotFound
                return exceptions.GroupResultLostError(*details)
            # The class is also that of other statuses; only the text distinguishes them.
            if type(error) is exceptions.InvalidArgumentError and "has not ended" in error.message:
                return exceptions.CallNotEndedError(*details)
        return error

    # ---- the library's calls in place

    def _allreduce(self, op: int, memory: Memory) -> Sequence[Any]:
        return (lib.phx_group_all_reduce, self._ptr, memory.dtype, memory.pointer, memory.nbytes, op)

    def _reduce(self, op: int, root: int, memory: Memory) -> Sequence[Any]:
        return (lib.phx_group_reduce, self._ptr, root, memory.dtype, memory.pointer, memory.nbytes, op)

    def _broadcast(self, root: int, memory: Memory) -> Sequence[Any]:
        return (lib.phx_group_broadcast, self._ptr, root, memory.pointer, memory.nbytes)


def _reduced(memory: Memory, where: str) -> int:
    """Return the number of the dtype of an array that is folded."""
    if memory.dtype is None:
        raise exceptions.InvalidArgumentError(
            f"{where}: elements of dtype {memory.spoken} cannot be reduced; those of "
            f"{', '.join(_collectives.reduced_names())} can"
        )
    return memory.dtype
