"""WriteTxnMarkers (API 27): v0-v2.

Ends the transactions of producers in partitions that this broker leads, with a control batch each: what the coordinator
of transactions sends to the leaders, and `kafka-transactions.sh abort` (KIP-664) and `kbroker transactions abort` for a
transaction that no coordinator ends any more, such as one that was open when its partition was carried here.

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
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster
from kbroker.gate.authorizer import Operation
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.transaction_markers import Marker
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

REQUEST_TIMEOUT_SECONDS = 30.0
SLICE_SECONDS = 0.005
"""A request may name very many partitions: others have their turn in between."""


async def handle_write_txn_markers(ctx: RequestContext, request: wire.WriteTxnMarkersRequest) -> Struct:
    """WriteTxnMarkers v0-v2; see the module's docstring."""
    response = wire.WriteTxnMarkersResponse
    writer = ctx.services.markers
    is_allowed = may_cluster(ctx, Operation.ALTER) or may_cluster(ctx, Operation.CLUSTER_ACTION)
    unsettled: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()
    slice_end = loop.time() + SLICE_SECONDS
    markers = []
    for each in request.markers:
        marker = Marker(
            each.producer_id,
            each.producer_epoch,
            bool(each.transaction_result),
            each.coordinator_epoch,
            each.transaction_version,
        )
        topics = []
        for topic in each.topics:
            rows = []
            for index in topic.partition_indexes:
                # Until the marker is committed.
                row = response.WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=ErrorCode.REQUEST_TIMED_OUT
                )
                rows.append(row)
                done: asyncio.Future[None] = loop.create_future()
                try:
                    if not is_allowed:
                        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                    writer.write(topic.name, index, marker, partial(_settled, row, done))
                except KafkaError as error:
                    row.error_code = error.code
                    continue
                if not done.done():
                    unsettled.append(done)
                if loop.time() > slice_end:
                    await asyncio.sleep(0)
                    slice_end = loop.time() + SLICE_SECONDS
            if rows:
                topics.append(response.WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
        if topics:
            markers.append(response.WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics))
    if unsettled:
        await asyncio.wait(unsettled, timeout=REQUEST_TIMEOUT_SECONDS)
    return response(markers=markers)


def _settled(
    row: wire.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult,
    done: asyncio.Future[None],
    error: KafkaError | None,
) -> None:
    if not done.done():
        row.error_code = error.code if error is not None else ErrorCode.NONE
        done.set_result(None)


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.WRITE_TXN_MARKERS, 0, 2, handle_write_txn_markers),)
