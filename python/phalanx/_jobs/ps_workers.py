"""Workers of a parameter server, and their tables. The guide is docs/parameter-server.md.

Owns the library's worker and its tables, each freed with its last reference, and the pulls that are under way, with
the memory that the library writes until they have ended. A pull that nothing can wait for any more, because the worker
is gone too, is cancelled before its memory is freed.

Threads: any. `Worker._lock` protects the list of pulls. In a child of fork every call raises ClosedError.
"""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable

from phalanx import _arguments, _native, _waiting, exceptions
from phalanx._jobs import ps_arrays, ps_specs
from phalanx._jobs.members import aside, list_members
from phalanx._jobs.ps_calls import Reply, TableCall, nothing, pulled_of, reply_of
from phalanx._native import DEADLINE, UNKNOWN, ffi, lib, nanos
from phalanx._typing import overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Literal, NamedTuple, TypeAlias

    from phalanx._connection import Connection
    from phalanx._jobs.members import MemberInfo
    from phalanx._jobs.ps_specs import TableSpec
    from phalanx._typing import Array

    Group: TypeAlias = Literal["workers", "all"]
    Slicer: TypeAlias = Callable[[Array], Any]

    class Clocks(NamedTuple):
        """The clocks of a table."""

        own: int
        least: int

else:
    Clocks = namedtuple("Clocks", "own least")
    Clocks.__doc__ = """The clocks of a table: those that this worker has ended, and the least of all workers."""

_MAX_WORLD = 65536
# In the text of a table that its update has failed, between the table's name and the text of the update.
_UPDATE_FAILED = '": its update '
_LEAST_HEAD, _MOST_HEAD = -(1 << 31), (1 << 31) - 1


class _Sliced:
    """The function that names the servers of a table's keys: an argument of the library, which calls it in the threads
    of pushes and pulls. An error of it is kept for the thread, whose call raises it.
    """

    def __init__(self, function: Slicer) -> None:
        self._function = function
        self._errors = threading.local()

    def make(self, keys: Any, count: int, servers: Any) -> int:
        self._errors.error = None
        try:
            self._apply(keys, count, servers)
        except BaseException as error:
            self._errors.error = error
            return UNKNOWN
        return 0

    def take_error(self) -> BaseException | None:
        error: BaseException | None = getattr(self._errors, "error", None)
        self._errors.error = None
        return error

    def _apply(self, keys: Any, count: int, servers: Any) -> None:
        import numpy as np

        # A copy, which the function can keep.
        given = np.empty(count, np.uint64)
        ffi.memmove(ffi.from_buffer(given), keys, given.nbytes)
        named = np.asarray(self._function(given))
        if named.dtype.kind not in "ui":
            raise TypeError(f"it returned {named.dtype}; an array of integers is expected")
        if named.shape != (count,):
            raise ValueError(f"it returned the shape {named.shape} for {count} keys; ({count},) is expected")
        # Some NumPys clip by no bound that the dtype does not have.
        if named.dtype.itemsize < 4:
            named = named.astype(np.int32)
        # What is no rank of a server stays none.
        ranks = np.clip(named, -2 if named.dtype.kind == "i" else 0, (1 << 31) - 1).astype(np.int32)
        ffi.memmove(servers, ffi.from_buffer(ranks), ranks.nbytes)


@ffi.callback("phx_ps_slicer")
def _slice(argument: Any, keys: Any, count: int, servers: Any) -> int:
    # Nothing raises here: cffi would print it.
    return int(ffi.from_handle(argument).make(keys, count, servers))


