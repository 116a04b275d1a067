"""Records of streams groups in `__consumer_offsets`, byte for byte as Kafka 4.3's coordinator writes them.

    StreamsGroupMetadata (17)                  group epoch, hash of the topics, which topology was found to be valid
    StreamsGroupMemberMetadata (19)            what a member says of itself
    StreamsGroupTargetAssignmentMetadata (20)
    StreamsGroupTargetAssignmentMember (21)
    StreamsGroupCurrentMemberAssignment (22)   where a member stands
    StreamsGroupTopology (23)

A key is the record's type and version 0 of its fields; a value is version 0; null is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.coordinator.modern.group import LEAVE_EPOCH
from kbroker.coordinator.modern.kind_records import KindRecords
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.streams.member import Endpoint, MemberState, StreamsMember
from kbroker.coordinator.streams.tasks import NOTHING_OWNED, Epochs, OwnedTasks, Partitions, Tasks
from kbroker.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from kbroker.schemas import wire

if TYPE_CHECKING:
    SubtopologyRow = wire.StreamsGroupTopologyValue.Subtopology | wire.StreamsGroupHeartbeatRequest.Subtopology
    TopicRow = wire.StreamsGroupTopologyValue.TopicInfo | wire.StreamsGroupHeartbeatRequest.TopicInfo
    TasksRow = (
        wire.StreamsGroupHeartbeatRequest.TaskIds
        | wire.StreamsGroupTargetAssignmentMemberValue.TaskIds
        | wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds
    )

GROUP, MEMBER, TARGET, MEMBER_TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
RECORD_TYPES = {
    GROUP: "StreamsGroupMetadata",
    MEMBER: "StreamsGroupMemberMetadata",
    TARGET: "StreamsGroupTargetAssignmentMetadata",
    MEMBER_TARGET: "StreamsGroupTargetAssignmentMember",
    CURRENT: "StreamsGroupCurrentMemberAssignment",
    TOPOLOGY: "StreamsGroupTopology",
}
NOT_VALIDATED = -1

RECORDS = KindRecords(
    RECORD_TYPES, group=GROUP, member=MEMBER, target=TARGET, member_target=MEMBER_TARGET, current=CURRENT
)
_record, parse, removal, target_epoch = RECORDS.record, RECORDS.parse, RECORDS.removal, RECORDS.target_epoch


# Records of the group


def group_epoch(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> KeyValue:
    """The group's epoch, the hash of its topics, the epoch of the topology that was found valid (-1 for none), and the
    settings that assignments go by."""
    value_class = wire.StreamsGroupMetadataValue
    value = value_class(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            value_class.LastAssignmentConfig(key=key, value=each) for key, each in sorted(configs.items())
        ],
    )
    return _record(GROUP, value, group_id=group_id)


def topology(group_id: str, described: Topology) -> KeyValue:
    """What the application processes."""
    value_class = wire.StreamsGroupTopologyValue

    def infos(topics: Iterable[TopicInfo]) -> list[wire.StreamsGroupTopologyValue.TopicInfo]:
        return [
            value_class.TopicInfo(
                name=each.name,
                partitions=each.partitions,
                replication_factor=each.replication_factor,
                topic_configs=[value_class.TopicConfig(key=key, value=value) for key, value in each.configs],
            )
            for each in topics
        ]

    value = value_class(
        epoch=described.epoch,
        subtopologies=[
            value_class.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=infos(each.changelogs),
                repartition_sink_topics=list(each.repartition_sinks),
                repartition_source_topics=infos(each.repartition_sources),
                copartition_groups=[
                    value_class.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_sources),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in described.subtopologies.values()
        ],
    )
    return _record(TOPOLOGY, value, group_id=group_id)


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[KeyValue]:
    """The records that delete a group with all its members, in Kafka's order."""
    return [
        *RECORDS.removal_of_all(group_id, member_ids),
        _record(GROUP, None, group_id=group_id),
        _record(TOPOLOGY, None, group_id=group_id),
    ]


# Records of a member


def member_metadata(group_id: str, member: StreamsMember) -> KeyValue:
    """What a member says of itself."""
    value_class = wire.StreamsGroupMemberMetadataValue
    endpoint = member.endpoint
    value = value_class(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else value_class.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[value_class.KeyValue(key=key, value=tag) for key, tag in sorted(member.client_tags.items())],
    )
    return _record(MEMBER, value, group_id=group_id, member_id=member.member_id)


