"""Kills what a test run has left, where its process ends without a word: `reaper.py NAME VALUE` with a pipe as input.

A program by itself, which imports nothing of the tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def left(name: str, value: str) -> list[int]:
    """The processes with `name=value` in their environment, but this one."""
    wanted = f"{name}={value}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def main(name: str, value: str) -> None:
    """Wait for the end of the run."""
    if sys.stdin.buffer.read():
        return
    # What is killed may have been starting another.
    while processes := left(name, value):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


main(*sys.argv[1:])
