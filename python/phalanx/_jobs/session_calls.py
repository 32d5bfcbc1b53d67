"""The calls of a session: interrupts while the library waits, and functions of the program that it calls.

Owns a session's worker, a daemon thread. Only the main thread gets interrupts, and only between calls of the
library, which can wait for minutes in a session. So the worker makes the calls of the main thread, which waits
in the interpreter meanwhile. Functions of the program run in the thread that makes the call, also if the worker
has made it for that thread: an interrupt, a context or a device belongs to it. Other threads make their calls
themselves.

After an interrupt the worker is alone with its call. The call goes on until the library ends it, and keeps the
memory that it writes until then.
"""

from __future__ import annotations

import threading
from _queue import SimpleQueue
from collections.abc import Callable

from phalanx import _native
from phalanx._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # Returns the status of a call of the library, and the text of its error.
    Make = Callable[[], tuple[int, str]]
    Step = Callable[[], bool]


def outcome(code: int) -> tuple[int, str]:
    """Return the status of a call that this thread has just made, with its text."""
    return code, "" if code == 0 else _native.text(lib.phx_error())


class _Worker:
    """Makes calls in a thread of its own."""

    def __init__(self) -> None:
        # To the worker: what it is to make, or whether a step has succeeded; None: it ends.
        self._tasks: SimpleQueue[Any] = SimpleQueue()
        # From the worker: a step of the program, or an outcome.
        self._news: SimpleQueue[Any] = SimpleQueue()
        arguments = (self._tasks, self._news)
        thread = threading.Thread(target=_work, args=arguments, name="phalanx-session", daemon=True)
        thread.start()
        self.ident = thread.ident

    def __del__(self) -> None:
        self.end()

    def end(self) -> None:
        """Let the thread end, when its call has; the caller waits for neither."""
        self._tasks.put(None)

    def call(self, make: Make) -> tuple[int, str]:
        """Return the outcome of a call; run the steps of the program here. Interrupts are raised here."""
        self._tasks.put(make)
        while True:
            news = self._news.get()
            if isinstance(news, tuple):
                return news
            if isinstance(news, BaseException):
                raise news
            self._tasks.put(news())

    def hand_over(self, step: Step) -> bool:
        """Have the thread that waits in `call` run a step. In the worker."""
        self._news.put(step)
        answer = self._tasks.get()
        if answer is None:
            # That thread is gone. The worker finds this again when its call has ended.
            self._tasks.put(None)
        return bool(answer)


def _work(tasks: SimpleQueue[Any], news: SimpleQueue[Any]) -> None:
    while True:
        make = tasks.get()
        if make is None:
            return
        made: object
        try:
            made = make()
        except BaseException as error:
            made = error
        # What the call has kept alive can go now, and not with the next call.
        del make
        news.put(made)


class Caller:
    """Makes the calls of one session, one at a time: the library refuses others meanwhile.

    `error` is the exception of a function of the program, until the call raises it.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.interrupted: bool = False
        self._worker: _Worker | None = None
        self._waits = False

    def call(self, make: Make) -> tuple[int, str]:
        """Return the outcome of a call of the library."""
        # Within a function of the program the main thread waits in a call already; the library says so.
        if self._waits or threading.get_ident() != threading.main_thread().ident:
            return make()
        if self._worker is None:
            self._worker = _Worker()
        self._waits = True
        try:
            return self._worker.call(make)
        except BaseException:
            self.interrupted = True
            self._worker.end()
            raise
        finally:
            self._waits = False

    def run(self, function: Callable[[], object]) -> bool:
        """Call a function of the program in the thread of its call. Returns False, and keeps its error, if it raises."""

        def step() -> bool:
            try:
                function()
            except BaseException as error:
                self.error = error
                return False
            return True

        if self.interrupted:
            return False
        worker = self._worker
        if worker is not None and threading.get_ident() == worker.ident:
            return worker.hand_over(step)
        return step()


class Functions:
    """The functions of the program for one call: an argument of the library, which calls them.

    `prepare`, `save`, `add` and `take` run in the thread of the call; `save` returns memory. `place` returns
    memory for so many bytes, and runs anywhere.
    """

    def __init__(
        self,
        caller: Caller,
        *,
        prepare: Callable[[], object] | None = None,
        save: Callable[[], Any] | None = None,
        add: Callable[[Any, int], object] | None = None,
        take: Callable[..., object] | None = None,
        place: Callable[[int], Any] | None = None,
    ) -> None:
        self.caller = caller
        self.prepare = prepare
        self.save = save
        self.add = add
        self.take = take
        self.place = place
        # Keeps what the library reads or writes until the next function is called.
        self.memory: Any = None

    def as_argument(self) -> Any:
        """Return the argument of the library's functions; keep it as long as they can be called."""
        # Kept here, it would be a cycle with large arrays in it.
        return ffi.new_handle(self)

    def to_prepare(self) -> Any:
        """Return the library's function for `prepare`."""
        return ffi.NULL if self.prepare is None else prepare


# An int that is returned is 0, or 1 for an error. Nothing raises here: cffi would print it.


@ffi.callback("phx_prepare")
def prepare(argument: Any) -> int:
    functions = ffi.from_handle(argument)
    return int(not functions.caller.run(functions.prepare))


@ffi.callback("phx_save")
def save(argument: Any, data: Any, size: Any) -> int:
    functions = ffi.from_handle(argument)

    def keep() -> None:
        functions.memory = functions.save()

    if not functions.caller.run(keep):
        return 1
    data[0] = ffi.from_buffer(functions.memory)
    size[0] = functions.memory.nbytes
    return 0


@ffi.callback("phx_take")
def add(argument: Any, data: Any, size: int) -> int:
    functions = ffi.from_handle(argument)
    return int(not functions.caller.run(lambda: functions.add(data, size)))


@ffi.callback("phx_take")
def take(argument: Any, data: Any, size: int) -> int:
    functions = ffi.from_handle(argument)
    return int(not functions.caller.run(lambda: functions.take(data, size)))


@ffi.callback("phx_take_both")
def take_both(argument: Any, data: Any, size: int, local: Any, local_size: int) -> int:
    functions = ffi.from_handle(argument)
    return int(not functions.caller.run(lambda: functions.take(data, size, local, local_size)))


@ffi.callback("phx_place")
def place(argument: Any, size: int) -> Any:
    functions = ffi.from_handle(argument)
    try:
        functions.memory = functions.place(size)
        return ffi.from_buffer(functions.memory) if size else ffi.NULL
    except BaseException as error:
        functions.caller.error = error
        return ffi.NULL
