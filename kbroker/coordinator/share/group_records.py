"""The records of share groups in `__consumer_offsets`, as Kafka 4.3's group coordinator writes them.

    10 member    11 group epoch    12 epoch of the target assignment    13 target of a member
    14 what a member has taken     15 which partitions have their state

Keys begin with the type, values with version 0; a record without value deletes what its key names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.coordinator.modern.kind_records import KindRecords
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.share.assignor import Assignment
from kbroker.coordinator.share.member import ShareMember
from kbroker.coordinator.share.state_partitions import StatePartitions, TopicState
from kbroker.schemas import wire

if TYPE_CHECKING:
    Info = wire.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
    Assigned = (
        wire.ShareGroupTargetAssignmentMemberValue.TopicPartition
        | wire.ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    )

MEMBER, GROUP, TARGET, MEMBER_TARGET, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15
RECORD_TYPES = {
    MEMBER: "ShareGroupMemberMetadata",
    GROUP: "ShareGroupMetadata",
    TARGET: "ShareGroupTargetAssignmentMetadata",
    MEMBER_TARGET: "ShareGroupTargetAssignmentMember",
    CURRENT: "ShareGroupCurrentMemberAssignment",
    STATE_PARTITIONS: "ShareGroupStatePartitionMetadata",
}
RECORDS = KindRecords(
    RECORD_TYPES, group=GROUP, member=MEMBER, target=TARGET, member_target=MEMBER_TARGET, current=CURRENT
)
_record, parse, removal, target_epoch = RECORDS.record, RECORDS.parse, RECORDS.removal, RECORDS.target_epoch
_STABLE = 0


def member_record(group_id: str, member: ShareMember) -> KeyValue:
    """Who a member is, and what it subscribes to."""
    value = wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return _record(MEMBER, value, group_id=group_id, member_id=member.member_id)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group's epoch."""
    value = wire.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(GROUP, value, group_id=group_id)


def target_record(group_id: str, member_id: str, target: Assignment) -> KeyValue:
    """What a member is to read."""
    value_class = wire.ShareGroupTargetAssignmentMemberValue
    value = value_class(
        topic_partitions=[
            value_class.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(target).items()
        ]
    )
    return _record(MEMBER_TARGET, value, group_id=group_id, member_id=member_id)


def current_record(group_id: str, member: ShareMember) -> KeyValue:
    """What a member has taken, in which epoch."""
    value_class = wire.ShareGroupCurrentMemberAssignmentValue
    value = value_class(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=_STABLE,
        assigned_partitions=[
            value_class.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(member.assigned).items()
        ],
    )
    return _record(CURRENT, value, group_id=group_id, member_id=member.member_id)


def state_partitions_record(group_id: str, state: StatePartitions) -> KeyValue:
    """Which partitions have their state."""
    value_class = wire.ShareGroupStatePartitionMetadataValue

    def infos(
        topics: Mapping[bytes, TopicState],
    ) -> list[Info]:
        return [
            value_class.TopicPartitionsInfo(topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions))
            for topic_id, each in sorted(topics.items())
        ]

    value = value_class(
        initializing_topics=infos(state.initializing),
        initialized_topics=infos(state.initialized),
        deleting_topics=[
            value_class.TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in sorted(state.deleting.items())
        ],
    )
    return _record(STATE_PARTITIONS, value, group_id=group_id)


def by_topic(assignment: Iterable[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    """Sorted partitions by topic id."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return topics


def group_tombstones(group_id: str) -> list[KeyValue]:
    """The records that delete a group without members."""
    return [_record(each, None, group_id=group_id) for each in (STATE_PARTITIONS, TARGET, GROUP)]


def read_member(member: ShareMember, value: wire.ShareGroupMemberMetadataValue) -> ShareMember:
    """The member as its record describes it."""
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )


def read_target(value: wire.ShareGroupTargetAssignmentMemberValue) -> Assignment:
    """A target assignment from its record."""
    return _read_assignment(value.topic_partitions)


def read_current(member: ShareMember, value: wire.ShareGroupCurrentMemberAssignmentValue | None) -> ShareMember:
    """The member with what its record says that it has taken; nothing, by a tombstone."""
    if value is None:
        return replace(member, member_epoch=0, previous_member_epoch=0, assigned=frozenset())
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned=_read_assignment(value.assigned_partitions),
    )


def _read_assignment(topics: Iterable[Assigned]) -> Assignment:
    """(topic id, partition) pairs."""
    return frozenset((bytes(topic.topic_id), index) for topic in topics for index in topic.partitions)


def read_state_partitions(fields: wire.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """Which partitions have their state."""

    def states(
        topics: Iterable[Info],
    ) -> dict[bytes, TopicState]:
        return {bytes(each.topic_id): TopicState(each.topic_name, frozenset(each.partitions)) for each in topics}

    return StatePartitions(
        states(fields.initializing_topics),
        states(fields.initialized_topics),
        {bytes(each.topic_id): each.topic_name for each in fields.deleting_topics},
    )
