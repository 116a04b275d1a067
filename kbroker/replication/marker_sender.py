"""Writes the markers that end transactions wherever a partition is led: here, or over WriteTxnMarkers.

For each other broker one request is under way; what comes meanwhile goes with the next one.  Where the leader cannot be
reached, or is another one by then, the marker's writer gets NOT_LEADER_OR_FOLLOWER, and tries again.

In a ZooKeeper cluster the version follows from the markers; in a KRaft cluster it is negotiated, as by Kafka's brokers,
and the highest names the version of each transaction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.client import NodeError
from kbroker.errors import ErrorCode, KafkaError, NotLeaderOrFollowerError
from kbroker.metadata.image import NO_LEADER
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.storage.log.producer_state import EPOCH_PER_TRANSACTION
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.metadata.cache import MetadataCache
    from kbroker.replication.partition import Settled
    from kbroker.replication.transaction_markers import Marker, MarkerWriter

# A producer epoch for each transaction (KIP-890) is used only where all brokers serve this version of WriteTxnMarkers.
# Without it a marker that comes a second time, late, would end the producer's next transaction.
VERSION_OF_EPOCHS = schema("WriteTxnMarkersRequest").first_version("markers.transaction_version")
# The highest that Kafka 3.9 serves.
VERSION = VERSION_OF_EPOCHS - 1
MOST_IN_A_REQUEST = 1000


class _Queued(NamedTuple):
    partition: TopicPartition
    marker: Marker
    settled: Settled


class MarkerSender:
    """See the module, and `coordinator.transactions.completion.Markers`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        writer: MarkerWriter,
        cache: MetadataCache,
        clients: NodeClients,
        *,
        negotiates: bool = False,
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._writer = writer
        self._cache = cache
        self._clients = clients
        self._negotiates = negotiates
        self._queues: dict[int, list[_Queued]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    def write(self, topic: str, index: int, marker: Marker, settled: Settled) -> None:
        """See `Markers`."""
        leader = self._leader(topic, index)
        if leader == self._node_id:
            self._writer.write(topic, index, marker, settled)
            return
        if leader == NO_LEADER:
            raise NotLeaderOrFollowerError(f"{topic}-{index} has no leader")
        self._queues.setdefault(leader, []).append(_Queued(TopicPartition(topic, index), marker, settled))
        if leader not in self._senders:
            self._senders[leader] = self._loop.create_task(self._send_all(leader))

    def _leader(self, topic: str, index: int) -> int:
        known = self._cache.topic(topic)
        if known is None or index >= len(known.partitions):
            return NO_LEADER
        return known.partitions[index].leader

    async def _send_all(self, leader: int) -> None:
        try:
            while queue := self._queues.pop(leader, None):
                if len(queue) > MOST_IN_A_REQUEST:
                    self._queues[leader] = queue[MOST_IN_A_REQUEST:]
                await self._send(leader, queue[:MOST_IN_A_REQUEST])
        finally:
            del self._senders[leader]

    async def _send(self, leader: int, queued: list[_Queued]) -> None:
        assert leader != self._node_id and 0 < len(queued) <= MOST_IN_A_REQUEST, (leader, len(queued))
        has_epochs = any(each.marker.transaction_version >= EPOCH_PER_TRANSACTION for each in queued)
        version = VERSION_OF_EPOCHS if has_epochs else VERSION
        client = self._clients.of(leader)
        try:
            if self._negotiates:
                await client.connect()
                version = client.version_of(ApiKey.WRITE_TXN_MARKERS, VERSION_OF_EPOCHS)
            answer = await client.send(_request(queued, version), version)
        except NodeError as error:
            for each in queued:
                each.settled(NotLeaderOrFollowerError(str(error)))
            return
        codes = {
            (row.producer_id, topic.name, each.partition_index): each.error_code
            for row in answer.markers
            for topic in row.topics
            for each in topic.partitions
        }
        for each in queued:
            code = codes.get((each.marker.producer_id, *each.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            each.settled(KafkaError.of(ErrorCode(code)) if code else None)

    def close(self) -> None:
        """Send nothing any more; what waits for an answer is left as it is."""
        for task in self._senders.values():
            task.cancel()


def _request(queued: list[_Queued], version: int) -> wire.WriteTxnMarkersRequest:
    request = wire.WriteTxnMarkersRequest
    rows: dict[Marker, dict[str, list[int]]] = {}
    for each in queued:
        topics = rows.setdefault(each.marker, {})
        topics.setdefault(each.partition.topic, []).append(each.partition.partition)
    return request(
        markers=[
            request.WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version if version >= VERSION_OF_EPOCHS else 0,
                topics=[
                    request.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
            )
            for marker, topics in rows.items()
        ]
    )
