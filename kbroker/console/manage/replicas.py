"""Where replicas are, and which of them leads: reassignments, and elections of preferred leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.manage.context import TIMEOUT_MS, plural
from kbroker.console.manage.fields import whole_number
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.error_codes import error_name
from kbroker.errors import ErrorCode, refuse
from kbroker.schemas import wire
from kbroker.security.authorizer import CLUSTER_NAME, Operation, ResourceKind
from kbroker.types import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields
    from kbroker.metadata.image import TopicImage

PREFERRED = 0
MOST_ID = (1 << 31) - 1


def _chosen(fields: Fields, topic: TopicImage) -> list[int]:
    chosen = fields.number("partition", -1, 0, MOST_ID)
    if chosen >= len(topic.partitions):
        raise BadParameterError(f"there is no partition {chosen} of {topic.name}")
    return [chosen] if chosen >= 0 else list(range(len(topic.partitions)))


def _ids(name: str, value: object) -> list[int]:
    parts = value if isinstance(value, list) else str(value or "").split(",")
    found = [whole_number(name, part, 0, MOST_ID) for part in parts]
    if not found or len(set(found)) != len(found):
        raise BadParameterError(f"{name} must be ids of brokers, each once, with commas between them")
    return found


def _assignments(context: Context, fields: Fields, topic: TopicImage) -> dict[int, list[int]]:
    """Replicas by partition: as given, or spread over the brokers that are named, one after the other."""
    given = fields.values.get("assignments")
    if isinstance(given, dict):
        found = {whole_number("a partition", key, 0, MOST_ID): _ids("replicas", ids) for key, ids in given.items()}
    else:
        brokers = _ids("brokers", fields.values.get("brokers"))
        found = {}
        for index in _chosen(fields, topic):
            now = topic.partitions[index].replicas
            factor = fields.number("replicas", len(now), 1, len(brokers)) if len(now) <= len(brokers) else None
            if factor is None:
                factor = fields.number("replicas", None, 1, len(brokers))
            found[index] = [brokers[(index + step) % len(brokers)] for step in range(factor)]
    known = context.parts.services.metadata_cache.image.brokers
    unknown = sorted({broker for ids in found.values() for broker in ids} - set(known))
    if unknown:
        raise BadParameterError(f"there is no broker {unknown[0]}; there are {', '.join(map(str, sorted(known)))}")
    if any(index >= len(topic.partitions) for index in found):
        raise BadParameterError(f"{topic.name} has {plural(len(topic.partitions), 'partition')}")
    return found


def _shown(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


async def plan_reassignment(context: Context, fields: Fields) -> Plan:
    """Which brokers have which partitions afterwards, and how much is copied."""
    topic = context.topic(fields.text("name"))
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    assignments = _assignments(context, fields, topic)
    moved = {
        index: ids for index, ids in sorted(assignments.items()) if list(topic.partitions[index].replicas) != list(ids)
    }
    if not moved:
        raise BadParameterError("nothing would change: the replicas are there already")
    rows = [(index, _shown(topic.partitions[index].replicas), _shown(ids)) for index, ids in moved.items()]
    new = sum(len(set(ids) - set(topic.partitions[index].replicas)) for index, ids in moved.items())
    fewer = [index for index, ids in moved.items() if len(ids) < len(topic.partitions[index].replicas)]
    return Plan(
        f"Move replicas of {topic.name}",
        [
            f"{plural(len(moved), 'partition has', 'partitions have')} other replicas afterwards; the first of each "
            "leads where it can.",
            f"{plural(new, 'replica is', 'replicas are')} copied whole to brokers that lack them; the partitions are "
            "served meanwhile, and what is no longer wanted goes when the new ones are in sync.",
        ],
        {"name": topic.name, "assignments": {str(index): ids for index, ids in moved.items()}},
        [uuid_to_text(topic.topic_id), [list(row[:2]) for row in rows]],
        [f"{plural(len(fewer), 'partition has', 'partitions have')} fewer copies afterwards."] * bool(fewer)
        + ["Copies take network and disks; leader.replication.throttled.rate bounds them."] * bool(new),
        Table(("Partition", "Now", "Then"), rows),
        button="Move them",
    )


async def _reassign(context: Context, topic: str, targets: Mapping[int, Sequence[int] | None]) -> Done:
    request = wire.AlterPartitionReassignmentsRequest
    partitions = [
        request.ReassignablePartition(partition_index=index, replicas=None if ids is None else list(ids))
        for index, ids in targets.items()
    ]
    answer = await context.client.ask_controller(
        wire.AlterPartitionReassignmentsResponse,
        request(timeout_ms=TIMEOUT_MS, topics=[request.ReassignableTopic(name=topic, partitions=partitions)]),
    )
    refuse(answer.error_code, answer.error_message)
    failures = [
        f"Partition {row.partition_index}: {row.error_message or error_name(row.error_code)}"
        for each in answer.responses
        for row in each.partitions
        if row.error_code
    ]
    begun = len(targets) - len(failures)
    said = "begun" if any(ids is not None for ids in targets.values()) else "called off"
    return Done([f"{plural(begun, 'move is', 'moves are')} {said}."] if begun else [], None, failures)


async def reassign(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_reassignment`."""
    topic = context.topic(fields.text("name"))
    return await _reassign(context, topic.name, _assignments(context, fields, topic))


