"""A terminal on which a test sees what a person would see."""

import codecs
import fcntl
import os
import pty
import re
import selectors
import signal
import subprocess
import termios
import time

from tests.process.harness import DEADLINE_S, environment

# Controls that the commands use, and those with which shells begin and end their lines.
_CONTROL = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """Runs a command on a terminal of its own, and draws what the command writes."""

    def __init__(self, rows, columns, command, **variables):
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (rows, columns))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._left = ""
        self.resize_to(rows, columns, tell=False)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**environment(), "TERM": "xterm", **variables},
            # The terminal sends its signals to the process whose terminal it is.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        os.close(self._ours)

    def resize_to(self, rows, columns, tell=True):
        """Give the terminal another size. Its content is undefined until the command draws it again."""
        self.rows, self.columns = rows, columns
        self.lines = [""] * rows
        self.row = self.column = 0
        # What the command did that it should not, and how often it has drawn a whole text.
        self.wrapped = self.scrolled = self.drawn = 0
        self.raw = ""
        if tell:
            termios.tcsetwinsize(self._ours, (rows, columns))

    def type(self, text):
        os.write(self._ours, text.encode())

    def read_until(self, condition, what):
        """Draw the output until `condition` holds."""
        end = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._ours, selectors.EVENT_READ)
            while not condition():
                if not selector.select(max(0, end - time.monotonic())):
                    raise AssertionError(f"{what} does not come: {self.lines} {self.raw[-2000:]!r}")
                self._draw(self._decoder.decode(os.read(self._ours, 65536)))

    def _draw(self, text):
        self.raw += text
        text = self._left + text
        at = 0
        while at < len(text):
            control = _CONTROL.match(text, at)
            if control:
                at = control.end()
                if control.group(2):
                    self._control(control.group(1), control.group(2))
            elif text[at] == "\x1b" and len(text) - at < 20:
                break  # the rest of the sequence has not come yet
            else:
                self._put(text[at])
                at += 1
        self._left = text[at:]

    def _put(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            if self.row == self.rows - 1:
                self.scrolled += 1
                self.lines = [*self.lines[1:], ""]
            else:
                self.row += 1
        elif char == "\b":
            self.column = max(0, self.column - 1)
        elif char != "\x07":
            if self.column == self.columns:
                self.wrapped += 1
                self._put("\r")
                self._put("\n")
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column += 1

    def _control(self, argument, final):
        if final == "A":
            self.row = max(0, self.row - int(argument or 1))
        elif final == "C":
            self.column = min(self.columns - 1, self.column + int(argument or 1))
        elif final == "D":
            self.column = max(0, self.column - int(argument or 1))
        elif final == "H":
            self.row = self.column = 0
        elif final == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif final == "J" and argument == "2":
            # What was drawn before, at another size, does not count.
            self.lines = [""] * self.rows
            self.wrapped = self.scrolled = self.drawn = 0
        elif final == "J":
            self.lines[self.row] = self.lines[self.row][: self.column]
            self.lines[self.row + 1 :] = [""] * (self.rows - self.row - 1)
            self.drawn += 1
