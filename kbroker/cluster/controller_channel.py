"""What a broker asks the controller of its cluster for itself: ISR changes, producer ids, a controlled shutdown.

Where the controller cannot be reached the error is `NotControllerError`, as when the broker asked answers
NOT_CONTROLLER: the caller retries later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbroker.cluster.client import ClientSettings, NodeError, UnsupportedVersionError
from kbroker.cluster.controller_client import ControllerClient, is_of_no_controller
from kbroker.cluster.requests import BrokerEpoch, IsrChange, PartitionOutcome
from kbroker.errors import ErrorCode, KafkaError, NotControllerError
from kbroker.metadata.image import PartitionImage
from kbroker.metadata.store import ProducerIdBlock
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.client import Transport
    from kbroker.cluster.controller_client import ControllerFinder
    from kbroker.cluster.protocol_version import ProtocolVersion
    from kbroker.metadata.cache import MetadataCache
    from kbroker.protocol.messages import Message

LAST_VERSION_BY_NAME = schema("AlterPartitionRequest").last_version("topics.topic_name")
CREATE_TOPICS_VERSION = 7
PRODUCERS_WAIT_SECONDS = 10.0
"""For ids: less than their clients wait for an answer.  Kafka's brokers tell them at once to ask again."""
LAST_VERSION_WITHOUT_EPOCHS = schema("AlterPartitionRequest").last_version("topics.partitions.new_isr")


class ControllerChannel:
    """The connection to the controller."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        cache: MetadataCache,
        finder: ControllerFinder,
        node_id: int,
        protocol: ProtocolVersion,
        request_seconds: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        self._cache = cache
        self._protocol = protocol
        settings = ClientSettings(client_id=str(node_id), negotiates=True, request_seconds=request_seconds)
        self._client = ControllerClient(loop, transport, finder, settings, rng)

    async def _ask(self, request: Message, version: int, *, seconds: float | None = None) -> Any:
        try:
            answer = await self._client.send(request, version, seconds=seconds)
        except NodeError as error:
            raise NotControllerError(f"the controller cannot be asked: {error}") from error
        if is_of_no_controller(answer):
            self._client.disconnect()
            raise NotControllerError()
        # The answer to a CreateTopics has codes of topics alone.
        code = getattr(answer, "error_code", 0)
        if code:
            raise KafkaError.of(ErrorCode(code))
        return answer

    async def _version(self, api_key: int, at_most: int) -> int:
        try:
            return await self._client.version(api_key, at_most)
        except UnsupportedVersionError as error:
            raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        except NodeError as error:
            raise NotControllerError(f"the controller cannot be reached: {error}") from error

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        """See `Controller.alter_partitions`."""
        request = wire.AlterPartitionRequest
        version = await self._version(ApiKey.ALTER_PARTITION, self._protocol.alter_partition)
        # A leader may know its partition, by LeaderAndIsr, before it hears of the topic.
        ids = {each.partition.topic: each.topic_id for each in changes}
        ids = {name: self._topic_id(name) if known == ZERO_UUID else known for name, known in ids.items()}
        if ZERO_UUID in ids.values():
            version = min(version, LAST_VERSION_BY_NAME)
        topics: dict[str, list[wire.AlterPartitionRequest.PartitionData]] = {}
        for change in changes:
            row = request.PartitionData(
                partition_index=change.partition.partition,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            if version <= LAST_VERSION_WITHOUT_EPOCHS:
                row.new_isr = [node for node, _ in change.isr]
            else:
                # Kafka's brokers say -1 to a ZooKeeper controller, and Kafka's reads no epochs; ours does.
                row.new_isr_with_epochs = [
                    request.BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in change.isr
                ]
            topics.setdefault(change.partition.topic, []).append(row)
        answer = await self._ask(
            request(
                broker_id=broker.node_id,
                broker_epoch=broker.epoch,
                topics=[
                    request.TopicData(topic_name=name, topic_id=ids[name], partitions=rows)
                    for name, rows in topics.items()
                ],
            ),
            version,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        return [
            _outcome(topic.topic_name if version <= LAST_VERSION_BY_NAME else names[topic.topic_id], row)
            for topic in answer.topics
            if version <= LAST_VERSION_BY_NAME or topic.topic_id in names
            for row in topic.partitions
        ]

    def _topic_id(self, name: str) -> bytes:
        topic = self._cache.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        """See `Controller.allocate_producer_ids`."""
        request = wire.AllocateProducerIdsRequest(broker_id=broker.node_id, broker_epoch=broker.epoch)
        version = await self._version(ApiKey.ALLOCATE_PRODUCER_IDS, 0)
        answer = await self._ask(request, version, seconds=PRODUCERS_WAIT_SECONDS)
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)

    async def create_topics(self, request: wire.CreateTopicsRequest) -> wire.CreateTopicsResponse:
        """What the controller answers to a CreateTopics of this broker itself.  NotControllerError."""
        answer = await self._ask(request, await self._version(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION))
        assert isinstance(answer, wire.CreateTopicsResponse)
        return answer

    async def assign_directories(
        self, broker: BrokerEpoch, directories: list[wire.AssignReplicasToDirsRequest.DirectoryData]
    ) -> wire.AssignReplicasToDirsResponse:
        """Tell the controller in which log directories replicas are (KIP-858).  NotControllerError, KafkaError."""
        request = wire.AssignReplicasToDirsRequest(
            broker_id=broker.node_id, broker_epoch=broker.epoch, directories=directories
        )
        answer = await self._ask(request, await self._version(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0))
        assert isinstance(answer, wire.AssignReplicasToDirsResponse)
        return answer

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """See `Controller.controlled_shutdown`.  Raises NotControllerError."""
        request = wire.ControlledShutdownRequest(broker_id=broker.node_id, broker_epoch=broker.epoch)
        try:
            answer = await self._ask(request, self._protocol.controlled_shutdown)
        except KafkaError as error:
            if error.code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._client.disconnect()
                raise NotControllerError() from error
            raise
        return [TopicPartition(row.topic_name, row.partition_index) for row in answer.remaining_partitions]

    def close(self) -> None:
        """Hang up for good."""
        self._client.close()


def _outcome(topic: str, row: wire.AlterPartitionResponse.PartitionData) -> PartitionOutcome:
    name = TopicPartition(topic, row.partition_index)
    if row.error_code:
        return PartitionOutcome(name, error=KafkaError.of(ErrorCode(row.error_code)))
    image = PartitionImage(
        row.partition_index, row.leader_id, row.leader_epoch, (), tuple(row.isr), row.partition_epoch
    )
    return PartitionOutcome(name, image)
