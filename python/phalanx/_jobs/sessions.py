"""Sessions: ranks of programs that survive the deaths of some. The guide is docs/jobs.md.

Owns the library's session, freed with its last reference: without `Session.leave` that is the rank's death. Owns
the asynchronous calls that are under way, with the memory that the library writes until they have ended.

Threads: one at a time; the library refuses a call beside another one. In a child of fork every call raises
ClosedError.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator
from functools import partial

from phalanx import _arguments, _collectives, _native, _waiting, exceptions
from phalanx._jobs import session_arrays, session_calls, session_values
from phalanx._jobs.members import flush_output
from phalanx._jobs.session_calls import Caller, Functions, outcome
from phalanx._native import ffi, lib, nanos
from phalanx._typing import Generic, TypeVar, overload
from phalanx._waiting import Finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from phalanx._connection import Connection
    from phalanx._typing import Op
    from phalanx._waiting import Steps

    T = TypeVar("T", default=Any)
else:
    T = TypeVar("T")

# What the library says of a member that has ended, with Aborted; other errors have that status, too.
_THROWN = "a function of the program has thrown"  # in an earlier call
_ENDED = ("a newer life of", "was declared dead")
_MOST_RESULT_COPIES, _MOST_LOCAL_COPIES, _MAX_WORLD = 16, 15, 65536


class SessionStats:
    """What a session has done in this life. Calls are those of its group: see `Session`. A value.

    Attributes
    ----------
    repeated : int
        Calls whose results were kept.
    made : int
        Calls with the other ranks.
    prepared : int
        Calls of `prepare`.
    checkpoint_bytes : int
        Bytes of the checkpoints that were written.
    recovery : float
        Seconds from `join` to the first call with the other ranks, in a life after the first one; else 0.
    """

    __slots__ = ("checkpoint_bytes", "made", "prepared", "recovery", "repeated")

    def __init__(self, stats: Any) -> None:
        self.repeated: int = stats.repeated
        self.made: int = stats.made
        self.prepared: int = stats.prepared
        self.checkpoint_bytes: int = stats.checkpoint_bytes
        self.recovery: float = stats.recovery / 1e9

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in ("repeated", "made", "prepared"))
        return f"SessionStats({fields}, checkpoint_bytes={self.checkpoint_bytes}, recovery={self.recovery:.3f})"


class Session:
    """A rank of a program that goes on from its last checkpoint when one of its ranks dies. Made by `join`.

    All ranks run the same program: they make the same calls in the same order, and load and write their
    checkpoints between the same calls. A rank whose process dies is started again (by ``phalanx launch
    --restarts``). It runs the program from the newest checkpoint that all ranks have written, and gets the results
    of the calls since; the others wait in the next call meanwhile. All ranks get the same bits, in every life.

    A ``with`` block that ends leaves the job. One that raises does not: the rank dies, and the others wait for
    its next life.

    One thread at a time. The functions that a program gives (`prepare`, `op`, and those of pickle) run in the
    thread of the call, and make no calls of the session.

    Attributes
    ----------
    rank : int
        The place of this rank: 0 to ``world - 1``.
    world : int
        The number of ranks.
    life : int
        How often this rank had joined before.

    Raises
    ------
    TypeError, InvalidArgumentError
        An argument that is refused at once; the call is not made, and can be. Or ranks differ in a call
        (all of them raise then, and the message names both sides), or a repeated call has another size: the
        session is over.
    GetTimeoutError
        `peer_timeout` has passed; the message names the missing ranks.
    GroupResultLostError
        A result that this life has to repeat is not kept any more.
    MemberEndedError
        A next life of this rank has joined, or this one counts as dead for the others.
    StoreFullError
        A node has no room, or this process no memory.
    ClosedError
        The rank has left or died, or another call of the session is under way, or this is a child of fork.
    KeyboardInterrupt
        An interrupt ends the session. One within a function of the program is an exception of that.

    An exception of `prepare` is raised unchanged; the call is not made, and can be. One of `op` or pickle in
    a call with an own function, or of a lazy checkpoint, is raised unchanged, too, and the session is over. A
    session that is over raises the error with which it has ended, with its job, rank, version and seq: let the
    process end, and be started again.
    """

    def __init__(self, connection: Connection, ptr: Any, caller: Caller) -> None:
        self._connection = connection
        self._ptr = ptr
        self._caller = caller
        self.rank: int = lib.phx_session_rank(ptr)
        self.world: int = lib.phx_session_world(ptr)
        self.life: int = lib.phx_session_life(ptr)
        self._left: bool = False
        # The argument of the last checkpoint's function, if it was a lazy one.
        self._lazy: Any = None
        self._under_way: deque[Any] = deque()

    def __repr__(self) -> str:
        state = "" if self._ptr is not None else ", ended"
        return f"<phalanx.spmd.Session: rank {self.rank} of {self.world}, life {self.life}{state}>"

    @property
    def version(self) -> int:
        """The number of checkpoints so far; before `load` 0."""
        return int(lib.phx_session_version(self._session()))

    @property
    def seq(self) -> int:
        """The number of calls since the last checkpoint, or, before `load`, so far."""
        return int(lib.phx_session_seq(self._session()))

    @property
    def stats(self) -> SessionStats:
        """What this life has done so far."""
        stats = ffi.new("phx_session_stats*")
        lib.phx_session_stats_of(self._session(), stats)
        return SessionStats(stats)

    # ---- calls

    def allreduce(
        self,
        a: Any = None,
        op: Op | Callable[[Any, Any], Any] = "sum",
        *,
        prepare: Callable[[], Any] | None = None,
        out: Any = None,
        shape: int | tuple[int, ...] | None = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> Any:
        """Return the fold of all ranks' arrays, element by element.

        Parameters
        ----------
        a
            A NumPy array or scalar, or a torch tensor of the CPU, of any strides; of one shape and dtype on all
            ranks, at most 4 GiB. Elements are those that `Group` folds. It stays as it is unless it is `out`.
        op
            A name or ufunc as for `phalanx.reduce`. Or an own function ``op(into, other)``, which returns the
            fold of two values, ``into`` of lower ranks than ``other``; it can change ``into``. Then `a` is any
            value that can be pickled, and the ranks' values are folded along a tree, in rank order.
        prepare
            Computes the input instead of `a`: returns an array of this `shape` and `dtype` (or of those of
            `out`, which it can also fill and return). It is called once, but not if the result is kept: then no
            input is needed. So it must do nothing else. With an own function it returns any value.
        out
            Where the result goes: an array or tensor of the same shape and dtype, contiguous in C order. Its
            elements are undefined after an error.
        name
            For calls before `load`, the same on all ranks: a next life that makes them in another order, or leaves
            some out, gets the result of the call with this name.

        Returns
        -------
        A new array of the shape and dtype of `a`, or `out`. Without elements it transfers nothing, and waits for
        nothing. With an own function: the fold.
        """
        fold = session_arrays.own_op(op)
        if fold is not None:
            if shape is not None or dtype is not None:
                raise exceptions.InvalidArgumentError("allreduce: shape= and dtype= are for ops that have a name")
            return self._fold(a, fold, prepare, out, name)
        given: Any = op
        result, functions, arguments = self._reduction("allreduce", a, given, prepare, out, shape, dtype, name)
        self._call(lib.phx_session_allreduce, *arguments, kept=functions)
        return session_arrays.returned(a, result)

    def allreduce_async(
        self,
        a: Any = None,
        op: Op = "sum",
        *,
        prepare: Callable[[], Any] | None = None,
        out: Any = None,
        shape: int | tuple[int, ...] | None = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> SessionCall[Any]:
        """Make a call of `allreduce`, and return without its result.

        The parameters are those of `allreduce`; `op` has a name. The next call can be made at once; `checkpoint`
        and `leave` wait for all of them. An error ends the session.

        Returns
        -------
        SessionCall
            ``call.wait()`` or ``await call`` returns the array. `out` must neither be read nor changed until then.
        """
        what = "allreduce_async"
        result, functions, arguments = self._reduction(what, a, op, prepare, out, shape, dtype, name)
        made: list[Any] = []
        owned = partial(ffi.gc, destructor=partial(_release, functions))

        def start(session: Any, *arguments: Any) -> int:
            call = lib.phx_session_allreduce_async(session, *arguments)
            if call == ffi.NULL:
                return int(lib.phx_error_code())
            made.append(owned(call))
            return 0

        self._call(start, *arguments, kept=functions)
        self._under_way.append(made[0])
        return SessionCall(self._connection, self._caller, made[0], a, result)

    def broadcast(self, value: Any = None, root: int = 0, *, name: str | None = None) -> Any:
        """Return the root's value on all ranks: a copy, on the root, too.

        Parameters
        ----------
        value
            Any value that can be pickled, of the root; other ranks need none. The elements of arrays and tensors
            in it are sent as they are.
        root
            The rank that has the value.
        name
            As in `allreduce`.
        """
        of = _arguments.whole(root, "root", 0, self.world - 1)
        mine = session_values.encoded(value) if of == self.rank else None

        def place(size: int) -> Any:
            return mine if mine is not None and mine.nbytes == size else session_values.memory(size)

        functions = Functions(self._caller, place=place)
        functions.memory = mine
        nbytes = 0 if mine is None else mine.nbytes
        arguments = (nbytes, 1, of, session_calls.place, functions.as_argument(), _name(name))
        self._call(lib.phx_session_broadcast_sized, *arguments, kept=functions)
        return session_values.decoded(functions.memory)

    def allgather(self, a: Any, *, name: str | None = None) -> list[Any]:
        """Return the arrays of all ranks, in the order of ranks.

        Parameters
        ----------
        a
            An array of any shape and dtype, which can differ from rank to rank; or any value that can be pickled.
        name
            As in `allreduce`.
        """
        mine = session_values.encoded(a)
        functions = Functions(self._caller, place=session_values.memory)
        offsets = ffi.new("uint64_t[]", self.world + 1)
        given = (ffi.from_buffer(mine), mine.nbytes, session_values.ALIGNMENT)
        place = (session_calls.place, functions.as_argument(), offsets)
        self._call(lib.phx_session_allgather, *given, *place, _name(name), kept=functions)
        parts = (functions.memory[offsets[rank] : offsets[rank + 1]] for rank in range(self.world))
        return [session_values.decoded(part) for part in parts]

    def barrier(self, name: str | None = None) -> None:
        """Return when all ranks have called it."""
        self._call(lib.phx_session_barrier, _name(name))

    def print(self, msg: object) -> None:
        """Print a text once at the launch, as `Member.print` does; any other value as its `str`."""
        text = _arguments.utf8(str(msg), "msg")
        flush_output()
        self._call(lib.phx_session_print, text, len(text))

    def _die(self, death: str) -> None:
        """Kill this process, as the death of this text that was declared to the launch."""
        lib.phx_session_die(self._session(), _arguments.utf8(death, "death"))

    # ---- checkpoints

    def checkpoint(self, model: Any, local: Any = None, *, lazy: bool = False) -> None:
        """Write the model, the same on all ranks, as that of the next version, on this rank's node.

        It waits for no other rank. After an error the version is as it was, and it can be called again.

        Parameters
        ----------
        model
            Any value that can be pickled. The elements of arrays and tensors in it are written as they are.
        local
            A model of this rank alone, which differs from rank to rank; None: there is none. It is written on this
            rank's node, too, and begins to be copied to other hosts (``local_copies``); the next checkpoint waits for
            these copies. A program has local models in all of its versions or in none, on all ranks.
        lazy
            True: nothing is written or pickled now. The model is pickled within a call of this version, if a rank
            has died and needs it, and not otherwise. So it must not change until the last call before the next
            checkpoint, or `leave`, has ended.
        """
        if lazy:
            if local is not None:
                raise exceptions.InvalidArgumentError("checkpoint: a lazy one has no local model")
            functions = Functions(self._caller, save=partial(session_values.encoded, model))
            argument = functions.as_argument()
            self._call(lib.phx_session_lazy_checkpoint, session_calls.save, argument, kept=argument)
            # The library has called that of the checkpoint before until now.
            self._lazy = argument
            return
        saved = session_values.encoded(model)
        mine = None if local is None else session_values.encoded(local)
        place = (ffi.NULL, 0) if mine is None else (ffi.from_buffer(mine), mine.nbytes)
        kept = (saved, mine)
        self._call(lib.phx_session_checkpoint, ffi.from_buffer(saved), saved.nbytes, *place, kept=kept)
        self._lazy = None

    @overload
    def load(self, *, local: Literal[False] = ...) -> tuple[int, Any]: ...
    @overload
    def load(self, *, local: Literal[True]) -> tuple[int, Any, Any]: ...
    def load(self, *, local: bool = False) -> tuple[Any, ...]:
        """Return the version of the checkpoint from which this life goes on, and its model.

        Called once in each life, before the first checkpoint. Calls before it are repeated in every life, so their
        results are kept as long as the job lives. Waits up to ``peer_timeout`` for a rank that has the checkpoint;
        after an error it can be called again.

        Parameters
        ----------
        local
            True: the program has local models. Both are those of one version, the newest of which this rank's
            local model is there.

        Returns
        -------
        version, model
            0 and None: there is no checkpoint.
        version, model, local
            With ``local=True``.
        """
        taken: list[Any] = []

        def take(*both: Any) -> None:
            pairs = zip(both[::2], both[1::2])
            taken[:] = [session_values.decoded(session_values.copied(*pair)) for pair in [*pairs][: 1 + local]]

        functions = Functions(self._caller, take=take)
        version = ffi.new("uint64_t*")
        arguments = (int(local), session_calls.take_both, functions.as_argument(), version)
        self._call(lib.phx_session_load, *arguments, kept=(functions, version))
        return (int(version[0]), *(taken or [None] * (1 + local)))

    # ---- the end

    def leave(self) -> None:
        """Wait until all ranks have come here, leave the job, and free this rank's checkpoints."""
        self._call(lib.phx_session_leave)
        self._left = True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._connection.forked:
            return  # The block of the parent goes on.
        try:
            if kind is None and not self._left:
                self.leave()
        finally:
            if not self._left:
                # The rank dies now, also if a traceback keeps this session, or when a call that was interrupted has
                # ended.
                ptr, self._ptr = self._ptr, None
                if ptr is not None and not self._caller.interrupted:
                    ffi.release(ptr)

    # ---- for the methods

    def _session(self) -> Any:
        """Return the library's session."""
        if self._connection.forked:
            what = "joined before this process was forked: a child joins on its own"
        elif self._ptr is None:
            what = "has ended"
        elif self._caller.interrupted:
            what = "was interrupted in a call: join again"
        else:
            return self._ptr
        message = f"the session of rank {self.rank} of {self.world} {what}"
        raise exceptions.ClosedError(message, None, self._connection.address)

    def _call(self, function: Any, *arguments: Any, kept: object = None) -> None:
        """Make a call of the library; `kept` lives until it has ended, also after an interrupt."""
        session = self._session()

        def make() -> tuple[int, str]:
            _ = kept
            return outcome(function(session, *arguments))

        self._caller.forget_error()
        code, message = self._caller.call(make)
        if code == 0:
            self._caller.forget_error()
        while self._under_way and lib.phx_call_ended(self._under_way[0]):
            self._under_way.popleft()  # and its memory
        if code != 0:
            raise _translated(self._caller, _native.error_of(code, message, self._connection.address))

    def _reduction(
        self,
        what: str,
        a: Any,
        op: Op,
        prepare: Callable[[], Any] | None,
        out: Any,
        shape: int | tuple[int, ...] | None,
        dtype: Any,
        name: str | None,
    ) -> tuple[Any, Functions, tuple[Any, ...]]:
        """Return the array of a reduction, with its input or the function that puts it there, and the arguments of
        the library's call.
        """
        number = _collectives.op_number(op)
        if prepare is None:
            if shape is not None or dtype is not None:
                raise exceptions.InvalidArgumentError(f"{what}: shape= and dtype= are for prepare=")
            result = session_arrays.copied(a, out, what)
            functions = Functions(self._caller)
        elif a is not None:
            raise exceptions.InvalidArgumentError(f"{what}: give an array, or prepare= which returns it")
        else:
            result = session_arrays.empty(out, shape, dtype, what)
            fill = partial(session_arrays.fill, result, prepare, f"{what}: prepare")
            functions = Functions(self._caller, prepare=fill)
        place = session_arrays.reduced(result, what)
        functions.memory = place
        arguments = (place.dtype, place.pointer, place.nbytes, number, functions.to_prepare(), functions.as_argument())
        return result, functions, (*arguments, _name(name))

    def _fold(
        self,
        a: Any,
        op: Callable[[Any, Any], Any],
        prepare: Callable[[], Any] | None,
        out: Any,
        name: str | None,
    ) -> Any:
        """Return the fold of all ranks' values by a function of the program."""
        if (prepare is None) == (a is None):
            raise exceptions.InvalidArgumentError("allreduce: give a value, or prepare= which returns it")
        value, mine = a, False  # Whether the value is a copy, which `op` can change.

        def give() -> None:
            nonlocal value, mine
            value, mine = prepare() if prepare is not None else a, False

        def add(data: Any, size: int) -> None:
            nonlocal value, mine
            other = session_values.decoded(session_values.copied(data, size))
            into = value if mine else session_values.decoded(session_values.encoded(value))
            value, mine = op(into, other), True
            if value is None:
                raise TypeError("allreduce: op returned None: it returns the fold of its two values")

        def load(data: Any, size: int) -> None:
            nonlocal value, mine
            value, mine = session_values.decoded(session_values.copied(data, size)), True

        functions = Functions(
            self._caller,
            prepare=None if prepare is None else give,
            save=lambda: session_values.encoded(value),
            add=add,
            take=load,
        )
        steps = (session_calls.save, session_calls.add, session_calls.take, functions.as_argument())
        prepares = (functions.to_prepare(), functions.as_argument())
        self._call(lib.phx_session_allreduce_model, *steps, *prepares, _name(name), kept=functions)
        result = value if mine else session_values.decoded(session_values.encoded(value))
        return result if out is None else session_arrays.copied(result, out, "allreduce")


