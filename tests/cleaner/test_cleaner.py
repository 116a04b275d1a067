"""One clean of a real log: buffers, transactions, several output segments, damage, what is left when it is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker._fast.records.record_batch import BatchInfo, iterate_batches
from kbroker.records.compression import Codec
from kbroker.storage.cleaner.cleaner import CleaningAbortedError, Ticket
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.segment_damage import CorruptSegmentError
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import DAY_MS, clean, cleaner, config, pairs_batch, put, records_of, table_of
from tests.storage.batches import START_MS, append, marker, open_log


def infos(log: UnifiedLog) -> list[BatchInfo]:
    return [info for segment in log.local.segments for info in iterate_batches(Path(segment.path).read_bytes())]


def transaction(log: UnifiedLog, producer: int, sequence: int, *keys: bytes, abort: bool) -> None:
    pairs = [(key, b"by %d" % producer) for key in keys]
    append(log, pairs_batch(pairs, producer_id=producer, epoch=0, sequence=sequence, transactional=True))
    append(log, marker(producer, 0, abort=abort), origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_keeps_the_latest(codec: Codec, tmp_path: Path) -> None:
    """Compressed batches would lose records, or come out uncompressed."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=2000))
    for at in range(60):
        put(log, *((b"k%d" % key, b"%d" % at * 20) for key in range(at % 7 + 1)), codec=codec)
    log.roll()
    expected = table_of(records_of(log))
    summary = clean(log)
    assert summary is not None
    assert table_of(records_of(log)) == expected
    assert len(records_of(log)) == summary.records_kept == len(expected)
    assert {info.compression for info in infos(log) if info.records_count} == {codec}


def test_a_batch_larger_than_the_buffer_is_cleaned(tmp_path: Path) -> None:
    """One large batch would stop a log from ever being compacted again."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=200_000))
    put(log, (b"a", b"x" * 50_000), (b"b", b"old"))
    put(log, (b"b", b"new"))
    put(log, (b"a", b"y" * 60_000), codec=Codec.NONE)
    log.roll()
    worker = cleaner(buffer_bytes=1024)
    assert clean(log, worker=worker) is not None
    assert table_of(records_of(log)) == {b"a": b"y" * 60_000, b"b": b"new"}
    assert len(records_of(log)) == 2


def test_aborted_records_go_and_their_marker_follows_after_its_horizon(tmp_path: Path) -> None:
    """Readers of committed records would see aborted ones once the index of their transaction is gone."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=1 << 20))
    transaction(log, 1, 0, b"a", b"b", abort=True)
    transaction(log, 2, 0, b"a", abort=False)
    put(log, (b"c", b"1"))
    append(log, pairs_batch([(b"z", b"z")], producer_id=1, epoch=0, sequence=2))
    append(log, pairs_batch([(b"y", b"z")], producer_id=2, epoch=0, sequence=1))
    log.roll()
    checkpoint = None
    seen = []
    for turn in range(5):
        now_ms = START_MS + turn * DAY_MS
        summary = clean(log, checkpoint, now_ms=now_ms)
        assert summary is not None
        checkpoint = summary.end_offset
        seen.append([(info.base_offset, info.has_delete_horizon) for info in infos(log) if info.is_control])
        assert [record.key for record in records_of(log)][:2] == [b"a", b"c"]
        put(log, (b"filler", b"%d" % turn))
        log.roll()
    assert seen[0] == [(2, False), (4, False)], "both transactions were met in this pass"
    assert seen[1] == [(2, True), (4, False)], "nothing of the aborted one is left"
    assert seen[2] == [(4, False)], "and its horizon has passed"
    first = log.local.segments.first
    assert first.txn_index.entries == [] and not first.has_txn_index
    assert log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED, True).aborted_transactions in (None, [])


def test_an_open_transaction_bounds_the_clean(tmp_path: Path) -> None:
    """Records that may yet be aborted would replace committed ones."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=100))
    put(log, (b"a", b"committed"))
    append(log, pairs_batch([(b"a", b"open")], producer_id=1, epoch=0, sequence=0, transactional=True))
    for at in range(5):
        put(log, (b"b", b"%d" % at))
    log.roll()
    assert clean(log) is None or len(records_of(log)) == 7
    append(log, marker(1, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    log.roll()
    assert clean(log) is not None
    assert table_of(records_of(log)) == {b"a": b"committed", b"b": b"4"}


def test_a_producer_of_markers_alone_is_remembered(tmp_path: Path) -> None:
    """A producer that was fenced by its marker could write again after a restart."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=1 << 20))
    append(log, marker(9, 3, abort=True), origin=AppendOrigin.COORDINATOR)
    put(log, (b"a", b"1"))
    log.roll()
    checkpoint = None
    for turn in range(4):
        summary = clean(log, checkpoint, now_ms=START_MS + turn * 2 * DAY_MS)
        assert summary is not None
        checkpoint = summary.end_offset
        put(log, (b"filler", b"%d" % turn))
        log.roll()
    kept = [info for info in infos(log) if info.is_control]
    assert [(info.producer_id, info.producer_epoch, info.records_count) for info in kept] == [(9, 3, 0)]


