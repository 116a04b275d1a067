"""The requests of administrators and brokers to an elected controller, carried out on its term: each waits for its
turn.

Topics are made by the same plans as on a single node; their states follow as if another broker had written them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster import topics as plans
from kbroker.cluster.mutations import charged
from kbroker.cluster.partition_updates import NOT_TO_ELECT, NOT_TO_REASSIGN, Absence, PartitionUpdates
from kbroker.cluster.requests import (
    BrokerEpoch,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    PartitionOutcome,
    Reassignment,
    TopicOutcome,
)
from kbroker.cluster.zookeeper import paths, transitions
from kbroker.cluster.zookeeper.context import topic_znode, without_state
from kbroker.cluster.zookeeper.session import BadVersionError, NodeExistsError, Set, ZooKeeper, set_or_create
from kbroker.cluster.zookeeper.work import Work
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import (
    ProducerIdBlockZnode,
    decode_producer_id_block,
    encode_config,
    encode_producer_id_block,
    encode_topic,
)
from kbroker.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    KafkaError,
    StaleBrokerEpochError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    bare,
)
from kbroker.metadata.store import PRODUCER_ID_BLOCK_LENGTH, ProducerIdBlock
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.cluster.partitions import PartitionContext
    from kbroker.cluster.zookeeper.term import Term
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.quotas.mutation_quota import MutationQuota

logger = logging.getLogger("kbroker.cluster")

_Request = TypeVar("_Request")
MAX_ID = 2**63 - 1
ATTEMPTS = 5
"""So often a request is decided when others write to its partitions meanwhile."""


async def write_topic(zookeeper: ZooKeeper, topic: TopicImage) -> None:
    """A new topic's settings, then its assignment, which the controller acts on.  TopicAlreadyExistsError."""
    await set_or_create(zookeeper, paths.topic_config(topic.name), encode_config(topic.configs))
    try:
        await zookeeper.create(paths.topic(topic.name), encode_topic(topic_znode(topic)))
    except NodeExistsError:
        raise TopicAlreadyExistsError(f"Topic '{topic.name}' already exists.") from None


