"""Lives of brokers as an active controller decides them: registration, heartbeats, fencing, leaving (KIP-631, KIP-841).

    FENCED      leads nothing, is in no ISR.  Unfenced when it asks for that and knows its own registration
    UNFENCED    leads and is in sync.  Fenced when it asks, or when its session is over
    LEAVING     asked to stop while it led something: others lead.  It may stop when all others know that

Each of them changes what partitions have, in one batch with the record of the broker.  The methods that decide are
called under the controller's lock; what they raise goes to the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.controller.directories import knows_directories
from kbroker.cluster.controller.registrations import check_registration, registration_record
from kbroker.cluster.partition_updates import PartitionContexts, PartitionUpdates
from kbroker.cluster.partitions import change, replica_failed
from kbroker.cluster.replica_reports import with_broker, without_broker
from kbroker.errors import BrokerIdNotRegisteredError, StaleBrokerEpochError
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from kbroker.metadata.image import BrokerImage, BrokersImage, ClusterImage, MetadataDelta, PartitionImage
from kbroker.metadata.image_records import CORDONED_FROM
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker._fast.base.slices import Slices
    from kbroker.cluster.controller.log_writer import Batch, LogWriter
    from kbroker.cluster.controller.sessions import Sessions
    from kbroker.config import BrokerConfig
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.schemas import wire

logger = logging.getLogger("kbroker.cluster")


class Beat(NamedTuple):
    """What a broker that has sent a heartbeat is answered."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False