def test_offsets_too_far_apart_become_two_segments(tmp_path: Path) -> None:
    """The clean would fail for ever on a log with a large gap in its offsets."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=1 << 20))
    put(log, (b"a", b"1"))
    log.local.log_end_offset = 3 << 30
    log.roll()
    put(log, (b"b", b"2"))
    put(log, (b"a", b"3"))
    log.roll()
    before = [segment.base_offset for segment in log.local.segments]
    assert before == [0, 3 << 30, (3 << 30) + 2]
    assert clean(log) is not None
    assert [(record.offset, record.key) for record in records_of(log)] == [(3 << 30, b"b"), ((3 << 30) + 1, b"a")]
    assert log.read(0, 1000, FetchIsolation.LOG_END, True).size > 0


def test_a_group_whose_offsets_do_not_fit_one_segment_becomes_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment with offsets that its indexes cannot hold, as old brokers left them, would never be compacted."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=1 << 20))
    for at in range(4):
        log.local.log_end_offset = at << 31
        if at:
            log.roll()
        codec = Codec.LZ4 if at == 2 else Codec.NONE
        put(log, (b"k%d" % at, b"1"), (b"same", b"%d" % at), codec=codec)
    log.roll()
    expected = [record for record in records_of(log) if record.key != b"same" or record.value == b"3"]
    # Groups are made so that this does not happen; here everything is one group.
    monkeypatch.setattr("kbroker.storage.cleaner.cleaner.group_segments", lambda sources, *_: [tuple(sources)])
    assert clean(log) is not None
    assert records_of(log) == expected
    assert [segment.base_offset for segment in log.local.segments] == [0, 1 << 31, 2 << 31, 3 << 31, (3 << 31) + 2]
    log.check_invariants()
    log.close()
    again = open_log(tmp_path / "log", config(), recovery_point=1 << 40, clean=True)
    assert records_of(again) == expected


def test_segments_merge_and_keep_their_age(tmp_path: Path) -> None:
    """Compaction would leave thousands of tiny segments, and make old records young."""
    import os

    log = open_log(tmp_path / "log", config(segment_bytes=100_000))
    for at in range(200):
        put(log, (b"k%d" % (at % 3), b"%d" % at))
    log.roll()
    closed = list(log.local.segments)[:-1]
    for segment in closed:
        os.utime(segment.path, (1_000_000, 1_000_000))
    assert clean(log) is not None
    assert [segment.base_offset for segment in log.local.segments] == [0, 200]
    assert os.stat(log.local.segments.first.path).st_mtime == 1_000_000


def test_a_damaged_record_stops_the_clean_and_nothing_is_replaced(tmp_path: Path) -> None:
    """Damage would be copied under a new checksum, or take whole segments with it."""
    log = open_log(tmp_path / "log", config())
    for at in range(30):
        put(log, (b"k%d" % (at % 3), b"%d" % at))
    victim = Path(list(log.local.segments)[1].path)
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    with pytest.raises(ValueError, match="corrupt"):
        clean(log)
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before


def test_a_segment_that_is_shorter_than_known_stops_the_clean(tmp_path: Path) -> None:
    """Records that another program cut off would be taken for compacted ones."""
    log = open_log(tmp_path / "log", config())
    for at in range(30):
        put(log, (b"k%d" % (at % 3), b"%d" % at))
    victim = Path(log.local.segments.first.path)
    victim.write_bytes(victim.read_bytes()[:-5])
    with pytest.raises(CorruptSegmentError, match="ends at"):
        clean(log)


def test_a_stopped_clean_leaves_nothing_behind(tmp_path: Path) -> None:
    """Every stop would leave files that fill the disk."""
    log = open_log(tmp_path / "log", config())
    for at in range(30):
        put(log, (b"k%d" % (at % 3), b"%d" % at))
    before = records_of(log)
    ticket = Ticket()
    ticket.aborted = True
    with pytest.raises(CleaningAbortedError):
        clean(log, ticket=ticket)
    assert records_of(log) == before
    assert not list((tmp_path / "log").glob("*.cleaned"))
    (tmp_path / "log" / "00000000000000000000.log.cleaned").write_bytes(b"left over")
    assert clean(log) is not None
    assert not list((tmp_path / "log").glob("*.cleaned"))


def test_records_without_a_key_go_and_are_counted(tmp_path: Path) -> None:
    """A topic that was not compacted before would keep its keyless records for ever."""
    log = open_log(tmp_path / "log", config(cleanup_policy=frozenset({"delete"})))
    for at in range(20):
        put(log, (None, b"%d" % at), (b"k", b"%d" % at))
    log.roll()
    log.config = config()
    summary = clean(log)
    assert summary is not None
    assert summary.keyless_count == 20
    assert [record.key for record in records_of(log)] == [b"k"]


def test_readers_pass_over_what_is_gone(tmp_path: Path) -> None:
    """A consumer would stop at an offset that compaction took away."""
    log = open_log(tmp_path / "log", config(internal_segment_bytes=300))
    for at in range(60):
        put(log, (b"k", b"%d" % at))
    assert clean(log) is not None
    held = [record.offset for record in records_of(log)]
    for start in range(60):
        data = log.read(start, 1 << 20, FetchIsolation.HIGH_WATERMARK, True)
        assert data.size > 0
        assert data.records is not None
        assert held[-1] == 59
