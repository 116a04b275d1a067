"""Idempotent producers and transactions of a partition.

Also of `kbroker.storage.log.producer_state`, `kbroker._fast.log.segment_replay`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
)
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from kbroker.storage.log.txn_index import AbortedTransaction
from tests.storage.batches import HandClock, append, batch, environment, marker, open_log, read_all


def entry_of(pid: int, epoch: int, coordinator: int, txn: int, batches: list[tuple[int, int, int]]) -> ProducerEntry:
    entry = ProducerEntry(pid, epoch, coordinator, 5, txn)
    for sequence, offset, delta in batches:
        entry.add(epoch, sequence, offset, min(delta, offset), 1000 + sequence)
    return entry


ENTRIES = st.builds(
    entry_of,
    st.integers(0, 1 << 62),
    st.integers(0, 32767),
    st.integers(-1, 1 << 30),
    st.integers(-1, 1 << 62),
    st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.integers(0, 1 << 62), st.integers(0, 100)), max_size=7),
)


@given(st.lists(ENTRIES, max_size=10, unique_by=lambda entry: entry.producer_id))
def test_snapshot_round_trip(entries: list[ProducerEntry]) -> None:
    """Producers would be forgotten over a restart and their retries stored twice."""
    data = bytes(encode_snapshot(entries))
    again = decode_snapshot(data, "x")
    assert encode_snapshot(again) == data
    assert [repr(entry) for entry in again] == [repr(entry) for entry in entries]


def test_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    """A damaged snapshot would accept duplicates or refuse good batches."""
    data = bytes(encode_snapshot([entry_of(1, 2, 3, -1, [(9, 99, 4)]), entry_of(5, 0, 0, 7, [])]))
    for at in range(len(data) * 8):
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(bad), "x")
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(data[:size], "x")


def test_retry_of_any_of_the_last_five_batches_is_answered_not_stored(tmp_path: Path) -> None:
    """A producer that retries after a lost answer would store its records twice."""
    log = open_log(tmp_path)
    first = [append(log, batch([b"a", b"b"], producer_id=7, epoch=0, sequence=2 * i)) for i in range(7)]
    for i in range(2, 7):
        again = append(log, batch([b"a", b"b"], producer_id=7, epoch=0, sequence=2 * i))
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (first[i].first_offset, first[i].last_offset)
    with pytest.raises(OutOfOrderSequenceNumberError, match=r"2 \(incoming seq. number\), 13 \(current end"):
        append(log, batch([b"a", b"b"], producer_id=7, epoch=0, sequence=2))
    assert log.log_end_offset == 14


def test_sequence_gap_old_epoch_and_new_epoch(tmp_path: Path) -> None:
    """A lost batch would leave a silent hole; a fenced producer could go on writing."""
    log = open_log(tmp_path)
    append(log, batch(producer_id=7, epoch=1, sequence=40))
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, batch(producer_id=7, epoch=1, sequence=42))
    append(log, batch(producer_id=7, epoch=1, sequence=41))
    with pytest.raises(InvalidProducerEpochError, match="smaller than the last seen epoch 1"):
        append(log, batch(producer_id=7, epoch=0, sequence=42))
    with pytest.raises(OutOfOrderSequenceNumberError, match="Invalid sequence number for new epoch"):
        append(log, batch(producer_id=7, epoch=2, sequence=42))
    append(log, batch(producer_id=7, epoch=2, sequence=0))
    assert log.log_end_offset == 3


def test_sequence_wraps_after_its_maximum(tmp_path: Path) -> None:
    """A long-lived producer would stop after two billion records."""
    top = (1 << 31) - 1
    log = open_log(tmp_path)
    append(log, batch([b"a"], producer_id=7, epoch=0, sequence=top - 1))
    append(log, batch([b"b", b"c", b"d"], producer_id=7, epoch=0, sequence=top))
    assert append(log, batch([b"b", b"c", b"d"], producer_id=7, epoch=0, sequence=top)).duplicate
    append(log, batch([b"e"], producer_id=7, epoch=0, sequence=2))
    assert log.log_end_offset == 5


def test_producers_survive_a_clean_and_an_unclean_restart(tmp_path: Path) -> None:
    """Retries across a broker's restart would be stored twice."""
    log = open_log(tmp_path)
    for i in range(3):
        append(log, batch(producer_id=7, epoch=0, sequence=i))
    log.close(clean=False)
    log = open_log(tmp_path)
    assert [append(log, batch(producer_id=7, epoch=0, sequence=i)).duplicate for i in range(4)] == [True] * 3 + [False]
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=4)
    assert append(log, batch(producer_id=7, epoch=0, sequence=3)).duplicate
    append(log, batch(producer_id=7, epoch=0, sequence=4))


