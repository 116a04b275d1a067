"""Groups: moved to other offsets, without the offsets of a topic, deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.cluster.partition_reader import EARLIEST, LATEST
from kbroker.console.group_lines import SHARE, standing_of
from kbroker.console.manage.context import plural
from kbroker.console.manage.plan import Action, Done, Plan, Table, plan_without_topic
from kbroker.console.parameters import BadParameterError, NotThereError
from kbroker.console.viewer_client import patiently
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

Place = tuple[str, int]
WHERE = ("earliest", "latest", "offset", "time", "shift")
NO_MEMBER = ""
NO_GENERATION = -1


async def _members_of(context: Context, group_id: str, node_id: int) -> int:
    """How many members a group has; none where it is not there."""
    modern = wire.ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        (row,) = (await context.client.ask(wire.ConsumerGroupDescribeResponse, modern, node_id)).groups
        refuse(row.error_code, row.error_message)
        return len(row.members)
    except KafkaError as error:
        # The latter where the cluster has no groups of that kind.
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
    classic = wire.DescribeGroupsRequest(groups=[group_id])
    (known,) = (await context.client.ask(wire.DescribeGroupsResponse, classic, node_id)).groups
    if known.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        refuse(known.error_code)
    return len(known.members)


async def _committed(context: Context, group_id: str, node_id: int) -> dict[Place, int]:
    """The group's offsets; none for a group that is not there."""
    return await patiently(partial(_fetched, context, group_id, node_id))


async def _fetched(context: Context, group_id: str, node_id: int) -> dict[Place, int]:
    request = wire.OffsetFetchRequest
    answer = await context.client.ask(
        wire.OffsetFetchResponse,
        request(groups=[request.OffsetFetchRequestGroup(group_id=group_id, topics=None)]),
        node_id,
    )
    (group,) = answer.groups
    refuse(group.error_code)
    found = {}
    for topic in group.topics:
        name = topic.name or _name_of(context, topic.topic_id)
        for row in topic.partitions:
            if not row.error_code and row.committed_offset >= 0 and name is not None:
                found[name, row.partition_index] = row.committed_offset
    return found


def _name_of(context: Context, topic_id: bytes) -> str | None:
    topic = context.parts.services.metadata_cache.topic_by_id(topic_id)
    return None if topic is None else topic.name


async def plan_reset(context: Context, fields: Fields) -> Plan:
    """Old and new offsets of each partition."""
    group_id = fields.text("id")
    context.require(Operation.READ, ResourceKind.GROUP, group_id)
    node_id = await context.client.coordinator_of(group_id)
    committed = await _committed(context, group_id, node_id)
    members = await _members_of(context, group_id, node_id)
    refuse_members(group_id, members)
    targets = given_targets(fields) or await targets_of(
        context, fields, places_of(context, fields, committed), committed
    )
    return plan_of_targets(group_id, committed, targets)


def plan_of_targets(group_id: str, old: Mapping[Place, int], targets: Mapping[Place, int]) -> Plan:
    """What it means that a group goes on at `targets`."""
    rows = []
    for place in sorted(targets):
        now = old.get(place)
        if now != targets[place]:
            rows.append((*place, now, targets[place], None if now is None else targets[place] - now))
    if not rows:
        raise BadParameterError("nothing would change: the group is there already")
    again = [row for row in rows if row[4] is not None and row[4] < 0]
    skipped = [row for row in rows if row[4] is not None and row[4] > 0]
    warnings = []
    if again:
        warnings.append(f"Records are read again in {plural(len(again), 'partition')}.")
    if skipped:
        warnings.append(f"Records are never read in {plural(len(skipped), 'partition')}: they are skipped.")
    return Plan(
        f"Reset offsets of {group_id}",
        [f"The group goes on at other offsets in {plural(len(rows), 'partition')}, with its next start."],
        {"id": group_id, "offsets": [{"topic": row[0], "partition": row[1], "offset": row[3]} for row in rows]},
        [list(row[:3]) for row in rows],
        warnings,
        Table(("Topic", "Partition", "Now", "Then", "Moves by"), rows),
        button="Reset",
    )


def given_targets(fields: Fields) -> dict[Place, int]:
    """The offsets that a plan has found; none where it is yet to be made."""
    return {(each.text("topic"), each.number("partition")): each.number("offset") for each in fields.rows("offsets")}


def refuse_members(group_id: str, count: int) -> None:
    """KafkaError where a group has members."""
    if count:
        raise KafkaError.of(
            ErrorCode.NON_EMPTY_GROUP,
            f"the group {group_id} has {plural(count, 'member')}, which would go on where they are: stop them first",
        )


def places_of(context: Context, fields: Fields, committed: Mapping[Place, int]) -> list[Place]:
    """The partitions that are meant: of a topic, or all that the group has offsets of."""
    name = fields.text("topic", "")
    if not name:
        if not committed:
            raise BadParameterError("the group has committed nothing: name a topic")
        return [place for place in committed if context.parts.services.metadata_cache.topic(place[0]) is not None]
    topic = context.topic(name)
    chosen = fields.number("partition", -1, 0, 1 << 31)
    if chosen >= len(topic.partitions):
        raise BadParameterError(f"there is no partition {chosen} of {name}")
    return [(name, index) for index in ([chosen] if chosen >= 0 else range(len(topic.partitions)))]


