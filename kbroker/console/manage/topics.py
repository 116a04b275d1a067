"""Topics: made, deleted, given more partitions, emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration import topics as administration
from kbroker.administration.records import delete_records, from_time
from kbroker.administration.topics import BY_DEFAULT
from kbroker.console.group_lag import reads
from kbroker.console.manage.context import listed, plural
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import EARLIEST, LATEST, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

MOST_PARTITIONS = 1 << 20
MOST_NAMED = 20
WHERE = ("offset", "time", "all")


async def _asked_creation(
    context: Context, fields: Fields, *, validate_only: bool
) -> wire.CreateTopicsResponse.CreatableTopicResult:
    topic = administration.NewTopic(
        fields.text("name"),
        fields.number("partitions", BY_DEFAULT, 1, MOST_PARTITIONS),
        fields.number("replicas", BY_DEFAULT, 1, 1000),
        fields.settings("settings"),
    )
    (row,) = await administration.create_topics(context.client, [topic], validate_only=validate_only)
    refuse(row.error_code, row.error_message)
    return row


async def plan_creation(context: Context, fields: Fields) -> Plan:
    """By the controller itself, which checks name, settings, rights and quotas."""
    row = await _asked_creation(context, fields, validate_only=True)
    settings = fields.settings("settings")
    name = fields.text("name")
    known = row.num_partitions > 0
    partitions = row.num_partitions if known else fields.number("partitions", BY_DEFAULT, 1)
    replicas = row.replication_factor if known else fields.number("replicas", BY_DEFAULT, 1)
    sentences = [
        f"The topic {name} is made, with {_or_default(partitions, 'partition')} and "
        f"{_or_default(replicas, 'replica')} of each.",
        f"On it is set {listed(settings)}." if settings else "All its settings are the broker's defaults.",
    ]
    warnings = ["Names with a dot and names with an underscore share the names of Kafka's metrics."] * (
        "." in name or "_" in name
    )
    return Plan(
        f"Create the topic {name}",
        sentences,
        {
            "name": name,
            "partitions": partitions if partitions > 0 else None,
            "replicas": replicas if replicas > 0 else None,
            "settings": settings,
        },
        [partitions, replicas],
        warnings,
        button="Create it",
    )


def _or_default(number: int, noun: str) -> str:
    return plural(number, noun) if number > 0 else f"the default number of {noun}s"


async def create(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_creation`."""
    row = await _asked_creation(context, fields, validate_only=False)
    await context.settle(lambda image: row.name in image.topics)
    return Done([f"The topic {row.name} is there."])


