"""`Controller` of a broker in a ZooKeeper cluster: what it serves itself, what the elected one serves, and over what.

While this broker is elected it serves everything.  Otherwise, as in Kafka with ZooKeeper, it refuses requests that
change topics and partitions with NOT_CONTROLLER, and asks the elected broker for what it needs itself (ISRs, producer
ids, its shutdown).  Any broker writes settings, and topics that are made because a client named them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster import topics as plans
from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.creation_complaints import CreationComplaints
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    ReplicaReport,
    TopicOutcome,
)
from kbroker.cluster.resource_configs import ResourceConfigs, warn_of_idle_settings
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.administration import Administration, write_topic
from kbroker.cluster.zookeeper.entity_configs import (
    DEFAULT,
    EntityConfigs,
    entity_path,
    quota_entity,
    quota_text,
    quota_values,
)
from kbroker.cluster.zookeeper.session import ZooKeeper, ZooKeeperError
from kbroker.cluster.zookeeper.term import TermState
from kbroker.cluster.zookeeper.znodes import encode_log_dir_event
from kbroker.config.judgement import without_secrets
from kbroker.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
    again,
    bare,
)
from kbroker.quotas.alteration import EntityAlteration, alter
from kbroker.quotas.rules import CLIENT_KEYS, IP_KEYS, hosts_of
from kbroker.waiting import set_within

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.cluster.controller_channel import ControllerChannel
    from kbroker.cluster.zookeeper.acl_znodes import AclZnodes
    from kbroker.cluster.zookeeper.isr_writer import IsrWriter
    from kbroker.cluster.zookeeper.term import Term
    from kbroker.cluster.zookeeper.token_znodes import TokenZnodes
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.features import FeatureUpdate
    from kbroker.metadata.image import ClusterImage, QuotaEntity, TopicImage
    from kbroker.metadata.security_image import Outcome, SecurityChange
    from kbroker.metadata.store import ProducerIdBlock
    from kbroker.quotas.host_names import HostNames
    from kbroker.quotas.mutation_quota import MutationQuota
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")


class ClusterController(Controller):
    """`term` is this broker's, while it is elected."""

    def __init__(
        self,
        node_id: int,
        zookeeper: ZooKeeper,
        cache: MetadataCache,
        channel: ControllerChannel,
        settings: BrokerSettings,
        configs: EntityConfigs,
        hosts: HostNames,
        slices: Slices,
        isr_writer: IsrWriter | None = None,
        acls: AclZnodes | None = None,
        tokens: TokenZnodes | None = None,
    ) -> None:
        """`isr_writer`: where leaders write ISRs themselves.  `acls`: where there is an authorizer.  `tokens`: where
        there are delegation tokens."""
        self._tokens = tokens
        self._acls = acls
        self._isr_writer = isr_writer
        self._node_id = node_id
        self._zookeeper = zookeeper
        self._cache = cache
        self._channel = channel
        self._settings = settings
        self._configs = configs
        self._hosts = hosts
        self._slices = slices
        self._complaints = CreationComplaints()
        self.term: Term | None = None

    async def ready(self, timeout_ms: int) -> None:
        if self.term is not None:
            await set_within(self.term.has_begun, timeout_ms / 1000)

    def _elected(self) -> Administration:
        term = self.term
        if term is None or term.state is not TermState.ACTIVE:
            raise NotControllerError()
        return Administration(term, self._zookeeper, self._slices)

    # Topics

    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        return await self._elected().create_topics(requests, validate_only, quota)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        return await self._elected().create_partitions(requests, validate_only, quota)

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None = None) -> list[TopicOutcome]:
        return await self._elected().delete_topics(topic_ids, quota)

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """Written by this broker, the controller or not; usable when the controller has given them leaders."""
        image, pace = self._cache.image, self._slices.pace()
        context = plans.TopicContext(
            image, self._settings.config, image.alive_brokers(), plans.CollisionIndex(image.topics)
        )
        outcomes = {}
        for name in dict.fromkeys(names):
            outcome = await plans.attempt(name, plans.plan_topic, plans.default_request(name, context), context, pace)
            if outcome.topic is not None:
                try:
                    await write_topic(self._zookeeper, outcome.topic)
                    logger.info("created topic %s, as a client named it", name)
                except TopicAlreadyExistsError:
                    pass
                outcome = TopicOutcome(name, error=LeaderNotAvailableError())
            elif isinstance(outcome.error, TopicAlreadyExistsError):
                outcome = TopicOutcome(name)
            else:
                self._complaints.tell(name, outcome.error)
            outcomes[name] = outcome
        return outcomes

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is not None:
            return topic
        if not self._cache.image.alive_brokers() or self._cache.image.controller_id < 0:
            raise CoordinatorNotAvailableError()
        outcome = (await self.auto_create_topics([name]))[name]
        if outcome.error is not None and not isinstance(outcome.error, LeaderNotAvailableError):
            raise again(outcome.error)
        raise CoordinatorNotAvailableError()

    # Settings

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        configs = ResourceConfigs(self._settings)
        errors: list[KafkaError | None] = []
        pace = self._slices.pace()
        for alteration in alterations:
            await pace
            try:
                await self._alter_config(configs, alteration, validate_only)
                errors.append(None)
            except KafkaError as error:
                errors.append(bare(error))
        return errors

    async def _alter_config(self, configs: ResourceConfigs, alteration: ConfigAlteration, validate_only: bool) -> None:
        """What else is set stays as ZooKeeper has it: this broker may have yet to hear of what another has written."""
        resource = alteration.resource
        if resource.kind == ConfigResourceType.TOPIC:
            path = f"topics/{resource.name}"
            topic = self._cache.topic(resource.name)
            if topic is not None:
                topic = replace(topic, configs=await self._configs.settings(path))
            settings = dict(configs.topic(topic, alteration).configs)
            warn_of_idle_settings(resource.name, settings)
        elif resource.kind == ConfigResourceType.BROKER:
            path = f"brokers/{resource.name or DEFAULT}"
            settings = dict(configs.of(await self._configs.settings(path), alteration))
        else:
            raise InvalidRequestError(
                "A cluster with ZooKeeper keeps settings of topics and brokers, not of groups and client metrics."
            )
        if not validate_only:
            await self._configs.write(path, settings)
            logger.info("changed the settings of %s to %s", path, without_secrets(settings))

    async def alter_client_quotas(
        self, alterations: Sequence[EntityAlteration], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        await self._hosts.look_up(hosts_of(alteration.entity for alteration in alterations))
        current = dict(self._cache.image.quotas)
        for entity in dict.fromkeys(alteration.entity for alteration in alterations):
            path = entity_path(entity)
            if path and quota_entity(path) == entity:
                current[entity] = quota_values(await self._configs.settings(path))
        outcome = alter(alterations, current, lambda name: bool(self._hosts.addresses_of(name)))
        if not validate_only:
            for entity, values in outcome.changes.items():
                await self._write_quota(entity, values)
        self._hosts.keep(hosts_of(self._cache.image.quotas))
        return outcome.results

    async def alter_security(self, change: SecurityChange[Outcome]) -> Outcome:
        image = self._cache.image.security
        delta, outcome = change.plan(image)
        if delta.scram:
            await self._configs.alter_credentials(delta.scram)
        if delta.tokens and self._tokens is not None:
            await self._tokens.alter(delta.tokens)
        if delta.acls and self._acls is not None:
            await self._acls.alter(delta.acls, image.acls)
        return outcome

    async def _write_quota(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """The znode's other content, such as SCRAM credentials, is kept."""
        path = entity_path(entity)
        others = {
            name: text
            for name, text in (await self._configs.settings(path)).items()
            if name not in CLIENT_KEYS and name not in IP_KEYS
        }
        await self._configs.write(path, {**others, **{name: quota_text(name, each) for name, each in values.items()}})

    # Partitions

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        if self.term is None and broker.node_id == self._node_id:
            if self._isr_writer is not None:
                return await self._isr_writer.alter(changes)
            return await self._channel.alter_partitions(broker, changes)
        return await self._elected().alter_partitions(broker, changes)

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        return await self._elected().elect_leaders(election, partitions)

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        return await self._elected().alter_reassignments(reassignments, allow_replication_factor_change)

    async def report_replicas(self, broker: BrokerEpoch, report: ReplicaReport) -> None:
        """That a log directory has failed; the controller asks which replicas are gone.  Raises KafkaError."""
        if report.offline:
            try:
                await self._zookeeper.create(
                    paths.LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker.node_id), sequential=True
                )
            except ZooKeeperError as error:
                raise KafkaError(f"{paths.LOG_DIR_EVENTS} was not written: {error}") from error

    def image(self) -> ClusterImage:
        self._elected()
        assert self.term is not None
        return self.term.context.image

    # Brokers

    async def unregister_broker(self, node_id: int) -> None:
        """A broker that is gone is not registered: its session is over.  Raises UnsupportedVersionError."""
        raise UnsupportedVersionError()

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        if self.term is None and broker.node_id == self._node_id:
            return await self._channel.controlled_shutdown(broker)
        return await self._elected().controlled_shutdown(broker)

    # The cluster

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        if self.term is None and broker.node_id == self._node_id:
            return await self._channel.allocate_producer_ids(broker)
        return await self._elected().allocate_producer_ids(broker)

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        """A ZooKeeper cluster has no features, as Kafka 3.9 says.  Raises InvalidRequestError."""
        raise InvalidRequestError(
            "Could not apply finalized feature update because the provided feature is not supported."
        )
