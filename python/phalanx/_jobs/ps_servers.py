"""Servers of a parameter server, and the functions of the program that they call. The guide is docs/parameter-server.md.

Owns the library's server, freed with its last reference: without the end of `Server.run` that is the server's death.
The functions of the program are kept until then. They run in the thread that called `Server.run`.

Threads: one at a time, but `Server.stop` and `Server.barrier`. In a child of fork every call raises ClosedError.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections import namedtuple
from collections.abc import Callable
from functools import partial

from phalanx import _arguments, _native, exceptions
from phalanx._jobs import ps_arrays, ps_specs
from phalanx._jobs.members import list_members
from phalanx._jobs.ps_calls import Reply, TableCall, nothing
from phalanx._jobs.ps_workers import options_of
from phalanx._jobs.session_calls import Caller, outcome
from phalanx._native import UNKNOWN, ffi, lib
from phalanx._typing import overload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Literal, NamedTuple, TypeAlias

    from phalanx._connection import Connection
    from phalanx._jobs.members import MemberInfo
    from phalanx._typing import Array

    Sync: TypeAlias = Literal["bsp", "ssp", "asp"]
    Split: TypeAlias = Literal["range", "hash", "blocks", "own"]
    Group: TypeAlias = Literal["servers", "all"]
    Named: TypeAlias = Literal["add", "sum", "assign", "sgd", "momentum", "adagrad", "ftrl"]
    Own: TypeAlias = Callable[[Array, Any, Any], None]
    Init: TypeAlias = Literal["zeros", "uniform", "normal"]
    OnDeath: TypeAlias = Literal["wait", "drop", "fail"]

    class Request(NamedTuple):
        """What a worker asks by `Worker.request`."""

        worker: int
        head: int
        body: bytes

    Answer: TypeAlias = Callable[[Request], "Reply | tuple[int, bytes] | bytes | None"]
else:
    Request = namedtuple("Request", "worker head body")
    Request.__doc__ = """What a worker asks by `Worker.request`: its rank, a number of 32 bits, and bytes."""


class _Program:
    """What the functions of a program share: how they are called, and what has ended the server."""

    def __init__(self) -> None:
        self.caller: Caller = Caller()
        self.ptr: Any = None  # not owned
        self.ended_by: BaseException | None = None

    def call(self, function: Callable[[], object]) -> str | None:
        """Call a function of the program in the thread of `run`. Returns None, or the text of its error."""
        if self.caller.run(function):
            return None
        error, self.caller.error = self.caller.error, None
        if error is None:
            return "the server was interrupted"
        if isinstance(error, Exception):
            return f"{type(error).__name__}: {error}"
        # An interrupt, or the exit of the program.
        self.ended_by = error
        lib.phx_ps_server_stop(self.ptr)
        return type(error).__name__


class _Update:
    """An own update of a table: an argument of the library."""

    def __init__(self, program: _Program, function: Own, spec: Any) -> None:
        self._program = program
        self._function = function
        self._spec = ps_specs.spec_of(spec)
        self._dtype = ps_specs.numpy_dtype(self._spec.dtype)

    def make(self, push: Any, rows: Any) -> int:
        failure = self._program.call(partial(self._apply, push, rows))
        if failure is None:
            return 0
        said = failure.encode("utf-8", "replace")
        lib.phx_ps_rows_error(rows, said, len(said))
        return UNKNOWN

    def _apply(self, push: Any, rows: Any) -> None:
        count = int(push.count)
        if count == 0:
            return
        # Copies, as what is pushed is, too: the function can keep them.
        keys = _copied(push.keys, count, "uint64")
        try:
            if self._spec.lengths:
                self._change_lists(keys, push, rows)
            else:
                self._change(keys, push, rows)
        except Exception:
            # The calls of the workers have its text alone.
            sys.excepthook(*sys.exc_info())
            raise

    def _change(self, keys: Array, push: Any, rows: Any) -> None:
        import numpy as np

        width = self._spec.width
        grads = _copied(push.values, len(keys) * width, self._dtype).reshape(-1, width)
        table = np.empty_like(grads)
        place = ffi.from_buffer(table)
        lib.phx_ps_rows_read(rows, place)
        self._call(keys, grads, table)
        lib.phx_ps_rows_write(rows, place)

    def _change_lists(self, keys: Array, push: Any, rows: Any) -> None:
        import numpy as np

        pushed = _copied(push.lengths, len(keys), "uint32")
        grads = ps_arrays.split(_copied(push.values, int(pushed.sum()), self._dtype), pushed)
        lengths = np.empty_like(pushed)
        lib.phx_ps_rows_lengths(rows, ffi.from_buffer("uint32_t[]", lengths))
        values = np.empty(int(lengths.sum()), self._dtype)
        lib.phx_ps_rows_read(rows, ffi.from_buffer(values))
        before = ps_arrays.split(values, lengths)
        table = list(before)
        self._call(keys, grads, table)
        if any(map(operator.is_not, table, before)) or len(table) != len(before):
            # The function has its keys, and can have changed them.
            own = _copied(push.keys, len(before), "uint64")
            values, others = ps_arrays.join(table, own, self._spec, "the update: rows")
            for at in np.flatnonzero(others != lengths).tolist():
                lib.phx_ps_row_resize(rows, push.keys[at], int(others[at]))
        lib.phx_ps_rows_write(rows, ffi.from_buffer(values))

    def _call(self, keys: Array, grads: Any, table: Any) -> None:
        result = self._function(keys, grads, table)
        if result is not None:
            kind = type(result)
            raise TypeError(
                f"the update returned a {kind.__module__}.{kind.__qualname__}: it changes its third argument, the "
                "rows, in place, and returns None"
            )


class _Answer:
    """What answers requests: an argument of the library."""

    def __init__(self, program: _Program, function: Answer) -> None:
        self._program = program
        self._function = function

    def make(self, worker: int, head: int, body: Any, size: int, reply: Any) -> int:
        def answer() -> None:
            request = Request(worker, head, ffi.buffer(body, size)[:] if size else b"")
            number, said = _replied(self._function(request), head)
            lib.phx_ps_reply_set(reply, number, said, len(said))

        failure = self._program.call(answer)
        if failure is None:
            return 0
        said = failure.encode("utf-8", "replace")
        lib.phx_ps_reply_set(reply, 0, said, len(said))
        return UNKNOWN


def _copied(address: Any, count: int, dtype: Any) -> Array:
    import numpy as np

    copy = np.empty(count, dtype)
    ffi.memmove(ffi.from_buffer(copy), address, copy.nbytes)
    return copy


def _replied(result: Any, head: int) -> tuple[int, bytes]:
    """Return the head and the body of what a function has answered."""
    if result is None:
        return head, b""
    if isinstance(result, (bytes, bytearray, memoryview)):
        return head, bytes(result)
    try:
        number, body = result
        return int(number), bytes(memoryview(body))
    except (TypeError, ValueError):
        raise TypeError("the function of on_request returns None, bytes, or a number and bytes") from None


# Nothing raises here: cffi would print it.


@ffi.callback("phx_ps_update")
def _update(argument: Any, push: Any, rows: Any) -> int:
    return int(ffi.from_handle(argument).make(push, rows))


@ffi.callback("phx_ps_answer")
def _answer(argument: Any, worker: int, head: int, body: Any, size: int, reply: Any) -> int:
    return int(ffi.from_handle(argument).make(worker, head, body, size, reply))


def _free(_kept: list[Any], ptr: Any, _free: Any = lib.phx_ps_server_free) -> None:
    """Free the library's server; the functions of the program are kept until then."""
    _free(ptr)


