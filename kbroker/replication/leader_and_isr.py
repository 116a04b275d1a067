"""What a controller tells this broker to lead, to follow and to stop: LeaderAndIsr, StopReplica, UpdateMetadata.

A request of a controller that was deposed, or for an earlier life of this broker, is refused whole:

    controller epoch below the largest seen    STALE_CONTROLLER_EPOCH
    broker epoch below this broker's           STALE_BROKER_EPOCH     (-1 says that the sender has none)

Of one partition:

    leader epoch not above the known one       STALE_CONTROLLER_EPOCH: said before; controllers repeat themselves; but
                                               the id of a topic that had none may come in the same epoch
    its log is lost with its disk              KAFKA_STORAGE_ERROR: the controller takes the replica for offline; so it
                                               is where the replica is not new and in no directory that works, while
                                               one has failed, and where its disk is full (`handover`)
    this broker is not among the replicas      UNKNOWN_TOPIC_OR_PARTITION
    the log here is of another topic           INCONSISTENT_TOPIC_ID

A replica here that other brokers have in a later leader epoch, as UpdateMetadata says, is not served any more: it went
while this broker stood still, or the StopReplica for it was lost with its controller.  Kafka's brokers go on as its
leader for good.  Its log stays until it is set aside (`stray_replicas`).

Logs are there before the answer.  Everything runs on the loop; between two partitions other work may come, so each one
is judged and taken in one go.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.cluster.metadata_updates import ConfigsOf, MetadataUpdate, metadata_delta
from kbroker.cluster.protocol_version import EPOCH_DURING_DELETE
from kbroker.errors import ErrorCode, KafkaError, StaleBrokerEpochError, StaleControllerEpochError
from kbroker.metadata.image import PartitionImage, TopicImage, is_same_topic
from kbroker.metadata.topic_names import is_internal
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import Endpoint
    from kbroker.replication.fetchers import Fetchers
    from kbroker.replication.partition import Partition
    from kbroker.replication.replica_roles import ReplicaRoles

logger = logging.getLogger("kbroker.replication")

NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Sender:
    """The head of each of the requests."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A partition of a LeaderAndIsr request; a topic id of zeros is not known.  `is_new`: it has no log yet."""

    topic: str
    topic_id: bytes
    image: PartitionImage
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaStop:
    """A partition of a StopReplica request."""

    partition: TopicPartition
    leader_epoch: LeaderEpoch
    delete: bool


