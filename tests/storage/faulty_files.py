"""A file system that fails on purpose: at the n-th changing call it crashes, and loses what was not synced.

It also refuses that a file with content is replaced by one whose content is not durable: the name may survive alone.

Every changing call counts: open (with creation), pwrite, fsync, syncfs, rename, unlink, ftruncate, fallocate, mkdir,
rmdir. At the call numbered `crash_at` the fault happens and from then on every call raises `CrashedError`, as for a
process that is gone. `after_crash` then turns the directory into what a machine could find on its disk:

    KEEP    the process was killed: everything written is there
    TORN    as KEEP, but of the write at which it crashed only a part is there
    LOSE    the machine failed: writes that were not synced are gone (file sizes back to what was synced)
    GARBLE  the machine failed: un-synced bytes are zeros, but file sizes are as written
    FORGET  as LOSE, and files made, renamed or removed since the last fsync of their directory have their old names
    REORDER as FORGET for every other change of a name: the system wrote later ones and not earlier ones
    ERROR   no crash: the call raises OSError once, and everything goes on
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import Any, NamedTuple

import pytest

from kbroker.storage.files.filesystem import Buffer, FileSystem


class Fault(Enum):
    KEEP = "keep"
    TORN = "torn"
    LOSE = "lose"
    GARBLE = "garble"
    FORGET = "forget"
    REORDER = "reorder"
    ERROR = "error"


class CrashedError(BaseException):
    """The process is gone: not an Exception, so that nothing handles it by accident."""


OF_THE_MACHINE = frozenset({Fault.LOSE, Fault.GARBLE, Fault.FORGET, Fault.REORDER})

#: A test of each crash; those that differ little from another are slow ones.
each_crash = pytest.mark.parametrize(
    "fault",
    [
        *(Fault.TORN, Fault.LOSE, Fault.FORGET, Fault.REORDER),
        *(pytest.param(fault, marks=pytest.mark.slow) for fault in (Fault.KEEP, Fault.GARBLE)),
    ],
)


class NameChange(NamedTuple):
    """A change of a directory that is not durable: `old` becomes `new` (one of them empty: made, or removed).

    `replaced` has the durable content of what had the name `new`, or of what was removed.
    """

    old: str
    new: str
    replaced: bytes | None

    def undo(self) -> None:
        """Gives the old names back."""
        if not self.old:
            os.unlink(self.new)
            return
        if self.new:
            os.rename(self.new, self.old)
        if self.replaced is not None:
            with open(self.new or self.old, "wb") as file:
                file.write(self.replaced)


class FaultyFiles(FileSystem):
    """Real files with one fault.  `calls` counts changing calls; `crash_at` 0 never fails."""

    def __init__(self, crash_at: int = 0, fault: Fault = Fault.KEEP) -> None:
        self.crash_at = crash_at
        self.fault = fault
        self.calls = 0
        self.crashed = False
        self._paths: dict[int, str] = {}
        # Content that would survive the machine, for files with un-synced writes.
        self._durable: dict[str, bytes] = {}
        self._names: list[NameChange] = []

    def _count(self, what: str) -> bool:
        """True when this is the call that fails."""
        if self.crashed:
            raise CrashedError(what)
        self.calls += 1
        if self.calls != self.crash_at:
            return False
        if self.fault is Fault.ERROR:
            raise OSError(errno.EIO, f"injected at call {self.calls}: {what}")
        self.crashed = True
        return True

    def _remember(self, path: str) -> None:
        if path not in self._durable:
            with open(path, "rb") as file:
                self._durable[path] = file.read()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            if self._count("open"):
                raise CrashedError("open")
            existed = os.path.exists(path)
            if existed and flags & os.O_TRUNC:
                self._remember(path)
            fd = super().open(path, flags, mode)
            if not existed:
                self._durable[path] = b""
                self._names.append(NameChange("", path, None))
        else:
            if self.crashed:
                raise CrashedError("open")
            fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        path = self._paths[fd]
        fails = self._count("pwrite")
        if os.path.exists(path):
            self._remember(path)
        if fails:
            if self.fault is not Fault.KEEP:
                super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise CrashedError("pwrite")
        super().pwrite(fd, data, position)

    def copy_range(self, source: int, target: int, start: int, end: int) -> int:
        path = self._paths[target]
        fails = self._count("copy_range")
        if os.path.exists(path):
            self._remember(path)
        if fails:
            if self.fault is not Fault.KEEP:
                super().copy_range(source, target, start, (start + end) // 2)
            raise CrashedError("copy_range")
        return super().copy_range(source, target, start, end)

    def copy_file(self, source: str, target: str) -> None:
        fails = self._count("copy_file")
        if os.path.exists(target):
            self._remember(target)
        if not os.path.exists(target):
            self._names.append(NameChange("", target, None))
        super().copy_file(source, target)
        self._durable.setdefault(target, b"")
        if fails:
            if self.fault is Fault.TORN:
                os.truncate(target, os.path.getsize(target) // 2)
            raise CrashedError("copy_file")

    def fsync(self, fd: int) -> None:
        if self._count("fsync"):
            raise CrashedError("fsync")
        self._durable.pop(self._paths[fd], None)

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def sync_file_system(self, fd: int) -> bool:
        if self._count("sync_file_system"):
            raise CrashedError("sync_file_system")
        self._durable.clear()
        self._names.clear()
        return True

    def fsync_directory(self, path: str) -> None:
        if self._count("fsync_directory"):
            raise CrashedError("fsync_directory")
        self._names = [change for change in self._names if os.path.dirname(change.new or change.old) != path]

    def _durable_content(self, path: str) -> bytes:
        if path in self._durable:
            return self._durable[path]
        with open(path, "rb") as file:
            return file.read()

    def ftruncate(self, fd: int, size: int) -> None:
        fails = self._count("ftruncate")
        path = self._paths[fd]
        if os.path.exists(path):
            self._remember(path)
        if fails:
            raise CrashedError("ftruncate")
        super().ftruncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        if self._count("rename"):
            raise CrashedError("rename")
        if os.path.isdir(source):
            self._names = [change for change in self._names if not (change.new or change.old).startswith(f"{source}/")]
        elif os.path.exists(source):
            exists = os.path.exists(target)
            empty = not exists or not os.path.getsize(target)
            assert empty or source not in self._durable, f"{target} is replaced by what is not durable"
            self._names.append(NameChange(source, target, self._durable_content(target) if exists else None))
        super().rename(source, target)
        if source in self._durable:
            self._durable[target] = self._durable.pop(source)
        else:
            self._durable.pop(target, None)
        for path in [path for path in list(self._durable) if path.startswith(f"{source}/")]:
            self._durable[target + path.removeprefix(source)] = self._durable.pop(path)
        for fd, path in list(self._paths.items()):
            if path == source or path.startswith(f"{source}/"):
                self._paths[fd] = target + path.removeprefix(source)

    def unlink(self, path: str) -> None:
        if self._count("unlink"):
            raise CrashedError("unlink")
        self._names.append(NameChange(path, "", self._durable_content(path) if os.path.exists(path) else None))
        super().unlink(path)
        self._durable.pop(path, None)

    def mkdir(self, path: str) -> None:
        if self._count("mkdir"):
            raise CrashedError("mkdir")
        super().mkdir(path)

    def read_file(self, path: str) -> bytes:
        return self.read_large_file(path)

    def list_directory(self, path: str) -> list[Any]:
        if self.crashed:
            raise CrashedError("list_directory")
        return super().list_directory(path)

    def after_crash(self) -> None:
        """Leaves on the real disk what the fault says a restart would find."""
        if self.fault not in OF_THE_MACHINE:
            return
        for path, durable in self._durable.items():
            if not os.path.exists(path):
                continue
            size = os.path.getsize(path)
            with open(path, "wb") as file:
                file.write(durable)
                if self.fault is Fault.GARBLE:
                    file.truncate(size)
        if self.fault in (Fault.FORGET, Fault.REORDER):
            self._forget_names()

    def release(self) -> None:
        """Close what the process that is gone had open; what it left closes nothing any more."""
        for descriptor in self._paths:
            os.close(descriptor)
        self._paths.clear()

    def _forget_names(self) -> None:
        kept: set[str] = set()
        for number, change in reversed(list(enumerate(self._names))):
            names = {change.old, change.new} - {""}
            # What a change that is kept needs was there before it.
            if (self.fault is Fault.REORDER and number % 2) or names & kept:
                kept |= names
            else:
                change.undo()
