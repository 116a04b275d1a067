"""WriteTxnMarkers (API 27): v0-v2.

Ends the transactions of producers in partitions that this broker leads, with a control batch each: what the coordinator
of transactions sends to the leaders, and `kafka-transactions.sh abort` (KIP-664) and `kbroker transactions abort` for a
transaction that nobody ends any more, such as one that was open when its partition was carried here.

- The epoch of a marker must not be below the producer's; from transaction version 2 on (KIP-890) it must be above it,
  as each transaction has an epoch of its own there: INVALID_PRODUCER_EPOCH.
- A coordinator epoch below that of the producer's last marker: TRANSACTION_COORDINATOR_FENCED.
- A marker without an open transaction is written, too, as in Kafka; nothing else changes then.
- In `__consumer_offsets` the offsets that the transaction committed count from here on, or are forgotten.
- The marker is committed, as a batch with acks=all is, before the answer; after REQUEST_TIMEOUT_SECONDS the answer is
  REQUEST_TIMED_OUT, and the marker stays.

v0 had no flexible fields and Kafka 4 dropped it; v2 adds the transaction version.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.schemas import wire
from kbroker.storage.log.log_values import AppendOrigin

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.replication.partition import Partition

logger = logging.getLogger("kbroker.handlers")

REQUEST_TIMEOUT_SECONDS = 30.0
SLICE_SECONDS = 0.005
"""A request may name very many partitions: others have their turn in between."""


async def handle_write_txn_markers(ctx: RequestContext, request: wire.WriteTxnMarkersRequest) -> Struct:
    """WriteTxnMarkers v0-v2; see the module's docstring."""
    response = wire.WriteTxnMarkersResponse
    services = ctx.services
    unsettled: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()
    slice_end = loop.time() + SLICE_SECONDS
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            rows = []
            for index in topic.partition_indexes:
                row = response.WritableTxnMarkerPartitionResult(partition_index=index)
                rows.append(row)
                try:
                    partition = services.replica_manager.partition(topic.name, index)
                    last_offset = _end_transaction(services, partition, marker)
                except KafkaError as error:
                    row.error_code = error.code
                    continue
                _wait_for_commit(services, partition, last_offset, marker, row, unsettled)
                if loop.time() > slice_end:
                    await asyncio.sleep(0)
                    slice_end = loop.time() + SLICE_SECONDS
            if rows:
                topics.append(response.WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
        if topics:
            markers.append(response.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    if unsettled:
        await asyncio.wait(unsettled, timeout=REQUEST_TIMEOUT_SECONDS)
    return response(markers=markers)


def _end_transaction(
    services: Services, partition: Partition, marker: wire.WriteTxnMarkersRequest.WritableTxnMarker
) -> int:
    """Appends the marker; its offset."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise InvalidRequestError("a marker needs the id and the epoch of a producer")
    partition.check_in_sync()
    if partition.topic == GROUP_METADATA_TOPIC:
        services.group_coordinator.check_partition(partition.index)
    log = partition.log
    log.producer_state.check_final_epoch(
        marker.producer_id, marker.producer_epoch, marker.transaction_version, log.log_end_offset
    )
    control_type = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
    batch = build_end_transaction(
        control_type, marker.coordinator_epoch, marker.producer_id, marker.producer_epoch, services.clock.now_ms()
    )
    result = services.replica_manager.append(partition, batch, origin=AppendOrigin.COORDINATOR)
    logger.info(
        "%s: wrote a marker at offset %d: %s of producer %d, epoch %d",
        partition,
        result.last_offset,
        control_type.name,
        marker.producer_id,
        marker.producer_epoch,
    )
    return int(result.last_offset)


def _wait_for_commit(
    services: Services,
    partition: Partition,
    last_offset: int,
    marker: wire.WriteTxnMarkersRequest.WritableTxnMarker,
    row: wire.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult,
    unsettled: list[asyncio.Future[None]],
) -> None:
    """Until the marker is committed the row says REQUEST_TIMED_OUT; the transaction's offsets are decided with it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    row.error_code = ErrorCode.REQUEST_TIMED_OUT

    def settled(error: KafkaError | None) -> None:
        if error is None and partition.topic == GROUP_METADATA_TOPIC:
            services.group_coordinator.end_transaction(
                partition.index, marker.producer_id, bool(marker.transaction_result)
            )
        if not done.done():
            row.error_code = error.code if error is not None else ErrorCode.NONE
            done.set_result(None)

    if partition.is_acknowledged(last_offset, by_all=True):
        settled(None)
    else:
        partition.wait(last_offset, True, settled)
        unsettled.append(done)


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.WRITE_TXN_MARKERS, 0, 2, handle_write_txn_markers),)
