"""Groups: moved to other offsets, without the offsets of a topic, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration import groups as administration
from kbroker.console.group_lines import SHARE, standing_of
from kbroker.console.manage.context import plural
from kbroker.console.manage.plan import Action, Done, Plan, Table, plan_without_topic
from kbroker.console.parameters import BadParameterError, NotThereError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kbroker.administration.admin import Place
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields


async def plan_reset(context: Context, fields: Fields) -> Plan:
    """Old and new offsets of each partition."""
    group_id = fields.text("id")
    context.require(Operation.READ, ResourceKind.GROUP, group_id)
    committed = await administration.committed_offsets(context.client, group_id)
    members = len((await administration.describe_group(context.client, group_id)).members)
    refuse_members(group_id, members)
    return plan_of_targets(group_id, committed, await targets_of(context, fields, committed))


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
    if name:
        return [(name, index) for index in context.partitions(context.topic(name), fields)]
    if not committed:
        raise BadParameterError("the group has committed nothing: name a topic")
    return [place for place in committed if context.parts.services.metadata_cache.topic(place[0]) is not None]


async def targets_of(context: Context, fields: Fields, committed: Mapping[Place, int]) -> dict[Place, int]:
    """Where the group goes on: as a plan has found it, or as the fields say."""
    given = given_targets(fields)
    if given:
        return given
    where, value = fields.choice("where", administration.WHERE), 0
    if where == "shift":
        value = fields.number("value", None, -(1 << 62), 1 << 62)
    elif where in ("offset", "time"):
        value = fields.number("value")
    places = places_of(context, fields, committed)
    return await administration.reset_targets(context.client, places, committed, where, value)


async def reset(context: Context, fields: Fields, plan: Plan) -> Done:
    """A commit without a member, which a group takes while it has no members."""
    group_id = fields.text("id")
    targets = given_targets(fields)
    for name, _ in targets:
        context.topic(name)
    failures = _failures(await administration.commit_offsets(context.client, group_id, targets))
    done = len(targets) - len(failures)
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
            committed = await administration.committed_offsets(context.client, group_id)
    else:
        members = len((await administration.describe_group(context.client, group_id)).members)
        committed = await administration.committed_offsets(context.client, group_id)
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
    await administration.delete_group(context.client, group_id)
    return Done([f"The group {group_id} is deleted."])


async def plan_forgetting(context: Context, fields: Fields) -> Plan:
    """The offsets of one topic."""
    group_id, name = fields.text("id"), fields.text("topic")
    context.require(Operation.DELETE, ResourceKind.GROUP, group_id)
    committed = await administration.committed_offsets(context.client, group_id)
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
    request = wire.OffsetDeleteRequest
    committed = await administration.committed_offsets(context.client, group_id)
    indexes = sorted(index for topic, index in committed if topic == name)
    partitions = [request.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    answer = await context.client.ask_coordinator(
        wire.OffsetDeleteResponse,
        request(group_id=group_id, topics=[request.OffsetDeleteRequestTopic(name=name, partitions=partitions)]),
        group_id,
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
