"""Batches and logs for tests of the storage engine."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

from kbroker._fast.records.record_batch import BatchInfo, read_header
from kbroker.clock import Clock
from kbroker.config import LogConfig
from kbroker.records.batch import RecordBatchBuilder, iterate_records
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_validator import validate_and_analyze
from kbroker.storage.log.log_values import AppendOrigin, AppendResult, FetchData, FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.recovery.log_loader import LoadRequest, load_log
from kbroker.types import TopicPartition

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1"
TP = TopicPartition("orders", 2)
START_MS = 1_700_000_000_000


class HandClock:
    """Time that a test moves by hand."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


class UnsyncedFiles(FileSystem):
    """Real files that skip waiting for the disk: the machine does not fail in this test."""

    def fsync(self, fd: int) -> None:
        """Nothing to wait for."""

    def fsync_directory(self, path: str) -> None:
        """Nothing to wait for."""


UNSYNCED_FILES = UnsyncedFiles()


def environment(files: FileSystem = UNSYNCED_FILES, clock: Clock | None = None, budget: int = 64) -> LogEnvironment:
    return LogEnvironment(files, clock or HandClock(), OpenFiles(budget), lambda _delay_ms, action: action())


def batch(
    values: list[bytes] | None = None,
    *,
    timestamp: int = START_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: int = 0,
) -> bytearray:
    builder = RecordBatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for at, value in enumerate(values if values is not None else [b"value"]):
        builder.append(b"k%d" % at, value, timestamp)
    return builder.build()


def marker(producer_id: int, epoch: int, *, abort: bool, coordinator_epoch: int = 0) -> bytearray:
    kind = ControlType.ABORT if abort else ControlType.COMMIT
    return build_end_transaction(kind, coordinator_epoch, producer_id, epoch, START_MS)


def open_log(
    directory: Path,
    config: LogConfig | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 1 << 60,
    env: LogEnvironment | None = None,
    topic_partition: TopicPartition = TP,
) -> UnifiedLog:
    directory.mkdir(parents=True, exist_ok=True)
    request = LoadRequest(
        str(directory), topic_partition, config or LogConfig(), clean, recovery_point, log_start_offset, high_watermark
    )
    return load_log(request, env or environment())


def append(
    log: UnifiedLog, data: bytearray, *, leader_epoch: int = 0, origin: AppendOrigin | None = None
) -> AppendResult:
    result = log.append_as_leader(data, leader_epoch, origin=origin or AppendOrigin.CLIENT)
    log.maybe_increment_high_watermark(log.log_end_offset)
    return result


def append_detached(log: UnifiedLog, data: bytearray, *, leader_epoch: int = 0) -> AppendResult:
    """As `append`, of a batch that was written to a file of its own, however small it is."""
    with patch("kbroker.storage.log.detached_batch.DETACHED_BYTES", 0):
        analyzed = validate_and_analyze(data, log.config, START_MS)
        analyzed.detached = log.write_detached(analyzed.view)
    assert analyzed.detached is not None
    result = log.append_as_leader(data, leader_epoch, analyzed=analyzed)
    assert result.duplicate or not analyzed.detached.path
    analyzed.detached.discard()
    log.maybe_increment_high_watermark(log.log_end_offset)
    return result


def read_all(log: UnifiedLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record from `start` to the log end, through `read` and its file regions."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, FetchIsolation.LOG_END, True)
        content = region_bytes(data)
        if not content:
            break
        for info in headers(content):
            for record in iterate_records(content[info.position : info.position + info.size_in_bytes]):
                if record.offset >= offset:
                    found.append((record.offset, record.value))
            offset = info.last_offset + 1
    return found


def region_bytes(data: FetchData) -> bytes:
    import os

    if data.records is None:
        return b""
    return os.pread(data.records.fd, data.records.size, data.records.position)


def headers(content: bytes) -> list[BatchInfo]:
    """Headers of the whole batches in `content`."""
    found = []
    at = 0
    while len(content) - at >= 61:
        size = int.from_bytes(content[at + 8 : at + 12]) + 12
        if at + size > len(content):
            break
        found.append(read_header(content, at))
        at += size
    return found


def copy_vector(name: str, target: Path) -> Path:
    return Path(shutil.copytree(VECTORS / name, target / name))