class Server:
    """A server of a parameter server: it has one part of each table. Made by `phalanx.ps.server`.

    All servers add the same tables in the same order, and then call `run`. A server that dies is started again (by
    ``phalanx launch --restarts``): its program does the same again, and `run` goes on from the last snapshots. A ``with``
    block that ends before `run` has returned is the death of the server, too.

    One thread at a time, but `stop` and `barrier`. Functions of the program run in the thread of `run`, and can call `describe` and
    `stop`.

    Raises
    ------
    InvalidArgumentError
        A table that cannot be; the message names the table and the field. Or there is one of this name.
    MemberEndedError
        A next life of this server has joined.
    ClosedError
        The server runs already, or has run or was interrupted; or this is a child of fork.
    KeyboardInterrupt
        `run` was interrupted: the server dies.

    Attributes
    ----------
    rank : int
        The place of this server: 0 to ``servers - 1``.
    servers : int
        How many there are.
    life : int
        How often this server had joined before.
    """

    def __init__(self, connection: Connection, ptr: Any, program: _Program, kept: list[Any]) -> None:
        self._connection = connection
        self._ptr = ptr
        self._program = program
        self._kept = kept
        self._thread: int | None = None  # in which it runs
        self._ran = False
        self.rank: int = lib.phx_ps_server_rank(ptr)
        self.servers: int = lib.phx_ps_server_servers(ptr)
        self.life: int = lib.phx_ps_server_life(ptr)

    def __repr__(self) -> str:
        return f"<phalanx.ps.Server: rank {self.rank} of {self.servers}, life {self.life}>"

    def table(
        self,
        name: str,
        *,
        keys: int | None = None,
        width: int = 1,
        lengths: bool = False,
        dtype: Any = "f32",
        wire: Any = None,
        sync: Sync = "bsp",
        staleness: int = 0,
        split: Split = "range",
        block: int = 0,
        update: Named | Own = "sum",
        rate: float = 0.1,
        momentum: float = 0.9,
        epsilon: float = 1e-8,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        init: Init = "zeros",
        scale: float = 0.0,
        seed: int = 0,
        on_loss: OnDeath = "wait",
        snapshot_every: int = 10,
        copies: int = 1,
        snapshot_bytes: int = 256 << 20,
    ) -> None:
        """Add a table, before `run`. All servers add the same ones in the same order.

        Parameters
        ----------
        name, keys, width, ...
            See `TableSpec`.
        update
            Also a function ``update(keys, grads, rows)``: `keys` is an array of uint64 of shape ``(n,)``, `grads` is what is
            pushed for them, and `rows` what the server has, both of shape ``(n, width)`` and the table's dtype. It changes
            `rows` in place, and returns None. With "bsp" it is called with the sum of the pushes of a clock. An exception
            ends all calls for the table, with its text, and ``sys.excepthook`` gets it here. With `lengths`, `grads` and
            `rows` are lists of arrays of shape ``(length,)``, one for each key; ``rows[i] = array`` gives the row of
            ``keys[i]`` the elements of an array of the table's dtype, at most `width`.

        Raises
        ------
        TypeError, InvalidArgumentError
            A table that cannot be, which the message says with the field; or there is one of this name.
        """
        given = {field: value for field, value in locals().items() if field not in ("self", "name", "update")}
        ptr = self._server()
        spelled = ffi.new("char[]", _arguments.utf8(name, "name"))
        spec = ps_specs.library_spec(name, spelled, update, given)
        own, argument = ffi.NULL, ffi.NULL
        if callable(update):
            own, argument = _update, ffi.new_handle(_Update(self._program, update, spec))
            self._kept.append(argument)
        self._checked(lib.phx_ps_server_add_table(ptr, spec, own, argument))

    def on_request(self, function: Answer) -> None:
        """Answer requests of workers by ``function(request)``, which runs in the thread of `run`. Before `run`.

        `request` has ``worker``, ``head`` and ``body``. The function returns None (an empty answer), bytes, or a number of
        32 bits and bytes. An exception is an error of the request, with its text. A request can come more than once:
        its worker sends it again to the next life of this server, and after a lost link.
        """
        if not callable(function):
            raise TypeError("on_request: a function is expected")
        ptr = self._server()
        if self._ran:
            raise exceptions.ClosedError("on_request: the server runs already", None, self._connection.address)
        argument = ffi.new_handle(_Answer(self._program, function))
        self._kept.append(argument)
        lib.phx_ps_server_on_request(ptr, _answer, argument)

    def run(self) -> None:
        """Serve until all workers have left. Restores the snapshots of an earlier life first.

        Raises
        ------
        CallCancelledError
            `stop` was called. The server dies with its last reference, or at the end of its ``with`` block.
        GetTimeoutError
            No worker has lived for `peer_timeout`, and not all have left; the message names those that have not.
        """
        ptr = self._server()
        kept = self._kept

        def make() -> tuple[int, str]:
            _ = kept
            return outcome(lib.phx_ps_server_run(ptr))

        if self._thread is not None:
            raise exceptions.ClosedError("run: the server runs already", None, self._connection.address)
        self._thread, self._ran = threading.get_ident(), True
        try:
            code, message = self._program.caller.call(make)
        except BaseException:
            # The library's call is alone in its thread now, and the server ends with it.
            lib.phx_ps_server_stop(ptr)
            raise
        finally:
            self._thread = None
        if self._program.ended_by is not None:
            raise self._program.ended_by
        if code != 0:
            raise self._error(code, message)

    def stop(self) -> None:
        """End `run`, which raises CallCancelledError then. Any thread."""
        lib.phx_ps_server_stop(self._server())

    @overload
    def barrier(
        self, group: Group = ..., *, epoch: int | None = ..., timeout: float | None = ..., wait: Literal[True] = ...
    ) -> None: ...
    @overload
    def barrier(
        self, group: Group = ..., *, epoch: int | None = ..., timeout: float | None = ..., wait: Literal[False]
    ) -> TableCall[None]: ...
    def barrier(
        self, group: Group = "servers", *, epoch: int | None = None, timeout: float | None = None, wait: bool = True
    ) -> Any:
        """Return when all servers, or all servers and workers (``"all"``), have come to this barrier.

        The rules and the parameters are those of `Worker.barrier`. Before `run`, in its thread, wait for "servers" alone:
        workers join when all servers run. Wait for "all" in another thread, or begin it before `run` with ``wait=False``.
        Server 0 counts those that come: barriers wait for it to join, and for its next life.

        Raises
        ------
        GetTimeoutError
            Not all have come; the message names those that have not.
        MemberUnavailableError
            A worker has died, and a table fails then (``on_loss="fail"``).
        """
        ptr = self._server()
        number, options = ps_specs.barrier_arguments(group, epoch, timeout)
        call: TableCall[None] = TableCall(self, f"barrier of {group} by server {self.rank}", nothing, table=False)
        call._begin(None, lib.phx_ps_server_barrier, ptr, number, options)
        call._check()
        if not wait:
            return call
        try:
            return call.wait()
        except BaseException:
            call._cancel()  # of an interrupt: the next one without a number is for the same barrier
            raise

    def describe(self) -> str:
        """Return the clocks of each table, and which pulls wait for whom, as text; before `run` it is empty.

        While the server runs, its functions alone can call it.
        """
        ptr = self._server()
        if self._thread not in (None, threading.get_ident()):
            raise exceptions.ClosedError("describe: the server runs in another thread", None, self._connection.address)
        size = lib.phx_ps_server_describe(ptr, ffi.NULL, 0)
        text = ffi.new("char[]", size + 1)
        lib.phx_ps_server_describe(ptr, text, size + 1)
        return _native.text(text)

    def members(self, role: str | None = None) -> list[MemberInfo]:
        """Return the servers, or the tasks of another role, in the order of ranks: which live, have left or have died."""
        ptr = self._server()
        return list_members(lib.phx_ps_server_list, ptr, role, self.servers)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection.forked:
            return  # The block of the parent goes on.
        # It ends now, also if a traceback keeps it, or when a call that was interrupted has ended.
        ptr, self._ptr = self._ptr, None
        if ptr is None or self._program.caller.interrupted:
            return
        if self._thread is None:
            ffi.release(ptr)
        else:
            lib.phx_ps_server_stop(ptr)

    # ---- for the methods

    def _server(self) -> Any:
        """Return the library's server."""
        if self._connection.forked:
            what = "joined before this process was forked: a child joins on its own"
        elif self._ptr is None:
            what = "has ended"
        elif self._program.caller.interrupted:
            what = "was interrupted: join again"
        else:
            return self._ptr
        message = f"server {self.rank} of {self.servers} {what}"
        raise exceptions.ClosedError(message, None, self._connection.address)

    def _forget(self, calls: list[Any]) -> None:
        """Of a `TableCall`: the server keeps nothing of calls."""

    def _error_of(self, error: exceptions.PhalanxError, table: bool = False) -> exceptions.PhalanxError:
        if isinstance(error, exceptions.DisconnectedError):
            return exceptions.MemberUnavailableError(error.message, error.ref, error.node)
        return _translated(error)

    def _checked(self, code: int) -> None:
        if code != 0:
            raise self._error(code, _native.text(lib.phx_error()))

    def _error(self, code: int, message: str) -> exceptions.PhalanxError:
        return _translated(_native.error_of(code, message, self._connection.address))