class Brokers:
    """`config()`: the settings that decisions go by.  `own_id`: of this controller.  `reserved()`: ids that no broker
    may have, since controllers of other processes do."""

    def __init__(
        self,
        writer: LogWriter,
        sessions: Sessions,
        config: Callable[[], BrokerConfig],
        slices: Slices,
        own_id: int,
        reserved: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._own_id = own_id
        self._writer = writer
        self._sessions = sessions
        self._config = config
        self._slices = slices
        self._reserved = reserved

    def current(self, node_id: int, epoch: int) -> BrokerImage:
        """A broker in the epoch that it is registered with.  StaleBrokerEpochError."""
        broker = self._writer.written.brokers.get(node_id)
        if broker is None or broker.epoch != epoch:
            raise StaleBrokerEpochError()
        return broker

    # Registration

    async def register(self, request: wire.BrokerRegistrationRequest) -> int:
        """Take a broker in; its epoch.  The same incarnation keeps the one that it has."""
        batch, node_id = self._writer.batch(), request.broker_id
        known = batch.image.brokers.get(node_id)
        is_new_life = known is None or known.incarnation_id != request.incarnation_id
        # A broker of the controller's id is in the controller's process: the process of its life before is gone.
        may_live = known is not None and node_id != self._own_id
        has_session = known is not None and may_live and self._sessions.has(node_id, known.epoch)
        check_registration(batch.image, request, is_duplicate=is_new_life and has_session, reserved=self._reserved())
        if is_new_life:
            is_clean = known is not None and request.previous_broker_epoch == known.epoch
            await self._end_life(batch, node_id, is_clean=is_clean)
        elif known is not None:
            # Kafka leaves its replicas there as they are; no heartbeat would say again that they are gone.
            await self._lose(batch, node_id, set(known.log_dirs) - set(request.log_dirs))
        epochs = []

        def record(offset: int) -> MetadataRecord:
            kept = None if is_new_life else known
            epochs.append(offset if kept is None else kept.epoch)
            return registration_record(batch.image, request, epochs[0], kept)

        await self._writer.append(batch, record, is_atomic=False)
        self._sessions.registered(node_id, self._writer.end_offset - 1, is_new_life=is_new_life)
        logger.info("broker %d has registered, epoch %d", node_id, epochs[0])
        return epochs[0]

    async def _end_life(self, batch: Batch, node_id: int, *, is_clean: bool) -> None:
        """The life before leads nothing.  One that may have lost records is in no ELR, either."""
        image = batch.image
        brokers = dict(image.brokers)
        if node_id in brokers:
            brokers[node_id] = replace(brokers[node_id], is_fenced=True)
        if is_clean or not image.features.level(ELIGIBLE_LEADER_REPLICAS):
            updates = await without_broker(image, self._config(), node_id, brokers, self._slices.pace())
        else:
            pace, updates = self._slices.pace(), PartitionUpdates(image)
            contexts = PartitionContexts(replace(image, brokers=brokers), self._config())
            for topic in image.topics.values():
                await pace
                for each in topic.partitions:
                    if node_id in each.isr or node_id in each.elr:
                        left = change(each, contexts.of(topic), unclean=(node_id,))
                        updates.put(TopicPartition(topic.name, each.partition), left)
        await batch.add(await updates.delta_at(self._slices.pace()))

    async def unregister(self, node_id: int) -> None:
        """Forget a broker.  BrokerIdNotRegisteredError."""
        batch = self._writer.batch()
        if node_id not in batch.image.brokers:
            raise BrokerIdNotRegisteredError(f"Broker ID {node_id} is not currently registered")
        left = {each: broker for each, broker in batch.image.brokers.items() if each != node_id}
        await self._leave(batch, node_id, left)
        await batch.add(_brokers(batch.image, left))
        await self._writer.append(batch, is_atomic=False)
        self._sessions.forget(node_id)
        logger.info("broker %d is unregistered", node_id)

    # Heartbeats

    async def beat(self, request: wire.BrokerHeartbeatRequest) -> Beat:
        """What becomes of a broker by its heartbeat.  StaleBrokerEpochError."""
        broker = self.current(request.broker_id, request.broker_epoch)
        batch = self._writer.batch()
        beat, is_moved = await self._answer(request, broker, batch)
        self._sessions.applied(broker.node_id, request.current_metadata_offset)
        await self._take_directories(request, batch)
        await self._writer.append(batch, is_atomic=False)
        if is_moved:
            self._sessions.leaves(broker.node_id, self._writer.end_offset - 1)
        elif beat.is_fenced:
            self._sessions.stays(broker.node_id)
        return beat

    async def _answer(
        self, request: wire.BrokerHeartbeatRequest, broker: BrokerImage, batch: Batch
    ) -> tuple[Beat, bool]:
        """The answer, and whether the broker's leaders are on their way to others since this heartbeat."""
        node_id, sessions = broker.node_id, self._sessions
        is_caught_up = sessions.is_caught_up(node_id, request.current_metadata_offset)
        if broker.is_fenced:
            unfences = is_caught_up and not request.want_shut_down and not request.want_fence
            if unfences:
                await self._unfence(batch, broker)
            return Beat(is_caught_up, not unfences, request.want_shut_down), False
        if broker.in_controlled_shutdown and not sessions.is_leaving(node_id):
            # It has begun to leave under another controller: others have to know all of the log by now.
            sessions.leaves(node_id, self._writer.end_offset - 1)
        leads = await self._leads(batch.image, node_id)
        if sessions.is_leaving(node_id):
            if leads or not sessions.others_know(node_id, batch.image):
                return Beat(is_caught_up, is_fenced=False), False
        elif not request.want_fence:
            if not request.want_shut_down:
                return Beat(is_caught_up, is_fenced=False), False
            if leads:
                await self._begin_leaving(batch, broker)
                return Beat(is_caught_up, is_fenced=False), True
        await self._fence(batch, node_id)
        may_go = request.want_shut_down or sessions.is_leaving(node_id)
        return Beat(is_caught_up, is_fenced=True, should_shut_down=may_go), False

    async def _leads(self, image: ClusterImage, node_id: int) -> bool:
        pace = self._slices.pace()
        for topic in image.topics.values():
            if any(each.leader == node_id for each in topic.partitions):
                return True
            await pace
        return False

    async def _leave(self, batch: Batch, node_id: int, left: Mapping[int, BrokerImage]) -> None:
        updates = await without_broker(batch.image, self._config(), node_id, left, self._slices.pace())
        await batch.add(await updates.delta_at(self._slices.pace()))

    async def _fence(self, batch: Batch, node_id: int) -> None:
        fenced = replace(batch.image.brokers[node_id], is_fenced=True)
        left = {**batch.image.brokers, node_id: fenced}
        await self._leave(batch, node_id, left)
        await batch.add(_brokers(batch.image, left))
        logger.info("broker %d is fenced", node_id)

    async def _unfence(self, batch: Batch, broker: BrokerImage) -> None:
        node_id = broker.node_id
        await batch.add(_brokers(batch.image, {**batch.image.brokers, node_id: replace(broker, is_fenced=False)}))
        updates = PartitionUpdates(batch.image)
        await with_broker(batch.image, self._config(), node_id, updates, self._slices.pace())
        await batch.add(await updates.delta_at(self._slices.pace()))
        logger.info("broker %d is unfenced", node_id)

    async def _begin_leaving(self, batch: Batch, broker: BrokerImage) -> None:
        node_id = broker.node_id
        leaving = {**batch.image.brokers, node_id: replace(broker, in_controlled_shutdown=True)}
        await batch.add(_brokers(batch.image, leaving))
        await self._leave(batch, node_id, leaving)
        logger.info("broker %d is about to stop: others lead", node_id)

    async def _take_directories(self, request: wire.BrokerHeartbeatRequest, batch: Batch) -> None:
        """Directories that have failed, and those that take no new replicas."""
        broker = batch.image.brokers[request.broker_id]
        lost = set(request.offline_log_dirs) & set(broker.log_dirs)
        if lost and knows_directories(batch.image):
            await self._lose(batch, broker.node_id, lost)
            left = tuple(each for each in broker.log_dirs if each not in lost)
            if left:
                changed = replace(broker, log_dirs=left)
                await batch.add(_brokers(batch.image, {**batch.image.brokers, broker.node_id: changed}))
            logger.warning("broker %d has lost %d of its log directories", broker.node_id, len(lost))
        broker = batch.image.brokers[request.broker_id]
        cordoned = None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs)
        knows_cordoned = batch.image.features.level(METADATA_VERSION) >= CORDONED_FROM
        if cordoned is not None and cordoned != broker.cordoned_log_dirs and knows_cordoned:
            changed = replace(broker, cordoned_log_dirs=cordoned)
            await batch.add(_brokers(batch.image, {**batch.image.brokers, broker.node_id: changed}))

    async def _lose(self, batch: Batch, node_id: int, lost: set[bytes]) -> None:
        """Replicas in these directories lead nothing and are in no ISR."""
        image, pace = batch.image, self._slices.pace()
        updates, contexts = PartitionUpdates(image), PartitionContexts(image, self._config())
        for topic in image.topics.values():
            await pace
            for each in topic.partitions:
                if _directory(each, node_id) in lost:
                    name = TopicPartition(topic.name, each.partition)
                    updates.put(name, replica_failed(each, node_id, contexts.of(topic)))
        await batch.add(await updates.delta_at(self._slices.pace()))

    # Sessions

    async def fence_stale(self) -> bool:
        """Fence the one broker that was silent for the longest time, if that is more than a session; whether another
        one is to be fenced, too."""
        image, stale = self._writer.written, self._sessions.take_stale()
        if stale is not None:
            node_id, epoch = stale
            broker = image.brokers.get(node_id)
            if broker is not None and broker.epoch == epoch and not broker.is_fenced:
                logger.warning("broker %d was silent for %g s", node_id, self._sessions.seconds)
                batch = self._writer.batch()
                await self._fence(batch, node_id)
                await self._writer.append(batch, is_atomic=False)
                self._sessions.stays(node_id)
        return self._sessions.has_stale()


def _brokers(image: ClusterImage, brokers: Mapping[int, BrokerImage]) -> MetadataDelta:
    return MetadataDelta(brokers=BrokersImage(brokers, image.controller_id))


def _directory(partition: PartitionImage, node_id: int) -> bytes | None:
    """In which directory a broker has its replica of a partition."""
    if node_id not in partition.replicas or not partition.directories:
        return None
    return partition.directories[partition.replicas.index(node_id)]
