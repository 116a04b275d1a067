"""DeleteRecords (API 21): v0-v2.

Moves the start of partitions up to an offset; -1 stands for the high watermark.  Records below are at once gone for
every reader.  Segments that lie wholly below are deleted, others once they lie wholly below a later start.

- Past the high watermark, or negative but -1: OFFSET_OUT_OF_RANGE.  Below the start: nothing changes, no error.
- A topic that is only compacted: POLICY_VIOLATION, as that would delete the only value of a key.  Internal topics:
  INVALID_TOPIC_EXCEPTION.
- A partition named twice in one request: the last offset counts.
- The new starts are in the checkpoint, durably, when the answer leaves: a crash brings nothing back.  (Kafka writes
  it once a minute.)
- The answer waits until the in-sync replicas have deleted the records as well; REQUEST_TIMED_OUT after `timeout_ms`.

v1 only changed throttling; v2 is the first flexible version.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import (
    InvalidTopicError,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    PolicyViolationError,
)
from kbroker.gate.access import require_topic
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import is_internal
from kbroker.protocol.api import ApiKey
from kbroker.replication.commit_wait import CommitWait
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import NO_OFFSET, Offset

if TYPE_CHECKING:
    Row = wire.DeleteRecordsResponse.DeleteRecordsPartitionResult
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.replication.partition import Partition

logger = logging.getLogger("kbroker.handlers")

HIGH_WATERMARK = -1


async def handle_delete_records(ctx: RequestContext, request: wire.DeleteRecordsRequest) -> Struct:
    """DeleteRecords v0-v2; see the module's docstring."""
    response = wire.DeleteRecordsResponse
    pace = ctx.services.slices.pace()
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        await pace
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            await pace
            offsets[partition.partition_index] = partition.offset
    topics = []
    done = []
    for name, offsets in wanted.items():
        await pace
        rows = []
        for index, offset in offsets.items():
            await pace
            row = response.DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET)
            rows.append(row)
            try:
                require_topic(ctx, Operation.DELETE, name)
                row.low_watermark = _delete(ctx.services, name, index, offset)
                done.append(row)
            except KafkaError as error:
                row.error_code = error.code
        topics.append(response.DeleteRecordsTopicResult(name=name, partitions=rows))
    if done:
        await _make_durable(ctx.services, done)
        await _wait_for_replicas(ctx.services, topics, request.timeout_ms)
    return response(topics=topics)


def _delete(services: Services, name: str, index: int, offset: int) -> int:
    partition: Partition = services.replica_manager.partition(name, index)
    if is_internal(name):
        raise InvalidTopicError(f"Cannot delete records of internal topic {name}.")
    log = partition.log
    if log.config.compact and not log.config.delete:
        raise PolicyViolationError(f"The records of {name} go by compaction alone: its cleanup.policy is compact.")
    target = log.high_watermark if offset == HIGH_WATERMARK else Offset(offset)
    if target < 0:
        raise OffsetOutOfRangeError(f"The offset {offset} for partition {log.topic_partition} is not valid")
    if log.delete_records_before(target):
        logger.info("deleted the records of %s below offset %d", log.topic_partition, target)
    return int(log.log_start_offset)


async def _wait_for_replicas(
    services: Services, topics: list[wire.DeleteRecordsResponse.DeleteRecordsTopicResult], timeout_ms: int
) -> None:
    """Waits until all replicas that are alive have deleted the records, too; rows still waiting when the time is up get
    REQUEST_TIMED_OUT."""
    wait = CommitWait(services.replica_manager.purgatory.deletions)
    for topic in topics:
        for row in topic.partitions:
            partition = services.replica_manager.topics.get(topic.name, {}).get(row.partition_index)
            if row.error_code or partition is None or partition.low_watermark >= row.low_watermark:
                continue
            partition.wait_for_deletion(Offset(row.low_watermark), wait.expect(partial(_deleted, partition, row)))
    await wait.within(timeout_ms)


def _deleted(partition: Partition, row: Row, error: KafkaError | None) -> None:
    if error is not None:
        row.error_code, row.low_watermark = error.code, partition.low_watermark


async def _make_durable(services: Services, rows: list[Row]) -> None:
    writes = [
        asyncio.shield(asyncio.wrap_future(future)) for future in services.log_manager.checkpoints.save_log_starts()
    ]
    if any(await asyncio.gather(*writes)):
        logger.error("deleted records may come back after a crash: their checkpoint was not written")
        for row in rows:
            row.low_watermark, row.error_code = NO_OFFSET, KafkaStorageError().code


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.DELETE_RECORDS, 0, 2, handle_delete_records),)