def _translated(error: exceptions.PhalanxError) -> exceptions.PhalanxError:
    """Return the error of a call of a server for that of another call with the same status."""
    details = (error.message, error.ref, error.node)
    if type(error) is exceptions.StreamVoidError:  # Aborted
        return exceptions.MemberEndedError(*details)
    if type(error) is exceptions.ObjectExistsError:
        return exceptions.InvalidArgumentError(*details)
    return error


def join(
    connection: Connection,
    job: str | None,
    task: str | None,
    world: int | None,
    server_role: str,
    worker_role: str,
    peer_timeout: float | None,
    checkpoint_dir: str | os.PathLike[str] | None,
) -> Server:
    """Join a job as a server; see `phalanx.ps.server`."""
    folder = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
    options, texts = options_of(job, task, world, server_role, worker_role, peer_timeout, folder)
    program = _Program()
    kept: list[Any] = []
    joined: list[Any] = []

    def make() -> tuple[int, str]:
        _ = texts
        ptr = lib.phx_ps_server_join(connection._ptr, options)
        if ptr == ffi.NULL:
            return outcome(lib.phx_error_code())
        program.ptr = ptr
        # A server without a handle dies.
        joined.append(ffi.gc(ptr, partial(_free, kept)))
        return 0, ""

    code, message = program.caller.call(make)
    if code != 0:
        raise _translated(_native.error_of(code, message, connection.address))
    return Server(connection, joined[0], program, kept)