async def targets_of(
    context: Context, fields: Fields, places: Iterable[Place], committed: Mapping[Place, int]
) -> dict[Place, int]:
    """Within what each partition has, as Kafka's own tool does."""
    where = fields.choice("where", WHERE)
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    found: dict[Place, int] = {}
    for topic, indexes in by_topic.items():
        first = await context.client.offsets(topic, indexes, EARLIEST)
        last = await context.client.offsets(topic, indexes, LATEST)
        at_time: Mapping[int, int] = {}
        if where == "time":
            at_time = await context.client.offsets(topic, indexes, fields.number("value"))
        for index in indexes:
            if where == "shift":
                old = committed.get((topic, index))
                if old is None:
                    continue  # There is nothing that could be moved.
                wanted = old + fields.number("value", None, -(1 << 62), 1 << 62)
            elif where == "time":
                wanted = last[index] if at_time[index] < 0 else at_time[index]
            elif where == "offset":
                wanted = fields.number("value")
            else:
                wanted = first[index] if where == "earliest" else last[index]
            found[topic, index] = min(max(wanted, first[index]), last[index])
    return found


async def reset(context: Context, fields: Fields, plan: Plan) -> Done:
    """A commit without a member, which a group takes while it has no members."""
    group_id = fields.text("id")
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for each in fields.rows("offsets"):
        by_topic.setdefault(each.text("topic"), []).append((each.number("partition"), each.number("offset")))
    request = wire.OffsetCommitRequest
    topics = [
        request.OffsetCommitRequestTopic(
            name=name,
            topic_id=context.topic(name).topic_id,
            partitions=[
                request.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
                )
                for index, offset in parts
            ],
        )
        for name, parts in by_topic.items()
    ]
    answer = await context.client.ask(
        wire.OffsetCommitResponse,
        request(group_id=group_id, generation_id_or_member_epoch=NO_GENERATION, member_id=NO_MEMBER, topics=topics),
        await context.client.coordinator_of(group_id),
    )
    failures = _failures(
        (topic.name or _name_of(context, topic.topic_id), row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    )
    done = sum(map(len, by_topic.values())) - len(failures)
    return Done([f"{plural(done, 'offset is', 'offsets are')} committed."] if done else [], None, failures)


def _failures(rows: Iterable[tuple[str | None, int, int]]) -> list[str]:
    """Of topics, partitions and codes."""
    return [f"{name}-{index}: {error_name(code)}." for name, index, code in rows if code]


async def plan_deletion(context: Context, fields: Fields) -> Plan:
    """What the group loses."""
    group_id = fields.text("id")
    context.require(Operation.DELETE, ResourceKind.GROUP, group_id)
    node_id = await context.client.coordinator_of(group_id)
    committed: Mapping[Place, int] = {}
    if node_id == context.parts.services.node_id:
        group = context.parts.services.group_coordinator.registry.find(group_id)
        if group is None:
            raise NotThereError(f"there is no group {group_id}")
        standing = standing_of(group)
        members = standing.member_count
        if standing.group_type != SHARE:
            committed = await _committed(context, group_id, node_id)
    else:
        members = await _members_of(context, group_id, node_id)
        committed = await _committed(context, group_id, node_id)
    refuse_members(group_id, members)
    return Plan(
        f"Delete the group {group_id}",
        [
            f"The group {group_id} is deleted, with its offsets of {plural(len(committed), 'partition')}.",
            "Consumers that come under its name begin where their auto.offset.reset says.",
        ],
        {"id": group_id},
        sorted([*place, offset] for place, offset in committed.items()),
        table=Table(("Topic", "Partition", "Committed"), sorted((*place, at) for place, at in committed.items())),
        confirm=group_id,
        button="Delete it",
    )


async def delete(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_deletion`."""
    group_id = fields.text("id")
    node_id = await context.client.coordinator_of(group_id)
    answer = await context.client.ask(
        wire.DeleteGroupsResponse, wire.DeleteGroupsRequest(groups_names=[group_id]), node_id
    )
    (row,) = answer.results
    refuse(row.error_code)
    return Done([f"The group {group_id} is deleted."])


async def plan_forgetting(context: Context, fields: Fields) -> Plan:
    """The offsets of one topic."""
    group_id, name = fields.text("id"), fields.text("topic")
    context.require(Operation.DELETE, ResourceKind.GROUP, group_id)
    committed = await _committed(context, group_id, await context.client.coordinator_of(group_id))
    rows = sorted((index, offset) for (topic, index), offset in committed.items() if topic == name)
    if not rows:
        raise NotThereError(f"the group {group_id} has no offsets of {name}")
    sentences = [
        f"The group {group_id} loses its offsets of {plural(len(rows), 'partition')} of {name}.",
        "While a member subscribes to the topic, the broker refuses it.",
    ]
    title = f"Forget the offsets of {name} in {group_id}"
    return plan_without_topic(title, sentences, group_id, name, rows, "Committed", "Forget them")


async def forget(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_forgetting`."""
    group_id, name = fields.text("id"), fields.text("topic")
    node_id = await context.client.coordinator_of(group_id)
    request = wire.OffsetDeleteRequest
    committed = await _committed(context, group_id, node_id)
    indexes = sorted(index for topic, index in committed if topic == name)
    partitions = [request.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    answer = await context.client.ask(
        wire.OffsetDeleteResponse,
        request(group_id=group_id, topics=[request.OffsetDeleteRequestTopic(name=name, partitions=partitions)]),
        node_id,
    )
    refuse(answer.error_code)
    failures = _failures(
        (topic.name, row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions
    )
    gone = len(indexes) - len(failures)
    return Done([f"{plural(gone, 'offset is', 'offsets are')} forgotten."] if gone else [], None, failures)


ACTIONS = {
    "group.reset": Action(plan_reset, reset),
    "group.delete": Action(plan_deletion, delete),
    "group.forget": Action(plan_forgetting, forget),
}
