"""The records of share groups in `__consumer_offsets`, as Kafka 4.3's group coordinator writes them.

    10 member    11 group epoch    12 epoch of the target assignment    13 target of a member
    14 what a member has taken     15 which partitions have their state

Keys begin with the type, values with version 0; a record without value deletes what its key names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15
RECORD_TYPES = {
    MEMBER: "ShareGroupMemberMetadata",
    EPOCH: "ShareGroupMetadata",
    TARGET_EPOCH: "ShareGroupTargetAssignmentMetadata",
    TARGET: "ShareGroupTargetAssignmentMember",
    CURRENT: "ShareGroupCurrentMemberAssignment",
    STATE_PARTITIONS: "ShareGroupStatePartitionMetadata",
}

_RECORDS = KindRecords(RECORD_TYPES)
_record, parse = _RECORDS.record, _RECORDS.parse
_STABLE = 0


def member_record(group_id: str, member: ShareMember) -> KeyValue:
    """Who a member is, and what it subscribes to."""
    value = wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return _record(MEMBER, wire.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group's epoch."""
    value = wire.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(EPOCH, wire.ShareGroupMetadataKey(group_id=group_id), value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> KeyValue:
    """The epoch that the targets were worked out for."""
    value = wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return _record(TARGET_EPOCH, wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> KeyValue:
    """What a member is to read."""
    value_class = wire.ShareGroupTargetAssignmentMemberValue
    value = value_class(
        topic_partitions=[
            value_class.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(target).items()
        ]
    )
    return _record(TARGET, wire.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


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
    return _record(
        CURRENT, wire.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value
    )


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
    return _record(STATE_PARTITIONS, wire.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def by_topic(assignment: Iterable[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    """Sorted partitions by topic id."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return topics


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """The records that delete a member."""
    return [
        _record(CURRENT, wire.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        _record(TARGET, wire.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        _record(MEMBER, wire.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[KeyValue]:
    """The records that delete a group without members."""
    return [
        _record(STATE_PARTITIONS, wire.ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        _record(TARGET_EPOCH, wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        _record(EPOCH, wire.ShareGroupMetadataKey(group_id=group_id), None),
    ]


def read_assignment(topics: Iterable[Assigned]) -> Assignment:
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
