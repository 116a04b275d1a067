"""Compaction by ranges of a file in C against the way buffer by buffer."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker._fast.clean.clean import END, FULL, SPECIAL, Compaction
from kbroker._fast.clean.clean_files import clean_range, index_range
from kbroker._fast.clean.offset_map import OffsetMap
from kbroker._fast.records.batch_info import CorruptBatchError
from kbroker.records.compression import Codec
from kbroker.storage.cleaner.cleaner import CleanSummary
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.segment_damage import CorruptSegmentError
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import Pair, clean, cleaner, config, pairs_batch, put
from tests.storage.batches import START_MS, UNSYNCED_FILES, append, marker, open_log

KEYS = st.binary(min_size=1, max_size=2)
PAIRS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=300))), min_size=1)
BATCHES = st.lists(
    st.tuples(PAIRS, st.sampled_from([Codec.NONE] * 6 + [Codec.LZ4, Codec.GZIP]), st.sampled_from(range(9))),
    min_size=1,
    max_size=60,
)
CONFIG = config(internal_segment_bytes=6000)


def filled(directory: Path, batches: list[tuple[list[Pair], Codec, int]]) -> UnifiedLog:
    """Kinds: 0 a transaction that is committed, 1 one that is aborted, others as they come."""
    log = open_log(directory, CONFIG)
    sequences = {0: 0, 1: 0}
    for pairs, codec, kind in batches:
        if kind > 1:
            put(log, *pairs, codec=codec)
            continue
        batch = pairs_batch(pairs, codec=codec, producer_id=kind, epoch=0, sequence=sequences[kind], transactional=True)
        sequences[kind] += len(pairs)
        append(log, batch)
        append(log, marker(kind, 0, abort=kind == 1), origin=AppendOrigin.COORDINATOR)
    log.roll()
    return log


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in (".log", ".index")}


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.integers(10, 400), st.sampled_from([1024, 1500, 4096, 40_000]))
def test_both_ways_write_the_same_files(
    batches: list[tuple[list[Pair], Codec, int]], slots: int, buffer_bytes: int
) -> None:
    """Records would be lost, or deleted ones come back, only where nothing stands between us and the files."""
    outcomes = []
    for files in (SYSTEM_FILES, UNSYNCED_FILES):
        with tempfile.TemporaryDirectory() as folder:
            log = filled(Path(folder, "log-0"), batches)
            worker = cleaner(files, map_bytes=24 * slots, buffer_bytes=buffer_bytes)
            summaries: list[CleanSummary | str] = []
            checkpoint: int | None = None
            while len(summaries) < 40:
                try:
                    summary = clean(log, checkpoint, worker=worker, files=files)
                except ValueError as error:
                    summaries.append(str(error))
                    break
                if summary is None or summary.end_offset == checkpoint:
                    break
                # How far into a buffer the map filled up is counted by one of them only.
                summaries.append(summary._replace(bytes_read=0))
                checkpoint = summary.end_offset
            outcomes.append((summaries, content(Path(folder, "log-0"))))
            log.close()
    assert outcomes[0] == outcomes[1]


@pytest.fixture
def plain_log(tmp_path: Path) -> UnifiedLog:
    log = open_log(tmp_path / "log", config(internal_segment_bytes=1 << 20))
    for at in range(400):
        put(log, *((b"k%d" % key, b"v" * 200 + b"%d" % at) for key in range(5)))
    log.roll()
    return log


def damaged(log: UnifiedLog) -> None:
    path = Path(log.local.segments.first.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(log: UnifiedLog) -> None:
    os.truncate(log.local.segments.first.path, 100_000)


@pytest.mark.parametrize("files", [SYSTEM_FILES, UNSYNCED_FILES], ids=["direct", "general"])
@pytest.mark.parametrize(("harm", "error"), [(damaged, CorruptBatchError), (cut, CorruptSegmentError)])
def test_damage_stops_the_clean_and_nothing_is_replaced(
    files: FileSystem, harm: Callable[[UnifiedLog], None], error: type[Exception], plain_log: UnifiedLog
) -> None:
    """What was damaged on the disk would get a new, valid checksum, or what follows it would be dropped."""
    harm(plain_log)
    before = Path(plain_log.local.segments.first.path).read_bytes()
    with pytest.raises(error):
        clean(plain_log, worker=cleaner(files, buffer_bytes=8192), files=files)
    assert Path(plain_log.local.segments.first.path).read_bytes() == before
    assert not list(Path(plain_log.local.directory).glob("*.cleaned"))


class Slow:
    """A throttle that notes what was spent."""

    def __init__(self) -> None:
        self.bytes_per_second = 1000.0
        self.spent: list[int] = []

    def spend(self, size_bytes: int, check: Callable[[], None]) -> None:
        self.spent.append(size_bytes)


def test_a_throttle_sees_every_byte_in_small_pieces(plain_log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on compaction's disk use would be passed by megabytes at a time."""
    slow = Slow()
    monkeypatch.setattr("tests.cleaner.logs.Unthrottled", lambda: slow)
    summary = clean(plain_log, worker=cleaner(SYSTEM_FILES, buffer_bytes=16384), files=SYSTEM_FILES)
    assert summary is not None
    assert sum(slow.spent) == summary.bytes_read + summary.bytes_written
    assert max(slow.spent) <= 2 * 16384


def test_a_full_disk_is_an_error_of_the_write(plain_log: UnifiedLog) -> None:
    """Kept records would be missing from a segment that looks whole."""
    path = plain_log.local.segments.first.path
    size = os.path.getsize(path)
    work = Compaction(OffsetMap(24_000, 1.0))
    work.start_clean(START_MS, 1000, 1 << 40, [])
    work.start_segment(0, 4096, 1 << 20)
    source, full = os.open(path, os.O_RDONLY), os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left") as caught:
            clean_range(work, source, 0, size, bytearray(8192), size, full, 0)
        assert caught.value.errno == errno.ENOSPC
    finally:
        os.close(source)
        os.close(full)


def test_a_range_says_where_and_why_it_ended(tmp_path: Path) -> None:
    """A batch would be skipped, or taken for what it is not."""
    plain = pairs_batch([(b"a", b"1" * 100)])
    special = pairs_batch([(b"b", b"1")], codec=Codec.GZIP)
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(plain) * 3 + bytes(special) + bytes(plain))
    fd = os.open(path, os.O_RDONLY)
    try:
        work = Compaction(OffsetMap(24_000, 1.0))
        end = path.stat().st_size
        assert index_range(work, fd, 0, end, bytearray(1000), 0, 1) == (3 * len(plain), SPECIAL)
        assert index_range(work, fd, 0, end, bytearray(len(plain)), 0, 1) == (len(plain), END)
        assert index_range(work, fd, 0, end, bytearray(len(plain) - 1), 0, 1 << 40) == (0, END)
        assert index_range(work, fd, end - len(plain), end + 5000, bytearray(1000), 0, 1 << 40) == (end, END)
        tiny = Compaction(OffsetMap(240, 1.0))
        path.write_bytes(bytes(pairs_batch([(b"%d" % at, b"v") for at in range(40)])))
        assert index_range(tiny, fd, 0, path.stat().st_size, bytearray(4000), 0, 1 << 40)[1] == FULL
        for wrong in ((bytearray(), 1), (bytearray(10), 0)):
            with pytest.raises(ValueError, match="a range from"):
                index_range(work, fd, 0, end, wrong[0], 0, wrong[1])
    finally:
        os.close(fd)
