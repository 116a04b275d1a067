"""A log whose first offset lies before the first on this disk: each part asks for the one that it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.config import LogConfig
from kbroker.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from kbroker.storage.cleaner.cleaner_snapshot import shape_of
from kbroker.storage.directories.future_log import FutureLog
from kbroker.storage.log.log_lookup import find_by_timestamp, offsets_before
from kbroker.storage.log.log_values import FetchData, FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_checkpoints import _log_starts
from kbroker.storage.manager.retention import decide, look_at
from kbroker.storage.recovery.log_loader import LoadRequest, load_log
from tests.storage.batches import START_MS, TP, UNSYNCED_FILES, append, batch, environment, open_log, read_all

HIGH, END = FetchIsolation.HIGH_WATERMARK, FetchIsolation.LOG_END
ONE = len(batch())
CONFIG = LogConfig(internal_segment_bytes=ONE * 4)
EARLIEST, EARLIEST_LOCAL, MAX_TIMESTAMP = -2, -4, -3
TIERED: Any = object()


class Tier:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def read_into(self, data: FetchData, _: Any, start_offset: int, *__: Any) -> None:
        self.asked.append(start_offset)


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.local.segments]


def starts(log: UnifiedLog) -> tuple[int, int]:
    log.check_invariants()
    return log.log_start_offset, log.local_log_start_offset


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> UnifiedLog:
    """Of 0..11 in three segments the first two have left this disk, and 0 and 1 are deleted."""
    env = environment()
    env.tier = Tier()
    log = open_log(tmp_path, CONFIG, env=env)
    for i in range(12):
        append(log, batch([b"%05d" % i], timestamp=START_MS + i), leader_epoch=i // 6)
    assert log.maybe_increment_log_start_offset(2)
    log.maybe_increment_local_log_start_offset(8)
    assert bases(log) == [0, 4, 8], "moving the start and deleting segments are two calls"
    assert log.delete_segments_below(8) == 2
    assert (bases(log), *starts(log)) == ([8], 2, 8)
    return log


def reopened(log: UnifiedLog, *, clean: bool, is_tiered: bool) -> UnifiedLog:
    log.close(clean=clean)
    starts = _log_starts([log])
    request = LoadRequest(log.directory, TP, CONFIG, clean, 0, starts.get(TP, 0), 12, is_tiered=is_tiered)
    env = environment()
    env.tier = Tier() if is_tiered else None
    return load_log(request, env)


def test_the_starts_are_one_without_a_tier(tmp_path: Path) -> None:
    """What has left this disk could not be read anywhere."""
    log = open_log(tmp_path, CONFIG)
    for _ in range(12):
        append(log, batch())
    log.maybe_increment_local_log_start_offset(8)
    with pytest.raises(AssertionError, match="start on this disk 8"):
        log.check_invariants()


def test_segments_go_when_the_start_has_moved(log: UnifiedLog) -> None:
    """A crash in between would leave a log that begins before its first segment."""
    with pytest.raises(AssertionError, match="before the log's start"):
        log.delete_segments_below(9)


def test_offsets_are_those_that_were_asked_for(log: UnifiedLog) -> None:
    """A consumer from the beginning would begin where the disk does, or a follower before it."""
    found = {special: log.offset_for_timestamp(special) for special in (EARLIEST, EARLIEST_LOCAL, MAX_TIMESTAMP)}
    assert {special: None if each is None else each[1:] for special, each in found.items()} == {
        EARLIEST: (2, 0),
        EARLIEST_LOCAL: (8, 1),
        MAX_TIMESTAMP: (11, 1),
    }
    by_time: Any = find_by_timestamp(log, START_MS)
    assert by_time.offset == 8, "files of this disk are searched"
    assert (offsets_before(log, EARLIEST, 1, START_MS), offsets_before(log, -1, 9, START_MS)) == ([2], [12, 2])


def test_reads_are_this_disk_s_or_the_tier_s(log: UnifiedLog) -> None:
    """A read would fail that the tier can answer, or a follower be given what it has to fetch from there."""
    tier: Any = log.local.environment.tier
    for offset in (2, 7):
        data = log.read(offset, 1 << 20, HIGH, True)
        assert (data.records, data.log_start_offset, data.high_watermark) == (None, 2, 12)
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 1 << 20, END, True)
        assert caught.value.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert tier.asked == [2, 7]
    for offset in (1, 13):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 1 << 20, HIGH, True)
    assert log.read(8, 1 << 20, END, True).size == 4 * ONE
    log.local.environment.tier = None
    with pytest.raises(OffsetOutOfRangeError, match="from offset 2 up to 12"):
        log.read(7, 1 << 20, HIGH, True)


def test_what_looks_at_files_takes_the_disk_s_start(log: UnifiedLog) -> None:
    """Retention, compaction and moves would look for segments that are not here."""
    facts = look_at(log, START_MS)
    assert (facts.local_log_start_offset, shape_of(log).local_log_start_offset) == (8, 8)
    assert decide(facts, CONFIG, START_MS).segment_count == 0
    assert FutureLog(UNSYNCED_FILES, log, "/elsewhere").end_offset == 8
    assert _log_starts([log]) == {TP: 2}


@pytest.mark.parametrize("clean", [True, False])
def test_both_are_there_after_a_restart(log: UnifiedLog, clean: bool) -> None:
    """What is in the tier alone would be gone after a restart; or a log without one would offer what is nowhere."""
    again = reopened(log, clean=clean, is_tiered=True)
    assert starts(again) == (2, 8) and [offset for offset, _ in read_all(again, 8)] == [8, 9, 10, 11]
    assert [epoch for epoch, _ in again.leader_epoch_cache.entries] == [0, 1], "epochs of the tier's records stay"
    assert starts(reopened(again, clean=clean, is_tiered=False)) == (8, 8)


def test_deleted_records_are_those_of_the_partition(log: UnifiedLog) -> None:
    """DeleteRecords below the disk's start would do nothing, or take files that are needed."""
    assert log.delete_records_before(5) and (bases(log), *starts(log)) == ([8], 5, 8)
    assert log.delete_records_before(10) and (bases(log), *starts(log)) == ([8], 10, 10)


def test_rolls_and_cuts_keep_both(log: UnifiedLog) -> None:
    """A log would begin behind its own end."""
    log.roll()
    assert starts(log) == (2, 8)
    assert log.truncate_to(9) and starts(log) == (2, 8)
    assert log.truncate_to(5) and (*starts(log), log.log_end_offset) == (2, 5, 5), "the tier has 2 to 4 still"
    append(log, batch())
    log.truncate_fully_and_start_at(20)
    assert (*starts(log), log.log_end_offset) == (20, 20, 20)