class Table:
    """A worker's view of a table of a parameter server. Made by `Worker.table`.

    Keys are an array of shape ``(n,)`` of any dtype of integers, or a sequence of ints; they increase strictly. Rows are
    an array of the table's dtype, of shape ``(n, width)``, or ``(n,)`` if the width is 1: one row for each key.

    Of a table with lengths (`TableSpec`), rows that are pushed are an array of all their elements, one row behind the other,
    with an array of integers of their lengths, one for each key; or a sequence of arrays, one for each key. What is pulled
    is a `PulledRows`, whose arrays belong to it.

    With ``wait=False`` a method returns a `TableCall`, and the next call can be made. What is pushed is copied before
    the method returns. The array to which a pull writes is kept alive, and its elements must neither be read nor
    changed until the call has ended. A push waits while more than the table's ``snapshot_bytes`` of this worker's
    pushes are in no snapshot, at most for ``peer_timeout``.

    Any thread can use a table; calls of several threads have some order.

    Raises
    ------
    TypeError, InvalidArgumentError
        Keys that do not increase strictly, or that the table does not have (the message names the key); arrays of
        another shape or dtype. The method itself raises it, also with ``wait=False``: nothing was sent.
    TableFailedError
        All calls for the table fail: its own update has raised, or a server has lost its part of it, of which it had
        no snapshot.
    MemberUnavailableError
        A worker has died, and the table fails then (``on_loss="fail"``).
    StoreFullError
        The worker keeps more pushes than it may.
    GetTimeoutError
        A wait for room took longer than ``peer_timeout``.
    MemberEndedError, CallCancelledError, ClosedError
        This worker has ended, has left, or was freed, or this is a child of fork.
    KeyboardInterrupt
        A wait was interrupted. A push goes on; a pull is cancelled, and its array has any elements.

    Attributes
    ----------
    name : str
        The name of the table.
    spec : TableSpec
        What the servers have said of it.
    """

    def __init__(self, worker: Worker, ptr: Any, sliced: tuple[_Sliced, Any] | None = None) -> None:
        self._worker = worker
        self._ptr = ptr
        self._sliced = sliced  # with the library's handle of it
        spec = ffi.new("phx_ps_table_spec*")
        lib.phx_ps_table_spec_of(ptr, spec)
        self.spec: TableSpec = ps_specs.spec_of(spec)
        self.name: str = self.spec.name

    def __repr__(self) -> str:
        return f"<phalanx.ps.Table {self.name!r} of worker {self._worker.rank}: {self.spec.sync}, {self.spec.update}>"

    @property
    def clocks(self) -> Clocks:
        """The clocks that this worker has ended, and the least of all workers, as the servers have last said."""
        self._worker._check_process()
        own, least = ffi.new("uint64_t*"), ffi.new("uint64_t*")
        lib.phx_ps_table_clocks(self._ptr, own, least)
        return Clocks(own[0], least[0])

    @overload
    def push(self, keys: Any, vals: Any, lengths: Any = ..., *, wait: Literal[True] = ...) -> None: ...
    @overload
    def push(self, keys: Any, vals: Any, lengths: Any = ..., *, wait: Literal[False]) -> TableCall[None]: ...
    def push(self, keys: Any, vals: Any, lengths: Any = None, *, wait: bool = True) -> Any:
        """Push a row for each key: the update of the table is made with it, with "bsp" when the clock has ended.

        Parameters
        ----------
        keys, vals
            See `Table`.
        lengths
            Of a table with lengths, if `vals` is an array of shape ``(elements,)``: see `Table`.
        wait
            False: return a `TableCall` at once. It ends when the servers have the push.
        """
        given = self._given("push", keys, vals, lengths)
        self._await_room("push")
        call: TableCall[None] = TableCall(self._worker, self._what("push"), nothing)
        function = lib.phx_ps_push_lengths if self.spec.lengths else lib.phx_ps_push_rows
        call._begin(None, function, self._ptr, *given)
        self._check(call)
        return call.wait() if wait else call

    @overload
    def push_dense(self, a: Any, *, wait: Literal[True] = ...) -> None: ...
    @overload
    def push_dense(self, a: Any, *, wait: Literal[False]) -> TableCall[None]: ...
    def push_dense(self, a: Any, *, wait: bool = True) -> Any:
        """Push the rows of all keys of a dense table: an array of shape ``(keys, width)``, or ``(keys,)``.

        With "bsp" a large push is copied into memory of the node, and waits for it.

        Raises
        ------
        StoreFullError
            There was no memory for ``peer_timeout`` seconds. Nothing was pushed.
        """
        rows = ps_arrays.rows_of(a, self._all_keys("push_dense"), self.spec, "push_dense: a")
        self._await_room("push_dense")
        what = self._what("push_dense")
        patience = _waiting.Patience(self._worker._patience, lambda: f"memory of the node for {what}")
        while True:
            left = patience.slice()
            call: TableCall[None] = TableCall(self._worker, what, nothing)
            try:
                call._begin(None, lib.phx_ps_push_dense_within, self._ptr, _pointer(rows), rows.nbytes, left)
            except exceptions.StoreFullError:
                if left == 0:
                    raise
                continue
            call._check()
            return call.wait() if wait else call

    @overload
    def pull(self, keys: Any, out: Any = ..., *, wait: Literal[True] = ...) -> Any: ...
    @overload
    def pull(self, keys: Any, out: Any = ..., *, wait: Literal[False]) -> TableCall[Any]: ...
    def pull(self, keys: Any, out: Any = None, *, wait: bool = True) -> Any:
        """Return the rows of the keys, when the table's consistency lets this worker have them.

        Parameters
        ----------
        keys
            See `Table`.
        out
            Where the rows go: an array as `Table` says, contiguous in C order. None: a new one, of shape ``(n,)`` if the
            width is 1, else ``(n, width)``. A table with lengths has no `out`, and returns `PulledRows`.
        wait
            False: return a `TableCall` at once, whose result is the array.
        """
        which = ps_arrays.keys_of(keys, "pull")
        given = (_pointer(which), len(which))
        if self.spec.lengths:
            ps_arrays.refuse_place(out, self.spec, "pull")
            return self._pull("pull", lib.phx_ps_pull_lengths, given, None, wait)
        place = ps_arrays.place_of(out, len(which), self.spec, "pull: out")
        return self._pull("pull", lib.phx_ps_pull_rows, given, place, wait)

    @overload
    def pull_dense(self, out: Any = ..., *, wait: Literal[True] = ...) -> Any: ...
    @overload
    def pull_dense(self, out: Any = ..., *, wait: Literal[False]) -> TableCall[Any]: ...
    def pull_dense(self, out: Any = None, *, wait: bool = True) -> Any:
        """Return the rows of all keys of a dense table, as `pull` does."""
        place = ps_arrays.place_of(out, self._all_keys("pull_dense"), self.spec, "pull_dense: out")
        return self._pull("pull_dense", lib.phx_ps_pull_dense, (), place, wait)

    @overload
    def push_pull(
        self, keys: Any, vals: Any, out: Any = ..., *, lengths: Any = ..., wait: Literal[True] = ...
    ) -> Any: ...
    @overload
    def push_pull(
        self, keys: Any, vals: Any, out: Any = ..., *, lengths: Any = ..., wait: Literal[False]
    ) -> TableCall[Any]: ...
    def push_pull(
        self, keys: Any, vals: Any, out: Any = None, *, lengths: Any = None, wait: bool = True
    ) -> Any:
        """Push, and return the rows of the same keys as they are after that; with "bsp" as the clock began.

        The parameters are those of `push` and `pull`. It takes one message to each server and back.
        """
        given = self._given("push_pull", keys, vals, lengths)
        if self.spec.lengths:
            ps_arrays.refuse_place(out, self.spec, "push_pull")
            self._await_room("push_pull")
            return self._pull("push_pull", lib.phx_ps_push_pull_lengths, given, None, wait)
        place = ps_arrays.place_of(out, given[1], self.spec, "push_pull: out")
        self._await_room("push_pull")
        return self._pull("push_pull", lib.phx_ps_push_pull_rows, given[:3], place, wait)

    def clock(self) -> None:
        """End this worker's clock in the table. Pushes before it belong to that clock.

        It waits for no other worker; it can wait for room, as a push. With "bsp" and "ssp" the next pull waits for workers
        that are behind.
        """
        self._await_room("clock")
        self._worker._forget_ended()
        code = lib.phx_ps_clock(self._ptr)
        if code != 0:
            raise self._worker._error_of(_native.last_error(self._worker._connection.address), True)

    # ---- for the methods

    def _what(self, verb: str) -> str:
        return f"{verb} of table {self.name!r} by worker {self._worker.rank}"

    def _all_keys(self, what: str) -> int:
        if self.spec.keys == 0:
            raise exceptions.InvalidArgumentError(f"{what}: table {self.name!r} is sparse: give keys to push and pull")
        return self.spec.keys

    def _given(self, verb: str, keys: Any, vals: Any, lengths: Any) -> tuple[Any, ...]:
        """Return the library's arguments of a push: keys, their number, values, their bytes, and lengths if there are."""
        which = ps_arrays.keys_of(keys, verb)
        if not self.spec.lengths:
            ps_arrays.refuse_lengths(lengths, self.spec, verb)
            rows = ps_arrays.rows_of(vals, len(which), self.spec, f"{verb}: vals")
            return _pointer(which), len(which), _pointer(rows), rows.nbytes
        rows, each = ps_arrays.lists_of(vals, lengths, which, self.spec, verb)
        return _pointer(which), len(which), _pointer(rows), rows.nbytes, _pointer(each, "uint32_t[]")

    def _check(self, call: TableCall[Any]) -> None:
        """Raise the error of a call that was refused at once: that of the slicer with what it has raised."""
        try:
            call._check()
        except exceptions.PhalanxError as refused:
            raised = None if self._sliced is None else self._sliced[0].take_error()
            if raised is not None and not isinstance(raised, Exception):
                raise raised from None  # an interrupt, or the exit of the program
            # A worker that is over says that instead.
            if raised is None or not isinstance(refused, exceptions.InvalidArgumentError):
                raise
            where = refused.message.partition(" failed: ")[0]
            message = f"{where} has raised {type(raised).__name__}: {raised}"
            raise exceptions.InvalidArgumentError(message, None, refused.node) from raised

    def _pull(self, verb: str, function: Any, given: tuple[Any, ...], place: Any, wait: bool) -> Any:
        """Pull into the place; or, without one, rows with lengths, in memory of the library."""
        self._worker._check_process()
        result: Callable[[Any], Any] = lambda _: place
        kept: Any = None
        last: tuple[Any, ...] = ()
        if place is None:
            result = pulled_of(ps_specs.numpy_dtype(self.spec.dtype))
        else:
            target = _pointer(place)
            kept, last = (place, target), (target, place.nbytes)
        call: TableCall[Any] = TableCall(self._worker, self._what(verb), result)
        self._worker._forget_ended()
        try:
            # Not under the lock: one that pushes, too, can wait in the library for room that another thread has taken.
            call._begin(kept, function, self._ptr, *given, *last)
            self._check(call)
            if wait:
                return call.wait()
            if kept is not None:
                self._worker._keep(call._calls)
            return call
        except BaseException:
            call._cancel()  # nothing has the handle, and the caller can free or reuse the array
            raise

    def _await_room(self, what: str) -> None:
        """Wait until a push need not wait in the library, where no interrupt is seen."""
        self._worker._check_process()
        if lib.phx_ps_table_await_room(self._ptr, 0) != DEADLINE:
            return
        patience = _waiting.Patience(self._worker._patience, lambda: f"snapshots before {self._what(what)}")
        while True:
            left = patience.slice()
            if lib.phx_ps_table_await_room(self._ptr, left) != DEADLINE:
                return
            if left == 0:
                error = _native.last_error(self._worker._connection.address)
                raise exceptions.GetTimeoutError(f"{self._what(what)}: {error.message}", None, error.node)


