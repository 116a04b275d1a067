"""Large batches that a thread writes to files of their own, which become segments."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.errors import OutOfOrderSequenceNumberError
from kbroker.storage.files.filesystem import Buffer
from kbroker.storage.log.detached_batch import DETACHED_BYTES, DetachedBatch, write_detached
from kbroker.storage.log.log_validator import takes_long, validate_and_analyze
from kbroker.storage.log.log_values import FetchIsolation
from tests.storage.batches import (
    START_MS,
    UNSYNCED_FILES,
    UnsyncedFiles,
    append,
    append_detached,
    batch,
    environment,
    open_log,
    read_all,
    region_bytes,
)


def names(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if ".log" in name)


def test_a_batch_set_aside_is_stored_as_any_other(tmp_path: Path) -> None:
    """Consumers would read other bytes, or other offsets, than of a batch that the loop has written."""
    log, plain = open_log(tmp_path / "aside-0"), open_log(tmp_path / "plain-0")
    for at in range(12):
        data = batch([b"%d-%d" % (at, each) for each in range(3)], producer_id=7, epoch=0, sequence=3 * at)
        (append_detached if at % 4 in (0, 2) else append)(log, bytearray(data), leader_epoch=at // 5)
        append(plain, data, leader_epoch=at // 5)
    log.check_invariants()
    assert read_all(log) == read_all(plain)
    assert log.segment_count == 6  # the first took the place of the empty segment
    for offset in range(36):
        found = log.read(offset, 1 << 20, FetchIsolation.LOG_END, True)
        assert region_bytes(found)[:8] == (offset - offset % 3).to_bytes(8, "big")
    log.close()
    again = open_log(tmp_path / "aside-0", clean=True, recovery_point=36)
    again.check_invariants()
    assert read_all(again) == read_all(plain)
    assert not [name for name in names(tmp_path / "aside-0") if name.endswith(".deleted")]


def test_the_log_goes_on_while_a_batch_is_set_aside(tmp_path: Path) -> None:
    """Other producers' records would be written over, or the large batch would get offsets that are taken."""

    class Busy(UnsyncedFiles):
        def pwrite(self, fd: int, data: Buffer, position: int) -> None:
            super().pwrite(fd, data, position)
            if len(data) > 1 << 20:
                append(log, batch([b"meanwhile"]))

    log = open_log(tmp_path / "busy-0", LogConfig(max_message_bytes=4 << 20), env=environment(Busy()))
    append(log, batch([b"before"]))
    append_detached(log, batch([bytes(2 << 20)]))
    append(log, batch([b"after"]))
    assert [(offset, value) for offset, value in read_all(log) if value and len(value) < 100] == [
        (0, b"before"),
        (1, b"meanwhile"),
        (3, b"after"),
    ]
    log.check_invariants()


def test_a_duplicate_that_was_set_aside_is_known_and_its_file_goes(tmp_path: Path) -> None:
    """A retry of a large batch, sent while the first is still being written, would be stored twice."""
    log = open_log(tmp_path / "twice-0")
    data = batch([b"a", b"b"], producer_id=7, epoch=0, sequence=0)
    assert not append_detached(log, bytearray(data)).duplicate
    again = append_detached(log, bytearray(data))
    assert (again.duplicate, again.first_offset, again.last_offset) == (True, 0, 1)
    gap = batch([b"c"], producer_id=7, epoch=0, sequence=9)
    with pytest.raises(OutOfOrderSequenceNumberError):
        append_detached(log, gap)
    assert log.log_end_offset == 2
    # What was refused goes with the next start.
    log.close(clean=False)
    assert any(name.endswith(".deleted") for name in names(tmp_path / "twice-0"))
    again_open = open_log(tmp_path / "twice-0")
    assert not any(name.endswith(".deleted") for name in names(tmp_path / "twice-0"))
    assert again_open.log_end_offset == 2


def test_a_disk_that_refuses_a_batch_set_aside_keeps_nothing_of_it(tmp_path: Path) -> None:
    """A full disk would stay full of bytes that belong to no log."""

    class Full(UnsyncedFiles):
        def pwrite(self, fd: int, data: Buffer, position: int) -> None:
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(OSError, match="no space"):
        write_detached(Full(), str(tmp_path), LogConfig(), bytes(DETACHED_BYTES))
    assert names(tmp_path) == []


def test_only_what_would_hold_the_loop_is_set_aside(tmp_path: Path) -> None:
    """Every batch would begin a segment; or one too large for a segment would be written in vain."""
    assert write_detached(UNSYNCED_FILES, str(tmp_path), LogConfig(), bytes(DETACHED_BYTES - 1)) is None
    small = LogConfig(internal_segment_bytes=1 << 20)
    assert write_detached(UNSYNCED_FILES, str(tmp_path), small, bytes(DETACHED_BYTES)) is None
    assert names(tmp_path) == []
    assert takes_long(bytearray(DETACHED_BYTES), LogConfig())
    assert not takes_long(bytearray(DETACHED_BYTES - 1), LogConfig())


def test_a_batch_set_aside_in_a_directory_that_the_log_has_left_is_written_anew(tmp_path: Path) -> None:
    """A partition that moves to another log directory meanwhile would lose the batch."""
    log = open_log(tmp_path / "here-0")
    there = tmp_path / "there-0"
    there.mkdir()
    data = batch([b"moved"])
    analyzed = validate_and_analyze(data, log.config, START_MS)
    analyzed.detached = DetachedBatch(UNSYNCED_FILES, str(there))
    analyzed.detached.write(data, 0)
    log.append_as_leader(data, 0, analyzed=analyzed)
    assert read_all(log) == [(0, b"moved")]
    assert log.segment_count == 1
    analyzed.detached.discard()
    assert names(there) == []