class SessionCall(Generic[T]):
    """A call of a session that is under way: what `Session.allreduce_async` returns.

    ``call.wait()`` or ``await call`` returns the array. The call goes on without this handle.
    """

    def __init__(self, connection: Connection, caller: Caller, call: Any, given: Any, result: T) -> None:
        self._connection = connection
        self._caller = caller
        self._call = call
        self._given = given
        self._result = result

    def __repr__(self) -> str:
        state = "ended" if lib.phx_call_ended(self._call) else "under way"
        return f"<phalanx.spmd.SessionCall: {state}>"

    @property
    def done(self) -> bool:
        """Whether it has ended, with or without an error, as far as this client knows."""
        # Without a thread of its own the client reads answers only when a call drives it.
        lib.phx_poll(self._connection._ptr, 0)
        return bool(lib.phx_call_ended(self._call))

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the call has ended, and return its array.

        Parameters
        ----------
        timeout
            Seconds, for this wait alone; None: no limit. The call has the limit of its session.

        Raises
        ------
        GetTimeoutError
            This wait took too long, and another one is possible; or the call did. `done` distinguishes them.
        PhalanxError
            The errors of `Session`.
        """
        return self._connection._run(self._wait(_arguments.seconds_of(timeout)))

    def __await__(self) -> Generator[Any, None, T]:
        from phalanx import _asyncio

        return _asyncio.run(self._connection, self._wait(None)).__await__()

    def _wait(self, seconds: float | None) -> Steps[T]:
        try:
            # A waiter that ends must not cancel the call: another one can wait for it.
            yield Finish(self._call, seconds, "allreduce of a session", None, cancel=False)
        except exceptions.PhalanxError as error:
            raise _translated(self._caller, error) from None
        returned: T = session_arrays.returned(self._given, self._result)
        return returned


def _release(_kept: Functions, call: Any, _abandon: Any = _waiting.abandon) -> None:
    """End a call of the library, and free it; the memory is kept until then."""
    # At the interpreter's exit the module can have lost its names.
    _abandon(call)


def _name(name: str | None) -> Any:
    """Return the name of a call for the library."""
    return ffi.NULL if name is None else ffi.new("char[]", _arguments.utf8(name, "name"))


def _translated(caller: Caller, error: exceptions.PhalanxError) -> BaseException:
    raised, caller.error = caller.error, None
    if raised is not None:
        return raised
    details = (error.message, error.ref, error.node)
    if type(error) is exceptions.ObjectDeletedError:  # NotFound
        return exceptions.GroupResultLostError(*details)
    if type(error) is exceptions.StreamVoidError:  # Aborted
        if _THROWN in error.message:
            return exceptions.CallCancelledError(*details)
        ended = any(words in error.message for words in _ENDED)
        return (exceptions.MemberEndedError if ended else exceptions.GroupResultLostError)(*details)
    if type(error) is exceptions.ObjectExistsError:
        return exceptions.InvalidArgumentError(*details)
    return error


def join(
    connection: Connection,
    job: str | None,
    task: str | None,
    world: int | None,
    role: str | None,
    result_copies: int,
    local_copies: int,
    peer_timeout: float | None,
    checkpoint_dir: str | os.PathLike[str] | None,
) -> Session:
    """Join a job as a rank of a session; see `phalanx.spmd.join`."""

    def spelled(text: str | None, name: str) -> Any:
        return ffi.NULL if text is None else ffi.new("char[]", _arguments.utf8(text, name))

    folder = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
    texts = [spelled(job, "job"), spelled(task, "task"), spelled(role, "role"), spelled(folder, "checkpoint_dir")]
    options = ffi.new("phx_session_options*")
    options.job, options.task, options.role, options.checkpoint_dir = texts
    options.world = 0 if world is None else _arguments.whole(world, "world", 1, _MAX_WORLD)
    options.result_copies = _arguments.whole(result_copies, "result_copies", 1, _MOST_RESULT_COPIES)
    options.local_copies = _arguments.whole(local_copies, "local_copies", 1, _MOST_LOCAL_COPIES)
    options.peer_timeout = nanos(_arguments.seconds_of(peer_timeout, "peer_timeout"))
    caller = Caller()
    joined: list[Any] = []

    def make() -> tuple[int, str]:
        _ = texts
        ptr = lib.phx_session_join(connection._ptr, options)
        if ptr == ffi.NULL:
            return outcome(lib.phx_error_code())
        # A session without a handle dies.
        joined.append(ffi.gc(ptr, lib.phx_session_free))
        return 0, ""

    code, message = caller.call(make)
    if code != 0:
        raise _translated(caller, _native.error_of(code, message, connection.address))
    return Session(connection, joined[0], caller)
