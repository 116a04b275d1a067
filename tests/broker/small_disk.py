"""A file system in memory that fills up, where mounting is allowed."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEGABYTE = 1 << 20


class SmallDisk:
    """A mounted file system of 96 MB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._foreign = path / "foreign"

    @property
    def free(self) -> int:
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def take(self, *, leave: int) -> None:
        """Somebody else's file takes all but `leave` bytes."""
        with self._foreign.open("ab", buffering=0) as file:
            while (size := min(self.free - leave, MEGABYTE)) > 0:
                try:
                    file.write(b"x" * size)
                except OSError as error:
                    # The broker was faster, and has what was left.
                    if error.errno != errno.ENOSPC:
                        raise

    def give_back(self) -> None:
        self._foreign.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """A disk for one test, which is skipped where mounting is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96m", "none", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
