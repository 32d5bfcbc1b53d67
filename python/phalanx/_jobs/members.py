"""Jobs: tasks that know of each other. The guide is docs/jobs.md.

Owns the members of this process: each is one of the library's, freed with its last reference. A
member's watcher, which `Member.on_member` starts, is a daemon thread that holds the member only while
it calls.

Threads: any. `Member._taking` is held by the one thread that takes a message from the library.
Fork: in a child every call raises ClosedError, before it could wait for a lock or a thread of the parent.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections import deque

from phalanx import _arguments, _native, _waiting, exceptions
from phalanx._jobs.groups import Group
from phalanx._native import ffi, lib, nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any, Literal, TypeVar

    from phalanx._connection import Connection
    from phalanx._typing import OnLoss

    _T = TypeVar("_T")

_STATES = ("absent", "live", "died", "left")
_ABORTED, _EXISTS, _UNAVAILABLE, _LOST = 10, 6, 14, 15
# How long a wait in the library can hold up an interrupt.
_SLICE_S = 0.2
_MAX_WORLD = 65536


def flush_output() -> None:
    """Write out what Python has written so far, so that the text of the library comes behind it.

    The text can be for the launch, so a standard output that is closed or broken is no error here.
    """
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()


class MemberInfo:
    """What is known of a task of a job, or of a rank that no task has had so far. A value.

    Attributes
    ----------
    rank
        Its place among the tasks of its role.
    state
        "live", "died", "left", or "absent": no task with this rank has joined so far.
    task
        Its name; empty while it is absent.
    life
        0, and one more with each time that the task has joined again.
    host
        The label ``host`` of its node, or the host of the node's address.
    node
        The name of its node.
    """

    __slots__ = ("_change", "host", "life", "node", "rank", "state", "task")

    def __init__(self, info: Any) -> None:
        self.rank: int = info.rank
        self.state: str = _STATES[info.state]
        self.task: str = _native.text(info.task)
        self.life: int = info.life
        self.host: str = _native.text(info.host)
        self.node: str = _native.text(info.node)
        self._change: int = info.change

    @property
    def live(self) -> bool:
        """Whether the task is a member now."""
        return self.state == "live"

    def __repr__(self) -> str:
        if self.state == "absent":
            return f"<rank {self.rank}: absent>"
        return f"<rank {self.rank}: {self.task}, life {self.life}, {self.state} on {self.node}>"


def list_members(function: Any, ptr: Any, role: str | None, room: int) -> list[MemberInfo]:
    """Return what a function such as ``phx_member_list`` fills in; `room` is how many these are, as far as known."""
    spelled = ffi.NULL if role is None else ffi.new("char[]", _arguments.utf8(role, "role"))
    while True:
        infos = ffi.new("phx_member_info[]", room)
        count = function(ptr, spelled, infos, room)
        if count <= room:
            return [MemberInfo(infos[i]) for i in range(count)]
        room = count


class Message:
    """A message of another task of the job. A value.

    Attributes
    ----------
    rank
        The rank of the sender in its role.
    role
        The role of the sender.
    life
        The life of the sender.
    data
        The bytes.
    """

    __slots__ = ("data", "life", "rank", "role")

    def __init__(self, ptr: Any) -> None:
        try:
            self.rank: int = lib.phx_message_rank(ptr)
            self.role: str = _native.text(lib.phx_message_role(ptr))
            self.life: int = lib.phx_message_life(ptr)
            self.data: bytes = ffi.buffer(lib.phx_message_data(ptr), lib.phx_message_size(ptr))[:]
        finally:
            lib.phx_message_free(ptr)

    def __repr__(self) -> str:
        return f"<{len(self.data)} bytes of {self.role} {self.rank}, life {self.life}>"


class Member:
    """A place in a job. Made by `phalanx.join`.

    In a ``with`` block the task leaves the job at the end of the block; if the block ends with an
    exception, the others see that it died.
    """

    def __init__(self, connection: Connection, ptr: Any) -> None:
        self._connection = connection
        self._ptr = ffi.gc(ptr, lib.phx_member_free)
        self._watching = False
        # Taken from the library, and not returned to a caller yet: there are none, or one.
        self._taken: deque[Message] = deque()
        self._taking = threading.Lock()

    @property
    def job(self) -> str:
        """The name of the job."""
        return _native.text(lib.phx_member_job(self._ptr))

    @property
    def role(self) -> str:
        """The name of the role."""
        return _native.text(lib.phx_member_role(self._ptr))

    @property
    def task(self) -> str:
        """The name of this task."""
        return _native.text(lib.phx_member_task(self._ptr))

    @property
    def rank(self) -> int:
        """The place of this task among the tasks of its role: 0 to ``world - 1``."""
        return int(lib.phx_member_rank(self._ptr))

    @property
    def life(self) -> int:
        """How often this task had joined before."""
        return int(lib.phx_member_life(self._ptr))

    @property
    def world(self) -> int:
        """The number of tasks of the role."""
        return int(lib.phx_member_world(self._ptr))

    def __repr__(self) -> str:
        return f"<phalanx.Member {self.task} of job {self.job}: rank {self.rank} of {self.world}, life {self.life}>"

    def check(self) -> None:
        """Raise the error that ended this member, if it has ended.

        Raises
        ------
        MemberEndedError
            A newer life of the task has joined, or the task counts as dead for the others: its node
            was out of touch with the directory for too long. The task can join again.
        ClosedError
            The task has left, or the client is closed.
        DisconnectedError
            The node is gone.
        """
        self._checked(lib.phx_member_status(self._ptr))

    def members(self, role: str | None = None) -> list[MemberInfo]:
        """Return the tasks of this role, or of another role, in the order of ranks.

        The list has an entry for every rank. It is empty for a role of which no task has joined.
        """
        self._check_process()
        return list_members(lib.phx_member_list, self._ptr, role, self.world)

    @property
    def hosts(self) -> list[str]:
        """The hosts of the tasks of this role in the order of ranks; empty text for absent ones."""
        return [member.host for member in self.members()]

    def wait_world(self, timeout: float | None = None) -> None:
        """Return when every rank of the role has a live task.

        Raises
        ------
        GetTimeoutError
            The message names the ranks that have none.
        MemberEndedError
            This member has ended.
        """
        seconds = _arguments.seconds_of(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _SLICE_S if until is None else until - time.monotonic()
            code = lib.phx_member_wait_world(self._ptr, nanos(max(0.0, min(left, _SLICE_S))))
            if code != _native.DEADLINE or (until is not None and left <= _SLICE_S):
                return self._checked(code)

    def on_member(self, callback: Callable[[MemberInfo], object]) -> None:
        """Call ``callback(info)`` for each later change of a task of this role, on a thread of its own.

        Several changes of one task that follow each other closely can be one call. Ends with the
        member. An exception of the callback goes to ``sys.excepthook`` and ends the calls.

        Raises
        ------
        InvalidArgumentError
            The member has a callback already.
        """
        self._check_process()
        if self._watching:
            raise exceptions.InvalidArgumentError("on_member: the member has a callback already")
        self._watching = True
        seen = max(info._change for info in self.members())
        name = f"phalanx-member-{self.task}"
        threading.Thread(target=_watch, args=(weakref.ref(self), callback, seen), name=name, daemon=True).start()

    def send(
        self,
        rank: int,
        data: bytes | bytearray | memoryview,
        role: str | None = None,
        life: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send at most 1 MiB to the task with this rank, of this role or of another one.

        Messages to one task arrive once and in the order of the calls, unless it or this task ends first.
        Returns when the message has left: `send` waits while the task has not taken all but some 256 KiB of
        the messages before it. With ``life`` the message is for that life of the task only.

        Raises
        ------
        MemberUnavailableError
            The task is not live, has died meanwhile, or has another life.
        MessagesLostError
            Earlier messages were lost with the connection between the nodes. This one was not sent.
        StoreFullError
            32 MiB of this task's messages wait for other tasks.
        GetTimeoutError
            The task does not take its messages.
        MemberEndedError
            This member has ended.
        """
        self._check_process()
        view = memoryview(data).cast("B")
        address = ffi.from_buffer(view) if view.nbytes else ffi.NULL
        spelled = ffi.NULL if role is None else ffi.new("char[]", _arguments.utf8(role, "role"))
        to_rank = _arguments.whole(rank, "rank", 0, _MAX_WORLD - 1)
        to_life = -1 if life is None else _arguments.whole(life, "life")
        seconds = _arguments.seconds_of(timeout)
        call = _waiting.owned(
            lib.phx_member_send(self._ptr, spelled, to_rank, to_life, address, view.nbytes, nanos(seconds))
        )
        code = _native.PENDING
        try:
            # In slices, so that an interrupt need not wait. The library ends the call at its deadline.
            while code == _native.PENDING:
                code = lib.phx_wait(call, nanos(_SLICE_S))
        except BaseException:
            lib.phx_cancel(call)
            raise
        if code == 0:
            return
        message = _native.text(lib.phx_error())
        if code == _UNAVAILABLE and lib.phx_member_status(self._ptr) == 0:
            raise exceptions.MemberUnavailableError(message, None, self._connection.address)
        if code == _LOST:
            raise exceptions.MessagesLostError(message, None, self._connection.address)
        if code == _ABORTED:
            raise exceptions.MemberEndedError(message, None, self._connection.address)
        raise _native.error_of(code, message, self._connection.address)

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message of any task of the job, and take it.

        Raises
        ------
        GetTimeoutError
            None has arrived in time.
        MemberEndedError
            This member has ended, and all messages from before were taken.
        """
        seconds = _arguments.seconds_of(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            # In slices, so that an interrupt need not wait.
            left = _SLICE_S if until is None else until - time.monotonic()
            try:
                self._take(max(0.0, min(left, _SLICE_S)))
                return self._taken.popleft()
            except exceptions.GetTimeoutError:
                if until is not None and left <= _SLICE_S:
                    raise
            except IndexError:
                pass  # Another caller has it.

    def _take(self, seconds: float) -> None:
        """Wait until `_taken` has a message, for the one that pops it first.

        The wait of an iterator that was cancelled goes on in its thread, so its message must not be
        returned to it: it would be lost.
        """
        self._check_process()
        if not self._taking.acquire(timeout=seconds):
            raise exceptions.GetTimeoutError(
                f"job {self.job}: no message has arrived", None, self._connection.address
            )
        try:
            if self._taken:
                return
            ptr = lib.phx_member_receive(self._ptr, nanos(seconds))
            if ptr == ffi.NULL:
                raise _error(int(lib.phx_error_code()), self._connection.address)
            self._taken.append(Message(ptr))
        finally:
            self._taking.release()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over the messages of other tasks until this member has ended.

        If the iteration is cancelled, the next `receive` or iteration goes on with the next message.
        """
        import asyncio  # Costs a program that does not use it 20 ms.

        while True:
            self._check_process()  # A child has its parent's executor, without the threads.
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._take, _SLICE_S)
                message = self._taken.popleft()
            except (exceptions.GetTimeoutError, IndexError):
                continue
            except (exceptions.ClosedError, exceptions.MemberEndedError):
                return
            yield message

    def group(
        self,
        on_loss: OnLoss = "fail",
        timeout: float | None = None,
        retain: int | Literal["until released"] = 0,
        retain_copies: int = 2,
    ) -> Group:
        """Return the collectives of all members of this role. A member makes one group, and keeps it.

        Parameters
        ----------
        on_loss
            What a call does if a member ends before the call has a result, the same on all members. "fail":
            the call raises `MemberUnavailableError`, and so do later ones until the task has joined again.
            "wait": the call waits for the task's next life, which makes the same call. "exclude": the call
            goes on without the member; its part of a gathered result is zero.
        timeout
            Seconds for each call; None: no limit. After that the call raises GetTimeoutError, which names
            the missing ranks, on all members on which it has not ended.
        retain
            How many results of the last calls are kept for `Group.result`, 0 to 1,024; the same on all members.
            "until released": those that `Group.keep` names.
        retain_copies
            On how many hosts each is kept, 1 to 16; on all, if these are fewer.

        Raises
        ------
        InvalidArgumentError
            `on_loss` is another word, `timeout` is negative, or `retain` or `retain_copies` is out of range.
        """
        return Group(self._connection, self._ptr, on_loss, timeout, retain, retain_copies)

    def print(self, text: str) -> None:
        """Print a text once on the output of the `phalanx launch` that has started this task.

        It comes as it is, without the task's name in front, and with a newline if it has none at its end.
        Without a launch it goes to this process's standard output. Texts of a task keep their order, and
        are printed also if the task dies then. Lines of more than 64 KiB are cut, and texts of other tasks
        can come between the parts of a text of more than 64 KiB. Waits while the launch's own output is full.

        Raises
        ------
        DisconnectedError
            The launch has ended, or this process does not see its files (a container).
        GetTimeoutError
            The launch has taken nothing for a minute.
        """
        self._check_process()
        data = _arguments.utf8(text, "text")
        flush_output()

        def call() -> None:
            if code := lib.phx_member_print(self._ptr, data, len(data)):
                raise _error(code, self._connection.address)

        aside(call, "phalanx-print")

    def leave(self) -> None:
        """Leave the job: the others see that this task left. Does nothing if the member has ended."""
        self._check_process()
        lib.phx_member_leave(self._ptr, 0)

    def fail(self) -> None:
        """Leave the job in a way that the others see as a death of this task."""
        self._check_process()
        lib.phx_member_leave(self._ptr, 1)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._connection.forked:
            return  # The block of the parent goes on.
        if kind is None:
            self.leave()
        else:
            self.fail()

    def _check_process(self) -> None:
        if self._connection.forked:
            raise exceptions.ClosedError(
                f"{self.task} of job {self.job} joined before this process was forked: a child joins on its own",
                None,
                self._connection.address,
            )

    def _checked(self, code: int) -> None:
        if code != 0:
            raise _error(code, self._connection.address)


