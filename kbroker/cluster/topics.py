"""What a request makes of topics: pure functions with Kafka's checks, order and words (ReplicationControlManager).

A plan is a new `TopicImage`, made from the request and a context that does not change; nothing is stored or visible
yet.  Plans await a pace between partitions, so that large requests do not hold the loop.

As in Kafka, a new name is checked against the topics that exist, not against others of the same request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.placement import check_assignment, first_place, new_partition, place
from kbroker.cluster.requests import DEFAULT, NewPartitions, NewTopic, TopicOutcome
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
    UnknownTopicOrPartitionError,
    bare,
)
from kbroker.metadata import topic_names
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from kbroker.metadata.internal_topics import internal_topic
from kbroker.types import random_uuid

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.config import BrokerConfig

_Request = TypeVar("_Request")
_Named = TypeVar("_Named", NewTopic, NewPartitions)

MAX_PARTITIONS_PER_REQUEST = 10_000
# So many topics, or topics with so many partitions, get into one image at a time.
PUBLISHED_TOPICS, PUBLISHED_PARTITIONS = 64, 256
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


class CollisionIndex:
    """Names of topics that could collide with others, by what they become in metrics."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, set[str]] = {}
        self.update(names, ())

    def replace(self, names: Iterable[str]) -> None:
        """Follow these topics instead of those until now."""
        self._names = {}
        self.update(names, ())

    def update(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Follow a change of the topics."""
        for name in removed:
            key = topic_names.collision_key(name)
            names = self._names.get(key)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._names[key]
        for name in added:
            if topic_names.has_collision_characters(name):
                self._names.setdefault(topic_names.collision_key(name), set()).add(name)

    def colliding(self, name: str) -> str | None:
        """A topic that exists and collides with a name."""
        if not topic_names.has_collision_characters(name):
            return None
        others = self._names.get(topic_names.collision_key(name))
        return min(others) if others else None


@dataclass(frozen=True, slots=True)
class TopicContext:
    """What plans depend on besides the request.  `takers`: the brokers that take new partitions.  `most_replicas`: the
    number of brokers, to which default replication factors are cut; None where further brokers may not have started
    yet."""

    image: ClusterImage
    config: BrokerConfig
    takers: Sequence[BrokerImage]
    collisions: CollisionIndex
    most_replicas: int | None = None

    def existing(self, name: str) -> TopicImage:
        """The topic of that name.  UnknownTopicOrPartitionError where there is none."""
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError
        return topic

    def registered(self) -> frozenset[int]:
        """All node ids."""
        return frozenset(self.image.brokers)

    def alive(self) -> frozenset[int]:
        """Those of brokers that may be given work."""
        return frozenset(broker.node_id for broker in self.image.active_brokers())


def default_request(name: str, context: TopicContext) -> NewTopic:
    """How a topic is made that a client has only named."""
    if not topic_names.is_internal(name):
        return NewTopic(name)
    spec = internal_topic(name, context.config, context.most_replicas)
    return NewTopic(name, spec.num_partitions, spec.replication_factor, configs=dict(spec.configs))


def check_total(requests: Iterable[NewTopic], context: TopicContext) -> None:
    """PolicyViolationError when a request asks for too many partitions in all."""
    total = 0
    for request in requests:
        if request.assignments:
            total += len(request.assignments)
        else:
            total += context.config.get("num.partitions") if request.num_partitions < 1 else request.num_partitions
        if total > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(TOO_MANY_PARTITIONS)


async def plan_topic(request: NewTopic, context: TopicContext, pace: Pace) -> TopicImage:
    """A new topic; Kafka's error where it cannot be made."""
    _check_name(request.name, context)
    validate_topic_config(request.configs)
    topic_id = random_uuid()
    configs = MappingProxyType({key: value for key, value in request.configs.items() if value is not None})
    plan = _assigned if request.assignments else _placed
    partitions = await plan(request, context, pace)
    return TopicImage(request.name, topic_id, partitions, topic_names.is_internal(request.name), configs)


def _check_name(name: str, context: TopicContext) -> None:
    if name == topic_names.CLUSTER_METADATA_TOPIC:
        raise InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
    topic_names.validate(name)
    if name in context.image.topics:
        raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
    other = context.collisions.colliding(name)
    if other is not None:
        raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")


async def _assigned(request: NewTopic, context: TopicContext, pace: Pace) -> tuple[PartitionImage, ...]:
    if request.replication_factor != DEFAULT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if request.num_partitions != DEFAULT:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    registered, alive = context.registered(), context.alive()
    partitions: dict[int, PartitionImage] = {}
    replication_factor: int | None = None
    for number, replicas in request.assignments:
        await pace
        if number in partitions:
            raise InvalidReplicaAssignmentError(f"Found multiple manual partition assignments for partition {number}")
        check_assignment(replicas, registered, replication_factor)
        replication_factor = len(replicas)
        partitions[number] = _living(number, replicas, alive)
    if set(partitions) != set(range(len(partitions))):
        raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
    return tuple(partitions[number] for number in range(len(partitions)))


async def _placed(request: NewTopic, context: TopicContext, pace: Pace) -> tuple[PartitionImage, ...]:
    if request.replication_factor < DEFAULT or request.replication_factor == 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if request.num_partitions < DEFAULT or request.num_partitions == 0:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    alive = context.alive()
    replication_factor = request.replication_factor
    if replication_factor == DEFAULT:
        replication_factor = context.config.get("default.replication.factor")
        if context.most_replicas is not None:
            # Kafka fails here when the default is more than there are brokers; a single node should just work.
            replication_factor = max(1, min(replication_factor, context.most_replicas))
    count = context.config.get("num.partitions") if request.num_partitions == DEFAULT else request.num_partitions
    placed = place(context.takers, count, replication_factor, start=len(context.image.topics))
    partitions = []
    for number, replicas in enumerate(placed):
        await pace
        partitions.append(new_partition(number, replicas, alive))
    return tuple(partitions)


async def plan_growth(request: NewPartitions, context: TopicContext, pace: Pace) -> TopicImage:
    """A topic with more partitions; Kafka's error where it cannot have them.

    Raises InvalidPartitionsError, InvalidReplicaAssignmentError, PolicyViolationError."""
    topic = context.existing(request.name)
    current = len(topic.partitions)
    if request.count == current:
        raise InvalidPartitionsError(f"Topic already has {current} partition(s).")
    if request.count < current:
        raise InvalidPartitionsError(
            f"The topic {request.name} currently has {current} partition(s); {request.count} would not be an increase."
        )
    added = request.count - current
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolationError(TOO_MANY_PARTITIONS)
    registered, alive = context.registered(), context.alive()
    if request.assignments is None:
        start = first_place(context.takers, topic.partitions[0].replicas) + current
        placed = place(context.takers, added, topic.replication_factor, start)
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
    return replace(topic, partitions=(*topic.partitions, *new))


def plan_configs(topic: TopicImage | None, name: str, configs: Mapping[str, str | None]) -> TopicImage:
    """A topic with these settings and no others; Kafka's error where it cannot have them.

    Raises UnknownTopicOrPartitionError."""
    validate_topic_config(configs)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
    kept = MappingProxyType({key: value for key, value in configs.items() if value is not None})
    return replace(topic, configs=kept)


def _living(number: int, replicas: Sequence[int], alive: frozenset[int]) -> PartitionImage:
    """A partition whose replicas a client chose.  One of them must be alive to lead it."""
    partition = new_partition(number, replicas, alive)
    if not partition.isr:
        raise InvalidReplicaAssignmentError(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown."
        )
    return partition


def portions(topics: Iterable[TopicImage]) -> Iterator[tuple[TopicImage, ...]]:
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


async def duplicates(counts: Counter[str], pace: Pace) -> list[TopicOutcome]:
    """What becomes of names that a request repeats."""
    found = []
    for name, count in counts.items():
        await pace
        if count > 1:
            found.append(TopicOutcome(name, error=InvalidRequestError("Duplicate topic name.")))
    return found


async def attempt(
    name: str,
    plan: Callable[[_Request, TopicContext, Pace], Awaitable[TopicImage]],
    request: _Request,
    context: TopicContext,
    pace: Pace,
) -> TopicOutcome:
    """What comes of one topic of a request: the plan, or why there is none."""
    await pace
    try:
        return TopicOutcome(name, topic=await plan(request, context, pace))
    except KafkaError as error:
        # With its traceback it would hold the frames of 100,000 plans that fail.
        return TopicOutcome(name, error=bare(error))


async def named_once(requests: Sequence[_Named], pace: Pace) -> tuple[Counter[str], list[_Named]]:
    """How often each name is in a request, and what is asked for those that are in it once."""
    counts: Counter[str] = Counter()
    for request in requests:
        await pace
        counts[request.name] += 1
    unique = []
    for request in requests:
        await pace
        if counts[request.name] == 1:
            unique.append(request)
    return counts, unique
