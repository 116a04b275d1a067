"""Creates, grows, alters and deletes topics: Kafka's checks in Kafka's order and words (ReplicationControlManager).

A change goes, in this order, to the store (durable), to the image (visible) and to the cache's subscribers (logs made
or dropped), all before the method returns.  A request for several topics is one transaction over those that pass their
checks; the others have their own errors.  When the store fails, nothing has changed and the error is raised.

As in Kafka, a new name is checked against the topics that exist, not against others of the same request.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from kbroker.config import validate_topic_config
from kbroker.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kbroker.metadata import topic_names
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.metadata.internal_topics import internal_topic
from kbroker.metadata.placement import check_assignment, new_partition, place
from kbroker.metadata.store import MetadataStore
from kbroker.metadata.topic_request import DEFAULT, NewPartitions, NewTopic, TopicOutcome
from kbroker.types import random_uuid

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.metadata")

_Request = TypeVar("_Request", NewTopic, NewPartitions, tuple[str, Mapping[str, str | None]])

MAX_PARTITIONS_PER_REQUEST = 10_000
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


class TopicManager:
    """The only writer of topics on this node."""

    __slots__ = ("_cache", "_collisions", "_config", "_store", "all_cordoned")

    def __init__(self, config: BrokerConfig, cache: MetadataCache, store: MetadataStore) -> None:
        self._config = config
        self._cache = cache
        self._store = store
        self._collisions: dict[str, set[str]] = {}
        self._index_names(cache.image.topics, ())
        self.all_cordoned: Callable[[], bool] = lambda: False
        cache.subscribe(self._on_change)

    def _takers(self) -> Sequence[BrokerImage]:
        """The brokers that take new partitions: a single node, unless all its log directories are cordoned."""
        return [] if self.all_cordoned() else self._cache.image.alive_brokers()

    # Creating

    def create(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[TopicOutcome]:
        """Create topics, or only say what would come of it.

        Outcomes are in the order of the request; names that the request repeats come last, once each.
        PolicyViolationError when the request asks for too many partitions in all.
        """
        counts = Counter(request.name for request in requests)
        unique = [request for request in requests if counts[request.name] == 1]
        self._check_total(unique)
        outcomes = [self._attempt(request.name, self._plan_topic, request) for request in unique]
        created = tuple(outcome.topic for outcome in outcomes if outcome.topic is not None)
        if created and not validate_only:
            self._store.create_topics(created)
            self._publish(MetadataDelta(created=created))
            for topic in created:
                logger.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))
        return outcomes + _duplicates(counts)

    def auto_create(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """Create the topics that clients named, with the broker's defaults or, for internal ones, their own rules."""
        requests = [self._default_request(name) for name in dict.fromkeys(names)]
        outcomes = {outcome.name: outcome for outcome in self.create(requests)}
        for outcome in outcomes.values():
            if outcome.error is not None:
                logger.warning("cannot create topic %r automatically: %s", outcome.name, outcome.error)
        return outcomes

    def ensure_internal(self, name: str) -> TopicImage:
        """The internal topic `name`, made now if need be.  Raises what its creation fails with."""
        topic = self._cache.topic(name)
        if topic is None:
            outcome = self.create([self._default_request(name)])[0]
            if outcome.topic is None:
                raise outcome.error or KafkaError()
            topic = outcome.topic
        return topic

    def _default_request(self, name: str) -> NewTopic:
        if not topic_names.is_internal(name):
            return NewTopic(name)
        spec = internal_topic(name, self._config, max(1, len(self._cache.image.alive_brokers())))
        return NewTopic(name, spec.num_partitions, spec.replication_factor, configs=dict(spec.configs))

    def _check_total(self, requests: Iterable[NewTopic]) -> None:
        total = 0
        for request in requests:
            if request.assignments:
                total += len(request.assignments)
            else:
                total += self._config.get("num.partitions") if request.num_partitions < 1 else request.num_partitions
            if total > MAX_PARTITIONS_PER_REQUEST:
                raise PolicyViolationError(TOO_MANY_PARTITIONS)

    def _plan_topic(self, request: NewTopic) -> TopicImage:
        name = request.name
        self._check_name(name)
        validate_topic_config(request.configs)
        topic_id = random_uuid()
        configs = MappingProxyType({key: value for key, value in request.configs.items() if value is not None})
        partitions = self._assigned(request) if request.assignments else self._placed(request)
        return TopicImage(name, topic_id, partitions, topic_names.is_internal(name), configs)

    def _check_name(self, name: str) -> None:
        if name == topic_names.CLUSTER_METADATA_TOPIC:
            raise InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
        topic_names.validate(name)
        if self._cache.topic(name) is not None:
            raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
        if topic_names.has_collision_characters(name):
            others = self._collisions.get(topic_names.collision_key(name))
            if others:
                raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {min(others)}")

    def _assigned(self, request: NewTopic) -> tuple[PartitionImage, ...]:
        if request.replication_factor != DEFAULT:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if request.num_partitions != DEFAULT:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        registered, alive = _broker_ids(self._cache.image)
        partitions: dict[int, PartitionImage] = {}
        replication_factor: int | None = None
        for number, replicas in request.assignments:
            if number in partitions:
                raise InvalidReplicaAssignmentError(
                    f"Found multiple manual partition assignments for partition {number}"
                )
            check_assignment(replicas, registered, replication_factor)
            replication_factor = len(replicas)
            partitions[number] = _living(number, replicas, alive)
        if set(partitions) != set(range(len(partitions))):
            raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
        return tuple(partitions[number] for number in range(len(partitions)))

    def _placed(self, request: NewTopic) -> tuple[PartitionImage, ...]:
        if request.replication_factor < DEFAULT or request.replication_factor == 0:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if request.num_partitions < DEFAULT or request.num_partitions == 0:
            raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
        brokers = self._cache.image.alive_brokers()
        replication_factor = request.replication_factor
        if replication_factor == DEFAULT:
            # Kafka fails here when the default is more than there are brokers; a single node should just work.
            replication_factor = max(1, min(self._config.get("default.replication.factor"), len(brokers)))
        count = self._config.get("num.partitions") if request.num_partitions == DEFAULT else request.num_partitions
        placed = place(self._takers(), count, replication_factor, start=len(self._cache.image.topics))
        _, alive = _broker_ids(self._cache.image)
        return tuple(new_partition(number, replicas, alive) for number, replicas in enumerate(placed))

    # Growing

    def create_partitions(self, requests: Sequence[NewPartitions], validate_only: bool = False) -> list[TopicOutcome]:
        """Add partitions to topics.  Names that the request repeats come first, once each, then the others."""
        counts = Counter(request.name for request in requests)
        unique = [request for request in requests if counts[request.name] == 1]
        outcomes = [self._attempt(request.name, self._plan_growth, request) for request in unique]
        changes = tuple(
            TopicChange(self._existing(outcome.name), outcome.topic)
            for outcome in outcomes
            if outcome.topic is not None
        )
        if sum(len(new.partitions) - len(old.partitions) for old, new in changes) > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(TOO_MANY_PARTITIONS)
        if changes and not validate_only:
            self._store.create_partitions(
                [(new.topic_id, new.partitions[len(old.partitions) :]) for old, new in changes]
            )
            self._publish(MetadataDelta(changed=changes))
            for old, new in changes:
                logger.info(
                    "grew topic %s from %d to %d partitions", new.name, len(old.partitions), len(new.partitions)
                )
        return _duplicates(counts) + outcomes

    def _plan_growth(self, request: NewPartitions) -> TopicImage:
        topic = self._existing(request.name)
        current = len(topic.partitions)
        if request.count == current:
            raise InvalidPartitionsError(f"Topic already has {current} partition(s).")
        if request.count < current:
            raise InvalidPartitionsError(
                f"The topic {request.name} currently has {current} partition(s); "
                f"{request.count} would not be an increase."
            )
        added = request.count - current
        if added > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(TOO_MANY_PARTITIONS)
        image = self._cache.image
        registered, alive = _broker_ids(image)
        if request.assignments is None:
            placed = place(self._takers(), added, topic.replication_factor, start=current)
            new = [new_partition(current + i, replicas, alive) for i, replicas in enumerate(placed)]
        else:
            if len(request.assignments) != added:
                raise InvalidReplicaAssignmentError(
                    f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} "
                    "assignment(s) were specified."
                )
            for replicas in request.assignments:
                check_assignment(replicas, registered, topic.replication_factor)
            new = [_living(current + i, replicas, alive) for i, replicas in enumerate(request.assignments)]
        return _with(topic, partitions=(*topic.partitions, *new))

    # Altering and deleting

    def replace_configs(self, name: str, configs: Mapping[str, str | None], validate_only: bool = False) -> TopicImage:
        """Set all configs of a topic at once.  The topic as it is then, or would be."""
        outcome = self.replace_configs_of([(name, configs)], validate_only)[0]
        if outcome.topic is None:
            raise outcome.error or KafkaError()
        return outcome.topic

    def replace_configs_of(
        self, requests: Sequence[tuple[str, Mapping[str, str | None]]], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Set all configs of each topic, named once each.  Those that pass their checks change in one transaction."""
        outcomes = [self._attempt(request[0], self._plan_configs, request) for request in requests]
        changes = tuple(
            TopicChange(self._existing(outcome.name), outcome.topic)
            for outcome in outcomes
            if outcome.topic is not None and outcome.topic.configs != self._existing(outcome.name).configs
        )
        if changes and not validate_only:
            self._store.alter_topic_configs([(new.topic_id, new.configs) for _, new in changes])
            self._publish(MetadataDelta(changed=changes))
            for _, new in changes:
                logger.info("changed the configs of topic %s to %s", new.name, dict(new.configs))
        return outcomes

    def _plan_configs(self, request: tuple[str, Mapping[str, str | None]]) -> TopicImage:
        name, configs = request
        validate_topic_config(configs)
        topic = self._cache.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
        kept = MappingProxyType({key: value for key, value in configs.items() if value is not None})
        return _with(topic, configs=kept)

    def delete(self, topic_ids: Sequence[bytes]) -> list[TopicOutcome]:
        """Delete topics by id, in one transaction.  An unknown id has UNKNOWN_TOPIC_ID."""
        found: dict[bytes, TopicImage] = {}
        outcomes: list[TopicOutcome] = []
        for topic_id in topic_ids:
            topic = self._cache.topic_by_id(topic_id)
            if topic is None or topic_id in found:
                outcomes.append(TopicOutcome("", error=UnknownTopicIdError("This server does not host this topic ID.")))
                continue
            found[topic_id] = topic
            outcomes.append(TopicOutcome(topic.name, topic))
        if found:
            self._store.delete_topics(list(found))
            self._publish(MetadataDelta(deleted=tuple(found.values())))
            for topic in found.values():
                logger.info("deleted topic %s", topic.name)
        return outcomes

    # Shared

    def _existing(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError
        return topic

    @staticmethod
    def _attempt(name: str, plan: Callable[[_Request], TopicImage], request: _Request) -> TopicOutcome:
        try:
            return TopicOutcome(name, topic=plan(request))
        except KafkaError as error:
            return TopicOutcome(name, error=error)

    def _publish(self, delta: MetadataDelta) -> None:
        self._cache.publish(self._cache.image.with_topics(delta), delta)

    def _on_change(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        self._index_names((topic.name for topic in delta.created), [topic.name for topic in delta.deleted])

    def _index_names(self, added: Iterable[str], removed: Iterable[str]) -> None:
        for name in removed:
            names = self._collisions.get(topic_names.collision_key(name))
            if names is not None:
                names.discard(name)
                if not names:
                    del self._collisions[topic_names.collision_key(name)]
        for name in added:
            if topic_names.has_collision_characters(name):
                self._collisions.setdefault(topic_names.collision_key(name), set()).add(name)


def _broker_ids(image: ClusterImage) -> tuple[frozenset[int], frozenset[int]]:
    """All node ids, and those of brokers that may be given work."""
    return frozenset(image.brokers), frozenset(broker.node_id for broker in image.alive_brokers())


def _living(number: int, replicas: Sequence[int], alive: frozenset[int]) -> PartitionImage:
    """A partition whose replicas a client chose.  One of them must be alive to lead it."""
    partition = new_partition(number, replicas, alive)
    if not partition.isr:
        raise InvalidReplicaAssignmentError(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown."
        )
    return partition


def _with(
    topic: TopicImage,
    partitions: tuple[PartitionImage, ...] | None = None,
    configs: Mapping[str, str] | None = None,
) -> TopicImage:
    return TopicImage(
        topic.name,
        topic.topic_id,
        topic.partitions if partitions is None else partitions,
        topic.is_internal,
        topic.configs if configs is None else configs,
    )


def _duplicates(counts: Counter[str]) -> list[TopicOutcome]:
    return [
        TopicOutcome(name, error=InvalidRequestError("Duplicate topic name."))
        for name, count in counts.items()
        if count > 1
    ]