async def plan_deletion(context: Context, fields: Fields) -> Plan:
    """What is lost, and which groups read it."""
    topic = context.topic(fields.text("name"))
    context.require(Operation.DELETE, ResourceKind.TOPIC, topic.name)
    count = await context.record_count(topic)
    groups = context.parts.services.group_coordinator.registry.groups.values()
    readers = sorted(
        group.group_id
        for group in list(groups)
        if reads(group, topic.name) and context.parts.may(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id)
    )
    sentences = [
        f"The topic {topic.name} is deleted, with {plural(len(topic.partitions), 'partition')} and "
        f"{'the records of all' if count is None else plural(count, 'record')}. Nothing brings them back.",
    ]
    warnings = []
    if readers:
        more = len(readers) - MOST_NAMED
        named = ", ".join(readers[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        warnings.append(f"Groups that read it, and lose their offsets of it: {named}.")
    if topic.is_internal:
        warnings.append("It is an internal topic: groups and transactions of the cluster are kept there.")
    if context.parts.services.config.get("auto.create.topics.enable"):
        warnings.append("auto.create.topics.enable is on: a client that still uses it makes an empty one of its name.")
    return Plan(
        f"Delete the topic {topic.name}",
        sentences,
        {"name": topic.name},
        [uuid_to_text(topic.topic_id), len(topic.partitions)],
        warnings,
        confirm=topic.name,
        button="Delete it",
    )


async def delete(context: Context, fields: Fields, plan: Plan) -> Done:
    """By name: the plan has just seen that it is the same topic."""
    name = fields.text("name")
    (row,) = await administration.delete_topics(context.client, [name])
    refuse(row.error_code, row.error_message)
    await context.settle(lambda image: name not in image.topics)
    return Done([f"The topic {name} is deleted."])


async def plan_partitions(context: Context, fields: Fields) -> Plan:
    """By the controller itself."""
    topic = context.topic(fields.text("name"))
    count = fields.number("count", None, 1, MOST_PARTITIONS)
    await administration.add_partitions(context.client, topic.name, count, validate_only=True)
    before = len(topic.partitions)
    return Plan(
        f"Add partitions to {topic.name}",
        [
            f"The topic has {plural(count, 'partition')} afterwards; it has {before} now.",
            "Consumers of groups get the new ones with their next look at the metadata.",
        ],
        {"name": topic.name, "count": count},
        [uuid_to_text(topic.topic_id), before],
        [
            "Keys go to other partitions from then on: records of one key lie in two, and their order is lost.",
            "There is no way back to fewer partitions.",
        ],
        button="Add them",
    )


async def add_partitions(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_partitions`."""
    name, count = fields.text("name"), fields.number("count", None, 1, MOST_PARTITIONS)
    await administration.add_partitions(context.client, name, count)
    await context.settle(lambda image: name in image.topics and len(image.topics[name].partitions) >= count)
    return Done([f"The topic {name} has {plural(count, 'partition')}."])


async def plan_truncation(context: Context, fields: Fields) -> Plan:
    """Before which offset each partition's records go: of a time or an offset, or all that there are by now."""
    topic = context.topic(fields.text("name"))
    context.require(Operation.DELETE, ResourceKind.TOPIC, topic.name)
    policy = topic.configs.get("cleanup.policy", ",".join(context.parts.services.config.get("log.cleanup.policy")))
    if "delete" not in policy:
        raise KafkaError.of(
            ErrorCode.POLICY_VIOLATION,
            f"cleanup.policy of {topic.name} is {policy}: records are deleted only where delete is part of it",
        )
    targets = fields.offsets("offsets")
    indexes = sorted(targets) if targets is not None else context.partitions(topic, fields)
    first = await context.client.offsets(topic.name, indexes, EARLIEST)
    last = await context.client.offsets(topic.name, indexes, LATEST)
    if targets is None:
        targets = await _targets(context, fields, topic.name, indexes, last)
    rows = []
    for index in indexes:
        before = min(max(targets[index], first[index]), last[index])
        targets[index] = before
        if before > first[index]:
            rows.append((index, first[index], last[index], before, before - first[index]))
    kept = {str(row[0]): targets[row[0]] for row in rows}
    if not rows:
        raise BadParameterError("no record is before that: nothing would be deleted")
    deleted = sum(row[4] for row in rows)
    return Plan(
        f"Delete records of {topic.name}",
        [
            f"Up to {plural(deleted, 'record')} of {plural(len(rows), 'partition')} are deleted: those before the "
            "offsets below. Later ones stay, and nothing brings the others back.",
            "Consumers that are behind go on where auto.offset.reset says.",
        ],
        {"name": topic.name, "offsets": kept},
        uuid_to_text(topic.topic_id),
        ["The topic is compacted: the newest values of keys may be among them."] * ("compact" in policy),
        Table(("Partition", "First offset", "End", "Delete before", "Records"), rows),
        confirm=topic.name,
        button="Delete them",
    )


async def _targets(
    context: Context, fields: Fields, topic: str, indexes: Sequence[int], last: Mapping[int, int]
) -> dict[int, int]:
    where = fields.choice("where", WHERE)
    if where == "all":
        return dict(last)
    if where == "time":
        ends = {(topic, index): last[index] for index in indexes}
        return {i: offset for (_, i), offset in (await from_time(context.client, ends, fields.number("value"))).items()}
    return dict.fromkeys(indexes, fields.number("value"))


async def truncate(context: Context, fields: Fields, plan: Plan) -> Done:
    """Each leader is asked for its partitions."""
    name = fields.text("name")
    targets = {(name, index): offset for index, offset in (fields.offsets("offsets") or {}).items()}
    rows, failures = [], []
    for (_, index), (code, start) in (await delete_records(context.client, targets)).items():
        if code:
            failures.append(f"Partition {index}: {error_name(code)}.")
        else:
            rows.append((index, start))
    return Done(
        [f"The records of {plural(len(rows), 'partition')} are deleted."] if rows else [],
        Table(("Partition", "First offset"), sorted(rows)),
        failures,
    )


ACTIONS = {
    "topic.create": Action(plan_creation, create),
    "topic.delete": Action(plan_deletion, delete),
    "topic.partitions": Action(plan_partitions, add_partitions),
    "topic.truncate": Action(plan_truncation, truncate),
}
