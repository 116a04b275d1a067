"""Brokers say in which log directories their replicas are: what that changes (AssignReplicasToDirs, KIP-858)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster.controller.directories import directories_by_replica, works
from kbroker.cluster.partition_updates import PartitionContexts, PartitionUpdates
from kbroker.cluster.partitions import change
from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.controller.log_writer import Batch
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import PartitionImage


class Assignments:
    """What one request of a broker makes of partitions.  Replicas that it has in a directory that does not work leave
    their ISR in a second step."""

    def __init__(self, node_id: int, batch: Batch, config: BrokerConfig, pace: Pace) -> None:
        self._node_id = node_id
        self._batch = batch
        self._config = config
        self._pace = pace
        self._contexts = PartitionContexts(batch.image, config)
        self._updates = PartitionUpdates(batch.image)
        self._offline: list[TopicPartition] = []

    async def take(self, request: wire.AssignReplicasToDirsRequest) -> wire.AssignReplicasToDirsResponse:
        """Put the records into the batch, and give the answer."""
        answer = wire.AssignReplicasToDirsResponse
        made = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                rows = []
                for each in topic.partitions:
                    await self._pace
                    code = self._assign(directory.id, topic.topic_id, each.partition_index)
                    rows.append(answer.PartitionData(partition_index=each.partition_index, error_code=code))
                topics.append(answer.TopicData(topic_id=topic.topic_id, partitions=rows))
            made.append(answer.DirectoryData(id=directory.id, topics=topics))
        await self._batch.add(await self._updates.delta_at(self._pace))
        await self._leave()
        return answer(directories=made)

    def _assign(self, directory: bytes, topic_id: bytes, number: int) -> ErrorCode:
        image = self._batch.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = TopicPartition(topic.name, number)
        old = self._updates.get(name)
        if old is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._node_id not in old.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # An election goes by the directories of before this request.
        self._updates.put(name, self._placed(change(old, self._contexts.of(topic)), old, directory))
        if not works(image.brokers[self._node_id], directory):
            self._offline.append(name)
        return ErrorCode.NONE

    def _placed(self, new: PartitionImage, old: PartitionImage, directory: bytes) -> PartitionImage:
        # The change may have ended a reassignment.
        known = directories_by_replica(old) | {self._node_id: directory}
        directories = tuple(known[each] for each in new.replicas)
        if directories == new.directories:
            return new
        return replace(new, directories=directories, partition_epoch=old.partition_epoch + 1)

    async def _leave(self) -> None:
        image = self._batch.image
        updates, contexts = PartitionUpdates(image), PartitionContexts(image, self._config)
        for name in dict.fromkeys(self._offline):
            await self._pace
            each = updates.get(name)
            assert each is not None
            isr = [member for member in each.isr if member != self._node_id]
            updates.put(name, change(each, contexts.of(image.topics[name.topic]), isr=isr))
        await self._batch.add(await updates.delta_at(self._pace))
