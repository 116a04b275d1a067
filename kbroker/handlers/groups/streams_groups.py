"""Streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe.

StreamsGroupHeartbeat v0: a member joins (epoch 0) and brings the topology, says that it is alive and which tasks it
    has, or leaves (-1).  Internal topics that are missing are made meanwhile, if the client may create topics.
    As in Kafka 4.3, static members, task offsets, warm-up tasks of members and source topics by regular expressions are
    refused with INVALID_REQUEST.
StreamsGroupDescribe v0.

UNSUPPORTED_VERSION while the feature `streams.version` is off, or `group.coordinator.rebalance.protocols` leaves out
`streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.coordinator.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kbroker.coordinator.runtime.plan import write_error
from kbroker.coordinator.streams import records
from kbroker.coordinator.streams.configuration import InternalTopic, Status, StatusLine
from kbroker.coordinator.streams.draft import HeartbeatAnswer, HeartbeatRequest
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.tasks import OwnedTasks, Partitions, Tasks
from kbroker.coordinator.streams.topology import TopicInfo, invalid_topology
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.gate.access import may_cluster, may_group, may_topic
from kbroker.handlers.groups.committed_state import answer_when_committed, ensure_group_topic, when_committed
from kbroker.handlers.groups.group_access import described_groups, require_topics
from kbroker.handlers.groups.heartbeat_size import MOST_NAMES, check_count
from kbroker.handlers.table import Handler
from kbroker.metadata import topic_names
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

    Answer = wire.StreamsGroupHeartbeatResponse
    Request = wire.StreamsGroupHeartbeatRequest
    Described = wire.StreamsGroupDescribeResponse.DescribedGroup

Row = TypeVar("Row")
_NAMED = "tasks, topics, settings and tags"
_NOT_SERVED = "The streams group protocol is not enabled."


# StreamsGroupHeartbeat


def handle_streams_group_heartbeat(ctx: RequestContext, request: Request) -> Struct | Pending:
    """StreamsGroupHeartbeat v0."""
    if not ctx.services.streams_groups.is_enabled():
        return _refused(ErrorCode.UNSUPPORTED_VERSION, _NOT_SERVED)
    try:
        if not may_group(ctx, Operation.READ, request.group_id):
            raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        _check_size(request)
        _check_topics(ctx, request)
        _check_served(request)
        _check(request)
        outcome = ctx.services.streams_groups.heartbeat(_read(ctx, request))
    except KafkaError as error:
        return _refused(write_error(error), error.message)
    return answer_when_committed(ctx, outcome, partial(_respond, ctx, request.group_id), _refused)


def _check_size(request: Request) -> None:
    """InvalidRequestError for what would hold the loop for long.  Topics of more partitions than that cannot be made in
    one request, and no group with many more of them can be stored."""
    lists: list[Sized] = [request.client_tags or ()]
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    lists += [rows for rows in roles if rows is not None]
    subtopologies = [] if request.topology is None else request.topology.subtopologies
    lists.append(subtopologies)
    check_count(lists, MOST_NAMES, _NAMED)
    lists += [row.partitions for rows in roles for row in rows or ()]
    for each in subtopologies:
        lists += (each.source_topics, each.source_topic_regex, each.repartition_sink_topics, each.copartition_groups)
        lists += (each.state_changelog_topics, each.repartition_source_topics)
    check_count(lists, MOST_NAMES, _NAMED)
    for each in subtopologies:
        lists += [topic.topic_configs for topic in (*each.state_changelog_topics, *each.repartition_source_topics)]
        for group in each.copartition_groups:
            lists += (group.source_topics, group.source_topic_regex, group.repartition_source_topics)
    check_count(lists, MOST_NAMES, _NAMED)


def _check_topics(ctx: RequestContext, request: Request) -> None:
    """The topics of a topology have names that topics may have, and the client may describe them."""
    if request.topology is None:
        return
    names = [
        name
        for each in request.topology.subtopologies
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    ]
    internal = [name for name in names if topic_names.is_internal(name)]
    if internal:
        raise invalid_topology(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        )
    illegal = [name for name in names if not topic_names.is_legal(name)]
    if illegal:
        raise invalid_topology(f"Topic names {','.join(illegal)} are not valid topic names.")
    if not all(may_topic(ctx, Operation.DESCRIBE, name) for name in names):
        raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _check_served(request: Request) -> None:
    """What Kafka 4.3 does not serve yet.  Raises KafkaError."""
    if request.instance_id is not None:
        raise InvalidRequestError("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidRequestError("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidRequestError("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidRequestError("WarmupTasks are not supported yet.")
    topology = request.topology
    if topology is not None and any(each.source_topic_regex for each in topology.subtopologies):
        raise InvalidRequestError("Regular expressions for source topics are not supported yet.")


def _check(request: Request) -> None:
    """What a request must say for any group.  Raises KafkaError."""
    epoch = request.member_epoch
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        raise InvalidRequestError("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(role is None for role in roles) and any(role is not None for role in roles):
        raise InvalidRequestError("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_EPOCH and request.topology is not None:
        raise InvalidRequestError("Topology can only be provided when (re-)joining.")


def _check_join(request: Request) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise InvalidRequestError(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequestError("Topology must be non-null when (re-)joining.")
    if request.topology.epoch < 0:
        raise invalid_topology("Topology epoch must be non-negative.")
    for each in request.topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions:
                raise invalid_topology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )


def _read(ctx: RequestContext, request: Request) -> HeartbeatRequest:
    topology, tags = request.topology, request.client_tags
    roles = [request.active_tasks, request.standby_tasks, request.warmup_tasks]
    said = [records.read_partitions(role) for role in roles if role is not None]
    tasks = Tasks(*said) if len(said) == len(roles) else None
    return HeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.endpoint_information_epoch,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if topology is None else records.read_subtopologies(topology.epoch, topology.subtopologies),
        tasks,
        request.process_id,
        records.read_endpoint(request.user_endpoint),
        None if tags is None else {tag.key: tag.value for tag in tags},
        request.shutdown_application,
        ctx.client_id or "",
        f"/{ctx.connection.peer_host}",
    )


def _respond(ctx: RequestContext, group_id: str, answer: HeartbeatAnswer) -> Answer:
    status = answer.status
    if answer.to_create:
        status = _create(ctx, group_id, answer)
    response = wire.StreamsGroupHeartbeatResponse
    has = answer.assigned
    endpoints = answer.endpoints
    return response(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        status=[response.Status(status_code=int(line.status), status_detail=line.detail) for line in status],
        active_tasks=None if has is None else _task_ids(response.TaskIds, has.active),
        standby_tasks=None if has is None else _task_ids(response.TaskIds, has.standby),
        warmup_tasks=None if has is None else _task_ids(response.TaskIds, has.warmup),
        endpoint_information_epoch=answer.endpoint_epoch,
        partitions_by_user_endpoint=None
        if endpoints is None
        else [
            response.EndpointToPartitions(
                user_endpoint=response.Endpoint(host=each.endpoint.host, port=each.endpoint.port),
                active_partitions=_topic_rows(each.active),
                standby_partitions=_topic_rows(each.standby),
            )
            for each in endpoints
        ],
    )


def _task_ids(row: Callable[..., Row], tasks: Mapping[str, Iterable[int]]) -> list[Row]:
    return [row(subtopology_id=name, partitions=sorted(partitions)) for name, partitions in sorted(tasks.items())]


def _topic_rows(topics: Partitions) -> list[wire.StreamsGroupHeartbeatResponse.TopicPartition]:
    row = wire.StreamsGroupHeartbeatResponse.TopicPartition
    return [row(topic=topic, partitions=sorted(partitions)) for topic, partitions in topics.items()]


def _create(ctx: RequestContext, group_id: str, answer: HeartbeatAnswer) -> tuple[StatusLine, ...]:
    """Make the missing internal topics; the status that says whether that can be done."""
    topics = answer.to_create
    refused = [] if may_cluster(ctx, Operation.CREATE, quietly=True) else _not_creatable(ctx, topics)
    if refused:
        return _explained(answer.status, f"Unauthorized to CREATE on topics {','.join(refused)}.")
    makers = ctx.services.internal_topics
    failures = makers.failures(topics)
    quota = None if ctx.gate is None else ctx.gate.mutation_quota(True)
    makers.create(group_id, topics, 2 * answer.heartbeat_interval_ms, quota)
    if failures:
        why = ", ".join(f"{name} ({reason})" for name, reason in sorted(failures.items()))
        return _explained(answer.status, f"Creation failed: {why}.")
    return answer.status


def _not_creatable(ctx: RequestContext, topics: Mapping[str, InternalTopic]) -> list[str]:
    return [name for name in sorted(topics) if not may_topic(ctx, Operation.CREATE, name, quietly=True)]


def _explained(status: Iterable[StatusLine], more: str) -> tuple[StatusLine, ...]:
    return tuple(
        StatusLine(line.status, f"{line.detail}; {more}") if line.status is Status.MISSING_INTERNAL_TOPICS else line
        for line in status
    )


def _refused(code: ErrorCode, message: str | None = None) -> Answer:
    return wire.StreamsGroupHeartbeatResponse(error_code=code, error_message=message)


# StreamsGroupDescribe


async def handle_streams_group_describe(
    ctx: RequestContext, request: wire.StreamsGroupDescribeRequest
) -> wire.StreamsGroupDescribeResponse:
    """StreamsGroupDescribe v0."""
    response = wire.StreamsGroupDescribeResponse
    is_enabled = ctx.services.streams_groups.is_enabled()
    if is_enabled:
        await ensure_group_topic(ctx)

    async def describe(group_id: str, pace: Pace) -> Described:
        group = ctx.services.streams_groups.described(group_id)
        require_topics(ctx, () if group.topology is None else group.topology.all_topics())
        # A snapshot of the members: a member never changes, but the group may during the awaits below.
        members = [(member, group.target_of(member.member_id)) for member in group.members.values()]
        line = response.DescribedGroup(
            group_id=group.group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=_topology(group),
        )
        for member, target in members:
            await pace
            line.members.append(_member(member, target))
        return line

    return response(groups=await described_groups(ctx, request, response.DescribedGroup, is_enabled, describe))


def _topology(group: StreamsGroup) -> wire.StreamsGroupDescribeResponse.Topology | None:
    """The topology with the partition counts of its internal topics, where these are known."""
    topology = group.topology
    if topology is None:
        return None
    response = wire.StreamsGroupDescribeResponse
    configured = group.known.configured
    decided = (configured.subtopologies or {}) if configured is not None and configured.is_ready else {}
    rows = []
    for name, each in sorted(topology.subtopologies.items()):
        counts = dict(decided[name].repartition_sources) | dict(decided[name].changelogs) if name in decided else {}
        rows.append(
            response.Subtopology(
                subtopology_id=name,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sinks),
                state_changelog_topics=_topic_infos(each.changelogs, counts),
                repartition_source_topics=_topic_infos(each.repartition_sources, counts),
            )
        )
    return response.Topology(epoch=topology.epoch, subtopologies=rows)


def _topic_infos(
    topics: Iterable[TopicInfo], counts: Mapping[str, InternalTopic]
) -> list[wire.StreamsGroupDescribeResponse.TopicInfo]:
    response = wire.StreamsGroupDescribeResponse
    return [
        response.TopicInfo(
            name=topic.name,
            partitions=counts[topic.name].partitions if topic.name in counts else topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[response.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda each: each.name)
    ]


def _member(member: StreamsMember, target: Tasks) -> wire.StreamsGroupDescribeResponse.Member:
    response = wire.StreamsGroupDescribeResponse
    endpoint = member.endpoint
    return response.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else response.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[response.KeyValue(key=key, value=value) for key, value in sorted(member.client_tags.items())],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Tasks | OwnedTasks) -> wire.StreamsGroupDescribeResponse.Assignment:
    response = wire.StreamsGroupDescribeResponse
    return response.Assignment(
        active_tasks=_task_ids(response.TaskIds, tasks.active),
        standby_tasks=_task_ids(response.TaskIds, tasks.standby),
        warmup_tasks=_task_ids(response.TaskIds, tasks.warmup),
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, handle_streams_group_heartbeat),
    Handler(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, when_committed(handle_streams_group_describe)),
)
