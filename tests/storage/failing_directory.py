"""A file system on which one directory fails: from a moment on, calls for anything below it raise an error.

`calls` names the kinds of calls that fail while `failing`; `None` stands for all of them.  Calls by descriptor fail for
files that were opened by a path below the directory.
"""

from __future__ import annotations

import os

from kbroker._fast.log.index import MappedFile
from kbroker._fast.log.segment_scan import SegmentScan
from kbroker.storage.files.filesystem import Buffer, DirectoryEntry, FileSystem

LOCK_FILE = ".lock"


class FailingDirectory(FileSystem):
    """Real files, but for `directory` while `failing` is an errno."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.failing = 0
        self.calls: frozenset[str] | None = None
        self.failed: list[str] = []
        self._paths: dict[int, str] = {}

    def fail(self, number: int, *calls: str) -> None:
        self.failing = number
        self.calls = frozenset(calls) or None

    def heal(self) -> None:
        self.failing = 0

    def _reach(self, call: str, path: str | None) -> None:
        inside = path is not None and (path == self.directory or path.startswith(f"{self.directory}/"))
        if self.failing and inside and (self.calls is None or call in self.calls):
            self.failed.append(call)
            raise OSError(self.failing, os.strerror(self.failing), path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._reach("open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._reach("pread", self._paths.get(fd))
        return super().pread(fd, size, position)

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int:
        self._reach("pread", self._paths.get(fd))
        return super().pread_into(fd, buffer, position)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        self._reach("pwrite", self._paths.get(fd))
        super().pwrite(fd, data, position)

    def fsync(self, fd: int) -> None:
        self._reach("fsync", self._paths.get(fd))

    def fdatasync(self, fd: int) -> None:
        self._reach("fsync", self._paths.get(fd))

    def fsync_directory(self, path: str) -> None:
        self._reach("fsync", path)

    def ftruncate(self, fd: int, size: int) -> None:
        self._reach("ftruncate", self._paths.get(fd))
        super().ftruncate(fd, size)

    def allocate_ahead(self, fd: int, position: int, size: int) -> bool:
        return False

    def rename(self, source: str, target: str) -> None:
        self._reach("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._reach("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._reach("mkdir", path)
        super().mkdir(path)

    def makedirs(self, path: str) -> None:
        self._reach("mkdir", path)
        super().makedirs(path)

    def rmdir(self, path: str) -> None:
        self._reach("rmdir", path)
        super().rmdir(path)

    def read_file(self, path: str) -> bytes:
        return self.read_large_file(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self._reach("list", path)
        return super().list_directory(path)

    def free_bytes(self, path: str) -> int:
        self._reach("statvfs", path)
        return 1 << 40

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        self._reach("pread", self._paths.get(fd))
        return super().scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)

    def map_readonly(self, fd: int, size: int) -> MappedFile:
        self._reach("mmap", self._paths.get(fd))
        return super().map_readonly(fd, size)
