"""Records of consumer groups in `__consumer_offsets`, byte for byte as Kafka 4.3's coordinator writes them.

    ConsumerGroupMetadata (3)               group epoch, hash of the subscribed topics
    ConsumerGroupPartitionMetadata (4)      of Kafka 4.0 and before; only tombstones are written
    ConsumerGroupMemberMetadata (5)         what a member says of itself
    ConsumerGroupTargetAssignmentMetadata (6)
    ConsumerGroupTargetAssignmentMember (7)
    ConsumerGroupCurrentMemberAssignment (8) where a member stands
    ConsumerGroupRegularExpression (16)     the topics that a regular expression matches

A key is the record's type and version 0 of its fields; a value is version 0; null is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kbroker.coordinator.classic.messages import MemberProtocol
from kbroker.coordinator.consumer.assignors.group_spec import Assignment
from kbroker.coordinator.consumer.member import NOTHING_OWNED, ClassicMember, ConsumerMember, MemberState, Owned
from kbroker.coordinator.modern.group import LEAVE_EPOCH
from kbroker.coordinator.modern.kind_records import KindRecords
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.schemas import wire

GROUP, PARTITIONS, MEMBER, TARGET, MEMBER_TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
RECORD_TYPES = {
    GROUP: "ConsumerGroupMetadata",
    PARTITIONS: "ConsumerGroupPartitionMetadata",
    MEMBER: "ConsumerGroupMemberMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMetadata",
    MEMBER_TARGET: "ConsumerGroupTargetAssignmentMember",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
    REGEX: "ConsumerGroupRegularExpression",
}
RECORDS = KindRecords(
    RECORD_TYPES, group=GROUP, member=MEMBER, target=TARGET, member_target=MEMBER_TARGET, current=CURRENT
)
_record, parse, removal, target_epoch = RECORDS.record, RECORDS.parse, RECORDS.removal, RECORDS.target_epoch


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched in the metadata of `version`, looked up at `timestamp`, in ms."""

    topics: frozenset[str]
    version: int
    timestamp: int


# Records of the group


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group's epoch, and the hash of the topics that it subscribes to."""
    value = wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(GROUP, value, group_id=group_id)


def partitions_tombstone(group_id: str) -> KeyValue:
    """Forget what an older broker kept of the topics' partitions."""
    return _record(PARTITIONS, None, group_id=group_id)


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> KeyValue:
    """What a regular expression matches."""
    value = wire.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
    )
    return _record(REGEX, value, group_id=group_id, regular_expression=expression)


def regex_tombstone(group_id: str, expression: str) -> KeyValue:
    """No member subscribes to a regular expression any more."""
    return _record(REGEX, None, group_id=group_id, regular_expression=expression)


def group_tombstones(group_id: str, member_ids: Iterable[str], expressions: Iterable[str]) -> list[KeyValue]:
    """The records that delete a group with all its members, in Kafka's order."""
    return [
        *RECORDS.removal_of_all(group_id, member_ids),
        *(regex_tombstone(group_id, expression) for expression in expressions),
        partitions_tombstone(group_id),
        _record(GROUP, None, group_id=group_id),
    ]


# Records of a member


def member_metadata(group_id: str, member: ConsumerMember) -> KeyValue:
    """What a member says of itself."""
    value_class = wire.ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        metadata_class = value_class.ClassicMemberMetadata
        classic = metadata_class(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                value_class.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = value_class(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _record(MEMBER, value, group_id=group_id, member_id=member.member_id)


def target_assignment(group_id: str, member_id: str, assignment: Assignment) -> KeyValue:
    """A member's target assignment."""
    value_class = wire.ConsumerGroupTargetAssignmentMemberValue
    value = value_class(
        topic_partitions=[
            value_class.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
    return _record(MEMBER_TARGET, value, group_id=group_id, member_id=member_id)


def current_assignment(group_id: str, member: ConsumerMember) -> KeyValue:
    """Where a member stands."""
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return _record(CURRENT, value, group_id=group_id, member_id=member.member_id)


def _topic_partitions(owned: Owned) -> list[wire.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    row = wire.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    rows = []
    for topic_id, epochs in owned.items():
        partitions = sorted(epochs)
        epochs_in_order = [epochs[partition] for partition in partitions]
        rows.append(row(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs_in_order))
    return rows


# Reading


def read_member(member: ConsumerMember, value: wire.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member as its record describes it."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=_read_classic(value.classic_member_metadata),
    )


def read_target(value: wire.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """A target assignment from its record."""
    return {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions if row.partitions}


def read_current(
    member: ConsumerMember, value: wire.ConsumerGroupCurrentMemberAssignmentValue | None
) -> ConsumerMember:
    """The member where its record says that it stands; nowhere, by a tombstone."""
    if value is None:
        return replace(
            member,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NOTHING_OWNED,
            pending_revocation=NOTHING_OWNED,
        )
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_read_owned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_read_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _read_owned(
    rows: Iterable[wire.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> Owned:
    """Owned partitions from their record.  Brokers before 4.2 wrote no epochs: the member's stands for them."""
    owned: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            # A static member that has left has epoch -2.
            epochs = [max(member_epoch, 0)] * len(row.partitions)
        owned[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return owned


def _read_classic(value: wire.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None) -> ClassicMember | None:
    """What a classic member said, from its record."""
    if value is None:
        return None
    protocols = tuple(MemberProtocol(each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicMember(value.session_timeout_ms, protocols)