def target_assignment(group_id: str, member_id: str, tasks: Tasks) -> KeyValue:
    """A member's target assignment."""
    value_class = wire.StreamsGroupTargetAssignmentMemberValue

    def rows(partitions: Partitions) -> list[wire.StreamsGroupTargetAssignmentMemberValue.TaskIds]:
        return [
            value_class.TaskIds(subtopology_id=subtopology, partitions=sorted(indexes))
            for subtopology, indexes in sorted(partitions.items())
        ]

    value = value_class(
        active_tasks=rows(tasks.active), standby_tasks=rows(tasks.standby), warmup_tasks=rows(tasks.warmup)
    )
    return _record(MEMBER_TARGET, value, group_id=group_id, member_id=member_id)


def current_assignment(group_id: str, member: StreamsMember) -> KeyValue:
    """Where a member stands."""
    assigned, pending = member.assigned, member.pending_revocation
    value = wire.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=_without_epochs(assigned.standby),
        warmup_tasks=_without_epochs(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(pending.active),
        standby_tasks_pending_revocation=_without_epochs(pending.standby),
        warmup_tasks_pending_revocation=_without_epochs(pending.warmup),
    )
    return _record(CURRENT, value, group_id=group_id, member_id=member.member_id)


def _with_epochs(tasks: Epochs) -> list[wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    row = wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds
    return [
        row(
            subtopology_id=subtopology,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)],
        )
        for subtopology, epochs in sorted(tasks.items())
    ]


def _without_epochs(tasks: Partitions) -> list[wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    row = wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds
    return [
        row(subtopology_id=subtopology, partitions=sorted(indexes)) for subtopology, indexes in sorted(tasks.items())
    ]


# Reading


def read_topology(value: wire.StreamsGroupTopologyValue) -> Topology:
    """A topology from its record."""
    return read_subtopologies(value.epoch, value.subtopologies)


def read_subtopologies(epoch: int, rows: Iterable[SubtopologyRow]) -> Topology:
    """A topology from the rows of its record, or those of a heartbeat, which have the same fields."""
    return Topology.of(epoch, map(_subtopology, rows))


def _subtopology(row: SubtopologyRow) -> Subtopology:
    return Subtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.source_topic_regex),
        _infos(row.state_changelog_topics),
        tuple(row.repartition_sink_topics),
        _infos(row.repartition_source_topics),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in row.copartition_groups
        ),
    )


def _infos(rows: Iterable[TopicRow]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            row.name,
            row.partitions,
            row.replication_factor,
            tuple((each.key, each.value) for each in row.topic_configs),
        )
        for row in rows
    )


def read_partitions(rows: Iterable[TasksRow]) -> Partitions:
    """Tasks without epochs from their rows, in records or requests."""
    return {row.subtopology_id: frozenset(row.partitions) for row in rows}


def read_target(value: wire.StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    """A target assignment from its record."""
    return Tasks(
        read_partitions(value.active_tasks), read_partitions(value.standby_tasks), read_partitions(value.warmup_tasks)
    )


def read_member(member: StreamsMember, value: wire.StreamsGroupMemberMetadataValue) -> StreamsMember:
    """The member as its record describes it."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=read_endpoint(value.user_endpoint),
        client_tags={each.key: each.value for each in value.client_tags},
    )


def read_current(member: StreamsMember, value: wire.StreamsGroupCurrentMemberAssignmentValue | None) -> StreamsMember:
    """The member where its record says that it stands; nowhere, by a tombstone."""
    if value is None:
        return replace(
            member,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NOTHING_OWNED,
            pending_revocation=NOTHING_OWNED,
        )
    epoch = value.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=OwnedTasks(
            _read_epochs(value.active_tasks, epoch),
            read_partitions(value.standby_tasks),
            read_partitions(value.warmup_tasks),
        ),
        pending_revocation=OwnedTasks(
            _read_epochs(value.active_tasks_pending_revocation, epoch),
            read_partitions(value.standby_tasks_pending_revocation),
            read_partitions(value.warmup_tasks_pending_revocation),
        ),
    )


def _read_epochs(rows: Iterable[wire.StreamsGroupCurrentMemberAssignmentValue.TaskIds], member_epoch: int) -> Epochs:
    """Active tasks from their rows.  Where these have no epochs, the member's stands for them."""
    owned: dict[str, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        owned[row.subtopology_id] = dict(zip(row.partitions, epochs, strict=True))
    return owned


def read_endpoint(
    row: wire.StreamsGroupMemberMetadataValue.Endpoint | wire.StreamsGroupHeartbeatRequest.Endpoint | None,
) -> Endpoint | None:
    """An endpoint from its row, in a record or a request."""
    return None if row is None else Endpoint(row.host, row.port)
