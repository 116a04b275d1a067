"""Starts after an unclean stop, and leftovers of interrupted operations.

Also of `kbroker.storage.recovery.log_recovery`.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.errors import CorruptMessageError
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import START_MS, append, batch, marker, open_log, read_all

CONFIG = LogConfig(internal_segment_bytes=900, index_interval_bytes=150)


def filled(directory: Path, count: int, config: LogConfig = CONFIG) -> UnifiedLog:
    log = open_log(directory, config)
    for i in range(count):
        append(log, batch([b"%05d" % i], timestamp=START_MS + i))
    return log


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(i, b"%05d" % i) for i in range(count)]


def log_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def test_torn_tail_of_every_length_is_cut(tmp_path: Path) -> None:
    """After a crash in the middle of a write the broker would not start, or serve half a batch."""
    filled(tmp_path / "full", 5).close(clean=False)
    whole = log_files(tmp_path / "full")[0].read_bytes()
    one = len(whole) // 5
    for size in range(4 * one, 5 * one + 1):
        target = tmp_path / str(size)
        shutil.copytree(tmp_path / "full", target)
        log_files(target)[0].write_bytes(whole[:size])
        log = open_log(target, CONFIG)
        assert read_all(log) == expected(size // one)
        assert log_files(target)[0].stat().st_size == size // one * one
        append(log, batch([b"after"]))
        assert read_all(log)[-1] == (size // one, b"after")


def test_every_flipped_bit_is_cut_or_harmless(tmp_path: Path) -> None:
    """A bit that the disk flips would be served as data."""
    filled(tmp_path / "full", 3).close(clean=False)
    whole = log_files(tmp_path / "full")[0].read_bytes()
    one = len(whole) // 3
    target = tmp_path / "one"
    for at in range(one * 8, 2 * one * 8):
        bad = bytearray(whole)
        bad[at // 8] ^= 1 << at % 8
        target.mkdir(exist_ok=True)
        (target / "00000000000000000000.log").write_bytes(bad)
        log = open_log(target, CONFIG)
        position = at // 8 - one
        found = read_all(log)
        if 12 <= position < 16:
            # The leader epoch is outside of the checksum, as the broker writes it.
            assert found == expected(3)
        elif position < 8:
            # So is the base offset: one that still ascends cannot be told from a gap that compaction left.
            assert [value for _, value in found] == [value for _, value in expected(3)][: len(found)]
            assert all(a[0] < b[0] for a, b in pairwise(found))
        else:
            assert found == expected(1)
        log.close(clean=False)
        for path in target.iterdir():
            path.unlink()


def test_segments_after_a_cut_are_dropped(tmp_path: Path) -> None:
    """Records after a hole would be served as if nothing were missing."""
    filled(tmp_path, 60).close(clean=False)
    files = log_files(tmp_path)
    assert len(files) >= 5
    damaged = bytearray(files[2].read_bytes())
    damaged[100] ^= 0xFF
    files[2].write_bytes(damaged)
    log = open_log(tmp_path, CONFIG)
    base = int(files[2].stem)
    assert read_all(log) == expected(base + 1)
    assert [int(path.stem) for path in log_files(tmp_path)] == [int(path.stem) for path in files[:3]]
    append(log, batch([b"after"]))
    log.close()
    assert read_all(open_log(tmp_path, CONFIG, clean=True, recovery_point=base + 2))[-1] == (base + 1, b"after")


def test_what_was_flushed_is_not_read_again(tmp_path: Path) -> None:
    """A restart after a crash would take minutes on a large disk."""
    log = filled(tmp_path, 60)
    log.flush()
    for i in range(60, 63):
        append(log, batch([b"%05d" % i], timestamp=START_MS + i))
    point = log.recovery_point
    assert point == 60
    log.close(clean=False)
    files = log_files(tmp_path)
    # Damage below the recovery point goes unnoticed at start: nobody reads it.
    damaged = bytearray(files[0].read_bytes())
    damaged[100] ^= 0xFF
    files[0].write_bytes(damaged)
    log = open_log(tmp_path, CONFIG, recovery_point=point)
    assert log.log_end_offset == 63
    assert len(log_files(tmp_path)) == len(files)
    assert read_all(log, 30) == expected(63)[30:]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("how", ["missing", "empty", "garbage", "zeros"])
def test_damaged_side_files_are_made_again(suffix: str, how: str, tmp_path: Path) -> None:
    """A damaged index would send readers to the wrong place, or stop the broker's start."""
    log = filled(tmp_path, 60)
    log.flush()
    log.close(clean=False)
    for path in tmp_path.glob(f"*{suffix}"):
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes({"empty": b"", "garbage": b"\x7f" * 48, "zeros": bytes(4800)}[how])
    recovered = open_log(tmp_path, CONFIG, recovery_point=0)
    assert read_all(recovered) == expected(60)
    for offset in range(0, 60, 7):
        assert read_all(recovered, offset)[0] == expected(60)[offset]
        found = recovered.offset_for_timestamp(START_MS + offset)
        assert found is not None and found.offset == offset


