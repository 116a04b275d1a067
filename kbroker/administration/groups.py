"""Groups: listed, described, moved to other offsets, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.administration.admin import by_topic, new_or_old
from kbroker.administration.records import from_time
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire
from kbroker.types import EARLIEST, LATEST, ZERO_UUID

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin, Place

DEAD = "Dead"
"""The state of a group that is not there, or is of another kind."""
WHERE = ("earliest", "latest", "offset", "time", "shift")
NO_MEMBER = ""
NO_GENERATION = -1
_CONSUMERS = "consumer"
_VERSION_BYTES = 2


class GroupMember(NamedTuple):
    """A member; `places`: the partitions that are assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    places: Sequence[Place]


class GroupDescription(NamedTuple):
    """A group of consumers of either protocol; the state as Kafka spells it."""

    state: str
    assignor: str
    members: Sequence[GroupMember]


async def list_groups(
    admin: Admin, node_id: int, kinds: Sequence[str] = ()
) -> list[wire.ListGroupsResponse.ListedGroup]:
    """The groups that a broker coordinates, of these kinds alone where some are named."""
    answer = await admin.ask(wire.ListGroupsResponse, wire.ListGroupsRequest(types_filter=[*kinds]), node_id)
    refuse(answer.error_code)
    return answer.groups


async def describe_group(admin: Admin, group_id: str) -> GroupDescription:
    """A group as its coordinator knows it."""
    modern = wire.ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        (row,) = (await admin.ask_coordinator(wire.ConsumerGroupDescribeResponse, modern, group_id)).groups
        refuse(row.error_code, row.error_message)
    except KafkaError as error:
        # The latter where the cluster has no groups of that kind.
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
    else:
        members = [
            GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                [(topic.topic_name, index) for topic in each.assignment.topic_partitions for index in topic.partitions],
            )
            for each in row.members
        ]
        return GroupDescription(row.group_state, row.assignor_name, members)
    return await _describe_classic(admin, group_id)


async def _describe_classic(admin: Admin, group_id: str) -> GroupDescription:
    classic = wire.DescribeGroupsRequest(groups=[group_id])
    (known,) = (await admin.ask_coordinator(wire.DescribeGroupsResponse, classic, group_id)).groups
    if known.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(DEAD, "", ())
    refuse(known.error_code, known.error_message)
    members = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _assigned(each.member_assignment) if known.protocol_type == _CONSUMERS else (),
        )
        for each in known.members
    ]
    return GroupDescription(known.group_state, known.protocol_data, members)


def _assigned(data: bytes) -> list[Place]:
    """Partitions of an assignment in the classic protocol; none where it is a client's own form."""
    try:
        return [(topic, index) for topic, partitions in classic_assignment(data) for index in partitions]
    except DecodeError:
        return []


def classic_assignment(data: bytes) -> list[tuple[str, list[int]]]:
    """Topics and partitions that a member of the classic protocol was given.  DecodeError."""
    if len(data) < _VERSION_BYTES:
        return []
    decoded = wire.ConsumerProtocolAssignment.program(0).decode(data, _VERSION_BYTES)
    return [(each.topic, sorted(each.partitions)) for each in decoded.assigned_partitions]


async def committed_offsets(admin: Admin, group_id: str) -> dict[Place, int]:
    """The group's offsets; none for a group that is not there."""
    return await admin.patiently(partial(_fetched, admin, group_id))


async def _fetched(admin: Admin, group_id: str) -> dict[Place, int]:
    request = wire.OffsetFetchRequest
    answer = await new_or_old(
        lambda asked: admin.ask_coordinator(wire.OffsetFetchResponse, asked, group_id),
        request(groups=[request.OffsetFetchRequestGroup(group_id=group_id, topics=None)]),
        request(group_id=group_id, topics=None),
    )
    found: dict[Place, int] = {}
    group = answer.groups[0] if answer.groups else answer
    refuse(group.error_code)
    for topic in group.topics:
        name = topic.name or admin.name_of(getattr(topic, "topic_id", ZERO_UUID))
        for row in topic.partitions:
            if not row.error_code and row.committed_offset >= 0 and name is not None:
                found[name, row.partition_index] = row.committed_offset
    return found


async def commit_offsets(
    admin: Admin, group_id: str, targets: Mapping[Place, int]
) -> list[tuple[str | None, int, int]]:
    """Commit for a group without members; topics, partitions and codes of what was refused."""
    request = wire.OffsetCommitRequest
    topics = [
        request.OffsetCommitRequestTopic(
            name=name,
            topic_id=admin.topic_id_of(name),
            partitions=[
                request.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=targets[name, index],
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(targets).items()
    ]
    answer = await admin.ask_coordinator(
        wire.OffsetCommitResponse,
        request(group_id=group_id, generation_id_or_member_epoch=NO_GENERATION, member_id=NO_MEMBER, topics=topics),
        group_id,
    )
    return [
        (topic.name or admin.name_of(topic.topic_id), row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code
    ]


async def reset_targets(
    admin: Admin, places: Iterable[Place], committed: Mapping[Place, int], where: str, value: int
) -> dict[Place, int]:
    """Where a group is to go on: WHERE, within what each partition has, as Kafka's own tool does.

    `value`: an offset, milliseconds since the epoch, or how far to shift; partitions without an offset to be shifted
    are left out.
    """
    places = [*places]
    first, last = await admin.offsets_of(places, EARLIEST), await admin.offsets_of(places, LATEST)
    at_time = await from_time(admin, last, value) if where == "time" else {}
    found: dict[Place, int] = {}
    for place in places:
        if where == "shift":
            if place not in committed:
                continue
            wanted = committed[place] + value
        elif where == "time":
            wanted = at_time[place]
        elif where == "offset":
            wanted = value
        else:
            wanted = first[place] if where == "earliest" else last[place]
        found[place] = min(max(wanted, first[place]), last[place])
    return found


async def delete_group(admin: Admin, group_id: str) -> None:
    """Delete a group without members, and its offsets."""
    request = wire.DeleteGroupsRequest(groups_names=[group_id])
    (row,) = (await admin.ask_coordinator(wire.DeleteGroupsResponse, request, group_id)).results
    refuse(row.error_code)


async def share_group_offsets(
    admin: Admin, group_id: str
) -> list[tuple[Place, wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]]:
    """Where the partitions of a share group begin, and how far behind it is."""
    request = wire.DescribeShareGroupOffsetsRequest
    asked = request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)])
    (group,) = (await admin.ask_coordinator(wire.DescribeShareGroupOffsetsResponse, asked, group_id)).groups
    refuse(group.error_code, group.error_message)
    return [((topic.topic_name, row.partition_index), row) for topic in group.topics for row in topic.partitions]