@pytest.mark.parametrize("recovery_point", [0, 10, 12])
@pytest.mark.parametrize("stop", ["killed", "clean without a snapshot", "truncated"])
def test_a_batch_that_straddles_the_log_start_is_a_duplicate_after_a_restart(
    stop: str, recovery_point: int, tmp_path: Path
) -> None:
    """DeleteRecords into the middle of a batch, then a crash: a retry of that batch would be stored twice."""
    log = open_log(tmp_path)
    retried = [b"%d" % i for i in range(10)]
    append(log, batch(retried, producer_id=7, epoch=0, sequence=0))
    append(log, batch([b"x", b"y"]))
    log.delete_records_before(5)
    log.close(clean=stop != "killed")
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    clean = stop != "killed"
    log = open_log(tmp_path, clean=clean, recovery_point=recovery_point, log_start_offset=5)
    if stop == "truncated":
        log.truncate_to(11)
    result = append(log, batch(retried, producer_id=7, epoch=0, sequence=0))
    assert (result.duplicate, result.first_offset, result.last_offset) == (True, 0, 9)


def test_a_transaction_whose_first_batch_straddles_the_log_start_stays_open_after_a_crash(tmp_path: Path) -> None:
    """READ_COMMITTED readers would be given records of a transaction that is not decided."""
    log = open_log(tmp_path)
    append(log, batch([b"%d" % i for i in range(10)], producer_id=7, epoch=0, sequence=0, transactional=True))
    append(log, batch([b"x"]))
    log.delete_records_before(5)
    log.close(clean=False)
    log = open_log(tmp_path, log_start_offset=5)
    assert log.last_stable_offset == 5
    append(log, marker(7, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == log.log_end_offset == 12


def test_idle_producers_are_forgotten_but_not_in_a_transaction(tmp_path: Path) -> None:
    """Memory would grow with every producer that ever wrote; or an open transaction would lose its owner."""
    clock = HandClock()
    log = open_log(tmp_path, env=environment(clock=clock))
    append(log, batch(producer_id=1, epoch=0, sequence=0, timestamp=clock.now))
    append(log, batch(producer_id=2, epoch=0, sequence=0, timestamp=clock.now, transactional=True))
    assert log.producer_state.remove_expired(clock.now + 86_399_999) == 0
    assert log.producer_state.remove_expired(clock.now + 86_400_000) == 1
    assert list(log.producer_state.producers) == [2]


def test_open_transaction_holds_the_stable_offset(tmp_path: Path) -> None:
    """READ_COMMITTED readers would see records that are aborted later."""
    log = open_log(tmp_path)
    append(log, batch([b"plain"]))
    append(log, batch([b"a"], producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, batch([b"b"], producer_id=2, epoch=0, sequence=0, transactional=True))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert read_stable(log) == 1
    log.append_as_leader(marker(1, 0, abort=True), 0, origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 1, "the marker is not below the high watermark yet"
    log.maybe_increment_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    append(log, marker(2, 0, abort=False), origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 5
    data = log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED, True)
    assert data.aborted_transactions == [AbortedTransaction(1, 1, 3, 2)]
    assert log.local.segments.active.has_txn_index, "a fast fetch would give its records without that list"
    assert log.read(4, 1 << 20, FetchIsolation.TXN_COMMITTED, True).aborted_transactions == []
    assert len(read_all(log)) == 5


def read_stable(log: object) -> int:
    from tests.storage.batches import headers, region_bytes

    return len(headers(region_bytes(log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED, True))))  # type: ignore[attr-defined]


def test_transactional_rules(tmp_path: Path) -> None:
    """A zombie coordinator or producer could end or break a transaction of its successor."""
    log = open_log(tmp_path)
    append(log, batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    with pytest.raises(InvalidTxnStateError, match="Expected transactional write"):
        append(log, batch(producer_id=1, epoch=0, sequence=1))
    append(log, marker(1, 0, abort=False, coordinator_epoch=5), origin=AppendOrigin.COORDINATOR)
    append(log, batch(producer_id=1, epoch=0, sequence=1, transactional=True))
    with pytest.raises(KafkaError, match=r"4 \(zombie\), 5 \(current\)") as refused:
        append(log, marker(1, 0, abort=True, coordinator_epoch=4), origin=AppendOrigin.COORDINATOR)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.last_stable_offset == 2


def test_duplicate_is_found_after_a_roll_and_truncation_forgets(tmp_path: Path) -> None:
    """After a truncation a producer could not send again what was cut."""
    log = open_log(tmp_path)
    for i in range(4):
        append(log, batch(producer_id=7, epoch=0, sequence=i))
        log.roll()
    assert append(log, batch(producer_id=7, epoch=0, sequence=1)).duplicate
    log.truncate_to(2)
    assert not append(log, batch(producer_id=7, epoch=0, sequence=2)).duplicate
    assert log.log_end_offset == 3
    assert log.producer_state.producers[7].last_sequence == 2


def test_a_snapshot_of_what_comes_behind_it_is_dropped(tmp_path: Path) -> None:
    """A partition would not load any more, or a transaction that is not there hold consumers back."""
    log = open_log(tmp_path)
    for number in range(5):
        append(log, batch([b"%d" % number]))
    append(log, batch([b"t"], producer_id=7, epoch=0, sequence=0, transactional=True))
    log.close()
    (snapshot,) = tmp_path.glob("*.snapshot")
    snapshot.rename(tmp_path / f"{4:020d}.snapshot")
    log = open_log(tmp_path, recovery_point=6)
    assert log.producer_state.first_unstable_offset == 5
    assert not (tmp_path / f"{4:020d}.snapshot").exists()
