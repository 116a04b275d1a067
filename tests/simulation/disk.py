"""What a machine that loses its power has on its disk: what was synced, and of the rest some, torn, or nothing.  The
same goes for files of which an fsync has failed, as the kernel takes their pages for written from then on.

Brokers write to a real file system in memory.  `Disk` notes each fsync: up to which size a file is durable, and which
names of a directory are.  `after_power_cut` copies a broker's directory as the disk would have it.  SQLite's files are
taken over whole, as it syncs for itself.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from kbroker._fast.base import monotonic
from kbroker.storage.files import filesystem
from tests.simulation.bad_disks import BadDisks, roomy

PAGE_BYTES = 4096
COPIED_BYTES = 1 << 20
NOTHING = range(0)
_open, _pread, _pwrite, _ftruncate = os.open, os.pread, os.pwrite, os.ftruncate
"""The system's, whatever is wrong with a broker's disk."""
METADATA = "kbroker-metadata"


class Disk:
    """What has been synced of all files in this process; `patches` have it told."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        """The durable size of each file that has been synced, by inode."""
        self.bad: BadDisks | None = None
        """What is wrong with disks; None: nothing ever is."""
        self.slow_ns: dict[str, int] = {}
        """Up to how long an fsync takes, by the name of the process."""
        self._names: dict[int, frozenset[str]] = {}
        self._ages: dict[int, tuple[int, int]] = {}
        """Of files: the size that was seen last, and when it was seen first, by inode."""
        self._doomed: dict[int, int] = {}
        """Of files whose fsync has failed: the size up to which they are durable, by inode."""

    def patches(self) -> list[Any]:
        """What goes in the place of the system's calls."""

        def sync(fd: int) -> None:
            self._may_fail(fd)
            self.note(fd)

        def sync_all(fd: int) -> bool:
            self._may_fail(fd)
            for folder, _, names in os.walk(f"/proc/self/fd/{fd}/"):
                self._note_path(Path(folder))
                for name in names:
                    self._note_path(Path(folder, name))
            return True

        return [
            mock.patch.object(os, "fsync", sync),
            mock.patch.object(os, "fdatasync", sync),
            mock.patch.object(filesystem, "sync_file_system", sync_all),
            mock.patch.object(filesystem.FileSystem, "modified_ms", lambda _, path: self._modified_ms(path)),
            mock.patch.object(filesystem.FileSystem, "set_modified_ms", lambda _, path, at: self._set_age(path, at)),
            mock.patch.object(os, "statvfs", roomy),
            *(() if self.bad is None else self.bad.patches()),
        ]

    def _modified_ms(self, path: str) -> int:
        """When a file got its size, as far as anybody has looked: the file system knows no virtual time."""
        found = os.stat(path)
        size, at = self._ages.get(found.st_ino, (-1, 0))
        if size != found.st_size:
            at = monotonic.virtual_wall_ms()
            self._ages[found.st_ino] = (found.st_size, at)
        return at

    def _set_age(self, path: str, at: int) -> None:
        found = os.stat(path)
        self._ages[found.st_ino] = (found.st_size, at)

    def _may_fail(self, fd: int) -> None:
        wrong = None if self.bad is None else self.bad.of_open(fd)
        if wrong is not None and wrong.sync_error:
            if wrong.loses:
                inode = os.fstat(fd).st_ino
                self._doomed.setdefault(inode, self.synced.get(inode, 0))
            raise OSError(wrong.sync_error, os.strerror(wrong.sync_error))

    def note(self, fd: int) -> None:
        """A descriptor was synced."""
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = frozenset(os.listdir(fd))
        else:
            self.synced[found.st_ino] = found.st_size

    def _note_path(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            self.note(fd)
        finally:
            os.close(fd)

    def after_kill(self, source: Path, target: Path, rng: random.Random) -> None:
        """The kernel lives on, and has all that was written, but what it took for written in vain."""
        self._copy(source, target, rng, is_cut=False)

    def after_power_cut(self, source: Path, target: Path, rng: random.Random) -> None:
        """What was not synced is lost, or not, or in part."""
        self._copy(source, target, rng, is_cut=True)

    def _copy(self, source: Path, target: Path, rng: random.Random, *, is_cut: bool) -> None:
        target.mkdir()
        durable = self._names.get(source.stat().st_ino, frozenset())
        for name in sorted(os.listdir(source)):
            file, copy = source / name, target / name
            found = os.stat(file)
            if stat.S_ISDIR(found.st_mode):
                self._copy(file, copy, rng, is_cut=is_cut)
                continue
            size, zeros = found.st_size, NOTHING
            doomed = self._doomed.pop(found.st_ino, None)
            if is_cut and not name.startswith(METADATA):
                if name not in durable and rng.random() < 0.3:
                    continue
                size, zeros = self._survivors(size, self.synced.get(found.st_ino, 0), rng)
            holes = [zeros]
            if doomed is not None:
                size, zeros = self._survivors(size, doomed, rng)
                holes.append(zeros)
            inode = copy_data(file, copy, size, holes)
            self._keep(found.st_ino, inode, size if is_cut else None)
        self._names[target.stat().st_ino] = frozenset(os.listdir(target))

    def _keep(self, source: int, target: int, durable: int | None) -> None:
        """What is known of a file is known of its copy: all that a disk has is durable."""
        before = self.synced.get(source, 0)
        self.synced[target] = before if durable is None else durable
        if age := self._ages.get(source):
            self._ages[target] = age

    @staticmethod
    def _survivors(size: int, durable: int, rng: random.Random) -> tuple[int, range]:
        """How long a file is that was `size` bytes long, and which of them are zeros: of a page that was not written
        back although the file is that long."""
        durable = min(durable, size)
        lost = size - durable
        if lost == 0:
            return size, NOTHING
        kept = durable + rng.choice((0, lost, rng.randint(0, lost)))
        if kept > durable and rng.random() < 0.3:
            at = rng.randrange(durable, kept)
            return kept, range(at, min(kept, at + PAGE_BYTES))
        return kept, NOTHING


def copy_data(source: Path, target: Path, size: int, zeros: Sequence[range]) -> int:
    """A copy of the first `size` bytes of a file, with zeros in these ranges; its inode.

    What a file has no data for stays without: an index is megabytes long, and has some entries."""
    reads, writes = _open(source, os.O_RDONLY), _open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        at = 0
        while at < size:
            try:
                at = os.lseek(reads, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # There is none behind it.
            end = min(os.lseek(reads, at, os.SEEK_HOLE), size)
            while at < end:
                data = _pread(reads, min(end - at, COPIED_BYTES), at)
                _pwrite(writes, data, at)
                at += len(data)
        for each in zeros:
            _pwrite(writes, bytes(len(each)), each.start)
        _ftruncate(writes, size)
        return os.fstat(writes).st_ino
    finally:
        os.close(reads)
        os.close(writes)
