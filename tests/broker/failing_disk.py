"""A real ext4 file system in a file, made to fail by its own `shutdown` call: every access gives EIO from then on.

What was written before the failure is on it, so that it can be mounted again, as after a repair.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

MEGABYTE = 1 << 20
EXT4_IOC_SHUTDOWN = 0x8004587D
WITH_EVERYTHING_WRITTEN = 0


class CannotMountError(Exception):
    """This process may not mount, or has no mkfs.ext4."""


class FailingDisk:
    """Mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.ext4"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(96 * MEGABYTE)
        make = shutil.which("mkfs.ext4") or "/usr/sbin/mkfs.ext4"
        self._run(make, "-q", "-F", str(self._image))
        self.mount()
        (self.path / "lost+found").rmdir()

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self, *, lazily: bool = False) -> None:
        self._run("umount", *(["-l"] if lazily else []), str(self.path))

    def fail(self) -> None:
        """The disk is gone, under open files, too."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", WITH_EVERYTHING_WRITTEN))
        finally:
            os.close(fd)

    def repair(self) -> None:
        self.unmount()
        self.mount()

    @staticmethod
    def _run(*command: str) -> None:
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotMountError(f"{' '.join(command)}: {error}") from error


@contextmanager
def failing_disk(folder: Path) -> Iterator[FailingDisk]:
    """A disk for one test, which is skipped where mounting is not allowed."""
    try:
        made = FailingDisk(folder)
    except CannotMountError as error:
        pytest.skip(f"needs the right to mount an ext4 image: {error}")
    try:
        yield made
    finally:
        with suppress(CannotMountError):
            made.unmount(lazily=True)


def two_disks(start: StartBroker, tmp_path: Path, second: Path, **settings: str) -> BrokerProcess:
    """A broker whose first directory works; partitions go to the two in turn, so partition 1 lies on the second."""
    dirs = f"{tmp_path}/first,{second}"
    defaults = {"kbroker.disk.reserve.bytes": str(MEGABYTE), "offsets.topic.num.partitions": "2"}
    return start({"log.dirs": dirs, **defaults, **settings})
