"""What a machine that loses its power has on its disk: what was synced, and of the rest some, torn, or nothing.

Brokers write to a real file system in memory.  `Disk` notes each fsync: up to which size a file is durable, and which
names of a directory are.  `after_power_cut` copies a broker's directory as the disk would have it.  SQLite's files are
taken over whole, as it syncs for itself.
"""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path
from typing import Any
from unittest import mock

from kbroker.storage.files import filesystem

PAGE_BYTES = 4096
METADATA = "kbroker-metadata"


class Disk:
    """What has been synced of all files in this process; `patches` have it told."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        """The durable size of each file that has been synced, by inode."""
        self._names: dict[int, frozenset[str]] = {}

    def patches(self) -> list[Any]:
        """What goes in the place of the system's calls."""

        def sync(fd: int) -> None:
            self.note(fd)

        def sync_all(fd: int) -> bool:
            for folder, _, names in os.walk(f"/proc/self/fd/{fd}/"):
                self._note_path(Path(folder))
                for name in names:
                    self._note_path(Path(folder, name))
            return True

        return [
            mock.patch.object(os, "fsync", sync),
            mock.patch.object(os, "fdatasync", sync),
            mock.patch.object(filesystem, "sync_file_system", sync_all),
        ]

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

    def after_kill(self, source: Path, target: Path) -> None:
        """The kernel lives on, and has all that was written."""
        self._copy(source, target, None)

    def after_power_cut(self, source: Path, target: Path, rng: random.Random) -> None:
        """What was not synced is lost, or not, or in part."""
        self._copy(source, target, rng)

    def _copy(self, source: Path, target: Path, rng: random.Random | None) -> None:
        target.mkdir()
        durable = self._names.get(source.stat().st_ino, frozenset())
        for each in sorted(source.iterdir()):
            if each.is_dir():
                self._copy(each, target / each.name, rng)
                continue
            data = each.read_bytes()
            if rng is not None and not each.name.startswith(METADATA):
                if each.name not in durable and rng.random() < 0.3:
                    continue
                data = self._survivors(data, self.synced.get(each.stat().st_ino, 0), rng)
            (target / each.name).write_bytes(data)
            self._keep(each, target / each.name, None if rng is None else len(data))
        self._names[target.stat().st_ino] = frozenset(os.listdir(target))

    def _keep(self, source: Path, target: Path, durable: int | None) -> None:
        """What is known of a file is known of its copy: all that a disk has is durable."""
        before = self.synced.get(source.stat().st_ino, 0)
        self.synced[target.stat().st_ino] = before if durable is None else durable

    @staticmethod
    def _survivors(data: bytes, durable: int, rng: random.Random) -> bytes:
        durable = min(durable, len(data))
        lost = len(data) - durable
        if lost == 0:
            return data
        kept = bytearray(data[: durable + rng.choice((0, lost, rng.randint(0, lost)))])
        # A page that was not written back although the file is that long.
        if len(kept) > durable and rng.random() < 0.3:
            at = rng.randrange(durable, len(kept))
            end = min(len(kept), at + PAGE_BYTES)
            kept[at:end] = bytes(end - at)
        return bytes(kept)
