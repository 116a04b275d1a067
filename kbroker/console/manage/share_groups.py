"""Share groups: begun anew at other offsets, without the state of a topic.  They have no committed offsets: where each
partition begins is in the state of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.manage.context import plural
from kbroker.console.manage.groups import given_targets, places_of, plan_of_targets, refuse_members, targets_of
from kbroker.console.manage.plan import Action, Done, Plan, plan_without_topic
from kbroker.console.parameters import NotThereError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields
    from kbroker.console.manage.groups import Place

NOT_BEGUN = -1


async def _starts(context: Context, group_id: str, node_id: int) -> dict[Place, int]:
    """Where the group's partitions begin; those that it has begun to read alone.  NotThereError."""
    described = wire.ShareGroupDescribeRequest(group_ids=[group_id])
    (known,) = (await context.client.ask(wire.ShareGroupDescribeResponse, described, node_id)).groups
    if known.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotThereError(f"there is no share group {group_id}")
    refuse(known.error_code, known.error_message)
    refuse_members(group_id, len(known.members))
    request = wire.DescribeShareGroupOffsetsRequest
    asked = request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)])
    (row,) = (await context.client.ask(wire.DescribeShareGroupOffsetsResponse, asked, node_id)).groups
    refuse(row.error_code, row.error_message)
    return {
        (topic.topic_name, each.partition_index): each.start_offset
        for topic in row.topics
        for each in topic.partitions
        if not each.error_code and each.start_offset > NOT_BEGUN
    }


async def plan_reset(context: Context, fields: Fields) -> Plan:
    """Old and new starts of each partition."""
    group_id = fields.text("id")
    context.require(Operation.READ, ResourceKind.GROUP, group_id)
    starts = await _starts(context, group_id, await context.client.coordinator_of(group_id))
    targets = given_targets(fields) or await targets_of(context, fields, places_of(context, fields, starts), starts)
    return plan_of_targets(group_id, starts, targets)


async def reset(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_reset`."""
    group_id, targets = fields.text("id"), given_targets(fields)
    request = wire.AlterShareGroupOffsetsRequest
    topics = [
        request.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                request.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for (topic, index), offset in targets.items()
                if topic == name
            ],
        )
        for name in sorted({topic for topic, _ in targets})
    ]
    node_id = await context.client.coordinator_of(group_id)
    answer = await context.client.ask(
        wire.AlterShareGroupOffsetsResponse, request(group_id=group_id, topics=topics), node_id
    )
    refuse(answer.error_code, answer.error_message)
    failures = [
        f"{topic.topic_name}-{row.partition_index}: {row.error_message or error_name(row.error_code)}"
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code
    ]
    done = len(targets) - len(failures)
    return Done([f"{plural(done, 'partition begins', 'partitions begin')} anew."] if done else [], None, failures)


async def plan_forgetting(context: Context, fields: Fields) -> Plan:
    """The state of one topic."""
    group_id, name = fields.text("id"), fields.text("topic")
    context.require(Operation.DELETE, ResourceKind.GROUP, group_id)
    starts = await _starts(context, group_id, await context.client.coordinator_of(group_id))
    rows = sorted((index, offset) for (topic, index), offset in starts.items() if topic == name)
    if not rows:
        raise NotThereError(f"the group {group_id} has no state of {name}")
    sentences = [f"The group {group_id} loses where it stands in {plural(len(rows), 'partition')} of {name}."]
    title = f"Forget the state of {name} in {group_id}"
    return plan_without_topic(title, sentences, group_id, name, rows, "Begins at", "Forget it")


async def forget(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_forgetting`."""
    group_id, name = fields.text("id"), fields.text("topic")
    request = wire.DeleteShareGroupOffsetsRequest
    topic = request.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
    answer = await context.client.ask(
        wire.DeleteShareGroupOffsetsResponse,
        request(group_id=group_id, topics=[topic]),
        await context.client.coordinator_of(group_id),
    )
    refuse(answer.error_code, answer.error_message)
    for row in answer.responses:
        refuse(row.error_code, row.error_message)
    return Done([f"The group {group_id} has forgotten {name}."])


ACTIONS = {
    "share.reset": Action(plan_reset, reset),
    "share.forget": Action(plan_forgetting, forget),
}