class Administration:
    """See `Controller`, whose methods these are on the elected broker."""

    def __init__(self, term: Term, zookeeper: ZooKeeper, slices: Slices) -> None:
        self._term = term
        self._zookeeper = zookeeper
        self._slices = slices

    def _topic_context(self) -> plans.TopicContext:
        image = self._term.context.image
        return plans.TopicContext(image, self._term.config, image.alive_brokers(), plans.CollisionIndex(image.topics))

    # Topics

    async def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool, quota: MutationQuota | None
    ) -> list[TopicOutcome]:
        """See `Controller.create_topics`."""
        term = self._term
        async with term.changing:
            pace, context = self._slices.pace(), self._topic_context()
            counts, unique = await plans.named_once(requests, pace)
            plans.check_total(unique, context)
            planned = [await plans.attempt(each.name, plans.plan_topic, each, context, pace) for each in unique]
            outcomes = charged(planned, quota, lambda topic: len(topic.partitions))
            if not validate_only:
                outcomes = [await self._create(outcome) for outcome in outcomes]
                await term.settle()
                outcomes = [self._as_made(outcome) for outcome in outcomes]
        if not validate_only and any(outcome.topic is not None for outcome in outcomes):
            await term.changes.wait_for_own_metadata()
        return outcomes + await plans.duplicates(counts, pace)

    async def _create(self, outcome: TopicOutcome) -> TopicOutcome:
        topic = outcome.topic
        if topic is None:
            return outcome
        try:
            await write_topic(self._zookeeper, topic)
        except TopicAlreadyExistsError as error:
            return TopicOutcome(outcome.name, error=bare(error))
        fresh = tuple(without_state(each.partition, each.replicas) for each in topic.partitions)
        self._term.context.put_topic(replace(topic, partitions=fresh))
        self._term.work.watch_topic(topic.name)
        logger.info("created topic %s with %d partition(s)", topic.name, len(topic.partitions))
        return outcome

    def _as_made(self, outcome: TopicOutcome) -> TopicOutcome:
        made = self._term.context.image.topics.get(outcome.name)
        return outcome if outcome.topic is None or made is None else replace(outcome, topic=made)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool, quota: MutationQuota | None
    ) -> list[TopicOutcome]:
        """See `Controller.create_partitions`."""
        term = self._term
        async with term.changing:
            pace, context = self._slices.pace(), self._topic_context()
            counts, unique = await plans.named_once(requests, pace)
            planned = [await plans.attempt(each.name, plans.plan_growth, each, context, pace) for each in unique]
            outcomes = charged(
                planned, quota, lambda new: len(new.partitions) - len(context.existing(new.name).partitions)
            )
            if not validate_only:
                for outcome in outcomes:
                    if outcome.topic is not None:
                        await self._grow(outcome.topic)
                await term.settle()
        if not validate_only and any(outcome.topic is not None for outcome in outcomes):
            await term.changes.wait_for_own_metadata()
        return await plans.duplicates(counts, pace) + outcomes

    async def _grow(self, planned: TopicImage) -> None:
        old = self._term.context.image.topics[planned.name]
        added = tuple(
            without_state(each.partition, each.replicas) for each in planned.partitions[len(old.partitions) :]
        )
        new = replace(old, partitions=(*old.partitions, *added))
        await self._term.writer.set_topic(new)
        self._term.context.put_topic(new)
        logger.info("topic %s of %d partitions has %d more", old.name, len(old.partitions), len(added))

    async def delete_topics(self, topic_ids: Sequence[bytes], quota: MutationQuota | None) -> list[TopicOutcome]:
        """See `Controller.delete_topics`: the topics are gone for clients at once, from disks soon after."""
        term = self._term
        outcomes: list[TopicOutcome] = []
        names: list[str] = []
        async with term.changing:
            for topic_id in topic_ids:
                topic = term.context.image.topics_by_id.get(topic_id)
                if topic is None or topic.name in names:
                    unknown = UnknownTopicIdError("This server does not host this topic ID.")
                    outcomes.append(TopicOutcome("", error=unknown))
                    continue
                if topic.name in term.context.deleting:
                    # As in Kafka: what was asked for is on its way.
                    outcomes.append(TopicOutcome(topic.name, topic))
                    continue
                (outcome,) = charged([TopicOutcome(topic.name, topic)], quota, lambda each: len(each.partitions))
                if outcome.error is None:
                    names.append(topic.name)
                    await term.writer.create(paths.deletion(topic.name))
                outcomes.append(outcome)
            term.deletion.begin(names)
        if names:
            await term.changes.wait_for_own_metadata()
        return outcomes

    # Partitions

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        """See `Controller.alter_partitions`."""
        term = self._term
        async with term.changing:
            self._check_epoch(broker)
            image = term.context.image
            epochs = {each.node_id: each.epoch for each in image.brokers.values()}
            # Kafka's brokers say -1 for epochs that they do not know of each other.
            outcomes = await self._change(
                [(each.partition, each) for each in changes],
                lambda partition, context, change: transitions.with_isr(
                    partition, broker.node_id, change, context, epochs
                ),
                NOT_TO_REASSIGN,
                is_isr_only=True,
            )
        if any(each.image is not None and transitions.is_completable(each.image) for each in outcomes):
            term.work.mark(Work.COMPLETIONS)
        return outcomes

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionOutcome]:
        """See `Controller.elect_leaders`."""
        term = self._term
        async with term.changing:
            every = [name for name, _ in term.context.partitions()] if partitions is None else partitions
            if election is ElectionType.UNCLEAN:
                await term.changes.mend(every)
                await term.settle()
            outcomes = await self._change(
                [(each, election) for each in every],
                lambda partition, context, kind: transitions.elected(partition, kind, context),
                NOT_TO_ELECT,
            )
        if partitions is None:
            return [each for each in outcomes if not isinstance(each.error, ElectionNotNeededError)]
        return outcomes

    async def alter_reassignments(
        self, reassignments: Sequence[Reassignment], allow_replication_factor_change: bool
    ) -> list[PartitionOutcome]:
        """See `Controller.alter_reassignments`."""
        term = self._term
        async with term.changing:
            registered = frozenset(term.context.image.brokers)
            outcomes = await self._change(
                [(each.partition, each) for each in reassignments],
                lambda partition, context, request: transitions.reassigned(
                    partition, request, registered, context, allow_replication_factor_change
                ),
                NOT_TO_REASSIGN,
            )
            await term.complete_reassignments()
        return outcomes

    async def _change(
        self,
        requests: Sequence[tuple[TopicPartition, _Request]],
        decide: Callable[[PartitionImage, PartitionContext, _Request], PartitionImage],
        absence: Absence,
        is_isr_only: bool = False,
    ) -> list[PartitionOutcome]:
        """Decide requests, and write what comes of them.

        Where a leader has written its ISR meanwhile, the state is read again and the request decided anew; a leader's
        own request (`is_isr_only`) is answered INVALID_UPDATE_VERSION."""
        errors: dict[int, KafkaError] = {}
        left = list(enumerate(requests))
        failed: Mapping[TopicPartition, KafkaError] = {}
        for _ in range(1 if is_isr_only else ATTEMPTS):
            failed = await self._attempt(left, decide, absence, errors, is_isr_only=is_isr_only)
            left = [(index, request) for index, request in left if index not in errors and request[0] in failed]
            if not left:
                break
        errors |= {index: failed[name] for index, (name, _) in left}
        return [
            PartitionOutcome(name, error=errors[index])
            if index in errors
            else PartitionOutcome(name, self._term.context.partition(name))
            for index, (name, _) in enumerate(requests)
        ]

    async def _attempt(
        self,
        requests: Iterable[tuple[int, tuple[TopicPartition, _Request]]],
        decide: Callable[[PartitionImage, PartitionContext, _Request], PartitionImage],
        absence: Absence,
        errors: dict[int, KafkaError],
        *,
        is_isr_only: bool,
    ) -> Mapping[TopicPartition, KafkaError]:
        """Those that others have written meanwhile; `errors` gets what is wrong with requests, by their index."""
        term, pace = self._term, self._slices.pace()
        updates = PartitionUpdates(term.context.image)
        contexts = term.context.contexts(term.config)
        changed: dict[TopicPartition, PartitionImage] = {}
        for index, (name, request) in requests:
            await pace
            try:
                if name.topic in term.context.deleting:
                    raise UnknownTopicOrPartitionError
                old = updates.existing(name, absence)
                new = decide(old, contexts.of(term.context.image.topics[name.topic]), request)
            except KafkaError as error:
                errors[index] = bare(error)
                continue
            if new is not old:
                updates.put(name, new)
                changed[name] = new
        return await term.changes.commit(changed, is_isr_only=is_isr_only)

    # Brokers

    def _check_epoch(self, broker: BrokerEpoch) -> None:
        registered = self._term.context.image.brokers.get(broker.node_id)
        if registered is None or registered.epoch != broker.epoch:
            raise StaleBrokerEpochError()

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        """See `Controller.controlled_shutdown`.  Raises BrokerIdNotRegisteredError, StaleBrokerEpochError."""
        term, node_id = self._term, broker.node_id
        async with term.changing:
            context = term.context
            if node_id not in context.image.brokers:
                raise BrokerIdNotRegisteredError(f"Broker id {node_id} does not exist.")
            if broker.epoch not in (-1, context.image.brokers[node_id].epoch):
                raise StaleBrokerEpochError()
            context.fence_broker(node_id)
            followed = [
                name
                for name, each in context.partitions()
                if node_id in each.replicas and each.leader != node_id and len(each.replicas) > 1
            ]
            term.changes.stop(node_id, followed, delete=False)
            await term.settle()
            remaining = [
                name for name, each in context.partitions() if each.leader == node_id and len(each.replicas) > 1
            ]
        logger.info("broker %d shuts down; it still leads %d partitions that others could", node_id, len(remaining))
        return remaining

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        """See `Controller.allocate_producer_ids`.  Raises KafkaError."""
        async with self._term.changing:
            self._check_epoch(broker)
            while True:
                found = await self._zookeeper.get(paths.PRODUCER_ID_BLOCK)
                try:
                    first = decode_producer_id_block(found.data).last + 1 if found.data else 0
                except ZnodeError as error:
                    raise KafkaError(f"{paths.PRODUCER_ID_BLOCK} makes no sense: {error}") from error
                last = first + PRODUCER_ID_BLOCK_LENGTH - 1
                if last > MAX_ID:
                    raise KafkaError("all producer ids were given out")
                content = encode_producer_id_block(ProducerIdBlockZnode(broker.node_id, first, last))
                try:
                    await self._term.writer.write(Set(paths.PRODUCER_ID_BLOCK, content, found.stat.version))
                except BadVersionError:
                    continue
                return ProducerIdBlock(first, PRODUCER_ID_BLOCK_LENGTH)
