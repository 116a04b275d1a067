"""Where converted records lie until a client has them: `kbroker.handlers.records.conversions`."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from kbroker._fast.files.file_region import FileRegion
from kbroker.handlers.records import conversions
from kbroker.handlers.records.conversions import Conversions, ConvertedRecords
from kbroker.storage.files.filesystem import FileSystem

MOST = 100
SMALL, LARGE = b"s" * 60, b"l" * 70


class _Full(FileSystem):
    """A disk on which no file can be made."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversions, "MOST_BYTES", MOST)


def _room(files: FileSystem, folder: Path) -> ConvertedRecords:
    async def made() -> ConvertedRecords:
        return Conversions().room(files, str(folder))

    return asyncio.run(made())


def _read(region: FileRegion) -> bytes:
    return os.pread(region.fd, region.size, region.position)


def test_regions_of_partitions_before_one_with_a_large_batch_keep_their_records(tmp_path: Path) -> None:
    """Its client would lose the connection, or get the bytes of the file that has the number of the closed one."""
    room = _room(FileSystem(), tmp_path)
    room.write(SMALL)
    before = room.region(0, len(SMALL))
    room.write(LARGE)
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    assert not room.in_memory
    assert (_read(before), _read(room.region(len(SMALL), len(LARGE)))) == (SMALL, LARGE)
    for each in others:
        os.close(each)


def test_a_disk_without_room_for_a_large_batch_leaves_what_is_in_memory(tmp_path: Path) -> None:
    """The partitions before it would have no records, and the memory not be counted any more."""
    room = _room(_Full(), tmp_path)
    room.write(SMALL)
    before = room.region(0, len(SMALL))
    with pytest.raises(OSError, match="No space"):
        room.write(LARGE)
    assert (room.in_memory, room.size, _read(before)) == (True, len(SMALL), SMALL)


def test_a_large_batch_in_front_goes_to_a_file(tmp_path: Path) -> None:
    """It would take memory that the budget does not know."""
    room = _room(FileSystem(), tmp_path)
    room.write(LARGE * 2)
    assert not room.in_memory
    assert _read(room.region(0, room.size)) == LARGE * 2
