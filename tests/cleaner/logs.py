"""Logs with keys, and cleans of them without threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from kbroker._fast.records.record_batch import iterate_batches
from kbroker.config import LogConfig
from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records
from kbroker.records.compression import Codec
from kbroker.storage.cleaner.cleaner import Cleaner, CleanSummary, Ticket
from kbroker.storage.cleaner.cleaner_plan import Candidate, assess
from kbroker.storage.cleaner.cleaner_snapshot import plan_clean, shape_of
from kbroker.storage.cleaner.segment_swap import finish_swap
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import START_MS, UNSYNCED_FILES, append

COMPACT = frozenset({"compact"})
DAY_MS = 86_400_000

Pair = tuple[bytes | None, bytes | None]


class Unthrottled:
    bytes_per_second = math.inf

    def spend(self, size_bytes: int, check: Callable[[], None]) -> None:
        """No bound."""


def config(**settings: object) -> LogConfig:
    values = {
        "cleanup_policy": COMPACT,
        "internal_segment_bytes": 400,
        "index_interval_bytes": 100,
        "file_delete_delay_ms": 0,
        **settings,
    }
    return LogConfig(**values)  # type: ignore[arg-type]


def pairs_batch(
    pairs: Iterable[Pair],
    *,
    timestamp: int = START_MS,
    codec: int = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    builder = RecordBatchBuilder(
        compression=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for at, (key, value) in enumerate(pairs):
        builder.append(key, value, timestamp + at, [("h", b"x")] if at % 3 == 0 else ())
    return builder.build()


def put(log: UnifiedLog, *pairs: Pair, codec: int = Codec.NONE, timestamp: int = START_MS) -> int:
    """Appends one batch; the offset of its first record."""
    return append(log, pairs_batch(pairs, codec=codec, timestamp=timestamp)).first_offset


def candidate(log: UnifiedLog, checkpoint: int | None, now_ms: int) -> Candidate:
    return assess(shape_of(log), log.config, checkpoint, now_ms)


def cleaner(files: FileSystem = UNSYNCED_FILES, *, map_bytes: int = 1 << 20, buffer_bytes: int = 1024) -> Cleaner:
    return Cleaner(files, map_bytes, 0.9, buffer_bytes)


def clean(
    log: UnifiedLog,
    checkpoint: int | None = None,
    *,
    now_ms: int = START_MS,
    worker: Cleaner | None = None,
    files: FileSystem = UNSYNCED_FILES,
    ticket: Ticket | None = None,
) -> CleanSummary | None:
    """One clean up to where the log allows it, every step on this thread; None when there is nothing to clean."""
    finish_swap(log)
    found = candidate(log, checkpoint, now_ms)
    if found.offsets.first_dirty_offset >= found.offsets.first_uncleanable_offset:
        return None
    plan = plan_clean(log, found.offsets, files, now_ms)
    worker = worker or cleaner(files)
    steps = worker.clean_log(log, plan, ticket or Ticket(), Unthrottled())
    outcome: object = None
    while True:
        try:
            job = steps.send(outcome)
        except StopIteration as done:
            summary: CleanSummary = done.value
            return summary
        try:
            outcome = job()
        except BaseException as error:
            steps.throw(error)
            raise AssertionError("a clean went on after an error") from error


def records_of(log: UnifiedLog) -> list[Record]:
    """Every record that the segments hold, in their order."""
    found: list[Record] = []
    for segment in log.local.segments:
        data = Path(segment.path).read_bytes()[: segment.size]
        for info in iterate_batches(data):
            if not info.is_control:
                found.extend(iterate_records(data, info))
    return found


def table_of(records: Iterable[Record]) -> dict[bytes, bytes]:
    """What a reader from the start ends up with."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
