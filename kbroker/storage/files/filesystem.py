"""The one way from the storage engine to files.

Everything under `kbroker/storage` reads and writes through a `FileSystem`, so that a test can put errors, torn
writes, lost un-synced writes or a full disk behind any call.  The methods are thin over `os`: the contract they add
is

- `pwrite` writes every byte or raises; a short write is continued, never reported as success;
- `write_atomic` replaces a small file: temporary file, fsync, rename, fsync of the directory.  A crash at any point
  leaves the old or the new content, never a mixture.  Where the loop must not wait, `ReplacedFile` has the same order;
- failures are `OSError`s, untouched; the caller decides whether a log directory has failed.
"""

# Paths are strings on purpose: this module takes the place of pathlib.
# ruff: noqa: PTH102, PTH103, PTH105, PTH106, PTH108, PTH110, PTH116, PTH120

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kbroker._fast.files.directory import list_directory, read_small_file
from kbroker._fast.files.file_copy import copy_file, copy_range
from kbroker._fast.files.file_space import allocate_ahead, sync_file_system
from kbroker._fast.log.index import MappedFile
from kbroker._fast.log.segment_scan import SegmentScan, scan_segment

Buffer = bytes | bytearray | memoryview

TEMPORARY_SUFFIX = ".tmp"
LINUX = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
SYNC_TELLS_FROM = (5, 8)
LOCK = struct.Struct("@hhqqi4x")
"""`struct flock`: kind, whence, start, length, process."""
WHOLE_FILE = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class DirectoryEntry(NamedTuple):
    """One name in a directory.  `size` is 0 for directories."""

    name: str
    is_directory: bool
    size: int


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Gives an I/O error that knows of a descriptor alone the path that it happened with."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