async def plan_calling_off(context: Context, fields: Fields) -> Plan:
    """The moves that are under way."""
    topic = context.topic(fields.text("name"))
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    under_way = [each for each in topic.partitions if each.adding_replicas or each.removing_replicas]
    if not under_way:
        raise BadParameterError(f"no replica of {topic.name} is being moved")
    rows = [
        (
            each.partition,
            _shown(each.adding_replicas),
            _shown([broker for broker in each.replicas if broker not in each.adding_replicas]),
        )
        for each in under_way
    ]
    return Plan(
        f"Call off the moves of {topic.name}",
        [f"{plural(len(rows), 'partition keeps', 'partitions keep')} the replicas from before; copies so far go."],
        {"name": topic.name},
        [list(row) for row in rows],
        table=Table(("Partition", "Being added", "Stay"), rows),
        button="Call them off",
    )


async def call_off(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_calling_off`."""
    topic = context.topic(fields.text("name"))
    under_way = [each.partition for each in topic.partitions if each.adding_replicas or each.removing_replicas]
    return await _reassign(context, topic.name, dict.fromkeys(under_way))


async def plan_election(context: Context, fields: Fields) -> Plan:
    """The partitions that another replica leads than their first one."""
    topic = context.topic(fields.text("name"))
    context.require(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    rows = [
        (each.partition, each.leader, each.replicas[0], each.replicas[0] in each.isr)
        for each in (topic.partitions[index] for index in _chosen(fields, topic))
        if each.leader != each.replicas[0]
    ]
    ready = [row for row in rows if row[3]]
    if not ready:
        raise BadParameterError("nothing would change: the preferred replicas lead, or are not in sync")
    return Plan(
        f"Have preferred replicas lead {topic.name}",
        [f"{plural(len(ready), 'partition gets', 'partitions get')} another leader; clients follow by themselves."],
        {"name": topic.name, "partition": fields.values.get("partition")},
        [list(row) for row in ready],
        [f"{plural(len(rows) - len(ready), 'preferred replica is', 'preferred replicas are')} not in sync."]
        * (len(rows) > len(ready)),
        Table(("Partition", "Leader now", "Then"), [row[:3] for row in ready]),
        button="Elect them",
    )


async def elect(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_election`."""
    topic = context.topic(fields.text("name"))
    wanted = [
        each.partition
        for each in (topic.partitions[index] for index in _chosen(fields, topic))
        if each.leader != each.replicas[0] and each.replicas[0] in each.isr
    ]
    request = wire.ElectLeadersRequest
    answer = await context.client.ask_controller(
        wire.ElectLeadersResponse,
        request(
            election_type=PREFERRED,
            topic_partitions=[request.TopicPartitions(topic=topic.name, partitions=wanted)],
            timeout_ms=TIMEOUT_MS,
        ),
    )
    refuse(answer.error_code)
    failures = [
        f"Partition {row.partition_id}: {row.error_message or error_name(row.error_code)}"
        for each in answer.replica_election_results
        for row in each.partition_result
        if row.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    done = len(wanted) - len(failures)
    return Done([f"{plural(done, 'leader is', 'leaders are')} elected."] if done else [], None, failures)


ACTIONS = {
    "topic.reassign": Action(plan_reassignment, reassign),
    "topic.reassign.cancel": Action(plan_calling_off, call_off),
    "topic.elect": Action(plan_election, elect),
}
