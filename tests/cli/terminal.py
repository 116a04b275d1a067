"""A command on a terminal: what it shows there, and what its user types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from types import TracebackType
from typing import Self

import click

CTRL_C = b"\x03"


class Terminal:
    """`kbroker` in a session of its own, whose terminal has so many columns.  It is gone with the `with`."""

    def __init__(self, columns: int, *arguments: str) -> None:
        self._shown = b""
        self._status: int | None = None
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            os.execve(sys.executable, [sys.executable, "-m", "kbroker.cli", *arguments], environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            self.end()
        os.close(self._terminal)

    @property
    def text(self) -> str:
        """All that was shown, without colours."""
        return click.unstyle(self._shown.decode(errors="replace")).replace("\r\n", "\n")

    def wait_for(self, pattern: str) -> None:
        """Until something like it is shown.  AssertionError when the command ends before."""
        while not re.search(pattern, self.text):
            assert self._read(), self.text

    def type(self, keys: bytes) -> None:
        """As if somebody typed it."""
        os.write(self._terminal, keys)

    def end(self) -> int:
        """The exit status, when it has ended."""
        while self._read():
            pass
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def _read(self) -> bool:
        piece = b""
        with contextlib.suppress(OSError):  # So Linux says that the other end is closed.
            piece = os.read(self._terminal, 65_536)
        self._shown += piece
        return bool(piece)
