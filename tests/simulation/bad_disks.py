"""Disks that fail: what the system's calls on the files below a directory answer while something is wrong with it.

The calls are those of Python (`patches`) and of C (`tests/extensions/faulty_disk.pyx`), so that all that a broker does
with files meets them: writes that are short, find no room or fail, reads and fsyncs that fail.  What a failed fsync was
to make durable is lost with the process, where that is asked for.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from kbroker.storage.files import filesystem
from tests.extensions import faulty_disk

GOOD_BYTES = -1


ROOM_BLOCKS = 1 << 30
_statvfs = os.statvfs


def roomy(path: str) -> os.statvfs_result:
    """`os.statvfs` of a disk that always has the same room: what this machine's has differs from run to run."""
    found = list(_statvfs(path))
    found[2:5] = ROOM_BLOCKS, ROOM_BLOCKS, ROOM_BLOCKS
    return os.statvfs_result(found)


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with the disk below a directory.  Errors are numbers of errno; 0: none."""

    write_error: int = 0
    read_error: int = 0
    sync_error: int = 0
    short_writes: float = 0.0
    room: int = GOOD_BYTES
    """So many bytes may still be written; GOOD_BYTES: as many as one likes."""
    tells: bool = True
    """Whether the file system says that there is no room; it does not of a quota."""
    loses: bool = False
    """Whether a failed fsync loses what it was to make durable."""


class BadDisks:
    """The directories of a history below which something is wrong."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wrong: dict[str, Wrong] = {}

    def put(self, folder: str, wrong: Wrong | None) -> None:
        """From now on `wrong` is what is wrong below a directory; None: nothing."""
        if wrong is None:
            self._wrong.pop(folder, None)
        else:
            self._wrong[folder] = wrong
        rows = [
            (each, of.write_error, of.read_error, int(of.short_writes * 256), of.room)
            for each, of in self._wrong.items()
        ]
        faulty_disk.put_faults(rows, self._rng.getrandbits(63))

    def of_path(self, path: str | os.PathLike[str]) -> Wrong | None:
        """What is wrong with the disk of a file or directory."""
        if self._wrong:
            name = os.fspath(path)
            for folder, wrong in self._wrong.items():
                if name == folder or name.startswith(f"{folder}/"):
                    return wrong
        return None

    def of_open(self, fd: int) -> Wrong | None:
        """The same for an open file."""
        return self.of_path(os.readlink(f"/proc/self/fd/{fd}")) if self._wrong else None

    def patches(self) -> list[Any]:
        """What goes in the place of the system's calls."""
        made = [
            mock.patch.object(os, "pwrite", faulty_disk.pwrite),
            mock.patch.object(os, "pread", faulty_disk.pread),
            mock.patch.object(os, "preadv", faulty_disk.preadv),
            mock.patch.object(os, "open", self._opening()),
            mock.patch.object(os, "ftruncate", self._changing_open(os.ftruncate)),
            mock.patch.object(os, "statvfs", self._measuring()),
            mock.patch.object(filesystem, "allocate_ahead", self._allocating()),
        ]
        for module, name in (
            *((os, each) for each in ("replace", "unlink", "mkdir", "rmdir")),
            (filesystem, "copy_file"),
        ):
            made.append(mock.patch.object(module, name, self._changing(getattr(module, name))))
        made.extend(
            mock.patch.object(filesystem, name, self._reading(getattr(filesystem, name)))
            for name in ("list_directory", "read_small_file")
        )
        return made

    def _changing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def changed(path: str, *args: Any, **named: Any) -> Any:
            wrong = self.of_path(path)
            if wrong is not None and wrong.write_error:
                raise OSError(wrong.write_error, os.strerror(wrong.write_error), path)
            return call(path, *args, **named)

        return changed

    def _reading(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: str, *args: Any) -> Any:
            wrong = self.of_path(path)
            if wrong is not None and wrong.read_error:
                raise OSError(wrong.read_error, os.strerror(wrong.read_error), path)
            return call(path, *args)

        return read

    def _changing_open(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def changed(fd: int, *args: Any) -> Any:
            wrong = self.of_open(fd)
            if wrong is not None and wrong.write_error:
                raise OSError(wrong.write_error, os.strerror(wrong.write_error))
            return call(fd, *args)

        return changed

    def _opening(self) -> Callable[..., int]:
        call = os.open

        def opened(path: str, flags: int, *args: Any, **named: Any) -> int:
            wrong = self.of_path(path)
            if wrong is not None:
                error = wrong.write_error if flags & (os.O_CREAT | os.O_TRUNC) else wrong.read_error
                if not error and flags & os.O_CREAT and wrong.room == 0 and not os.path.lexists(path):
                    error = errno.ENOSPC
                if error:
                    raise OSError(error, os.strerror(error), path)
            return call(path, flags, *args, **named)

        return opened

    def _measuring(self) -> Callable[[str], Any]:
        call = roomy

        def measured(path: str) -> Any:
            found = call(path)
            wrong = self.of_path(path)
            if wrong is None or wrong.room < 0 or not wrong.tells:
                return found
            rows = list(found)
            rows[3] = rows[4] = 0
            return os.statvfs_result(rows)

        return measured

    def _allocating(self) -> Callable[[int, int, int], bool]:
        call = filesystem.allocate_ahead

        def allocated(fd: int, position: int, size: int) -> bool:
            wrong = self.of_open(fd)
            if wrong is not None and (wrong.room >= 0 or wrong.write_error):
                return False
            return call(fd, position, size)

        return allocated
