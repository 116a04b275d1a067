"""Appending, reading and rolling one log.

Also of `kbroker._fast.files.file_space`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.log.batch_rules import roll_cause
from kbroker._fast.log.log_fields import SegmentFields
from kbroker.config import LogConfig
from kbroker.errors import CorruptMessageError, OffsetOutOfRangeError, RecordListTooLargeError
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.roll import RollReason, roll_reason
from kbroker.storage.log.unified_log import UnifiedLog
from tests.descriptors import open_names
from tests.storage.batches import (
    START_MS,
    UNSYNCED_FILES,
    HandClock,
    UnsyncedFiles,
    append,
    batch,
    environment,
    headers,
    open_log,
    read_all,
    region_bytes,
)

HIGH, END = FetchIsolation.HIGH_WATERMARK, FetchIsolation.LOG_END
ONE = len(batch())


def filled(tmp_path: Path, count: int, config: LogConfig | None = None) -> UnifiedLog:
    log = open_log(tmp_path, config)
    for i in range(count):
        append(log, batch([b"%05d" % i], timestamp=START_MS + i))
    return log


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.local.segments]


def test_append_gives_offsets_in_place(tmp_path: Path) -> None:
    """Records would carry the producer's offsets instead of the log's."""
    log = open_log(tmp_path)
    first = append(log, batch([b"a", b"b", b"c"]), leader_epoch=3)
    second = append(log, batch([b"d"]), leader_epoch=3)
    assert (first.first_offset, first.last_offset, first.log_append_time, first.duplicate) == (0, 2, -1, False)
    assert (second.first_offset, second.last_offset) == (3, 3)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    found = headers(region_bytes(log.read(0, 1 << 20, END, True)))
    assert [(info.base_offset, info.partition_leader_epoch) for info in found] == [(0, 3), (3, 3)]
    assert log.end_offset_for_epoch(3) == (3, 4)
    assert log.latest_epoch == 3


def test_read_starts_at_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    """A consumer that stopped within a batch would lose the batch's rest."""
    log = open_log(tmp_path)
    for _ in range(100):
        append(log, batch([b"x"] * 10))
    for offset in (0, 5, 9, 10, 555, 987, 999):
        found = headers(region_bytes(log.read(offset, 1, END, True)))
        assert [info.base_offset for info in found] == [offset // 10 * 10]


def test_bounds_of_reads(tmp_path: Path) -> None:
    """Consumers would see records that may still be lost, or no error for offsets that never were."""
    log = open_log(tmp_path)
    for _ in range(10):
        log.append_as_leader(batch(), 0)
    assert log.read(0, 1 << 20, HIGH, True).records is None
    log.maybe_increment_high_watermark(4)
    data = log.read(1, 1 << 20, HIGH, True)
    assert [info.base_offset for info in headers(region_bytes(data))] == [1, 2, 3]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (4, 4, 0)
    assert data.size == 3 * ONE
    assert log.read(7, 1 << 20, HIGH, True).records is None
    assert log.read(10, 1 << 20, END, True).records is None
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRangeError, match="up to 10"):
            log.read(offset, 100, END, True)


def test_first_batch_comes_whole_when_asked_for(tmp_path: Path) -> None:
    """A consumer with a small fetch size would stand still before a large batch for ever."""
    log = filled(tmp_path, 3)
    whole = log.read(0, 10, END, True)
    assert (whole.size, whole.first_entry_incomplete) == (ONE, False)
    cut = log.read(0, 10, END, False)
    assert (cut.size, cut.first_entry_incomplete) == (10, True)
    assert log.read(0, 2 * ONE + 5, END, False).size == 2 * ONE + 5
    nothing = log.read(0, 0, END, False)
    assert (nothing.records, nothing.first_entry_incomplete) == (None, True)


