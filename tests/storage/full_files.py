"""A file system with little space and a bad temper: writes fail after some bytes, and other calls where a test says.

`left` is what may still be written (None: everything); a write over it leaves its first part and raises ENOSPC, as a
real disk does.  `error` makes every write raise that errno after half of its bytes.  The names in `failing` ("fsync",
"ftruncate") are calls that raise EIO.
"""

from __future__ import annotations

import errno
import os

from kbroker.storage.files.filesystem import Buffer, FileSystem


class FullFiles(FileSystem):
    """Real files with limits that a test moves."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.error = 0
        self.failing: set[str] = set()
        self.free = 1 << 40
        self.synced = 0

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        size = len(data)
        if self.error:
            super().pwrite(fd, memoryview(data)[: size // 2], position)
            raise OSError(self.error, os.strerror(self.error))
        if self.left is not None:
            if size > self.left:
                super().pwrite(fd, memoryview(data)[: self.left], position)
                self.left = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= size
        super().pwrite(fd, data, position)

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise OSError(errno.EIO, f"injected: {name}")

    def fsync(self, fd: int) -> None:
        self._check("fsync")
        self.synced += 1

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def fsync_directory(self, path: str) -> None:
        self._check("fsync")

    def ftruncate(self, fd: int, size: int) -> None:
        self._check("ftruncate")
        super().ftruncate(fd, size)

    def allocate_ahead(self, fd: int, position: int, size: int) -> bool:
        return False

    def free_bytes(self, path: str) -> int:
        return self.free if self.left is None else self.left
