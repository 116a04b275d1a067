"""Batches larger than a buffer: those that are what they say are compacted, no memory is taken for the others."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from kbroker._fast.records.record_batch import LOG_OVERHEAD
from kbroker.records.batch import Record
from kbroker.records.compression import Codec
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.cleaner import cleaner_reader
from kbroker.storage.log.segment_damage import CorruptSegmentError
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import clean, cleaner, config, put, records_of, table_of
from tests.records.stored import encode_messages, stored_batches
from tests.storage.batches import START_MS, open_log

LARGE = 400_000


def log_of_large_batches(directory: Path, max_message_bytes: int) -> UnifiedLog:
    """Three batches, the last and the first large, as from before max.message.bytes was lowered."""
    log = open_log(directory, config(internal_segment_bytes=20 << 20))
    put(log, (b"a", b"x" * LARGE), (b"b", b"old"))
    put(log, (b"b", b"new"))
    put(log, (b"c", bytes(range(256)) * 2000), codec=Codec.LZ4)
    put(log, (b"c", b"z" * LARGE))
    log.roll()
    log.config = config(max_message_bytes=max_message_bytes, internal_segment_bytes=20 << 20)
    return log


@pytest.mark.parametrize("max_message_bytes", [1000, 2 * LARGE])
def test_a_batch_larger_than_max_message_bytes_is_compacted(tmp_path: Path, max_message_bytes: int) -> None:
    """A limit that was lowered would stop a log from ever being compacted again."""
    log = log_of_large_batches(tmp_path / "log", max_message_bytes)
    expected = table_of(records_of(log))
    assert clean(log, worker=cleaner(buffer_bytes=1024)) is not None
    assert table_of(records_of(log)) == expected
    assert len(records_of(log)) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_larger_than_max_message_bytes_are_compacted(tmp_path: Path, magic: int) -> None:
    """The same of a topic that has been there since the days of Kafka 0.10."""
    timestamp = START_MS if magic else -1
    old = [Record(at, timestamp, b"k%d" % (at % 2), b"%d" % at * LARGE) for at in range(4)]
    data = b"".join(encode_messages([record], magic, Codec.NONE) for record in old)
    (tmp_path / f"{0:020d}.log").write_bytes(data)
    log = open_log(tmp_path, config(max_message_bytes=1000, internal_segment_bytes=20 << 20))
    log.roll()
    assert clean(log, worker=cleaner(buffer_bytes=1024)) is not None
    batches = stored_batches(Path(log.local.segments.first.path).read_bytes())
    found = [record for each, _ in batches for record in iterate_stored_records(each)]
    assert [(record.offset, record.value) for record in found] == [(at, b"%d" % at * LARGE) for at in (2, 3)]
    log.close()


@pytest.mark.parametrize("size", [300_000, 800_000])
def test_no_memory_is_taken_for_a_damaged_length(tmp_path: Path, size: int) -> None:
    """One damaged length would take as much memory as a segment is large, in each thread."""
    log = log_of_large_batches(tmp_path / "log", 1000)
    with Path(log.local.segments.first.path).open("r+b") as file:
        file.seek(8)
        file.write((size - LOG_OVERHEAD).to_bytes(4))
    worker = cleaner(buffer_bytes=1024)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptSegmentError, match=rf"says that it has {size} bytes, over max.message.bytes \(1000"):
            clean(log, worker=worker)
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()


def test_there_is_a_size_beyond_which_no_batch_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition is given up with a reason, not the broker with it."""
    log = log_of_large_batches(tmp_path / "log", 2 * LARGE)
    monkeypatch.setattr(cleaner_reader, "MOST_BATCH_BYTES", LARGE - 1)
    with pytest.raises(CorruptSegmentError, match=f"at most {LARGE - 1} are compacted"):
        clean(log, worker=cleaner(buffer_bytes=1024))