def test_region_stays_readable_when_its_segment_is_deleted(tmp_path: Path) -> None:
    """A slow consumer would get an error, or another file's bytes, in the middle of an answer."""
    log = filled(tmp_path, 10)
    data = log.read(0, 1 << 20, END, True)
    expected = region_bytes(data)
    log.roll()
    append(log, batch())
    log.delete_records_before(10)
    assert bases(log) == [10]
    assert not (tmp_path / "00000000000000000000.log").exists()
    assert region_bytes(data) == expected


def test_rolls_by_size(tmp_path: Path) -> None:
    """Segments would outgrow segment.bytes and retention could not work."""
    log = filled(tmp_path, 10, LogConfig(internal_segment_bytes=ONE * 3))
    assert bases(log) == [0, 3, 6, 9]
    assert [segment.size for segment in log.local.segments] == [ONE * 3] * 3 + [ONE]
    assert read_all(log) == [(i, b"%05d" % i) for i in range(10)]
    for base in bases(log)[:-1]:
        assert (tmp_path / f"{base:020d}.timeindex").stat().st_size == 12
    assert sorted(path.name for path in tmp_path.glob("*.snapshot")) == [f"{base:020d}.snapshot" for base in (3, 6, 9)]
    with pytest.raises(RecordListTooLargeError, match="exceeds the maximum configured segment size"):
        append(log, batch([b"x" * 1000]))
    assert log.log_end_offset == 10


def test_rolls_by_time_of_records(tmp_path: Path) -> None:
    """Old records would stay in the active segment, out of retention's reach."""
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    for step in (0, 500, 1000, 1001, 1500, 2001, 2002):
        append(log, batch(timestamp=START_MS + step))
    assert bases(log) == [0, 3, 6]


@pytest.mark.parametrize("segment_ms, timestamp", [((1 << 63) - 1, START_MS), (604_800_000, (1 << 63) - 1001)])
def test_a_deadline_beyond_all_time_never_rolls(tmp_path: Path, segment_ms: int, timestamp: int) -> None:
    """One setting, or one client's timestamp where the topic allows any, would end all writing to the partition."""
    config = LogConfig(segment_ms=604_800_000, message_timestamp_after_max_ms=(1 << 63) - 1)
    log = open_log(tmp_path, config)
    append(log, batch(timestamp=timestamp))
    log.config = replace(config, segment_ms=segment_ms)
    for count in (2, 3):
        append(log, batch())
        assert log.log_end_offset == count
    log.close()
    again = open_log(tmp_path, log.config)
    append(again, batch())
    assert (again.log_end_offset, again.segment_count) == (4, 1)
    again.close()


def test_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    """Lookups in a long segment would scan ever more bytes."""
    log = filled(tmp_path, 40, LogConfig(segment_index_bytes=48, index_interval_bytes=0))
    assert len(bases(log)) > 3
    assert read_all(log) == [(i, b"%05d" % i) for i in range(40)]
    for segment in log.local.segments:
        assert segment.time_index.table.entries <= 4


def test_tiny_index_makes_an_empty_segment_anew(tmp_path: Path) -> None:
    """With a very small segment.index.bytes the first append would fail."""
    log = filled(tmp_path, 3, LogConfig(segment_index_bytes=10))
    assert read_all(log) == [(i, b"%05d" % i) for i in range(3)]


class _Segment(SegmentFields):
    """A segment from offset 100 on with 500 bytes, of which the first batch has the time START_MS."""

    size, created_ms, first, roll_jitter_ms = 500, START_MS, START_MS, 0

    def __init__(self) -> None:
        self.base_offset = 100

    def first_timestamp(self) -> int:
        return self.first if self.size else -1


BATCH = {"size": 100, "last_offset": 120, "max_timestamp": START_MS, "now_ms": START_MS}


