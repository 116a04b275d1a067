"""WriteTxnMarkers (API 27): v0-v2.

Ends the transactions of producers in partitions that this broker leads, with a control batch each. Transaction
coordinators send it to the leaders. `kafka-transactions.sh abort` (KIP-664) and `kbroker transactions abort` send it
for a transaction that no coordinator ends any more, such as one that was open when its partition was migrated to
kbroker.

- The epoch of a marker must not be below the producer's; from transaction version 2 on (KIP-890) it must be above it,
  as each transaction has an epoch of its own there: INVALID_PRODUCER_EPOCH.
- A coordinator epoch below that of the producer's last marker: TRANSACTION_COORDINATOR_FENCED.
- A marker without an open transaction is written, too, as in Kafka; nothing else changes then.
- In `__consumer_offsets` the offsets that the transaction committed count from here on, or are forgotten.
- The marker is committed, as a batch with acks=all is, before the answer; after REQUEST_TIMEOUT_MS the answer is
  REQUEST_TIMED_OUT, and the marker stays.

v0 had no flexible fields and Kafka 4 dropped it; v2 adds the transaction version.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError, bare
from kbroker.gate.access import may_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.commit_wait import CommitWait
from kbroker.replication.transaction_markers import Marker
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

    Row = wire.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

REQUEST_TIMEOUT_MS = 30_000


async def handle_write_txn_markers(ctx: RequestContext, request: wire.WriteTxnMarkersRequest) -> Struct:
    """WriteTxnMarkers v0-v2; see the module's docstring."""
    response = wire.WriteTxnMarkersResponse
    writer = ctx.services.markers
    is_allowed = may_cluster(ctx, Operation.ALTER, quietly=True) or may_cluster(ctx, Operation.CLUSTER_ACTION)
    wait = CommitWait()
    pace = ctx.services.slices.pace()
    markers = []
    for each in request.markers:
        await pace
        marker = Marker(
            each.producer_id,
            each.producer_epoch,
            bool(each.transaction_result),
            each.coordinator_epoch,
            each.transaction_version,
        )
        topics = []
        for topic in each.topics:
            await pace
            rows = []
            for index in topic.partition_indexes:
                await pace
                row = response.WritableTxnMarkerPartitionResult(partition_index=index)
                rows.append(row)
                if not is_allowed:
                    row.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    continue
                settled = wait.expect(partial(_settled, row))
                try:
                    writer.write(topic.name, index, marker, settled)
                except KafkaError as error:
                    settled(bare(error))
            if rows:
                topics.append(response.WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
        if topics:
            markers.append(response.WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics))
    await wait.within(REQUEST_TIMEOUT_MS)
    return response(markers=markers)


def _settled(row: Row, error: KafkaError | None) -> None:
    row.error_code = ErrorCode.NONE if error is None else error.code


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.WRITE_TXN_MARKERS, 0, 2, handle_write_txn_markers),)
