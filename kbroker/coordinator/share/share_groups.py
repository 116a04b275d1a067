"""The share groups that this broker coordinates: members, assignments, and the start of their share-partitions' state.

Before a partition is assigned, its state is initialized at the share coordinator: the group writes a note that it is
about to, asks the share coordinator, writes a note that it is done, and only then assigns the partition.  A member's
first heartbeat waits for all of this, so that it gets its partitions at once.  States are deleted in the same steps.  A
step that was noted but is not under way (`under_way`), as after a crash in between, is begun again: an initialization
at a member's next heartbeat, a deletion by `sweep`.

Sessions: `sweep` looks now and then for members whose time is up; after a load every session begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.coordinator.classic.kind_groups import KindGroups
from kbroker.coordinator.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from kbroker.coordinator.modern.topic_hash import metadata_hash
from kbroker.coordinator.runtime.plan import Plan
from kbroker.coordinator.runtime.waiting import committed
from kbroker.coordinator.share import group_records as records
from kbroker.coordinator.share.group import GROUP_TYPE, ShareGroup
from kbroker.coordinator.share.heartbeat import (
    HeartbeatAnswer,
    HeartbeatRequest,
    Topics,
    check_request,
    heartbeat,
    leave,
    sign_of_life,
)
from kbroker.coordinator.share.state_partitions import StatePartitions, TopicState
from kbroker.coordinator.share.under_way import Initialization, UnderWay
from kbroker.errors import GroupIdNotFoundError, KafkaError, NonEmptyGroupError, UnknownTopicOrPartitionError
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.outage import Outages
from kbroker.periodic import PeriodicTask
from kbroker.replication.share.persister import UNINITIALIZED_START_OFFSET, SharePartitionKey

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.coordinator.classic.group_registry import GroupPartition, GroupRegistry
    from kbroker.coordinator.runtime.plan import KeyValue
    from kbroker.coordinator.share.share_states import ShareStates
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta
    from kbroker.replication.share.settings import GroupSettings

logger = logging.getLogger("kbroker.share")

SWEEP_INTERVAL_MS = 500
T = TypeVar("T")


class ShareGroups:
    """See the module.  Methods raise KafkaError."""

    def __init__(
        self,
        registry: GroupRegistry,
        states: ShareStates,
        controller: BrokerRequests,
        cache: MetadataCache,
        clock: Clock,
        settings: GroupSettings,
        timeout_ms: int,
        slices: Slices,
        retry_ms: int,
    ) -> None:
        self._registry = registry
        self._groups = KindGroups(registry, ShareGroup, GROUP_TYPE)
        self._states = states
        self._controller = controller
        self._cache = cache
        self._clock = clock
        self._outages = Outages(logger, now=clock.monotonic)
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._slices = slices
        self._under_way = UnderWay(clock, retry_ms)
        self._view = Topics(self._find_topic, partial(metadata_hash, cache))

    # Members

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """A member joins, says that it is alive, or leaves."""
        with self._registry.refusals.raised():
            return await self._follow(request)

    async def _follow(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        check_request(request)
        if request.member_epoch == LEAVE_EPOCH:
            await self._write(request.group_id, lambda group, _: (None, leave(group, request.member_id, self._view)))
            return HeartbeatAnswer(LEAVE_EPOCH, None, {})
        begun: list[Initialization] = []
        try:
            answer = await self._heartbeat(request, begun)
            is_done = bool(begun) and await self._initialize(request.group_id, answer)
        finally:
            for step in begun:
                self._under_way.end(step)
        if is_done:
            again = replace(request, member_epoch=answer.member_epoch)
            answer = await self._heartbeat(again, None)
        return answer

    async def _heartbeat(self, request: HeartbeatRequest, begun: list[Initialization] | None) -> HeartbeatAnswer:
        """`begun` gets the making of states that the answer asks for; None: none is to begin now."""
        group_id = request.group_id
        settings = self._settings(request.group_id)
        settled: list[tuple[int, int]] = []

        def operation(group: ShareGroup, now_ms: int) -> tuple[HeartbeatAnswer, list[KeyValue]]:
            interval_ms = settings.assignment_interval_ms
            found = heartbeat(
                group,
                request,
                self._view,
                settings.max_size,
                now_ms,
                assignment_interval_ms=interval_ms,
                is_under_way=is_under_way,
            )
            answer, written = found
            if answer.initialize and begun is not None:
                # Before anything waits, so that the heartbeats of others do not begin it as well.
                begun.append(self._under_way.begin(group_id, _partitions(answer.initialize)))
            if not written and answer.is_complete and group.epoch == group.assignment_epoch:
                settled.append((group.changes, self._cache.image.version))
            return found

        def is_under_way(partition: tuple[bytes, int]) -> bool:
            return begun is None or self._under_way.has(group_id, partition)

        group = self._groups.find(request.group_id)
        if group is not None and group.settled == (group.changes, self._cache.image.version):
            known = sign_of_life(group, request)
            if known is not None:
                group.deadlines[request.member_id] = self._clock.monotonic() + settings.session_timeout_ms / 1000
                return known
        answer = await self._write(request.group_id, operation, creates=request.member_epoch == JOIN_EPOCH)
        group = self._groups.find(request.group_id)
        if group is not None and settled:
            # Only now, when all that it tells of is committed.
            group.settled = settled[0]
        if group is not None and request.member_id in group.members:
            group.deadlines[request.member_id] = self._clock.monotonic() + settings.session_timeout_ms / 1000
        return answer

    async def _initialize(self, group_id: str, answer: HeartbeatAnswer) -> bool:
        """Make the state of partitions; whether all is there now.  What fails is tried again at a later heartbeat."""
        try:
            await self._controller.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
            done = await self._begin_states(group_id, answer.initialize, answer.state_epoch)
        except KafkaError as error:
            self._outages.failed(
                group_id, "share group %s: the state of its partitions cannot be made: %s", group_id, error
            )
            await self._give_up(group_id, answer.initialize)
            return False
        self._outages.over(group_id, "share group %s: the state of its partitions is made", group_id)
        return done

    async def _begin_states(self, group_id: str, topics: Mapping[bytes, TopicState], state_epoch: int) -> bool:
        pace = self._slices.pace()
        for topic_id, state in topics.items():
            for index in sorted(state.partitions):
                await pace
                key = SharePartitionKey(group_id, topic_id, index)
                await self._states.initialize(key, state_epoch, UNINITIALIZED_START_OFFSET)
        await self._note(group_id, lambda states: states.done(topics))
        return True

    async def _give_up(self, group_id: str, topics: Mapping[bytes, TopicState]) -> None:
        try:
            await self._note(group_id, lambda states: states.gave_up(topics))
        except KafkaError as error:
            logger.warning("share group %s: %s", group_id, error)

    async def _note(self, group_id: str, change: Callable[[StatePartitions], StatePartitions]) -> None:
        """Write how far the state of the group's partitions is from now on."""

        def operation(group: ShareGroup, _now: int) -> tuple[None, list[KeyValue]]:
            return None, [records.state_partitions_record(group_id, change(group.state_partitions))]

        await self._write(group_id, operation)

    # Administration

    def describe(self, group_id: str) -> ShareGroup:
        """A group, to read.  GroupIdNotFoundError, or a client's error while it is not known whether it exists."""
        return self._groups.described(group_id)

    def empty(self, group_id: str) -> ShareGroup:
        """A group without members.  GroupIdNotFoundError, NonEmptyGroupError."""
        group = self.describe(group_id)
        if group.members:
            raise NonEmptyGroupError(f"The group {group_id} is not empty.")
        return group

    def check_alterable(self, group_id: str) -> ShareGroup | None:
        """A group without members, None where there is no group of this id.  GroupIdNotFoundError for one of another
        kind, NonEmptyGroupError."""
        known = self._registry.find(group_id)
        return None if known is None else self.empty(group_id)

    async def alter_offset(self, group_id: str, topic_id: bytes, name: str, partition: int, start_offset: int) -> None:
        """Initialize the state of a partition anew, at an offset, in a group without members; the group is created
        where there is none."""
        group = self.check_alterable(group_id)
        await self._controller.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
        if group is not None and topic_id in group.state_partitions.deleting:
            # Otherwise the deletion, when it is continued, would delete the new state as well.
            await self._delete_states(group_id, {topic_id: self._deleting(group.state_partitions)[topic_id]})
        state_epoch = 1 if group is None else group.epoch + 1
        key = SharePartitionKey(group_id, topic_id, partition)
        await self._states.initialize(key, state_epoch, start_offset)
        topics = {topic_id: TopicState(name, frozenset({partition}))}

        def operation(group: ShareGroup, _now: int) -> tuple[None, list[KeyValue]]:
            epoch = records.epoch_record(group_id, max(group.epoch, state_epoch), group.metadata_hash)
            return None, [epoch, records.state_partitions_record(group_id, group.state_partitions.done(topics))]

        await self._write(group_id, operation, creates=True)

    async def delete_offsets(self, group_id: str, topic_id: bytes) -> None:
        """Forget the state of a topic's partitions.  UnknownTopicOrPartitionError where there is none."""
        known = self.empty(group_id).state_partitions
        state = known.initialized.get(topic_id) or self._deleting(known).get(topic_id)
        if state is None:
            raise UnknownTopicOrPartitionError("There is no offset information to delete.")
        await self._delete_states(group_id, {topic_id: state})

    async def delete_state(self, group_id: str) -> bool:
        """Forget the state of a share group's partitions; whether it is one.  NonEmptyGroupError."""
        if self._groups.find(group_id) is None:
            return False
        state = self.empty(group_id).state_partitions
        await self._delete_states(group_id, {**self._deleting(state), **state.states()})
        return True

    async def _delete_states(self, group_id: str, topics: Mapping[bytes, TopicState]) -> None:
        """Note it, do it, note that it is done; `sweep` goes on with what a crash or a failure has left."""
        if not topics:
            return
        # What fails counts as under way until it is due to be tried again.
        step = self._under_way.begin(group_id, topics)
        try:
            await self._note(group_id, lambda states: states.ending(topics))
            pace = self._slices.pace()
            for topic_id, state in topics.items():
                for index in sorted(state.partitions):
                    await pace
                    await self._states.delete(SharePartitionKey(group_id, topic_id, index))
            await self._note(group_id, lambda states: states.without(topics))
        except GroupIdNotFoundError:
            self._under_way.end(step)
            raise
        self._under_way.end(step)

    # What happens by itself

    def periodic_tasks(self) -> Iterable[PeriodicTask]:
        """What is to be run now and then."""
        return (PeriodicTask("expire share group members", SWEEP_INTERVAL_MS, self.sweep),)

    def sweep(self) -> None:
        """Remove the members whose session has ended; go on with states whose deletion was left."""
        now = self._clock.monotonic()
        for each in list(self._registry.groups.values()):
            group = each.kind
            if not isinstance(group, ShareGroup):
                continue
            self._go_on_deleting(group)
            for member_id in list(group.members):
                due = group.deadlines.get(member_id)
                if due is None:
                    timeout = self._settings(group.group_id).session_timeout_ms
                    group.deadlines[member_id] = now + timeout / 1000
                elif due <= now:
                    self._expire(group, member_id)

    def _expire(self, group: ShareGroup, member_id: str) -> None:
        name = group.group_id
        try:
            self._groups.write(name, lambda _partition, _now: Plan(None, leave(group, member_id, self._view)))
        except KafkaError as error:
            text = "share group %s: member %s could not be removed: %s"
            self._outages.failed((name, member_id), text, name, member_id, error)
            return
        assert member_id not in group.members, f"share group {name}: {member_id} was removed and is there"
        self._outages.over((name, member_id), "share group %s: member %s could be removed", name, member_id)
        logger.info("share group %s: member %s has not been heard of and is removed", name, member_id)

    def _go_on_deleting(self, group: ShareGroup) -> None:
        if not group.state_partitions.deleting:
            return
        left = {
            topic_id: state
            for topic_id, state in self._deleting(group.state_partitions).items()
            if not self._under_way.has(group.group_id, topic_id)
        }
        if left:
            task = asyncio.ensure_future(self._delete_states(group.group_id, left))
            task.add_done_callback(_log_failure)

    def _deleting(self, known: StatePartitions) -> dict[bytes, TopicState]:
        """The topics whose state is to be deleted.  The note does not name the partitions: they are all of the topic's,
        or none where the topic is gone."""
        deleting: dict[bytes, TopicState] = {}
        for topic_id, name in known.deleting.items():
            topic = self._cache.topic_by_id(topic_id)
            deleting[topic_id] = TopicState(name, frozenset(range(0 if topic is None else len(topic.partitions))))
        return deleting

    def on_metadata(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """A subscriber of the metadata cache: the state of deleted topics goes."""
        for topic in delta.deleted:
            for each in list(self._registry.groups.values()):
                group = each.kind
                if isinstance(group, ShareGroup) and group.state_partitions.is_known(topic.topic_id):
                    task = asyncio.ensure_future(self._forget_topic(group, topic.topic_id))
                    task.add_done_callback(_log_failure)

    async def _forget_topic(self, group: ShareGroup, topic_id: bytes) -> None:
        state = group.state_partitions.states().get(topic_id)
        if state is not None:
            await self._delete_states(group.group_id, {topic_id: state})

    # Within

    def _find_topic(self, name: str) -> tuple[bytes, int] | None:
        topic = self._cache.topic(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    async def _write(
        self,
        group_id: str,
        operation: Callable[[ShareGroup, int], tuple[T, list[KeyValue]]],
        *,
        creates: bool = False,
    ) -> T:
        """Plan, append, apply, and wait until it is committed."""

        def plan(partition: GroupPartition, now_ms: int) -> Plan[T]:
            known = partition.groups.get(group_id)
            group = None if known is None or not isinstance(known.kind, ShareGroup) else known.kind
            if group is None:
                unused = known is None or (known.kind is None and not known.members and not known.offsets)
                if not creates or not unused:
                    reason = (
                        f"Share group {group_id} not found." if unused else f"Group {group_id} is not a share group."
                    )
                    raise GroupIdNotFoundError(reason)
                group = ShareGroup(group_id)
            answer, written = operation(group, now_ms)
            return Plan(answer, written)

        return await committed(self._groups.write(group_id, plan), self._timeout_ms)


def _partitions(topics: Mapping[bytes, TopicState]) -> list[tuple[bytes, int]]:
    return [(topic_id, index) for topic_id, state in topics.items() for index in state.partitions]


def _log_failure(task: asyncio.Future[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.warning("the state of a topic could not be deleted: %s", error)