@pytest.mark.parametrize(
    ("segment_change", "batch_change", "expected"),
    [
        ({}, {}, None),
        ({}, {"size": 501}, RollReason.SIZE),
        ({}, {"size": 500}, None),
        ({}, {"max_timestamp": START_MS + 1000}, None),
        ({}, {"max_timestamp": START_MS + 1001}, RollReason.TIME),
        ({"roll_jitter_ms": 10}, {"max_timestamp": START_MS + 991}, RollReason.TIME),
        ({"size": 0}, {"max_timestamp": START_MS + 5000}, None),
        ({"first": -1}, {"now_ms": START_MS + 1001}, RollReason.TIME),
        ({"first": -1}, {"now_ms": START_MS + 1000}, None),
        ({"first": -1}, {"now_ms": START_MS + 1001, "max_timestamp": -500}, RollReason.TIME),
        ({"indexes_full": True}, {}, RollReason.INDEX_FULL),
        ({}, {"last_offset": 100 + (1 << 31)}, RollReason.OFFSET_OVERFLOW),
        ({}, {"last_offset": 100 + (1 << 31) - 1}, None),
    ],
)
def test_roll_rules(segment_change: dict[str, Any], batch_change: dict[str, Any], expected: RollReason | None) -> None:
    """Segments would be cut at other places than Kafka's."""
    segment: Any = _Segment()
    for name, value in segment_change.items():
        setattr(segment, name, value)
    batch = BATCH | batch_change
    assert roll_reason(segment, 1000, 1000, **batch) is expected
    # By what the segment knows then, the fast path does not take what belongs into another one.
    cause = roll_cause(segment, 1000, segment.size, batch["size"], batch["last_offset"], batch["max_timestamp"])
    assert expected is None or cause


def test_flush_messages_and_recovery_point(tmp_path: Path) -> None:
    """flush.messages=3 would promise what is not on disk."""
    log = open_log(tmp_path, LogConfig(flush_messages=3))
    points = []
    for _ in range(7):
        append(log, batch())
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]
    log.flush()
    assert log.recovery_point == 7


def test_delete_records_moves_the_start(tmp_path: Path) -> None:
    """Deleted records would come back, in this run or the next."""
    log = filled(tmp_path, 12, LogConfig(internal_segment_bytes=ONE * 4))
    assert log.delete_records_before(6)
    assert not log.delete_records_before(5)
    assert bases(log) == [4, 8]
    assert [offset for offset, _ in read_all(log)] == list(range(6, 12))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(5, 100, END, True)
    with pytest.raises(OffsetOutOfRangeError, match="larger than the high watermark"):
        log.delete_records_before(13)
    log.close()
    again = open_log(tmp_path, clean=True, recovery_point=12, log_start_offset=6)
    assert (again.log_start_offset, again.log_end_offset) == (6, 12)