class FileSystem:
    """Files as the storage engine sees them.  Overridable call by call; holds no state of its own."""

    __slots__ = ()

    # -- single calls -------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor, closed on exec.  OSError."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int:
        """Fills `buffer` and says with how many bytes; fewer than it holds only at the end of the file."""
        view = memoryview(buffer)
        got = 0
        while got < len(view):
            count = os.preadv(fd, [view[got:]], position + got)
            if count == 0:
                break
            got += count
        return got

    def copy_range(self, source: int, target: int, start: int, end: int) -> int:
        """Copies a range of a file to the same place of another; where it came to, less where the source ends."""
        return copy_range(source, target, start, end)

    def copy_file(self, source: str, target: str) -> None:
        """Makes `target` a copy of `source`, without waiting for the disk."""
        copy_file(source, target)

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name on the same file system.  OSError."""
        os.link(source, target)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Writes all of `data` (a buffer of bytes) or raises."""
        written = os.pwrite(fd, data, position)
        if written != len(data):
            self._finish_write(fd, data, position, written)

    def _finish_write(self, fd: int, data: Buffer, position: int, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            count = os.pwrite(fd, view[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, "the file system accepts no more bytes")
            written += count

    def fsync(self, fd: int) -> None:
        """Make content and metadata durable.  OSError."""
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        """Make content and size durable.  OSError."""
        os.fdatasync(fd)

    def fsync_directory(self, path: str) -> None:
        """Makes names created, renamed or removed in `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, fd: int) -> bool:
        """Makes all that was written to the file system of `fd` durable, names and content.

        False where the system would not report that writing back failed since `fd` was opened.
        """
        if LINUX < SYNC_TELLS_FROM:
            return False
        sync_file_system(fd)
        return True

    def device(self, path: str) -> int:
        """The file system that `path` lies on."""
        return os.stat(path).st_dev

    def ftruncate(self, fd: int, size: int) -> None:
        """Set a file's size.  OSError."""
        os.ftruncate(fd, size)

    def fallocate(self, fd: int, position: int, size: int) -> None:
        """Reserves blocks and grows the file to at least `position + size`."""
        os.posix_fallocate(fd, position, size)

    def allocate_ahead(self, fd: int, position: int, size: int) -> bool:
        """Reserves blocks behind the end of a file, whose size stays; False when that cannot be had."""
        return allocate_ahead(fd, position, size)

    def size(self, fd: int) -> int:
        """A file's size in bytes."""
        return os.fstat(fd).st_size

    def rename(self, source: str, target: str) -> None:
        """Moves `source` over `target` in one step."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file.  OSError."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a directory.  OSError."""
        os.mkdir(path, 0o755)

    def makedirs(self, path: str) -> None:
        """Make a directory and those above it that are missing.  OSError."""
        os.makedirs(path, mode=0o755, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory.  OSError."""
        os.rmdir(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """The entries of a directory, with sizes.  OSError."""
        return list_directory(path, DirectoryEntry)

    def read_file(self, path: str) -> bytes:
        """A file's content."""
        small = read_small_file(path)
        return small if small is not None else self.read_large_file(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return os.path.exists(path)

    def is_same(self, fd: int, path: str) -> bool:
        """Whether an open file is the one that `path` names; False also where there is none."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(path))
        except FileNotFoundError:
            return False

    def modified_ms(self, path: str) -> int:
        """When a file was written last, in ms since 1970.  OSError."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Gives a file the age of what it was made from."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        """Bytes that an unprivileged process may still write below `path`."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: in all, and those that an unprivileged process may still use."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def lock(self, fd: int) -> bool:
        """Takes an exclusive lock that ends with the descriptor; False when another holder has it.

        It takes both a `flock` and a `fcntl` lock, which are independent of each other; Java uses `fcntl`.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, WHOLE_FILE)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            if error.errno not in (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
        return True

    def lock_holder(self, fd: int) -> int | None:
        """The id of the process with a `fcntl` lock on the file (Java's kind of lock); None where none is known."""
        try:
            kind, _whence, _start, _length, process = LOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, WHOLE_FILE))
        except OSError:
            return None
        return process if kind != fcntl.F_UNLCK and process > 0 else None

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        """The batches of a segment file between two positions, read and checked in C."""
        return scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)

    def map_readonly(self, fd: int, size: int) -> MappedFile:
        """The first `size` bytes of the file as shared memory; `fd` may be closed afterwards."""
        return MappedFile(fd, size)

    # -- made of the above --------------------------------------------------------------------------------------------

    def read_large_file(self, path: str) -> bytes:
        """A file's content, of any size, by the calls above."""
        fd = self.open(path, os.O_RDONLY)
        try:
            with naming(path):
                return self.pread(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def write_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Writes a file from its start; `sync` makes its content (not its name) durable."""
        fd = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with naming(path):
                if len(data):
                    self.pwrite(fd, data, 0)
                if sync:
                    self.fsync(fd)
        finally:
            self.close(fd)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Replaces `path`: readers and a restart after a crash see the old or the new content whole.

        Without `sync` a crash of the machine (not of the process) may leave the file empty.  That is for content that
        can be rebuilt, or that is fsynced later.
        """
        temporary = path + TEMPORARY_SUFFIX
        self.write_file(temporary, data, sync=sync)
        self.rename(temporary, path)
        if sync:
            self.fsync_directory(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        """Makes a file's content durable, whichever descriptor wrote it; a file that is gone needs nothing."""
        try:
            fd = self.open(path, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            with naming(path):
                self.fsync(fd)
        finally:
            self.close(fd)

    def unlink_if_exists(self, path: str) -> bool:
        """Remove a file; whether there was one.  OSError."""
        if not self.exists(path):
            return False
        try:
            self.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def remove_tree(self, path: str) -> None:
        """Removes a partition's directory with everything in it."""
        for entry in self.list_directory(path):
            name = f"{path}/{entry.name}"
            if entry.is_directory:
                self.remove_tree(name)
            else:
                self.unlink_if_exists(name)
        self.rmdir(path)


SYSTEM_FILES = FileSystem()
