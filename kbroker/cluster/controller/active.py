"""The active controller: decides what a cluster's metadata become while its node leads the quorum (KIP-595, KIP-631).

    await controller.lead(log)      this node leads; requests are served from now on
    controller.resign()             it leads no more

Decisions are made over all that is appended to the log, committed or not (`LogWriter`).  What is answered, refusals and
"nothing to do" included, leaves when all that it was decided on is committed: else a client could see what is lost
with the lead.  When that is lost, all that waits fails with NotControllerError, and what becomes of its records is not
known.  An error of the controller's own costs the lead: another node may do better, and what is appended stays whole.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.controller.activation import activation_records
from kbroker.cluster.controller.assignments import Assignments
from kbroker.cluster.controller.broker_configs import broker_config_records, check_broker_name
from kbroker.cluster.controller.brokers import Beat, Brokers
from kbroker.cluster.controller.deciding import DecidingController
from kbroker.cluster.controller.directories import knows_directories, marked
from kbroker.cluster.controller.elections import MOST_ELECTIONS, preferred_elections, unclean_elections
from kbroker.cluster.controller.feature_levels import feature_update_records, kraft_upgrade
from kbroker.cluster.controller.log_writer import LogWriter
from kbroker.cluster.controller.registrations import controller_registration
from kbroker.cluster.controller.sessions import Sessions
from kbroker.cluster.requests import PartitionOutcome
from kbroker.cluster.resource_configs import ResourceConfigs
from kbroker.config.judgement import without_secrets
from kbroker.errors import (
    ErrorCode,
    InvalidUpdateVersionError,
    KafkaError,
    NotControllerError,
    UnsupportedVersionError,
    again,
    bare,
)
from kbroker.metadata.features import KRAFT_VERSION, NO_LEVEL
from kbroker.metadata.metadata_record import metadata_record
from kbroker.metadata.store import PRODUCER_ID_BLOCK_LENGTH, ProducerIdBlock
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.cluster.controller.change_queue import ChangeQueue
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.partition_updates import PartitionUpdates
    from kbroker.cluster.raft.leader_log import LeaderLog
    from kbroker.cluster.requests import (
        BrokerEpoch,
        ConfigAlteration,
        ElectionType,
        IsrChange,
        NewPartitions,
        NewTopic,
        Reassignment,
        ReplicaReport,
        TopicOutcome,
    )
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.features import FeatureUpdate
    from kbroker.metadata.image import BrokerImage, ClusterImage, ConfigResource, QuotaEntity, TopicImage
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.metadata.security_image import Outcome, SecurityChange
    from kbroker.quotas.alteration import EntityAlteration
    from kbroker.quotas.host_names import HostNames
    from kbroker.quotas.mutation_quota import MutationQuota
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

_Answer = TypeVar("_Answer")


class ActiveController(DecidingController):
    """One of a node with the controller role, active or not."""

    __slots__ = ("_brokers", "_committed", "_elected", "_is_alone", "_sessions", "_upgrade_quorum", "error_count")

    _metadata: LogWriter

    def __init__(
        self,
        metadata: ClusterMetadata,
        settings: BrokerSettings,
        node_id: int,
        slices: Slices,
        now: Callable[[], float],
        hosts: HostNames | None = None,
        reserved: Callable[[], Collection[int]] = tuple,
        is_alone: Callable[[], bool] = lambda: False,
        upgrade_quorum: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`metadata`: what is committed.  `now`: seconds of a monotonic clock.  `reserved()`: ids of controllers that
        no broker may have.  `is_alone()`: the cluster is this node, where default factors are cut to one.
        `upgrade_quorum(version)`: has the voters named by the log from now on (KIP-853)."""
        super().__init__(settings, node_id, slices, hosts)
        self._committed = metadata
        self._is_alone = is_alone
        self._elected: LeaderLog | None = None
        self.error_count = 0
        """Errors of its own, each of which has cost the lead."""
        self._upgrade_quorum = upgrade_quorum or _no_upgrade
        self._metadata = LogWriter(slices, self._collisions)
        self._sessions = Sessions(now, settings.config.get("broker.session.timeout.ms") / 1000)
        self._brokers = Brokers(self._metadata, self._sessions, self._config, slices, node_id, reserved)

    # What is shown of it

    @property
    def queue(self) -> ChangeQueue:
        """Its changes, one behind the other."""
        return self._changing

    @property
    def last_offset(self) -> int | None:
        """The last record that decisions stand on, committed or not; None where it is not active."""
        return self._metadata.end_offset - 1 if self._metadata.is_leading else None

    def silences(self) -> dict[int, float]:
        """Seconds since each broker with a session was heard of; none where this controller is not active."""
        return self._sessions.silences() if self._metadata.is_leading else {}

    # The lead

    @property
    def is_active(self) -> bool:
        """Whether requests are served."""
        return self._metadata.is_leading

    async def lead(self, log: LeaderLog, bootstrap: Iterable[MetadataRecord] = ()) -> None:
        """This node leads: be active once all that it has in its log is committed.

        `bootstrap`: what the log of a new cluster begins with.  NotControllerError: the lead was lost before.
        """
        self._elected = log
        async with self._changing:
            await log.committed(log.end_offset)
            committed = self._committed
            image = await marked(committed.recorded, self._slices.pace())
            if self._elected is not log:
                raise NotControllerError()
            self._metadata.begin(log, image, committed.next_producer_id)
            try:
                await self._activate(bootstrap)
            except BaseException:
                if self._elected is log:
                    self.resign()
                raise
        logger.info("this node is the active controller in epoch %d", log.epoch)

    async def _activate(self, bootstrap: Iterable[MetadataRecord]) -> None:
        image, committed = self._metadata.written, self._committed
        self._sessions.begin(image.brokers.values(), committed.applied_offset)
        least = self._settings.config.get("min.insync.replicas")
        batch = self._metadata.batch()
        is_open = committed.is_transaction_open
        await batch.put(activation_records(image, bootstrap, least, is_transaction_open=is_open))
        await self._metadata.append(batch)

    def resign(self) -> None:
        """This node leads no more: what is appended and not committed counts for nothing."""
        if self._metadata.is_leading:
            logger.info("this node is not the active controller any more")
        self._elected = None
        self._metadata.end()

    async def _answered(self, decide: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """What is decided, when all that it was decided on is committed; so are refusals."""
        log, refusal = self._metadata.log, None
        try:
            answer = await decide()
        except NotControllerError:
            raise
        except KafkaError as error:
            refusal = bare(error)
        except Exception as error:
            self._fail(log, error)
            raise KafkaError() from error
        await self._metadata.committed()
        if refusal is not None:
            raise again(refusal)
        return answer

    def _fail(self, log: LeaderLog, error: Exception) -> None:
        logger.critical("the active controller has failed and resigns: please report it", exc_info=error)
        self.error_count += 1
        if self._elected is log:
            self.resign()
        log.resign(f"the active controller has failed: {error!r}")

    # What decisions go by

    def _config(self) -> BrokerConfig:
        return self._settings.config_of(self._metadata.written)

    def _takers(self) -> list[BrokerImage]:
        """Brokers with a directory that takes new replicas, also fenced ones; none that is about to stop."""
        brokers = self._metadata.written.brokers
        return [
            broker
            for _, broker in sorted(brokers.items())
            if not broker.in_controlled_shutdown
            and (not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ()))
        ]

    def _most_replicas(self) -> int | None:
        """In a cluster further brokers may be about to register: a topic has its factor, or is not made."""
        return len(self._metadata.written.brokers) if self._is_alone() else None

    async def _commit(self, updates: PartitionUpdates, *, is_atomic: bool = True) -> None:
        batch = self._metadata.batch()
        await batch.add(await updates.delta_at(self._slices.pace()))
        await self._metadata.append(batch, is_atomic=is_atomic)

    def _check_epoch(self, broker: BrokerEpoch) -> None:
        self._brokers.current(broker.node_id, broker.epoch)

    def image(self) -> ClusterImage:
        return self._committed.image

    # Brokers

    async def register_broker(self, request: wire.BrokerRegistrationRequest) -> wire.BrokerRegistrationResponse:
        """A broker begins a life, or says that it has begun it."""

        async def decide() -> int:
            async with self._changing:
                return await self._brokers.register(request)

        try:
            return wire.BrokerRegistrationResponse(broker_epoch=await self._answered(decide))
        except KafkaError as error:
            return wire.BrokerRegistrationResponse(error_code=error.code)

    async def heartbeat(self, request: wire.BrokerHeartbeatRequest) -> wire.BrokerHeartbeatResponse:
        """A broker says that it is there, and what it wants to be."""

        async def decide() -> Beat:
            self._touch(request)
            async with self._changing:
                return await self._brokers.beat(request)

        try:
            return wire.BrokerHeartbeatResponse(**(await self._answered(decide))._asdict())
        except KafkaError as error:
            return wire.BrokerHeartbeatResponse(error_code=error.code)

    def _touch(self, request: wire.BrokerHeartbeatRequest) -> None:
        """At once: while changes wait for each other, sessions would end."""
        broker = self._brokers.current(request.broker_id, request.broker_epoch)
        self._sessions.touch(broker.node_id, broker.epoch)

    async def assign_directories(self, request: wire.AssignReplicasToDirsRequest) -> wire.AssignReplicasToDirsResponse:
        """A broker says where its replicas are."""

        async def decide() -> wire.AssignReplicasToDirsResponse:
            async with self._changing:
                batch = self._metadata.batch()
                if not knows_directories(batch.image):
                    raise UnsupportedVersionError("Directory assignment is not supported yet.")
                node_id = self._brokers.current(request.broker_id, request.broker_epoch).node_id
                answer = await Assignments(node_id, batch, self._config(), self._slices.pace()).take(request)
                await self._metadata.append(batch, is_atomic=False)
                return answer

        try:
            return await self._answered(decide)
        except KafkaError as error:
            return wire.AssignReplicasToDirsResponse(error_code=error.code)

    async def register_controller(
        self, request: wire.ControllerRegistrationRequest
    ) -> wire.ControllerRegistrationResponse:
        """A controller says where it listens and what it knows."""

        async def decide() -> None:
            async with self._changing:
                batch = self._metadata.batch()
                await batch.put([controller_registration(batch.image, request)])
                await self._metadata.append(batch)

        try:
            await self._answered(decide)
        except KafkaError as error:
            return wire.ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
        return wire.ControllerRegistrationResponse(error_message=None)

    async def unregister_broker(self, node_id: int) -> None:
        async def decide() -> None:
            async with self._changing:
                await self._brokers.unregister(node_id)

        await self._answered(decide)

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        async def decide() -> ProducerIdBlock:
            async with self._changing:
                self._check_epoch(broker)
                block = ProducerIdBlock(self._metadata.next_producer_id, PRODUCER_ID_BLOCK_LENGTH)
                batch = self._metadata.batch()
                record = wire.ProducerIdsRecord(
                    broker_id=broker.node_id,
                    broker_epoch=broker.epoch,
                    next_producer_id=block.first_id + block.length,
                )
                await batch.put([metadata_record(record)])
                await self._metadata.append(batch)
                return block

        return await self._answered(decide)

    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        """Brokers of a quorum say it in heartbeats."""
        raise UnsupportedVersionError()

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """Brokers of a quorum ask for it in heartbeats."""
        raise UnsupportedVersionError()

    # Decisions that every controller makes

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        return await self._answered(partial(super().auto_create_topics, names))

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        return await self._answered(partial(super().ensure_internal_topic, name))

    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        return await self._answered(partial(super().create_topics, requests, validate_only, quota))

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        return await self._answered(partial(super().create_partitions, requests, validate_only, quota))

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None = None) -> list[TopicOutcome]:
        return await self._answered(partial(super().delete_topics, topic_ids, quota))

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        return await self._answered(partial(super().alter_configs, alterations, validate_only))

    async def alter_client_quotas(
        self, alterations: Sequence[EntityAlteration], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        return await self._answered(partial(super().alter_client_quotas, alterations, validate_only))

    async def alter_security(self, change: SecurityChange[Outcome]) -> Outcome:
        return await self._answered(partial(super().alter_security, change))

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        outcomes = await self._answered(partial(super().alter_partitions, broker, changes))
        return [_seen_by(broker.node_id, each) for each in outcomes]

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        return await self._answered(partial(super().elect_leaders, election, partitions))

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        change = super().alter_reassignments
        return await self._answered(partial(change, reassignments, allow_replication_factor_change))

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        async def decide() -> None:
            async with self._changing:
                batch = self._metadata.batch()
                least = self._settings.config.get("min.insync.replicas")
                voters = self._committed.voter_ids
                image = self._with_kraft_version(batch.image)
                raised = kraft_upgrade(image, updates)
                records = feature_update_records(image, updates, self._node_id, voters, least)
                if validate_only:
                    return
                if raised is not None:
                    await self._upgrade_quorum(raised)
                    records.append(metadata_record(wire.NoOpRecord()))
                await batch.put(records)
                await self._metadata.append(batch)
                logger.info("changed the levels of features to %s", self._metadata.written.features.levels())

        await self._answered(decide)

    def _with_kraft_version(self, image: ClusterImage) -> ClusterImage:
        """The image with the level that voters have by now, which no record of this controller says."""
        known = self._committed.recorded.features.chosen.get(KRAFT_VERSION, NO_LEVEL)
        chosen = {**image.features.chosen, KRAFT_VERSION: known}
        return replace(image, features=replace(image.features, chosen=chosen))

    def _check_resource(self, resource: ConfigResource) -> None:
        if resource.kind == ConfigResourceType.BROKER:
            check_broker_name(self._metadata.written, resource.name)

    async def _store_broker_configs(
        self, alteration: ConfigAlteration, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        batch = self._metadata.batch()
        await batch.put(broker_config_records(batch.image, alteration, before, after))
        await self._metadata.append(batch)
        described = ResourceConfigs.described(alteration.resource)
        logger.info("changed the settings of %s to %s", described, without_secrets(after))

    # By itself

    @property
    def term(self) -> int | None:
        """The epoch in which this node is the active controller; None where it is not."""
        return self._metadata.log.epoch if self._metadata.is_leading else None

    async def all_committed(self) -> None:
        """Wait until all that is appended by now is committed.  NotControllerError."""
        await self._metadata.committed()

    async def write_no_op(self) -> None:
        """Append a record that says nothing.  NotControllerError."""
        async with self._changing:
            batch = self._metadata.batch()
            await batch.put([metadata_record(wire.NoOpRecord())])
            await self._metadata.append(batch)

    async def fence_stale(self) -> bool:
        """Fence one broker whose session is over; whether there is another one.  NotControllerError."""
        async with self._changing:
            return await self._brokers.fence_stale()

    async def balance(self) -> bool:
        """Have preferred replicas lead; whether there may be more of them.  NotControllerError."""
        return await self._elect(preferred_elections)

    async def elect_uncleanly(self) -> bool:
        """Give partitions a leader whose topic allows any; whether there may be more.  NotControllerError."""
        return await self._elect(unclean_elections)

    async def _elect(
        self, elections: Callable[[ClusterImage, BrokerConfig, Pace], Awaitable[PartitionUpdates]]
    ) -> bool:
        async with self._changing:
            updates = await elections(self._metadata.written, self._config(), self._slices.pace())
            await self._commit(updates, is_atomic=False)
        return len(updates) == MOST_ELECTIONS


def _seen_by(node_id: int, outcome: PartitionOutcome) -> PartitionOutcome:
    """The leader that proposed an ISR leads no more where that has ended a reassignment: it has to look anew."""
    if outcome.image is None or outcome.image.leader == node_id:
        return outcome
    return PartitionOutcome(outcome.partition, error=KafkaError.of(ErrorCode.NEW_LEADER_ELECTED))


async def _no_upgrade(version: int) -> None:
    raise InvalidUpdateVersionError(f"Invalid update version {version} for feature {KRAFT_VERSION}.")
