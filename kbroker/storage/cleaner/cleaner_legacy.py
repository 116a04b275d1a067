"""Compaction of messages of the formats before record batches (magic 0 and 1).

What stays of them becomes record batches, as in Kafka since 4.0: one for each message or wrapper, with its codec and
its kind of time, from its first record that stays to its last.  Which records stay is decided by the same rule as for
batches (`_fast/clean/clean`), applied to the batch that the message becomes.  Two things differ:

- a tombstone has no delete horizon yet: it stays, and gets one, while its segment was modified less than
  `delete.retention.ms` before the last segment of the clean part;
- a message that loses all its records is removed even at the end of the cleaned range, where Kafka fails: it has no
  producer sequence to keep, and the next segment's name states its base offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo, read_header, seal
from kbroker._fast.records.record_codec import append_record
from kbroker.records.batch import HEADER, Record, iterate_records
from kbroker.records.compression import compress
from kbroker.records.layout import LOG_OVERHEAD
from kbroker.records.legacy import iterate_stored_records
from kbroker.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from kbroker.storage.cleaner.cleaner_plan import CleanPlan, Source

APPEND_TIME_FLAG = 0x08
DELETE_HORIZON_FLAG = 0x40
LONG_PAST_MS = 0


def tombstone_horizon(plan: CleanPlan, source: Source) -> int | None:
    """The delete horizon of a segment's tombstones: LONG_PAST_MS when they may be removed, None when they are to get
    one."""
    clean = [each.modified_ms for each in plan.sources if each.base_offset < plan.first_dirty_offset]
    stay = source.modified_ms > (clean[-1] - plan.config.delete_retention_ms if clean else 0)
    return None if stay else LONG_PAST_MS


def records_of(view: memoryview, info: BatchInfo) -> list[Record]:
    """The records of a message or wrapper."""
    with view[info.position : info.position + info.size_in_bytes] as message:
        return list(iterate_stored_records(message))


def as_batch(records: list[Record], horizon_ms: int | None = None) -> tuple[memoryview, BatchInfo]:
    """The records encoded as those of a record batch, and its header, as input of `Compaction`."""
    batch = _plain_batch(records, 0, horizon_ms)
    return memoryview(batch)[BATCH_OVERHEAD:], read_header(batch)


def as_record_batch(records: list[Record], info: BatchInfo, changed: bytes | None) -> bytearray | None:
    """The remaining records of a message as a record batch; None when none remains.

    `changed`: what `Compaction` made of the batch of `as_batch`.
    """
    horizon_ms = None
    if changed is not None:
        judged = read_header(changed) if changed else None
        if judged is None or not judged.records_count:
            return None
        kept = {record.offset for record in iterate_records(changed, judged)}
        records = [record for record in records if record.offset in kept]
        horizon_ms = judged.base_timestamp if judged.has_delete_horizon and judged.base_timestamp else None
    batch = _plain_batch(records, info.attributes & APPEND_TIME_FLAG, horizon_ms)
    if not info.compression:
        seal(batch, 0)
        return batch
    packed = batch[:BATCH_OVERHEAD]
    packed += compress(info.compression, memoryview(batch)[BATCH_OVERHEAD:])
    seal(packed, info.compression)
    return packed


def _plain_batch(records: list[Record], attributes: int, horizon_ms: int | None) -> bytearray:
    """An uncompressed batch without a checksum."""
    batch = bytearray(BATCH_OVERHEAD)
    base = records[0].offset
    base_timestamp = records[0].timestamp if horizon_ms is None else horizon_ms
    for record in records:
        append_record(batch, record.timestamp - base_timestamp, record.offset - base, record.key, record.value, ())
    HEADER.pack_into(
        batch,
        0,
        base,
        len(batch) - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC_V2,
        0,
        attributes | (0 if horizon_ms is None else DELETE_HORIZON_FLAG),
        records[-1].offset - base,
        base_timestamp,
        max(record.timestamp for record in records),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(records),
    )
    return batch
