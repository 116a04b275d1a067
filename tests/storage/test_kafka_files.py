"""Directories that Apache Kafka 4.3.1 wrote: opened, recovered and written back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.storage.directories.log_dirs import decode_meta_properties, encode_meta_properties
from kbroker.storage.files.checkpoints import decode_checkpoint, decode_offsets, encode_offsets
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.partition_metadata import decode_partition_metadata, encode_partition_metadata
from kbroker.storage.log.producer_snapshot import decode_snapshot, encode_snapshot
from kbroker.storage.log.txn_index import ENTRY, AbortedTransaction, decode_entries
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition, uuid_to_text
from tests.storage.batches import START_MS, VECTORS, HandClock, copy_vector, environment, open_log, read_all

# What the topics were made with: an entry per 100 bytes, a segment per minute of record time.
KAFKA_CONFIG = LogConfig(index_interval_bytes=100, segment_ms=60_000)
TXN_ABORTED = [
    AbortedTransaction(1, 9, 18, 5),
    AbortedTransaction(2, 5, 27, 28),
    AbortedTransaction(2, 41, 45, 46),
]


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def open_vector(name: str, tmp_path: Path, *, clean: bool) -> UnifiedLog:
    directory = copy_vector(name, tmp_path)
    env = environment(clock=HandClock(START_MS))
    tp = TopicPartition(name.rpartition("-")[0], 0)
    end = {"plain-0": 60, "txn-0": 54}[name]
    return open_log(
        directory, KAFKA_CONFIG, clean=clean, recovery_point=end if clean else 0, env=env, topic_partition=tp
    )


@pytest.mark.parametrize("name", ["plain-0", "txn-0"])
@pytest.mark.parametrize("clean", [True, False])
def test_directory_of_kafka_is_unchanged_by_opening_and_closing(name: str, clean: bool, tmp_path: Path) -> None:
    """A user who moves from Kafka and back would lose an index, a snapshot or an epoch."""
    log = open_vector(name, tmp_path, clean=clean)
    log.close()
    assert files_of(tmp_path / name) == files_of(VECTORS / name)


@pytest.mark.parametrize("name", ["plain-0", "txn-0"])
def test_indexes_are_rebuilt_as_kafka_wrote_them(name: str, tmp_path: Path) -> None:
    """After a crash, lookups would go to other places than with Kafka's own indexes."""
    directory = copy_vector(name, tmp_path)
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot") or path.name == "leader-epoch-checkpoint":
            path.unlink()
    log = open_log(
        directory, KAFKA_CONFIG, env=environment(clock=HandClock(START_MS)), topic_partition=TopicPartition("x", 0)
    )
    log.close()
    rebuilt, original = files_of(directory), files_of(VECTORS / name)
    assert rebuilt == original


def test_transactions_of_kafka_are_known(tmp_path: Path) -> None:
    """READ_COMMITTED readers would see aborted records, or wait for ended transactions."""
    for clean in (True, False):
        log = open_vector("txn-0", tmp_path / str(clean), clean=clean)
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (54, 54, 51)
        assert log.read(8, 10_000, FetchIsolation.TXN_COMMITTED, True).aborted_transactions == TXN_ABORTED
        assert log.read(0, 10_000, FetchIsolation.TXN_COMMITTED, True).aborted_transactions == [TXN_ABORTED[1]]
        entries = log.producer_state.producers
        assert {e.producer_id: (e.producer_epoch, e.last_sequence, e.last_offset) for e in entries.values()} == {
            1: (0, 27, 53),
            2: (0, 15, 44),
            3: (0, 4, 50),
        }
        assert entries[1].current_txn_first_offset == 51


def test_records_and_timestamps_of_kafka_are_found(tmp_path: Path) -> None:
    """Consumers that seek by offset or by time would start in the wrong place."""
    log = open_vector("plain-0", tmp_path, clean=True)
    assert read_all(log) == [(i, b"value-%d" % i) for i in range(60)]
    for wanted in range(60):
        assert read_all(log, wanted)[0] == (wanted, b"value-%d" % wanted)
        found = log.offset_for_timestamp(START_MS + wanted * 2500 - 7)
        assert found is not None and found == (START_MS + wanted * 2500, wanted, 0)
    assert log.offset_for_timestamp(START_MS + 60 * 2500) is None
    assert log.offset_for_timestamp(-3) == (START_MS + 59 * 2500, 59, 0)


def test_small_files_of_kafka_are_read_and_written_alike() -> None:
    """Checkpoints and identity files would not survive a change of broker."""
    data = (VECTORS / "recovery-point-offset-checkpoint").read_bytes()
    offsets = decode_offsets(data, "checkpoint")
    assert offsets[TopicPartition("txn", 0)] == 54
    assert encode_offsets(offsets) == data
    assert decode_offsets((VECTORS / "log-start-offset-checkpoint").read_bytes(), "x") == {}
    assert decode_checkpoint((VECTORS / "txn-0" / "leader-epoch-checkpoint").read_bytes(), "x") == [["0", "0"]]
    metadata = (VECTORS / "txn-0" / "partition.metadata").read_bytes()
    topic_id = decode_partition_metadata(metadata, "partition.metadata")
    assert uuid_to_text(topic_id) == "uHAmhZDVQjmD7uG5fc8Vbg"
    assert encode_partition_metadata(topic_id) == metadata
    properties = (VECTORS / "meta.properties").read_bytes()
    meta = decode_meta_properties(properties, "meta.properties")
    assert (meta.cluster_id, meta.node_id) == ("MkU3OEVBNTcwNTJENDM2Qg", 1)
    assert encode_meta_properties(meta).splitlines()[2:] == properties.splitlines()[2:]


@pytest.mark.parametrize("name", ["00000000000000000008.snapshot", "00000000000000000054.snapshot"])
def test_snapshots_of_kafka_are_read_and_written_alike(name: str) -> None:
    """Idempotent producers would be treated as new after a restart."""
    data = (VECTORS / "txn-0" / name).read_bytes()
    producers = decode_snapshot(data, name)
    assert [entry.producer_id for entry in producers] == [1, 2, 3][: len(producers)]
    assert encode_snapshot(producers) == data


def test_transaction_index_of_kafka_is_read_and_written_alike() -> None:
    """Aborted transactions would be forgotten by whoever opens the directory next."""
    data = (VECTORS / "txn-0" / "00000000000000000008.txnindex").read_bytes()
    entries = list(decode_entries(data, "txnindex"))
    assert entries == TXN_ABORTED
    assert b"".join(ENTRY.pack(0, *entry) for entry in entries) == data
