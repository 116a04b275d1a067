"""Share groups: begun anew at other offsets, without the state of a topic.  They have no committed offsets: where each
partition begins is in the state of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration.admin import by_topic
from kbroker.administration.groups import share_group_offsets
from kbroker.console.manage.context import plural
from kbroker.console.manage.groups import given_targets, plan_of_targets, refuse_members, targets_of
from kbroker.console.manage.plan import Action, Done, Plan, plan_without_topic
from kbroker.console.parameters import NotThereError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.administration.admin import Place
    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

NOT_BEGUN = -1


async def _starts(context: Context, group_id: str) -> dict[Place, int]:
    """Where the group's partitions begin; those that it has begun to read alone.  NotThereError."""
    described = wire.ShareGroupDescribeRequest(group_ids=[group_id])
    (known,) = (await context.client.ask_coordinator(wire.ShareGroupDescribeResponse, described, group_id)).groups
    if known.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise NotThereError(f"there is no share group {group_id}")
    refuse(known.error_code, known.error_message)
    refuse_members(group_id, len(known.members))
    return {
        place: row.start_offset
        for place, row in await share_group_offsets(context.client, group_id)
        if not row.error_code and row.start_offset > NOT_BEGUN
    }


async def plan_reset(context: Context, fields: Fields) -> Plan:
    """Old and new starts of each partition."""
    group_id = fields.text("id")
    context.require(Operation.READ, ResourceKind.GROUP, group_id)
    starts = await _starts(context, group_id)
    return plan_of_targets(group_id, starts, await targets_of(context, fields, starts))


async def reset(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_reset`."""
    group_id, targets = fields.text("id"), given_targets(fields)
    request = wire.AlterShareGroupOffsetsRequest
    topics = [
        request.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                request.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=targets[name, index])
                for index in indexes
            ],
        )
        for name, indexes in by_topic(targets).items()
    ]
    answer = await context.client.ask_coordinator(
        wire.AlterShareGroupOffsetsResponse, request(group_id=group_id, topics=topics), group_id
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
    starts = await _starts(context, group_id)
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
    answer = await context.client.ask_coordinator(
        wire.DeleteShareGroupOffsetsResponse, request(group_id=group_id, topics=[topic]), group_id
    )
    refuse(answer.error_code, answer.error_message)
    for row in answer.responses:
        refuse(row.error_code, row.error_message)
    return Done([f"The group {group_id} has forgotten {name}."])


ACTIONS = {
    "share.reset": Action(plan_reset, reset),
    "share.forget": Action(plan_forgetting, forget),
}
