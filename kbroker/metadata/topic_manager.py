"""Creates, grows, alters and deletes topics: Kafka's checks in Kafka's order and words (ReplicationControlManager).

A change goes, in this order, to the store (durable), to the image (visible) and to the cache's subscribers (logs made
or dropped), all before the method returns.  A request for several topics is one transaction over those that pass their
checks; the others have their own errors.  When the store fails, nothing has changed and the error is raised.

Methods are awaited: the store is called in a thread, plans are made in slices of the loop's time, and what is durable
is published a few topics at a time, each image whole in itself.  One change is under way at a time, from its checks to
its last image, so no other writer of topics comes between.  Leaders and offline replicas may change meanwhile
(`LogDirFailureHandler`): what is published is worked out from the topic as it is by then.

As in Kafka, a new name is checked against the topics that exist, not against others of the same request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
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
from kbroker.metadata.store import MetadataStore, StoreCalls
from kbroker.metadata.topic_request import DEFAULT, NewPartitions, NewTopic, TopicOutcome
from kbroker.types import random_uuid

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.config import BrokerConfig

logger = logging.getLogger("kbroker.metadata")

_Request = TypeVar("_Request")
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""What to make of all that is set for a topic."""

MAX_PARTITIONS_PER_REQUEST = 10_000
# So many topics, or topics with so many partitions, get into one image at a time.
PUBLISHED_TOPICS, PUBLISHED_PARTITIONS = 64, 256
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


