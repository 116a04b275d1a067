"""A file system that fails on purpose: at the n-th changing call it crashes, and loses what was not synced.

Every changing call counts: open (with creation), pwrite, fsync, syncfs, rename, unlink, ftruncate, fallocate, mkdir,
rmdir. At the call numbered `crash_at` the fault happens and from then on every call raises `CrashedError`, as for a
process that is gone. `after_crash` then turns the directory into what a machine could find on its disk:

    KEEP    the process was killed: everything written is there
    TORN    as KEEP, but of the write at which it crashed only a part is there
    LOSE    the machine failed: writes that were not synced are gone (file sizes back to what was synced)
    GARBLE  the machine failed: un-synced bytes are zeros, but file sizes are as written
    ERROR   no crash: the call raises OSError once, and everything goes on
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import Any

from kbroker.storage.filesystem import Buffer, FileSystem


class Fault(Enum):
    KEEP = "keep"
    TORN = "torn"
    LOSE = "lose"
    GARBLE = "garble"
    ERROR = "error"


class CrashedError(BaseException):
    """The process is gone: not an Exception, so that nothing handles it by accident."""


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
        return True

    def fsync_directory(self, path: str) -> None:
        if self._count("fsync_directory"):
            raise CrashedError("fsync_directory")

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
        if self.fault not in (Fault.LOSE, Fault.GARBLE):
            return
        for path, durable in self._durable.items():
            if not os.path.exists(path):
                continue
            size = os.path.getsize(path)
            with open(path, "wb") as file:
                file.write(durable)
                if self.fault is Fault.GARBLE:
                    file.truncate(size)
