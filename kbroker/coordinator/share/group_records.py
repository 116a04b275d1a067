"""The records of share groups in `__consumer_offsets`, as Kafka 4.3's group coordinator writes them.

    10 member    11 group epoch    12 epoch of the target assignment    13 target of a member
    14 what a member has taken     15 which partitions have their state

Keys begin with the type, values with version 0; a record without value deletes what its key names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.modern.kind_records import UnknownRecordError
from kbroker.coordinator.share.assignor import Assignment
from kbroker.coordinator.share.group import ShareGroup, ShareMember, StatePartitions, TopicState
from kbroker.coordinator.share.group_keys import (
    CURRENT,
    EPOCH,
    MEMBER,
    NAMES,
    RECORD_TYPE,
    STATE_PARTITIONS,
    TARGET,
    TARGET_EPOCH,
    key_of,
    program,
)
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.coordinator.classic.group_registry import GroupPartition

    Info = wire.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
    Assigned = (
        wire.ShareGroupTargetAssignmentMemberValue.TopicPartition
        | wire.ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    )

Record = tuple[bytes, bytes | None]

_OF_MEMBERS = frozenset({MEMBER, TARGET, CURRENT})
_VERSION = RECORD_TYPE.pack(0)
_STABLE = 0


def _value(record_type: int, value: Struct) -> bytes:
    return program(f"{NAMES[record_type]}Value").encode(value, _VERSION)


def member_record(group_id: str, member: ShareMember) -> Record:
    """Who a member is, and what it subscribes to."""
    value = wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return key_of(MEMBER, group_id, member.member_id), _value(MEMBER, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group's epoch."""
    value = wire.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return key_of(EPOCH, group_id), _value(EPOCH, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    """The epoch that the targets were worked out for."""
    value = wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return key_of(TARGET_EPOCH, group_id), _value(TARGET_EPOCH, value)


def target_record(group_id: str, member_id: str, target: Assignment) -> Record:
    """What a member is to read."""
    value_class = wire.ShareGroupTargetAssignmentMemberValue
    value = value_class(
        topic_partitions=[
            value_class.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(target).items()
        ]
    )
    return key_of(TARGET, group_id, member_id), _value(TARGET, value)


def current_record(group_id: str, member: ShareMember) -> Record:
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
    return key_of(CURRENT, group_id, member.member_id), _value(CURRENT, value)


def state_partitions_record(group_id: str, state: StatePartitions) -> Record:
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
    return key_of(STATE_PARTITIONS, group_id), _value(STATE_PARTITIONS, value)


def by_topic(assignment: Iterable[tuple[bytes, int]]) -> dict[bytes, list[int]]:
    """Sorted partitions by topic id."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return topics


def replay(partition: GroupPartition, key: bytes, value: bytes | None) -> None:
    """Apply a record of one of TYPES.  UnknownRecordError, and nothing has changed."""
    (record_type,) = RECORD_TYPE.unpack_from(key)
    name = NAMES[record_type]
    try:
        named = program(f"{name}Key").decode(key, RECORD_TYPE.size)
        fields = None
        if value is not None:
            if value[: RECORD_TYPE.size] != _VERSION:
                raise UnknownRecordError(f"a {name} of an unknown version")
            fields = program(f"{name}Value").decode(value, RECORD_TYPE.size)
    except DecodeError as error:
        raise UnknownRecordError(f"{name}: {error}") from error
    group = share_group(partition, named.group_id)
    if group is None:
        if fields is None:
            return
        group = ShareGroup(named.group_id)
        partition.group(named.group_id).become(group)
    group.changes += 1
    if record_type in _OF_MEMBERS:
        _replay_member(group, record_type, named.member_id, fields)
    elif record_type == EPOCH:
        if fields is None:
            partition.end_kind(named.group_id)
        else:
            group.apply_epoch(fields.epoch, fields.metadata_hash)
    elif record_type == TARGET_EPOCH:
        if fields is None:
            group.apply_no_assignment()
        else:
            group.apply_assignment_epoch(fields.assignment_epoch, fields.assignment_timestamp)
    else:
        group.state_partitions = StatePartitions() if fields is None else _state_partitions(fields)


def share_group(partition: GroupPartition, group_id: str) -> ShareGroup | None:
    """The share group of that id; None where there is none, or one of another kind."""
    group = partition.groups.get(group_id)
    return group.kind if group is not None and isinstance(group.kind, ShareGroup) else None


def _replay_member(group: ShareGroup, record_type: int, member_id: str, fields: Any) -> None:
    member = group.members.get(member_id)
    if record_type == TARGET:
        group.apply_target(member_id, None if fields is None else _assignment(fields.topic_partitions))
    elif record_type == CURRENT:
        if member is not None:
            group.apply_member(
                replace(
                    member,
                    member_epoch=0 if fields is None else fields.member_epoch,
                    previous_member_epoch=0 if fields is None else fields.previous_member_epoch,
                    assigned=frozenset() if fields is None else _assignment(fields.assigned_partitions),
                )
            )
    elif fields is None:
        group.apply_no_member(member_id)
    else:
        group.apply_member(
            replace(
                member or ShareMember(member_id),
                rack_id=fields.rack_id,
                client_id=fields.client_id,
                client_host=fields.client_host,
                topic_names=frozenset(fields.subscribed_topic_names),
            )
        )


def _assignment(topics: Iterable[Assigned]) -> Assignment:
    return frozenset((bytes(topic.topic_id), index) for topic in topics for index in topic.partitions)


def _state_partitions(fields: wire.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    def states(
        topics: Iterable[Info],
    ) -> dict[bytes, TopicState]:
        return {bytes(each.topic_id): TopicState(each.topic_name, frozenset(each.partitions)) for each in topics}

    return StatePartitions(
        states(fields.initializing_topics),
        states(fields.initialized_topics),
        {bytes(each.topic_id): each.topic_name for each in fields.deleting_topics},
    )