def _error(code: int, node: str) -> exceptions.PhalanxError:
    """Return the exception for this thread's last error of a call about members."""
    message = _native.text(lib.phx_error())
    if code == _ABORTED:
        return exceptions.MemberEndedError(message, None, node)
    if code == _EXISTS:
        return exceptions.InvalidArgumentError(message, None, node)
    return _native.error_of(code, message, node)


def _watch(weak: weakref.ref[Member], callback: Callable[[MemberInfo], object], seen: int) -> None:
    """Call back for changes until the member is gone or has ended."""
    change = ffi.new("uint64_t*")
    try:
        while True:
            member = weak()
            if member is None:
                return
            code = lib.phx_member_wait_change(member._ptr, seen, nanos(_SLICE_S), change)
            if code == _native.DEADLINE:
                del member
                continue
            if code != 0:
                return
            news = [info for info in member.members() if info._change > seen]
            del member
            seen = change[0]
            for info in sorted(news, key=lambda info: info._change):
                seen = max(seen, info._change)
                callback(info)
    except BaseException:
        sys.excepthook(*sys.exc_info())


def join(
    connection: Connection,
    job: str | None,
    task: str | None,
    world: int | None,
    role: str | None,
    rank: int | None,
    timeout: float | None,
) -> Member:
    """Join a job; see `phalanx.join`."""

    def spelled(text: str | None, name: str) -> Any:
        return ffi.NULL if text is None else ffi.new("char[]", _arguments.utf8(text, name))

    options = ffi.new("phx_join_options*")
    role_text = spelled(role, "role")
    options.role = role_text
    options.world = 0 if world is None else _arguments.whole(world, "world", 1, _MAX_WORLD)
    options.rank = -1 if rank is None else _arguments.whole(rank, "rank")
    options.timeout = nanos(_arguments.seconds_of(timeout))
    job_text, task_text = spelled(job, "job"), spelled(task, "task")

    def call() -> Member:
        ptr = lib.phx_join(connection._ptr, job_text, task_text, options)
        if ptr == ffi.NULL:
            raise _error(lib.phx_error_code(), connection.address)
        return Member(connection, ptr)

    # A member without a handle dies.
    return aside(call, "phalanx-join")


def aside(call: Callable[[], _T], name: str) -> _T:
    """Return what `call` does, on a thread: an interrupt need not wait for it, and it goes on then."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=run, name=name, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(_SLICE_S)
    if errors:
        raise errors[0]
    return results[0]
