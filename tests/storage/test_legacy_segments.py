"""Directories of old brokers: segments with messages of magic 0 and 1, before those with record batches."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kbroker.cli.storage import dump_segment
from kbroker.config import LogConfig
from kbroker.records.batch import Record
from kbroker.records.compression import Codec
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.files.checkpoints import LEADER_EPOCH_CHECKPOINT
from kbroker.storage.log.log_values import FetchIsolation, TimestampOffset
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import DAY_MS, clean, config, put
from tests.records.stored import encode_messages, stored_batches
from tests.storage.batches import START_MS, append, batch, open_log, region_bytes

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
COUNT = 240


def old_records(magic: int, first: int) -> list[Record]:
    return [
        Record(at, START_MS + at if magic else -1, b"key-%d" % (at % 50), b"value-%d" % at)
        for at in range(first, first + COUNT)
    ]


def write_segment(directory: Path, magic: int, first: int) -> list[Record]:
    """Twenty-four messages and wrappers with ten records each, or as many messages, of every codec in turn."""
    records = old_records(magic, first)
    data = b"".join(
        encode_messages(records[at : at + 10], magic, CODECS[at // 10 % len(CODECS)]) for at in range(0, COUNT, 10)
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{first:020d}.log").write_bytes(data)
    return records


def old_directory(directory: Path) -> list[Record]:
    return write_segment(directory, 0, 0) + write_segment(directory, 1, COUNT)


def fetched(log: UnifiedLog, offset: int) -> list[Record]:
    data = region_bytes(log.read(offset, 1 << 20, FetchIsolation.LOG_END, True))
    return [record for each, _ in stored_batches(data) for record in iterate_stored_records(each)]


def check(log: UnifiedLog, records: list[Record]) -> None:
    for record in records:
        found = fetched(log, record.offset)
        assert record in found
        # A read begins with the message, or the whole wrapper, that has the offset.
        assert found[0].offset in range(record.offset - 9, record.offset + 1)
        if record.timestamp >= 0:
            wanted = TimestampOffset(record.timestamp, record.offset, -1)
            assert log.offset_for_timestamp(record.timestamp) == wanted


@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_old_directory_is_opened_and_read(tmp_path: Path, interval: int) -> None:
    """A partition that an old broker wrote would be cut to nothing at the first start."""
    records = old_directory(tmp_path / "orders")
    settings = LogConfig(index_interval_bytes=interval)
    log = open_log(tmp_path / "orders", settings)
    assert (log.log_end_offset, log.segment_count, log.latest_epoch) == (2 * COUNT, 2, -1)
    check(log, records)
    assert append(log, batch([b"new"], timestamp=START_MS + 9999), leader_epoch=3).first_offset == 2 * COUNT
    log.close()
    log = open_log(tmp_path / "orders", settings, clean=True, recovery_point=2 * COUNT + 1)
    assert (log.log_end_offset, log.latest_epoch) == (2 * COUNT + 1, 3)
    check(log, records)
    assert log.offset_for_timestamp(-3) == TimestampOffset(START_MS + 9999, 2 * COUNT, 3)
    assert log.end_offset_for_epoch(3).end_offset == 2 * COUNT + 1
    assert log.truncate_to(COUNT + 5)
    # The wrapper or message that holds the offset goes whole.
    assert log.log_end_offset == COUNT + 5
    check(log, records[:COUNT])


def test_clean_restart_finds_the_end_of_an_old_active_segment(tmp_path: Path) -> None:
    """After a move from an old broker the next record would get an offset that is taken."""
    records = old_directory(tmp_path / "orders")
    open_log(tmp_path / "orders").close()
    log = open_log(tmp_path / "orders", clean=True, recovery_point=2 * COUNT)
    assert log.log_end_offset == 2 * COUNT
    assert log.local.segments.active.max_timestamp == (records[-1].timestamp, records[-1].offset)
    assert log.local.segments.first.first_timestamp() == -1
    assert log.local.segments.active.first_timestamp() == START_MS + COUNT


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_from_before_old_messages_are_not_found_again(tmp_path: Path, clean: bool) -> None:
    """The old messages would count as of the epoch before them: a follower would keep those that its leader lacks."""
    log = open_log(tmp_path)
    append(log, batch([b"before"]), leader_epoch=3)
    log.close()
    write_segment(tmp_path, 1, 1)
    log = open_log(tmp_path)
    append(log, batch([b"behind"]), leader_epoch=5)
    log.close()
    (tmp_path / LEADER_EPOCH_CHECKPOINT).unlink()
    log = open_log(tmp_path, clean=clean)
    assert log.log_end_offset == COUNT + 2
    assert log.leader_epoch_cache.entries == [(5, COUNT + 1)]


def test_torn_and_damaged_messages_are_cut(tmp_path: Path) -> None:
    """Half a message would be sent to clients for ever, or damaged ones be kept."""
    path = tmp_path / "whole"
    records = write_segment(path, 1, 0)
    data = (path / f"{0:020d}.log").read_bytes()
    ends = [0]
    for each, _ in stored_batches(data):
        ends.append(ends[-1] + len(each))
    cases = {f"cut-{size}": (data[:size], size) for size in range(0, len(data), 97)}
    for at in range(8, len(data), 61):
        cases[f"bit-{at}"] = (data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :], at)
    for name, (damaged, good_bytes) in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(damaged)
        log = open_log(tmp_path / name)
        whole = max(end for end in ends if end <= good_bytes)
        # An offset is under no checksum: one that goes on from the last passes, as in Kafka.
        if log.size_bytes != whole:
            assert good_bytes - whole < 8, name
        else:
            assert fetched_to(log) == [record for record in records if record.offset < log.log_end_offset], name


def fetched_to(log: UnifiedLog) -> list[Record]:
    return fetched(log, 0) if log.log_end_offset else []


def test_old_messages_become_record_batches_when_compacted(tmp_path: Path) -> None:
    """Old keys would never be compacted, or the log not be cleaned at all."""
    old_directory(tmp_path / "orders")
    log = open_log(tmp_path / "orders", config(internal_segment_bytes=None, segment_bytes=1 << 20))
    put(log, (b"key-7", b"newest"))
    log.roll()
    summary = clean(log)
    assert summary is not None
    assert (summary.end_offset, summary.records_kept) == (2 * COUNT + 1, 50)
    found = []
    codecs = set()
    for segment in log.local.segments:
        for each, info in stored_batches(Path(segment.path).read_bytes()[: segment.size]):
            assert info.magic == 2
            codecs.add(info.compression)
            found += list(iterate_stored_records(each))
    assert [record.offset for record in found] == [at for at in range(2 * COUNT - 50, 2 * COUNT) if at % 50 != 7] + [
        2 * COUNT
    ]
    assert found[-1].value == b"newest"
    assert codecs == set(CODECS)
    assert clean(log, 2 * COUNT + 1) is None


@pytest.mark.parametrize(("age_days", "stays"), [(0, True), (3, False)])
def test_old_tombstones_go_by_the_age_of_their_segment(tmp_path: Path, age_days: int, stays: bool) -> None:
    """Deleted keys of old segments would stay for ever, or go before readers have seen the deletion."""
    for base, (key, value) in enumerate([(b"gone", None), (b"b", b"clean"), (b"c", b"dirty")]):
        path = tmp_path / f"{base:020d}.log"
        path.write_bytes(encode_messages([Record(base, START_MS, key, value)], 1, Codec.GZIP))
        modified = (START_MS - (age_days * DAY_MS if base == 0 else 0)) / 1000
        os.utime(path, (modified, modified))
    log = open_log(tmp_path, config(segment_bytes=1 << 20, internal_segment_bytes=None))
    log.roll()
    # The tombstone's segment was changed so many days before the last one of the clean part.
    assert clean(log, 2) is not None
    found = [
        (info.has_delete_horizon, record.offset, record.timestamp)
        for segment in log.local.segments
        for each, info in stored_batches(Path(segment.path).read_bytes()[: segment.size])
        for record in iterate_stored_records(each)
    ]
    tombstone = [(True, 0, START_MS)] if stays else []
    assert found == [*tombstone, (False, 1, START_MS), (False, 2, START_MS)]


def test_dump_shows_old_messages(tmp_path: Path) -> None:
    """Who looks at an old segment would be told that it is damaged."""
    records = write_segment(tmp_path / "orders-0", 0, 0)
    rows = list(
        dump_segment.dump_segment(tmp_path / "orders-0" / f"{0:020d}.log", deep=True, print_data=True, decode=False)
    )
    assert json.dumps(rows)
    assert [row["record"] for row in rows if "record" in row] == [record.offset for record in records]
    assert all(row["is_valid"] and row["magic"] == 0 for row in rows if "magic" in row)