def test_missing_index_is_made_again_after_a_clean_stop(tmp_path: Path) -> None:
    """Indexes removed by hand (which Kafka allows) would make every read scan the segment."""
    filled(tmp_path, 60).close()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.index")}
    for path in tmp_path.glob("*.index"):
        path.unlink()
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=60)
    assert read_all(log) == expected(60)
    log.close()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.index")} == before


def test_index_without_its_log_is_removed(tmp_path: Path) -> None:
    """A leftover index would be taken for that of a later segment."""
    filled(tmp_path, 5).close()
    (tmp_path / "00000000000000000777.index").write_bytes(bytes(80))
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=5)
    assert log.log_end_offset == 5
    assert not (tmp_path / "00000000000000000777.index").exists()


def test_leftovers_of_deletion_and_cleaning_are_removed(tmp_path: Path) -> None:
    """Files of an interrupted deletion would fill the disk for ever."""
    filled(tmp_path, 30).close()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000900.index.cleaned",
        "00000000000000000900.log.cleaned",
    ):
        (tmp_path / name).write_bytes(b"x")
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=30)
    assert read_all(log) == expected(30)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".deleted", ".cleaned")]


def test_finished_replacement_is_installed(tmp_path: Path) -> None:
    """A compaction that was interrupted in its last step would leave two versions of the same records."""
    filled(tmp_path, 60).close()
    files = log_files(tmp_path)
    merged = files[0].read_bytes() + files[1].read_bytes()
    (tmp_path / f"{files[0].name}.swap").write_bytes(merged)
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=60)
    assert read_all(log) == expected(60)
    assert [path.name for path in log_files(tmp_path)] == [files[0].name, *(path.name for path in files[2:])]
    assert files[0].read_bytes() == merged


def test_unfinished_split_is_undone(tmp_path: Path) -> None:
    """Half of a split segment would replace the whole one."""
    filled(tmp_path, 60).close()
    files = log_files(tmp_path)
    base = int(files[1].stem)
    (tmp_path / f"{base:020d}.log.swap").write_bytes(files[1].read_bytes()[:75])
    (tmp_path / f"{base:020d}.log.cleaned").write_bytes(files[1].read_bytes()[75:])
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=60)
    assert read_all(log) == expected(60)
    assert not list(tmp_path.glob("*.swap"))