def test_start_past_the_end_begins_an_empty_log(tmp_path: Path) -> None:
    """A log whose files were removed by hand would reuse offsets that clients have seen."""
    filled(tmp_path, 3).close()
    log = open_log(tmp_path, clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert append(log, batch()).first_offset == 50


@pytest.mark.parametrize("offset", [0, 1, 4, 7, 11, 12])
def test_truncation(offset: int, tmp_path: Path) -> None:
    """A follower would keep records that its leader does not have."""
    config = LogConfig(internal_segment_bytes=ONE * 4, index_interval_bytes=0)
    log = filled(tmp_path, 12, config)
    assert log.truncate_to(offset) is (offset < 12)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    append(log, batch([b"new"]), leader_epoch=1)
    expected = [(i, b"%05d" % i) for i in range(offset)] + [(offset, b"new")]
    assert read_all(log) == expected
    log.close()
    assert read_all(open_log(tmp_path, config, clean=True, recovery_point=offset + 1)) == expected


def test_truncate_fully(tmp_path: Path) -> None:
    """A follower that is too far behind could not start over."""
    log = filled(tmp_path, 5)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    append(log, batch([b"x"]))
    assert read_all(log) == [(100, b"x")]


def test_follower_keeps_its_leaders_bytes(tmp_path: Path) -> None:
    """Replicas would differ from their leader."""
    leader = open_log(tmp_path / "leader")
    for i in range(6):
        append(leader, batch([b"%05d" % i]), leader_epoch=i // 2)
    content = region_bytes(leader.read(0, 1 << 20, END, True))
    follower = open_log(tmp_path / "follower")
    result = follower.append_as_follower(content[: ONE * 4 + 30])
    assert result is not None
    assert (result.first_offset, result.last_offset) == (0, 3)
    assert follower.append_as_follower(content[ONE * 4 :]) is not None
    assert region_bytes(follower.read(0, 1 << 20, END, True)) == content
    assert follower.leader_epoch_cache.entries == [(0, 0), (1, 2), (2, 4)]
    with pytest.raises(CorruptMessageError, match="Out of order offsets"):
        follower.append_as_follower(content[:ONE])
    assert follower.append_as_follower(b"") is None


def test_offsets_by_timestamp_over_segments(tmp_path: Path) -> None:
    """Consumers that start at a time would miss records or read from the beginning."""
    log = filled(tmp_path, 50, LogConfig(internal_segment_bytes=ONE * 7, index_interval_bytes=0))
    for i in range(50):
        found = log.offset_for_timestamp(START_MS + i)
        assert found is not None
        assert (found.timestamp, found.offset) == (START_MS + i, i)
    assert log.offset_for_timestamp(START_MS + 50) is None
    earliest, latest, newest = (log.offset_for_timestamp(special) for special in (-2, -1, -3))
    assert earliest is not None and latest is not None and newest is not None
    assert (earliest.offset, latest.offset, newest.offset, newest.timestamp) == (0, 50, 49, START_MS + 49)


def test_log_append_time_comes_from_the_broker(tmp_path: Path) -> None:
    """Records of producers with wrong clocks would defeat retention."""
    clock = HandClock(START_MS + 777)
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"), env=environment(clock=clock))
    assert append(log, batch(timestamp=5)).log_append_time == START_MS + 777
    assert log.local.segments.active.max_timestamp[0] == START_MS + 777


def opened_below(folder: Path) -> list[str]:
    """The files below a folder that this process has open."""
    return [path for path in open_names() if path.startswith(f"{folder}/")]


def test_large_log_is_read_under_a_small_budget_of_files(tmp_path: Path) -> None:
    """A broker with many segments would run out of descriptors."""
    env = environment(budget=16)
    log = open_log(tmp_path, LogConfig(internal_segment_bytes=ONE * 2, index_interval_bytes=0), env=env)
    for i in range(200):
        append(log, batch([b"%05d" % i]))
    # A flush opens the file that it syncs by its name.
    log.local.wait_for_flushes()
    assert read_all(log) == [(i, b"%05d" % i) for i in range(200)]
    assert len(env.open_files) <= 16
    assert 1 <= len(opened_below(tmp_path)) <= 17


def test_read_bytes_gives_whole_batches(tmp_path: Path) -> None:
    """A coordinator would load half a batch."""
    log = filled(tmp_path, 10)
    assert len(log.read_bytes(3, ONE * 2 + 10)) == ONE * 2
    assert len(log.read_bytes(3, 1)) == ONE
    assert log.read_bytes(10, 100) == b""


class NoRoomAhead(UnsyncedFiles):
    """A file system that reserves nothing."""

    def allocate_ahead(self, fd: int, position: int, size: int) -> bool:
        return False


@pytest.mark.parametrize("files", [UNSYNCED_FILES, NoRoomAhead()])
def test_blocks_reserved_ahead_are_given_back(files: UnsyncedFiles, tmp_path: Path) -> None:
    """Every closed segment would hold 16 MiB of disk that nobody uses, or a file system without it would fail."""
    log = open_log(tmp_path, LogConfig(max_message_bytes=2 << 20), env=environment(files))
    for _ in range(6):
        append(log, batch([b"x" * 1_000_000]))
    path = tmp_path / "00000000000000000000.log"
    assert path.stat().st_size == log.size_bytes
    log.close()
    assert path.stat().st_size == log.size_bytes
    assert path.stat().st_blocks * 512 < log.size_bytes + (1 << 20)
    assert len(read_all(open_log(tmp_path, clean=True, recovery_point=6))) == 6