class Worker:
    """A worker of a parameter server. Made by `phalanx.ps.worker`.

    At the end of a ``with`` block the worker waits until the servers have its pushes, and leaves. A block that raises is
    its death: other workers wait for its next life, go on without it, or fail, as each table says.

    Attributes
    ----------
    rank : int
        The place of this worker: 0 to ``workers - 1``.
    workers, servers : int
        How many there are.
    life : int
        How often this worker had joined before. In a later life the tables' clocks are those from which it goes on.
    """

    def __init__(self, connection: Connection, ptr: Any, patience: float | None) -> None:
        self._connection = connection
        self._ptr = ptr
        self._patience = patience
        self.rank: int = lib.phx_ps_worker_rank(ptr)
        self.workers: int = lib.phx_ps_worker_workers(ptr)
        self.servers: int = lib.phx_ps_worker_servers(ptr)
        self.life: int = lib.phx_ps_worker_life(ptr)
        self._left = False
        self._lock = threading.Lock()
        # Pulls, by the identity of their lists: each goes on, and has its memory, without its handle. Guarded by `_lock`.
        self._under_way: dict[int, list[Any]] = {}

    def __repr__(self) -> str:
        return f"<phalanx.ps.Worker: rank {self.rank} of {self.workers}, life {self.life}, {self.servers} servers>"

    @property
    def restarted(self) -> bool:
        """Whether this is a later life of the worker."""
        return self.life > 0

    def check(self) -> None:
        """Raise the error that ended this worker, if it has ended."""
        self._checked(lib.phx_ps_worker_status(self._ptr))

    def table(self, name: str, slicer: Slicer | None = None) -> Table:
        """Return a table of the servers.

        Parameters
        ----------
        name
            As `Server.table` has it.
        slicer
            Of a table with ``split="own"``: a function that gets the keys of a push or pull, an array of uint64 of shape
            ``(n,)``, and returns the rank of a server for each of them. It runs in the thread that pushes or pulls, by
            several threads at once if several do, and depends on the key alone. All workers have the same one, in each life
            and in a run that goes on from files: a key that is given to another server than before has another row there.
            If it raises, or names no server that there is, the call raises InvalidArgumentError, and nothing was sent.

        Raises
        ------
        InvalidArgumentError
            There is no such table (the message names those that there are), the servers differ in their tables, or a
            slicer is missing, or is not to be there.
        """
        self._check_process()
        if slicer is not None and not callable(slicer):
            raise TypeError("table: slicer: a function is expected")
        spelled = ffi.new("char[]", _arguments.utf8(name, "name"))
        if slicer is None:
            sliced = None
            ptr = lib.phx_ps_worker_open(self._ptr, spelled)
        else:
            program = _Sliced(slicer)
            sliced = (program, ffi.new_handle(program))
            ptr = lib.phx_ps_worker_open_sliced(self._ptr, spelled, _slice, sliced[1])
        if ptr == ffi.NULL:
            raise self._error_of(_native.last_error(self._connection.address))
        return Table(self, ffi.gc(ptr, lib.phx_ps_table_free), sliced)

    @overload
    def request(self, server: int, head: int = ..., body: Any = ..., *, wait: Literal[True] = ...) -> Reply: ...
    @overload
    def request(
        self, server: int, head: int = ..., body: Any = ..., *, wait: Literal[False]
    ) -> TableCall[Reply]: ...
    def request(self, server: int, head: int = 0, body: Any = b"", *, wait: bool = True) -> Any:
        """Ask the function that the server has given to `Server.on_request`.

        A request waits for the next life of a server that has died, without a limit of its own. The function can run
        more than once for it: in a life that dies before its answer has come, too, and again after a lost link.

        Parameters
        ----------
        server
            The rank of the server.
        head, body
            A number of 32 bits, and bytes, for the function.
        wait
            False: return a `TableCall` at once, whose result is the reply.

        Raises
        ------
        PhalanxError
            The function has raised (the message has the text), or there is none.
        MemberEndedError, CallCancelledError, ClosedError
            As `Table`.
        """
        self._check_process()
        to = _arguments.whole(server, "server", 0, self.servers - 1)
        number = _arguments.whole(head, "head", _LEAST_HEAD, _MOST_HEAD)
        view = memoryview(body).cast("B")
        address = ffi.from_buffer(view) if view.nbytes else ffi.NULL
        call = TableCall(self, f"request of worker {self.rank} to server {to}", reply_of, table=False)
        call._begin(None, lib.phx_ps_worker_request, self._ptr, to, number, address, view.nbytes)
        call._check()
        return call.wait() if wait else call

    @overload
    def barrier(
        self, group: Group = ..., *, epoch: int | None = ..., timeout: float | None = ..., wait: Literal[True] = ...
    ) -> None: ...
    @overload
    def barrier(
        self, group: Group = ..., *, epoch: int | None = ..., timeout: float | None = ..., wait: Literal[False]
    ) -> TableCall[None]: ...
    def barrier(
        self, group: Group = "workers", *, epoch: int | None = None, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Return when all tasks of the group have come to this barrier, or to a later one.

        A barrier that has ended stays so: a next life that comes to it again goes on at once. One that has not ended
        waits for the next life of a task that has died. So a next life makes the same barriers as the life before; a
        program that goes on at its clock gives the clock as `epoch`. A task that has left is not waited for, nor a worker
        that has died if all tables have ``on_loss="drop"``.

        Parameters
        ----------
        group
            "workers", or "all" for all servers and workers, which call `Server.barrier`.
        epoch
            The number of the barrier in its group. None: one more than that of the last barrier of the group in this life,
            from 0 on; the same again after a call that has failed.
        timeout
            Seconds; None: ``peer_timeout``.
        wait
            False: return a `TableCall` at once.

        Raises
        ------
        GetTimeoutError
            Not all have come; the message names those that have not. This worker has come, and can call the same
            barrier again.
        MemberUnavailableError
            A worker has died, and a table fails then (``on_loss="fail"``).
        """
        self._check_process()
        number, options = ps_specs.barrier_arguments(group, epoch, timeout)
        what = f"barrier of {group} by worker {self.rank}"
        call: TableCall[None] = TableCall(self, what, nothing, table=False)
        call._begin(None, lib.phx_ps_worker_barrier, self._ptr, number, options)
        call._check()
        if not wait:
            return call
        try:
            return call.wait()
        except BaseException:
            call._cancel()  # of an interrupt: the next one without a number is for the same barrier
            raise

    def members(self, role: str | None = None) -> list[MemberInfo]:
        """Return the workers, or the tasks of another role, in the order of ranks: which live, have left or have died."""
        self._check_process()
        return list_members(lib.phx_ps_worker_list, self._ptr, role, self.workers)

    def leave(self) -> None:
        """Wait until the servers have all pushes of this worker, in snapshots if the tables have these, and leave the job.

        An interrupt ends the wait alone: the worker goes on leaving.

        Raises
        ------
        GetTimeoutError
            It has taken longer than ``peer_timeout``; the message says what is missing. It can be called again.
        """
        self._check_process()
        aside(lambda: self._checked(lib.phx_ps_worker_leave(self._ptr)), "phalanx-leave")
        self._left = True

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection.forked:
            return  # The block of the parent goes on.
        try:
            if kind is None and not self._left:
                self.leave()
        finally:
            if not self._left:
                # The worker dies now, also if a table or a traceback keeps it.
                lib.phx_ps_worker_fail(self._ptr)

    # ---- for the methods, and for tables

    def _check_process(self) -> None:
        """Raise ClosedError in a child of fork: the lock can have been held at the fork."""
        if self._connection.forked:
            message = f"worker {self.rank} joined before this process was forked: a child joins on its own"
            raise exceptions.ClosedError(message, None, self._connection.address)

    def _keep(self, calls: list[Any]) -> None:
        """Keep a pull, whether a handle of it is left or not, until it is seen that it has ended."""
        with self._lock:
            self._under_way[id(calls)] = calls

    def _forget(self, calls: list[Any]) -> None:
        """Keep a pull no more that has ended. The caller refers to it: nothing is freed under the lock."""
        if self._connection.forked:
            return  # The lock can have been held at the fork.
        with self._lock:
            self._under_way.pop(id(calls), None)

    def _forget_ended(self) -> None:
        """Keep those pulls alone that are under way. Those of several tables can end in any order."""
        with self._lock:
            kept = list(self._under_way.values())
        for calls in kept:
            if lib.phx_call_ended(calls[0]):
                self._forget(calls)

    def _checked(self, code: int) -> None:
        if code != 0:
            raise self._error_of(_native.last_error(self._connection.address))

    def _error_of(self, error: exceptions.PhalanxError, table: bool = False) -> exceptions.PhalanxError:
        """Return the error of a call of this worker, or of one for a table, for that of another call with this status."""
        live = lib.phx_ps_worker_status(self._ptr) == 0
        kind = type(error)
        details = (error.message, error.ref, error.node)
        # A server can pass on the code of its program's update, which can be any; the text is the library's.
        if table and _UPDATE_FAILED in error.message:
            return exceptions.TableFailedError(*details)
        if kind is exceptions.StreamVoidError:  # Aborted
            return exceptions.MemberEndedError(*details)
        if kind in (exceptions.ObjectDeletedError, exceptions.ObjectExistsError):  # NotFound, AlreadyExists
            return exceptions.InvalidArgumentError(*details)
        if live and kind is exceptions.DisconnectedError:
            return exceptions.MemberUnavailableError(*details)
        # DataLoss, FailedPrecondition, and statuses that a table alone can have, as Internal.
        failed = (exceptions.ObjectLostError, exceptions.ClosedError, exceptions.PhalanxError)
        if live and table and kind in failed:
            return exceptions.TableFailedError(*details)
        return error


def _pointer(array: Any, of: str = "uint64_t[]") -> Any:
    """Return the memory of an array for the library."""
    return ffi.NULL if array.nbytes == 0 else ffi.from_buffer(of, array)


def options_of(
    job: str | None,
    task: str | None,
    world: int | None,
    server_role: str,
    worker_role: str,
    peer_timeout: float | None,
    checkpoint_dir: str | None = None,
) -> tuple[Any, object]:
    """Return the library's options for joining, and memory to keep as long as they are used."""

    def spelled(text: str | None, name: str) -> Any:
        return ffi.NULL if text is None else ffi.new("char[]", _arguments.utf8(text, name))

    texts = [spelled(job, "job"), spelled(task, "task")]
    roles = [spelled(server_role, "server_role"), spelled(worker_role, "worker_role")]
    folder = spelled(checkpoint_dir, "checkpoint_dir")
    options = ffi.new("phx_ps_options*")
    options.job, options.task = texts
    options.checkpoint_dir = folder
    options.server_role, options.worker_role = roles
    options.world = 0 if world is None else _arguments.whole(world, "world", 1, _MAX_WORLD)
    # 0 stands for the default there.
    options.peer_timeout = nanos(_arguments.seconds_of(peer_timeout, "peer_timeout")) or 1
    return options, (texts, roles, folder)


def join(
    connection: Connection,
    job: str | None,
    task: str | None,
    world: int | None,
    server_role: str,
    worker_role: str,
    peer_timeout: float | None,
) -> Worker:
    """Join a job as a worker; see `phalanx.ps.worker`."""
    options, kept = options_of(job, task, world, server_role, worker_role, peer_timeout)

    def call() -> Worker:
        _ = kept
        ptr = lib.phx_ps_worker_join(connection._ptr, options)
        if ptr == ffi.NULL:
            error = _native.last_error(connection.address)
            if isinstance(error, exceptions.ObjectExistsError):
                error = exceptions.InvalidArgumentError(error.message, None, error.node)
            raise error
        # A worker without a handle dies.
        owned = ffi.gc(ptr, lib.phx_ps_worker_free)
        return Worker(connection, owned, _arguments.seconds_of(peer_timeout, "peer_timeout"))

    return aside(call, "phalanx-ps-join")
