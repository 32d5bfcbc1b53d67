"""Keeps one Phalanx daemon running for as long as a raylet runs.

A program of its own, which `_daemons` starts with ``python -I -S``. It needs only the standard library,
and imports nothing of this package, because the worker that starts it can end at any time. Its argument
is a `_daemons.Order` as JSON. It writes one line to standard output: ``READY`` and the daemon's own line of
JSON, ``OTHER`` if another keeper runs, or ``ERROR`` and a text.

    starts ──► running ──► raylet has ended ──► the daemon leaves ──► the folder is removed
                ▲    │
                └────┘ the daemon has ended: started again at the same address, after a pause

The process is in a session of its own, and no child of the worker, so that Ray ends it neither with the
worker nor with the worker's process group. It holds the lock `alive` in its folder for its whole life.
If it is killed, the kernel sends the daemon SIGTERM. One thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Between the end of a daemon and its next start: the first pause, and the longest.
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
# A daemon that has run for so long has started well: the next pause is the first one again.
_SETTLED_S = 60.0
# How long a daemon may take until it is ready: longer than a starter waits, since others find it later.
_READY_S = 60.0
# How long a keeper tries to get its lock, which readers of `ready` hold for a moment; and between two tries.
_LOCK_S = 2.0
_TRY_S = 0.05
_PR_SET_PDEATHSIG = 1
_LOG_TAIL_BYTES = 2000


class _Failure(Exception):
    """The daemon has ended before it was ready."""


class _Keeper:
    """Owns the daemon, a child process."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._raylet = order["raylet"]
        self._command = order["command"]
        self._libc = ctypes.CDLL(None)
        self._daemon: Any = None
        self._started = 0.0

    def start(self) -> dict[str, Any]:
        """Start the daemon, and return what it says about itself when it is ready."""
        self._started = time.monotonic()
        with open(self._order["log"], "ab") as log:
            self._daemon = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                # With the keeper, also if that is killed.
                preexec_fn=lambda: self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        line = self._first_line()
        if not line.endswith(b"\n"):
            self._daemon.kill()
            self._daemon.wait()
            raise _Failure(f"{' '.join(self._command[:2])} has not started: {self._log_tail()}")
        ready: dict[str, Any] = json.loads(line)
        return ready

    def _first_line(self) -> bytes:
        """Return the daemon's first line; without its end if the daemon or the raylet ends, or it takes too long."""
        said = self._daemon.stdout.fileno()
        poll = select.poll()
        poll.register(said, select.POLLIN)
        poll.register(self._raylet, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left = self._started + _READY_S - time.monotonic()
            came = [fd for fd, _ in poll.poll(max(0.0, left) * 1000)]
            if said not in came or self._raylet in came:
                break
            some = os.read(said, 4096)
            if not some:
                break
            line += some
        return line

    def _log_tail(self) -> str:
        with open(self._order["log"], "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            return " / ".join(log.read().decode("utf-8", "replace").split("\n")[-4:-1])

    def show(self, ready: dict[str, Any]) -> None:
        """Write the file `ready`. At every later start the daemon listens where it does now."""
        self._command = [
            f"--listen={ready['address']}" if word.startswith("--listen=") else word for word in self._command
        ]
        path = os.path.join(self._order["folder"], "ready")
        with open(f"{path}.new", "w") as file:
            json.dump(ready, file)
        os.rename(f"{path}.new", path)

    def watch(self) -> None:
        """Return when the raylet has ended. Starts the daemon again whenever it ends before that."""
        pause = _PAUSE_S
        while True:
            ended = self._wait_for_either()
            if ended == self._raylet:
                return
            self._daemon.wait()
            self._daemon.stdout.close()
            pause = _PAUSE_S if time.monotonic() - self._started > _SETTLED_S else pause
            if _ends_within(self._raylet, pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                self.show(self.start())
            except (_Failure, OSError, ValueError):
                pass  # its cause is in the log

    def _wait_for_either(self) -> int:
        """Return the descriptor of the process that has ended: the raylet's, or the daemon's."""
        if self._daemon.returncode is not None:
            return -1
        daemon = os.pidfd_open(self._daemon.pid)
        try:
            poll = select.poll()
            poll.register(self._raylet, select.POLLIN)
            poll.register(daemon, select.POLLIN)
            ended = [fd for fd, _ in poll.poll()]
            return self._raylet if self._raylet in ended else daemon
        finally:
            os.close(daemon)

    def stop(self) -> None:
        """End the daemon: at once, or when it has moved what only it has, within its time for that."""
        if self._daemon is None or self._daemon.returncode is not None:
            return
        patience = self._order["leaves_within_s"]
        self._daemon.send_signal(signal.SIGTERM if patience else signal.SIGKILL)
        try:
            self._daemon.wait(patience or None)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()


def _ends_within(process: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _is_alone(alive: int, raylet: int) -> bool:
    """Take the lock of the folder's keeper, and return whether it could be taken."""
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until or _ends_within(raylet, _TRY_S):
                return False


def _log_errors(path: str) -> None:
    """Send what Python writes about an error of the keeper to the daemon's log."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 2)
    os.close(log)


def _reset_oom_score() -> None:
    """Undo what Ray does to workers: of a full machine's processes the kernel kills workers first."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("0")
    except OSError:
        pass  # a container can forbid it


def _reset_niceness(raylet: int) -> None:
    """Take the niceness of the raylet: workers, and what they start, run after all else on a busy host."""
    with open(f"/proc/self/fdinfo/{raylet}") as about:
        pid = next(int(line.split()[1]) for line in about if line.startswith("Pid:"))
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, pid))
    except ProcessLookupError:
        pass  # the raylet has ended
    except PermissionError:
        print(
            f"keeper: this user cannot lower the niceness of {mine} that Ray has set for workers, so Phalanx is slow "
            "while workers compute on all cores. Run `python -m phalanx.ray` on each host after `ray start`",
            file=sys.stderr,
            flush=True,
        )


def _say(word: str, text: str) -> None:
    """Write the one line of standard output, for the starter, and leave its pipe."""
    try:
        os.write(1, f"{word} {text}\n".encode())
    except OSError:
        pass  # the starter has ended; others find the file `ready`
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)


def main() -> None:
    order = json.loads(sys.argv[1])
    if os.fork():
        os._exit(0)  # from now on no child of the starter
    _reset_oom_score()
    folder = order["folder"]
    alive = os.open(os.path.join(folder, "alive"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _is_alone(alive, order["raylet"]):
        _say("OTHER", folder)
        return
    keeper = _Keeper(order)
    try:
        _log_errors(order["log"])
        _reset_niceness(order["raylet"])
        # What a keeper that was killed has left.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "ready"))
        ready = keeper.start()
        keeper.show(ready)
    except (_Failure, OSError, ValueError) as error:
        _say("ERROR", str(error).replace("\n", " "))
        keeper.stop()
        if _ends_within(order["raylet"], 0):
            _remove(folder)
        return
    _say("READY", json.dumps(ready))
    keeper.watch()
    keeper.stop()
    _remove(folder)


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rmdir(os.path.dirname(folder))
    except OSError:
        pass  # another daemon of this Ray node is there still


if __name__ == "__main__":
    main()