class ControllerRequests:
    """Carries them out.  `broker_epoch()` is this broker's by now; `configs_of(topic)` the settings of a topic."""

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        replicas: ReplicaRoles,
        fetchers: Fetchers,
        broker_epoch: Callable[[], int],
        configs_of: ConfigsOf,
        prepare: Callable[[Mapping[str, bytes]], Awaitable[None]],
    ) -> None:
        """`prepare(topics)`, ids by name, gets to know their settings, which `configs_of` then has."""
        self._node_id = node_id
        self._cache = cache
        self._replicas = replicas
        self._fetchers = fetchers
        self._broker_epoch = broker_epoch
        self._configs_of = configs_of
        self._prepare = prepare
        self.controller_epoch = -1

    def _check(self, sender: Sender) -> None:
        if sender.broker_epoch != NO_BROKER_EPOCH and sender.broker_epoch < self._broker_epoch():
            raise StaleBrokerEpochError()
        if sender.controller_epoch < self.controller_epoch:
            logger.warning(
                "a request of controller %d in epoch %d is refused: it was deposed, epoch %d was seen",
                sender.controller_id,
                sender.controller_epoch,
                self.controller_epoch,
            )
            raise StaleControllerEpochError()
        self.controller_epoch = sender.controller_epoch

    # LeaderAndIsr

    async def leader_and_isr(
        self, sender: Sender, states: Sequence[ReplicaState], leaders: Mapping[int, Endpoint], pace: Pace | None = None
    ) -> list[ErrorCode]:
        """An error code for each partition, in order.  Raises the error of the whole request."""
        self._check(sender)
        self._fetchers.note_leaders(leaders)
        await self._prepare({state.topic: state.topic_id for state in states})
        self._check(sender)
        codes = []
        for state in states:
            if pace is not None:
                await pace
            try:
                self._take(state)
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
        return codes

    def _take(self, state: ReplicaState) -> None:
        image = state.image
        name = TopicPartition(state.topic, image.partition)
        replicas = self._replicas
        if replicas.is_offline(name) or name in replicas.given_up:
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR)
        known = replicas.hosted(name)
        if known is None and not state.is_new and replicas.may_lie_elsewhere(name):
            # Made anew it would be empty, and might lead.
            replicas.lose(name)
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR)
        if known is not None:
            if not is_same_topic(known.topic_id, state.topic_id):
                raise KafkaError.of(ErrorCode.INCONSISTENT_TOPIC_ID)
            learns_id = known.topic_id == ZERO_UUID != state.topic_id
            if image.leader_epoch < known.leader_epoch or (image.leader_epoch == known.leader_epoch and not learns_id):
                raise StaleControllerEpochError()
            if learns_id:
                self._learn_id(known, state)
            if image.leader_epoch == known.leader_epoch:
                return
        if self._node_id not in image.replicas:
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # Before anything else changes: no answer to a fetch of the old epoch may be appended.
        self._fetchers.forget(name)
        topic = TopicImage(
            state.topic, state.topic_id, (image,), is_internal(state.topic), self._configs_of(state.topic)
        )
        partition = replicas.become_replica(topic, image)
        if image.leader != self._node_id and image.leader >= 0:
            self._fetchers.follow(partition)

    def _learn_id(self, known: Partition, state: ReplicaState) -> None:
        """The controller has given a topic an id that had none, as a cluster came to know ids."""
        assert known.topic_id == ZERO_UUID != state.topic_id, (str(known), known.topic_id, state.topic_id)
        known.log.assign_topic_id(state.topic_id)
        assert known.log.topic_id == state.topic_id, (str(known), known.log.topic_id, state.topic_id)
        known.topic_id = state.topic_id
        self._replicas.names[state.topic_id] = state.topic
        if known.topic_partition in self._replicas.followed:
            # Sessions know partitions by their ids.
            self._fetchers.forget(known.topic_partition)
            if known.leader_id >= 0:
                self._fetchers.follow(known)

    # StopReplica

    async def stop_replicas(
        self, sender: Sender, stops: Sequence[ReplicaStop], pace: Pace | None = None
    ) -> list[ErrorCode]:
        """An error code for each partition, in order.  Raises the error of the whole request."""
        self._check(sender)
        codes = []
        for stop in stops:
            if pace is not None:
                await pace
            try:
                self._stop(stop)
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
        return codes

    def _stop(self, stop: ReplicaStop) -> None:
        if self._replicas.is_offline(stop.partition):
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR)
        known = self._replicas.hosted(stop.partition)
        has_epoch = stop.leader_epoch not in (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)
        if known is not None and has_epoch and stop.leader_epoch < known.leader_epoch:
            raise KafkaError.of(ErrorCode.FENCED_LEADER_EPOCH)
        self._fetchers.forget(stop.partition)
        self._replicas.drop(stop.partition, delete=stop.delete)

    # UpdateMetadata

    async def update_metadata(self, sender: Sender, update: MetadataUpdate, pace: Pace | None = None) -> None:
        """Publish what the controller says of the cluster.  Raises the error of the request."""
        self._check(sender)
        await self._prepare(dict(update.topics.keys()))
        # Another controller may have spoken meanwhile.
        self._check(sender)
        delta = metadata_delta(self._cache.image, update, self._configs_of)
        if not delta.is_empty():
            self._cache.apply(delta)
        left = []
        for (topic, topic_id), partitions in update.topics.items():
            for image in partitions:
                if pace is not None:
                    await pace
                if self._node_id not in image.replicas:
                    name = TopicPartition(topic, image.partition)
                    if self._leave_to_others(name, topic_id, LeaderEpoch(image.leader_epoch)):
                        left.append(name)
        if left:
            text = "%d replicas are on other brokers by now, and are not served here any more, %s first"
            logger.warning(text, len(left), left[0])

    def _leave_to_others(self, name: TopicPartition, topic_id: bytes, leader_epoch: LeaderEpoch) -> bool:
        known = self._replicas.hosted(name)
        if known is None or known.leader_epoch >= leader_epoch or not is_same_topic(known.topic_id, topic_id):
            return False
        self._fetchers.forget(name)
        self._replicas.drop(name, delete=False)
        return True
