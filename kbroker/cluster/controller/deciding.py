"""The one set of decisions of a controller: over an image, what a request changes of it, as a delta.

    async with changing:
        delta = decided(writer.written)
        await writer.change(delta)

Decisions are made over `written`, the image with all that is decided, whether others see it yet or not.  What stores a
change and when it is seen is the writer's: a single node's store (`LocalController`) or the log of a quorum
(`ActiveController`).  One change is under way at a time, from its checks to its write.  A request for several topics is
one change over those that pass their checks; the others have their own errors.  Plans are made in slices of the loop's
time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbroker.cluster import partitions as decisions
from kbroker.cluster import reassignments as moves
from kbroker.cluster import topics as plans
from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.controller.change_queue import ChangeQueue
from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.mutations import charged
from kbroker.cluster.partition_updates import (
    NOT_TO_ELECT,
    NOT_TO_REASSIGN,
    Absence,
    PartitionContexts,
    PartitionUpdates,
)
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    TopicOutcome,
)
from kbroker.cluster.resource_configs import ResourceConfigs, warn_of_idle_settings
from kbroker.config.judgement import without_secrets
from kbroker.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    KafkaError,
    PolicyViolationError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    again,
    bare,
)
from kbroker.log_output import RateLimitedLog
from kbroker.metadata.features import FeatureUpdate, update_features
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    MetadataDelta,
    PartitionImage,
    QuotaEntity,
    TopicChange,
    TopicImage,
    is_same_topic,
)
from kbroker.metadata.store import MetadataStoreError
from kbroker.quotas.alteration import Alterations, EntityAlteration
from kbroker.quotas.host_names import HostNames
from kbroker.quotas.mutation_quota import MutationQuota
from kbroker.quotas.rules import hosts_of
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.security_image import Outcome, SecurityChange

logger = logging.getLogger("kbroker.cluster")

_Request = TypeVar("_Request")


class Writer(Protocol):
    """Where decisions go: see the module."""

    @property
    def written(self) -> ClusterImage:
        """The image with all that is decided."""

    async def change(self, delta: MetadataDelta, *, by_topic: bool = False) -> None:
        """Write a delta to `written`.  `by_topic`: what changes of topics may be seen in several images."""


class DecidingController(Controller):
    """See the module."""

    __slots__ = ("_changing", "_collisions", "_complaints", "_hosts", "_metadata", "_node_id", "_settings", "_slices")

    _metadata: Writer

    def __init__(self, settings: BrokerSettings, node_id: int, slices: Slices, hosts: HostNames | None = None) -> None:
        """The subclass sets `_metadata`."""
        self._hosts = hosts or HostNames()
        self._complaints = RateLimitedLog(logger)
        self._settings = settings
        self._node_id = node_id
        self._slices = slices
        self._changing = ChangeQueue()
        self._collisions = plans.CollisionIndex(())

    def _config(self) -> BrokerConfig:
        """The settings that decisions go by: the static ones, and what is set for brokers at run time."""
        return self._settings.config

    def _takers(self) -> list[BrokerImage]:
        """The brokers that take new partitions."""
        return self._metadata.written.alive_brokers()

    def _most_replicas(self) -> int | None:
        """To how many replicas default factors are cut; None: to no number."""
        return None

    # Topics

    def _context(self) -> plans.TopicContext:
        image = self._metadata.written
        return plans.TopicContext(image, self._config(), self._takers(), self._collisions, self._most_replicas())

    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        async with self._changing:
            return await self._create(requests, validate_only, quota)

    async def _create(
        self, requests: Sequence[NewTopic], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        pace, context = self._slices.pace(), self._context()
        counts, unique = await plans.named_once(requests, pace)
        plans.check_total(unique, context)
        outcomes = [await plans.attempt(request.name, plans.plan_topic, request, context, pace) for request in unique]
        outcomes = charged(outcomes, quota, lambda topic: len(topic.partitions))
        created = [outcome.topic for outcome in outcomes if outcome.topic is not None]
        if created and not validate_only:
            await self._metadata.change(MetadataDelta(created=tuple(created)))
        return outcomes + await plans.duplicates(counts, pace)

    async def auto_create_topics(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        async with self._changing:
            context = self._context()
            requests = [plans.default_request(name, context) for name in dict.fromkeys(names)]
            outcomes = {outcome.name: outcome for outcome in await self._create(requests)}
        for outcome in outcomes.values():
            # Clients that come together ask for the same topic, and one that gets none asks many times a second.
            if outcome.error is not None and not isinstance(outcome.error, TopicAlreadyExistsError):
                self._complaints.warning(
                    outcome.name, "cannot create topic %r automatically: %s", outcome.name, outcome.error
                )
        return outcomes

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        topic = self.image().topics.get(name)
        if topic is None:
            async with self._changing:
                topic = self._metadata.written.topics.get(name)
                if topic is None:
                    outcome = (await self._create([plans.default_request(name, self._context())]))[0]
                    if outcome.topic is None:
                        raise again(outcome.error or KafkaError())
                    topic = outcome.topic
        return topic

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, quota: MutationQuota | None = None
    ) -> list[TopicOutcome]:
        async with self._changing:
            pace, context = self._slices.pace(), self._context()
            counts, unique = await plans.named_once(requests, pace)
            outcomes = [await plans.attempt(each.name, plans.plan_growth, each, context, pace) for each in unique]
            outcomes = charged(
                outcomes, quota, lambda new: len(new.partitions) - len(context.existing(new.name).partitions)
            )
            grown = [outcome.topic for outcome in outcomes if outcome.topic is not None]
            changes = tuple(TopicChange(context.existing(new.name), new) for new in grown)
            count = sum(len(new.partitions) - len(old.partitions) for old, new in changes)
            if count > plans.MAX_PARTITIONS_PER_REQUEST:
                raise PolicyViolationError(plans.TOO_MANY_PARTITIONS)
            if changes and not validate_only:
                await self._metadata.change(MetadataDelta(changed=changes), by_topic=True)
        return await plans.duplicates(counts, pace) + outcomes

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None = None) -> list[TopicOutcome]:
        async with self._changing:
            pace = self._slices.pace()
            found: dict[bytes, TopicImage] = {}
            outcomes: list[TopicOutcome] = []
            for topic_id in topic_ids:
                await pace
                topic = self._metadata.written.topics_by_id.get(topic_id)
                if topic is None or topic_id in found:
                    unknown = UnknownTopicIdError("This server does not host this topic ID.")
                    outcomes.append(TopicOutcome("", error=unknown))
                    continue
                (outcome,) = charged([TopicOutcome(topic.name, topic)], quota, lambda topic: len(topic.partitions))
                if outcome.error is None:
                    found[topic_id] = topic
                outcomes.append(outcome)
            if found:
                await self._metadata.change(MetadataDelta(deleted=tuple(found.values())))
        return outcomes

    # Settings

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        configs = ResourceConfigs(self._settings)
        errors: list[KafkaError | None] = [None] * len(alterations)
        topics: dict[str, TopicImage] = {}
        others: dict[ConfigResource, Mapping[str, str]] = {}
        async with self._changing:
            pace = self._slices.pace()
            for index, alteration in enumerate(alterations):
                await pace
                resource = alteration.resource
                try:
                    if resource.kind == ConfigResourceType.TOPIC:
                        old = self._metadata.written.topics.get(resource.name)
                        new = configs.topic(old, alteration)
                        if old is not None and new.configs != old.configs:
                            topics[resource.name] = new
                        continue
                    own = self._metadata.written.configs.get(resource, {})
                    self._check_resource(resource)
                    settings = configs.of(own, alteration)
                    if validate_only:
                        continue
                    if resource.kind == ConfigResourceType.BROKER:
                        # At once: those of all brokers and of one are judged together.
                        await self._store_broker_configs(alteration, own, settings)
                    elif settings != own:
                        others[resource] = settings
                except KafkaError as error:
                    errors[index] = bare(error)
            if topics and not validate_only:
                failed = await _failure(self._store_topic_configs(topics))
                errors = [
                    known or (failed if _is_topic(each) else None)
                    for each, known in zip(alterations, errors, strict=True)
                ]
            if others:
                failed = await _failure(self._store_configs(others))
                errors = [
                    known or (failed if each.resource in others else None)
                    for each, known in zip(alterations, errors, strict=True)
                ]
        return errors

    def _check_resource(self, resource: ConfigResource) -> None:
        """Kafka's error where a resource other than a topic can have no settings."""

    async def _store_broker_configs(
        self, alteration: ConfigAlteration, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        if after != before:
            await self._store_configs({alteration.resource: after})

    async def _store_configs(self, changed: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """All resources in one transaction."""
        await self._metadata.change(MetadataDelta(configs=changed))
        for resource, settings in changed.items():
            described = ResourceConfigs.described(resource)
            logger.info("changed the settings of %s to %s", described, without_secrets(settings))

    async def _store_topic_configs(self, topics: Mapping[str, TopicImage]) -> None:
        """All topics of a request in one transaction."""
        known = self._metadata.written.topics
        changes = tuple(TopicChange(known[name], new) for name, new in topics.items())
        await self._metadata.change(MetadataDelta(changed=changes), by_topic=True)

    async def alter_client_quotas(
        self, alterations: Sequence[EntityAlteration], validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError | None]:
        await self._hosts.look_up(hosts_of(alteration.entity for alteration in alterations))
        async with self._changing:
            pace = self._slices.pace()
            outcome = Alterations(self._metadata.written.quotas, lambda name: bool(self._hosts.addresses_of(name)))
            for each in alterations:
                await pace
                outcome.take(each)
            if outcome.changes and not validate_only:
                await self._metadata.change(MetadataDelta(quotas=outcome.changes))
                logger.info("altered the quotas of %d entities", len(outcome.changes))
            self._hosts.keep(hosts_of(self._metadata.written.quotas))
        return outcome.results

    async def alter_security(self, change: SecurityChange[Outcome]) -> Outcome:
        async with self._changing:
            delta, outcome = change.plan(self._metadata.written.security)
            if not delta.is_empty():
                await self._metadata.change(MetadataDelta(security=delta))
        return outcome

    # Partitions

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        def take(partition: PartitionImage, context: decisions.PartitionContext, change: IsrChange) -> PartitionImage:
            topic_id = self._metadata.written.topics[change.partition.topic].topic_id
            if not is_same_topic(change.topic_id, topic_id):
                raise UnknownTopicIdError()
            return decisions.take_isr(partition, broker.node_id, change, context, epochs)

        async with self._changing:
            epochs = {each.node_id: each.epoch for each in self._metadata.written.brokers.values()}
            self._check_epoch(broker)
            asked = [(change.partition, change) for change in changes]
            return await self._change_partitions(asked, take, is_atomic=False)

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        async with self._changing:
            image = self._metadata.written
            every = partitions
            if every is None:
                every = [
                    TopicPartition(topic.name, each.partition)
                    for topic in image.topics.values()
                    for each in topic.partitions
                ]
            outcomes = await self._change_partitions(
                [(each, election) for each in every],
                lambda partition, context, kind: decisions.elect(partition, kind, context),
                NOT_TO_ELECT,
                is_atomic=False,
            )
        if partitions is None:
            return [outcome for outcome in outcomes if not isinstance(outcome.error, ElectionNotNeededError)]
        return outcomes

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool = True
    ) -> list[PartitionOutcome]:
        def move(
            partition: PartitionImage, context: decisions.PartitionContext, request: Reassignment
        ) -> PartitionImage:
            if request.replicas is None:
                return moves.call_off(partition, context)
            return moves.reassign(partition, request.replicas, registered, context, allow_replication_factor_change)

        async with self._changing:
            registered = frozenset(self._metadata.written.brokers)
            return await self._change_partitions([(each.partition, each) for each in reassignments], move)

    async def _change_partitions(
        self,
        requests: Sequence[tuple[TopicPartition, _Request]],
        decide: Callable[[PartitionImage, decisions.PartitionContext, _Request], PartitionImage],
        absence: Absence = NOT_TO_REASSIGN,
        *,
        is_atomic: bool = True,
    ) -> list[PartitionOutcome]:
        """One transaction over the partitions that can be changed; the others have their errors."""
        pace = self._slices.pace()
        image = self._metadata.written
        updates = PartitionUpdates(image)
        contexts = PartitionContexts(image, self._config())
        outcomes = []
        for name, request in requests:
            await pace
            try:
                partition = updates.existing(name, absence)
                context = contexts.of(image.topics[name.topic])
                changed = decide(partition, context, request)
            except KafkaError as error:
                outcomes.append(PartitionOutcome(name, error=bare(error)))
                continue
            updates.put(name, changed)
            outcomes.append(PartitionOutcome(name, changed))
        await self._commit(updates, is_atomic=is_atomic)
        return outcomes

    async def _commit(self, updates: PartitionUpdates, *, is_atomic: bool = True) -> None:
        """`is_atomic`: all or none of it counts, also where the writer could write it in parts."""
        if updates:
            await self._metadata.change(updates.delta())

    # Brokers

    def _check_epoch(self, broker: BrokerEpoch) -> None:
        registered = self._metadata.written.brokers.get(broker.node_id)
        if registered is None:
            raise BrokerIdNotRegisteredError()
        if registered.epoch != broker.epoch:
            raise StaleBrokerEpochError()

    # The cluster

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> None:
        async with self._changing:
            features = self._metadata.written.features
            changed = update_features(features, updates, self._node_id)
            if changed is features or validate_only:
                return
            await self._metadata.change(MetadataDelta(features=changed))
            logger.info("changed the levels of features to %s", changed.levels())


def log_topics(delta: MetadataDelta) -> None:
    """What an operator is to find in the log of topics that have come, changed or gone."""
    for topic in delta.created:
        logger.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))
        warn_of_idle_settings(topic.name, topic.configs)
    for topic in delta.deleted:
        logger.info("deleted topic %s", topic.name)
    for old, new in delta.changed:
        if (more := len(new.partitions) - len(old.partitions)) > 0:
            logger.info("topic %s of %d partitions has %d more", new.name, len(old.partitions), more)
        if new.configs != old.configs:
            logger.info("changed the configs of topic %s to %s", new.name, dict(new.configs))
            changed = {key: text for key, text in new.configs.items() if old.configs.get(key) != text}
            warn_of_idle_settings(new.name, changed)


def _is_topic(alteration: ConfigAlteration) -> bool:
    return alteration.resource.kind == ConfigResourceType.TOPIC


async def _failure(change: Awaitable[None]) -> MetadataStoreError | None:
    """The store's error where it fails."""
    try:
        await change
    except MetadataStoreError as error:
        return bare(error)
    return None
