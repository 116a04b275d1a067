"""A command on a terminal: what it shows there, and what its user types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from types import TracebackType
from typing import Self

import click

CTRL_C = b"\x03"
# The terminal of a session is the one that its first process takes.
TAKES_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """`kbroker` in a session of its own, whose terminal has so many columns.  It is gone with the `with`."""

    def __init__(self, columns: int, *arguments: str) -> None:
        self._shown = b""
        self._terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        # Not by a fork of this process, which has threads of others.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", TAKES_TERMINAL, sys.executable, "-m", "kbroker.cli", *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environ,
            start_new_session=True,
        )
        os.close(inside)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
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
        return self._process.wait()

    def _read(self) -> bool:
        piece = b""
        with contextlib.suppress(OSError):  # So Linux says that the other end is closed.
            piece = os.read(self._terminal, 65_536)
        self._shown += piece
        return bool(piece)