def test_damaged_transaction_index_is_made_again_after_a_clean_stop(tmp_path: Path) -> None:
    """READ_COMMITTED fetches would fail until somebody repairs the file by hand."""
    log = open_log(tmp_path)
    append(log, batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, marker(1, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    log.close()
    path = tmp_path / "00000000000000000000.txnindex"
    good = path.read_bytes()
    for bad in (good[:-1], b"\x00\x09" + good[2:], good + good):
        path.write_bytes(bad)
        log = open_log(tmp_path, clean=True, recovery_point=2)
        log.close()
        assert path.read_bytes() == good


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_what_is_known_of_records_that_a_clean_stop_has_lost_is_forgotten(tmp_path: Path, left: int) -> None:
    """A follower that copies them anew would fail at its old transaction index, for good; and a producer's sequence
    would be that of records that are not there."""

    def write(log: UnifiedLog, batches: range) -> None:
        for sequence in batches:
            append(log, batch(producer_id=1, epoch=0, sequence=sequence, transactional=True))
            append(log, marker(1, 0, abort=True), origin=AppendOrigin.COORDINATOR)

    log = open_log(tmp_path)
    write(log, range(3))
    log.close()
    path = tmp_path / "00000000000000000000.log"
    whole, index = path.read_bytes(), path.with_suffix(".txnindex").read_bytes()
    sizes = [len(batch(producer_id=1, epoch=0, sequence=0, transactional=True)), len(marker(1, 0, abort=True))]
    path.write_bytes(whole[: sum(sizes) * (left // 2) + sizes[0] * (left % 2)])
    again = open_log(tmp_path, clean=True, recovery_point=6)
    assert again.log_end_offset == left
    found = again.producer_state.producers.get(1)
    assert (None if found is None else found.last_offset) == ((left - 1) // 2 * 2 if left else None)
    if left % 2:
        append(again, marker(1, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    write(again, range((left + 1) // 2, 3))
    again.close()
    assert path.with_suffix(".txnindex").read_bytes() == index


def test_damage_found_by_a_read_is_said(tmp_path: Path) -> None:
    """A reader would get an unexplained closed connection."""
    log = filled(tmp_path, 30)
    log.close()
    for path in log_files(tmp_path):
        path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(CorruptMessageError, match="is damaged at position 0"):
        log.read(0, 1000, FetchIsolation.LOG_END, True)


def test_segment_with_too_wide_offsets_is_split(tmp_path: Path) -> None:
    """Records that an old Kafka stored would be cut off as corrupt."""
    wide = [0, 1, 5_000_000_000, 5_000_000_001, 9_000_000_000]
    content = bytearray()
    for offset in wide:
        one = batch([b"%d" % offset])
        one[0:8] = offset.to_bytes(8)
        content += one
    (tmp_path / f"{0:020d}.log").write_bytes(content)
    log = open_log(tmp_path)
    assert read_all(log) == [(offset, b"%d" % offset) for offset in wide]
    assert [int(path.stem) for path in log_files(tmp_path)] == [0, 5_000_000_000, 9_000_000_000]
    log.close()
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.suffix in (".swap", ".cleaned")) == []
    assert len(read_all(open_log(tmp_path, clean=True, recovery_point=9_000_000_001))) == 5


def test_damaged_replacement_leaves_the_old_segments(tmp_path: Path) -> None:
    """The broker would not start, or replace good records by damaged ones."""
    filled(tmp_path, 30).close()
    first = log_files(tmp_path)[0]
    (tmp_path / f"{first.name}.swap").write_bytes(first.read_bytes()[:-10])
    (tmp_path / f"{first.stem}.index.swap").write_bytes(b"")
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=30)
    assert read_all(log) == expected(30)
    assert not list(tmp_path.glob("*.swap"))


EPOCHS = "leader-epoch-checkpoint"


def with_epochs(directory: Path) -> list[tuple[int, int]]:
    """A log of several segments and epochs, stopped cleanly; its epochs."""
    log = open_log(directory, CONFIG)
    for number in range(40):
        append(log, batch([b"%d" % number]), leader_epoch=number // 5)
    assert log.segment_count > 3
    log.close()
    return log.leader_epoch_cache.entries


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [b"", b"0\n9\n1 2\n", None])
def test_epochs_are_found_again_when_their_file_is_empty_damaged_or_missing(
    content: bytes | None, clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty file would count as no epochs: a client whose log was cut would not hear of it."""
    epochs = with_epochs(tmp_path)
    if content is None:
        (tmp_path / EPOCHS).unlink()
    else:
        (tmp_path / EPOCHS).write_bytes(content)
    log = open_log(tmp_path, CONFIG, clean=clean, recovery_point=36)
    assert log.leader_epoch_cache.entries == epochs
    assert EPOCHS in caplog.text
    log.close()
    assert open_log(tmp_path, CONFIG, clean=True, recovery_point=40).leader_epoch_cache.entries == epochs


def test_finding_epochs_again_cuts_nothing(tmp_path: Path) -> None:
    """A missing epoch file would cost every record behind an old damage that nobody has met yet."""
    with_epochs(tmp_path)
    (tmp_path / EPOCHS).unlink()
    second = sorted(tmp_path.glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[-1] ^= 0xFF
    second.write_bytes(data)
    log = open_log(tmp_path, CONFIG, clean=True, recovery_point=40)
    assert log.log_end_offset == 40
    assert second.read_bytes() == data


def test_an_epoch_file_newer_than_the_recovery_point_hides_no_epoch(tmp_path: Path) -> None:
    """A crash between the two files would give earlier records the epoch of later ones."""
    epochs = with_epochs(tmp_path)
    for recovery_point in range(41):
        log = open_log(tmp_path, CONFIG, recovery_point=recovery_point)
        assert log.leader_epoch_cache.entries == epochs, recovery_point
        log.close()


def test_a_cut_below_a_snapshot_has_producers_read_again(tmp_path: Path) -> None:
    """An open transaction that the cut has taken would hold all consumers back, or the broker not start."""
    log = open_log(tmp_path)
    for number in range(20):
        append(log, batch([b"%05d" % number]))
    append(log, batch([b"t"], producer_id=7, epoch=0, sequence=0, transactional=True))
    append(log, batch([b"behind it"]))
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=log.log_end_offset)
    assert log.producer_state.first_unstable_offset == 20
    append(log, batch([b"after the snapshot"]))
    log.flush()
    durable = log.recovery_point
    log.close(clean=False)
    (file,) = tmp_path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    log = open_log(tmp_path, recovery_point=durable)
    assert 0 < log.log_end_offset < 20
    assert log.producer_state.first_unstable_offset is None and 7 not in log.producer_state.producers