class TopicManager:
    """The only writer of topics on this node."""

    __slots__ = ("_cache", "_call", "_changing", "_collisions", "_config", "_slices", "_store", "all_cordoned")

    def __init__(
        self,
        config: BrokerConfig,
        cache: MetadataCache,
        store: MetadataStore,
        slices: Slices,
        call: StoreCalls | None = None,
    ) -> None:
        self._config = config
        self._cache = cache
        self._store = store
        self._slices = slices
        self._call = call or StoreCalls()
        self._changing = asyncio.Lock()
        self._collisions: dict[str, set[str]] = {}
        self._index_names(cache.image.topics, ())
        self.all_cordoned: Callable[[], bool] = lambda: False
        cache.subscribe(self._on_change)

    def _takers(self) -> Sequence[BrokerImage]:
        """The brokers that take new partitions: a single node, unless all its log directories are cordoned."""
        return [] if self.all_cordoned() else self._cache.image.alive_brokers()

    # Creating

    async def create(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[TopicOutcome]:
        """Create topics, or only say what would come of it.

        Outcomes are in the order of the request; names that the request repeats come last, once each.
        PolicyViolationError when the request asks for too many partitions in all.
        """
        async with self._changing:
            return await self._create(requests, validate_only)

    async def _create(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[TopicOutcome]:
        pace = self._slices.pace()
        counts = Counter(request.name for request in requests)
        unique = [request for request in requests if counts[request.name] == 1]
        self._check_total(unique)
        outcomes = [await self._attempt(request.name, self._plan_topic, request, pace) for request in unique]
        created = [outcome.topic for outcome in outcomes if outcome.topic is not None]
        if created and not validate_only:
            await self._call(self._store.create_topics, created)
            for topics in _portions(created):
                self._publish(MetadataDelta(created=topics))
                for topic in topics:
                    logger.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))
                await pace
        return outcomes + _duplicates(counts)

    async def auto_create(self, names: Iterable[str]) -> dict[str, TopicOutcome]:
        """Create the topics that clients named, with the broker's defaults or, for internal ones, their own rules."""
        requests = [self._default_request(name) for name in dict.fromkeys(names)]
        outcomes = {outcome.name: outcome for outcome in await self.create(requests)}
        for outcome in outcomes.values():
            if outcome.error is not None:
                logger.warning("cannot create topic %r automatically: %s", outcome.name, outcome.error)
        return outcomes

    async def ensure_internal(self, name: str) -> TopicImage:
        """The internal topic `name`, made now if need be.  Raises what its creation fails with."""
        topic = self._cache.topic(name)
        if topic is None:
            async with self._changing:
                topic = self._cache.topic(name)
                if topic is None:
                    outcome = (await self._create([self._default_request(name)]))[0]
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

    async def _plan_topic(self, request: NewTopic, pace: Pace) -> TopicImage:
        name = request.name
        self._check_name(name)
        validate_topic_config(request.configs)
        topic_id = random_uuid()
        configs = MappingProxyType({key: value for key, value in request.configs.items() if value is not None})
        if request.assignments:
            partitions = await self._assigned(request, pace)
        else:
            partitions = await self._placed(request, pace)
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

    async def _assigned(self, request: NewTopic, pace: Pace) -> tuple[PartitionImage, ...]:
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
            await pace
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

    async def _placed(self, request: NewTopic, pace: Pace) -> tuple[PartitionImage, ...]:
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
        partitions = []
        for number, replicas in enumerate(placed):
            await pace
            partitions.append(new_partition(number, replicas, alive))
        return tuple(partitions)

    # Growing

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Add partitions to topics.  Names that the request repeats come first, once each, then the others."""
        counts = Counter(request.name for request in requests)
        unique = [request for request in requests if counts[request.name] == 1]
        async with self._changing:
            pace = self._slices.pace()
            outcomes = [await self._attempt(request.name, self._plan_growth, request, pace) for request in unique]
            grown = [outcome.topic for outcome in outcomes if outcome.topic is not None]
            additions = [(new, new.partitions[len(self._existing(new.name).partitions) :]) for new in grown]
            if sum(len(added) for _, added in additions) > MAX_PARTITIONS_PER_REQUEST:
                raise PolicyViolationError(TOO_MANY_PARTITIONS)
            if additions and not validate_only:
                await self._call(self._store.create_partitions, [(new.topic_id, added) for new, added in additions])
                for new, added in additions:
                    old = self._existing(new.name)
                    self._publish_change(old, _with(old, partitions=(*old.partitions, *added)))
                    logger.info("topic %s of %d partitions has %d more", new.name, len(old.partitions), len(added))
                    await pace
        return _duplicates(counts) + outcomes

    async def _plan_growth(self, request: NewPartitions, pace: Pace) -> TopicImage:
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
            new = []
            for number, replicas in enumerate(placed, current):
                await pace
                new.append(new_partition(number, replicas, alive))
        else:
            if len(request.assignments) != added:
                raise InvalidReplicaAssignmentError(
                    f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} "
                    "assignment(s) were specified."
                )
            new = []
            for number, assigned in enumerate(request.assignments, current):
                await pace
                check_assignment(assigned, registered, topic.replication_factor)
                new.append(_living(number, assigned, alive))
        return _with(topic, partitions=(*topic.partitions, *new))

    # Altering and deleting

    async def replace_configs(
        self, name: str, configs: Mapping[str, str | None], validate_only: bool = False
    ) -> TopicImage:
        """Set all configs of a topic at once.  The topic as it is then, or would be."""
        outcome = (await self.change_configs_of([(name, lambda _: configs)], validate_only))[0]
        if outcome.topic is None:
            raise outcome.error or KafkaError()
        return outcome.topic

    async def change_configs_of(
        self, requests: Sequence[tuple[str, ConfigChange]], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Change the configs of each topic, named once each.  Those that pass their checks are one transaction."""
        async with self._changing:
            pace = self._slices.pace()
            outcomes = [await self._attempt(request[0], self._plan_configs, request, pace) for request in requests]
            changed = [
                outcome.topic
                for outcome in outcomes
                if outcome.topic is not None and outcome.topic.configs != self._existing(outcome.name).configs
            ]
            if changed and not validate_only:
                await self._call(self._store.alter_topic_configs, [(new.topic_id, new.configs) for new in changed])
                for new in changed:
                    old = self._existing(new.name)
                    self._publish_change(old, _with(old, configs=new.configs))
                    logger.info("changed the configs of topic %s to %s", new.name, dict(new.configs))
                    await pace
        return outcomes

    async def _plan_configs(self, request: tuple[str, ConfigChange], pace: Pace) -> TopicImage:
        name, change = request
        topic = self._cache.topic(name)
        configs = change({} if topic is None else topic.configs)
        validate_topic_config(configs)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
        kept = MappingProxyType({key: value for key, value in configs.items() if value is not None})
        return _with(topic, configs=kept)

    async def delete(self, topic_ids: Sequence[bytes]) -> list[TopicOutcome]:
        """Delete topics by id, in one transaction.  An unknown id has UNKNOWN_TOPIC_ID."""
        async with self._changing:
            pace = self._slices.pace()
            found: dict[bytes, TopicImage] = {}
            outcomes: list[TopicOutcome] = []
            for topic_id in topic_ids:
                await pace
                topic = self._cache.topic_by_id(topic_id)
                if topic is None or topic_id in found:
                    unknown = UnknownTopicIdError("This server does not host this topic ID.")
                    outcomes.append(TopicOutcome("", error=unknown))
                    continue
                found[topic_id] = topic
                outcomes.append(TopicOutcome(topic.name, topic))
            if found:
                await self._call(self._store.delete_topics, list(found))
                for topics in _portions([self._existing(topic.name) for topic in found.values()]):
                    self._publish(MetadataDelta(deleted=topics))
                    for topic in topics:
                        logger.info("deleted topic %s", topic.name)
                    await pace
        return outcomes

    # Shared

    def _existing(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError
        return topic

    @staticmethod
    async def _attempt(
        name: str, plan: Callable[[_Request, Pace], Awaitable[TopicImage]], request: _Request, pace: Pace
    ) -> TopicOutcome:
        await pace
        try:
            return TopicOutcome(name, topic=await plan(request, pace))
        except KafkaError as error:
            # With its traceback it would hold the frames of 100,000 plans that fail.
            return TopicOutcome(name, error=error.with_traceback(None))

    def _publish(self, delta: MetadataDelta) -> None:
        self._cache.publish(self._cache.image.with_topics(delta), delta)

    def _publish_change(self, old: TopicImage, new: TopicImage) -> None:
        self._publish(MetadataDelta(changed=(TopicChange(old, new),)))

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


def _portions(topics: Iterable[TopicImage]) -> Iterator[tuple[TopicImage, ...]]:
    """What one image takes of new or deleted topics, so that its subscribers are soon through with it."""
    portion: list[TopicImage] = []
    partitions = 0
    for topic in topics:
        if portion and (len(portion) == PUBLISHED_TOPICS or partitions + len(topic.partitions) > PUBLISHED_PARTITIONS):
            yield tuple(portion)
            portion, partitions = [], 0
        portion.append(topic)
        partitions += len(topic.partitions)
    if portion:
        yield tuple(portion)


def _duplicates(counts: Counter[str]) -> list[TopicOutcome]:
    return [
        TopicOutcome(name, error=InvalidRequestError("Duplicate topic name."))
        for name, count in counts.items()
        if count > 1
    ]
