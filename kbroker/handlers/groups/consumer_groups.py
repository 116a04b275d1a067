"""Consumer groups of the new protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

ConsumerGroupHeartbeat v0-v1: a member joins (epoch 0), says that it is alive and what it owns, or leaves (-1, -2 for a
    static member that will be back).  v0 members may leave it to the coordinator to make their id; v1 members bring
    their own, and may subscribe by a regular expression.
ConsumerGroupDescribe v0-v1: v1 says which protocol each member speaks.

UNSUPPORTED_VERSION while the feature `group.version` is off, or `group.coordinator.rebalance.protocols` leaves out
`consumer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.coordinator.consumer.draft import HeartbeatAnswer, HeartbeatRequest
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.modern.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kbroker.coordinator.runtime.plan import write_error
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.gate.access import may_topic
from kbroker.handlers.groups.committed_state import answer_when_committed, ensure_group_topic, when_committed
from kbroker.handlers.groups.group_access import described_groups, refused_heartbeat, require_topics
from kbroker.handlers.groups.heartbeat_size import MOST_NAMES, MOST_PARTITIONS, check_count
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.pending import Pending
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.cache import MetadataCache

    Answer = wire.ConsumerGroupHeartbeatResponse
    Described = wire.ConsumerGroupDescribeResponse.DescribedGroup
    TopicRow = wire.ConsumerGroupDescribeResponse.TopicPartitions

# From this version of ConsumerGroupHeartbeat on, members make their ids themselves.
_MEMBERS_MAKE_IDS = 1
_NOT_SERVED = "The consumer group protocol is not enabled."


# ConsumerGroupHeartbeat


def handle_consumer_group_heartbeat(
    ctx: RequestContext, request: wire.ConsumerGroupHeartbeatRequest
) -> Struct | Pending:
    """ConsumerGroupHeartbeat v0-v1."""
    if not ctx.services.consumer_groups.is_enabled():
        return _refused(ErrorCode.UNSUPPORTED_VERSION, _NOT_SERVED)
    try:
        _check_size(request)
        refusal = refused_heartbeat(ctx, request.group_id, request.subscribed_topic_names)
        if refusal:
            return _refused(refusal)
        _check(ctx, request)
        heartbeat = _read(ctx, request)
        outcome = ctx.services.consumer_groups.heartbeat(heartbeat)
        if outcome.answer.lasts and outcome.is_committed:
            client_host = ctx.connection.peer_host
            ctx.renewal = ctx.services.consumer_groups.renewal(heartbeat, ctx.client_id, client_host)
            ctx.cacheable = ctx.renewal is not None
    except KafkaError as error:
        return _refused(write_error(error), error.message)
    return answer_when_committed(ctx, outcome, _response, _refused)


def _check_size(request: wire.ConsumerGroupHeartbeatRequest) -> None:
    check_count([request.subscribed_topic_names or ()], MOST_NAMES, "topics")
    check_count([row.partitions for row in request.topic_partitions or ()], MOST_PARTITIONS, "partitions")


def _read(ctx: RequestContext, request: wire.ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        request.group_id,
        request.member_id or uuid_to_text(random_uuid()),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else frozenset(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else {row.topic_id: frozenset(row.partitions) for row in owned},
        ctx.client_id or "",
        f"/{ctx.connection.peer_host}",
        None if ctx.gate is None else partial(may_topic, ctx, Operation.DESCRIBE, quietly=True),
    )


def _check(ctx: RequestContext, request: wire.ConsumerGroupHeartbeatRequest) -> None:
    """What a request must say for any group.  Raises KafkaError."""
    epoch = request.member_epoch
    if not request.member_id and (ctx.api_version >= _MEMBERS_MAKE_IDS or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH):
        raise InvalidRequestError("MemberId can't be empty.")
    _check_not_empty("GroupId", request.group_id)
    _check_not_empty("InstanceId", request.instance_id)
    _check_not_empty("RackId", request.rack_id)
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    ctx.services.consumer_groups.check_assignor(request.server_assignor)


def _check_not_empty(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise InvalidRequestError(f"{name} can't be empty.")


def _response(answer: HeartbeatAnswer) -> Answer:
    response = wire.ConsumerGroupHeartbeatResponse
    assigned = answer.assigned
    if assigned is None:
        return response(
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
        )
    row = response.TopicPartitions
    return response(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=response.Assignment(
            topic_partitions=[
                row(topic_id=topic_id, partitions=sorted(epochs)) for topic_id, epochs in assigned.items()
            ]
        ),
    )


def _refused(code: ErrorCode, message: str | None = None) -> Answer:
    return wire.ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


# ConsumerGroupDescribe


async def handle_consumer_group_describe(
    ctx: RequestContext, request: wire.ConsumerGroupDescribeRequest
) -> wire.ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe v0-v1."""
    response = wire.ConsumerGroupDescribeResponse
    is_enabled = ctx.services.consumer_groups.is_enabled()
    if is_enabled:
        await ensure_group_topic(ctx)

    async def describe(group_id: str, pace: Pace) -> Described:
        group, assignor = ctx.services.consumer_groups.describe(group_id)
        line = await _described(ctx, group, assignor, pace)
        require_topics(
            ctx,
            (
                row.topic_name
                for member in line.members
                for assignment in (member.assignment, member.target_assignment)
                for row in assignment.topic_partitions
            ),
        )
        return line

    return response(groups=await described_groups(ctx, request, response.DescribedGroup, is_enabled, describe))


async def _described(ctx: RequestContext, group: ConsumerGroup, assignor: str, pace: Pace) -> Described:
    line = wire.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
    )
    # A snapshot of the members: a member never changes, but the group may during the awaits below.
    members = [(member, group.targets.get(member.member_id, {})) for member in group.members.values()]
    for member, target in members:
        await pace
        line.members.append(_member(member, target, ctx.services.metadata_cache))
    return line


def _member(
    member: ConsumerMember, target: Mapping[bytes, Iterable[int]], cache: MetadataCache
) -> wire.ConsumerGroupDescribeResponse.Member:
    response = wire.ConsumerGroupDescribeResponse
    # A member still owns the partitions that it has not given up yet.
    has: dict[bytes, list[int]] = {topic_id: list(epochs) for topic_id, epochs in member.assigned.items()}
    for topic_id, epochs in member.pending_revocation.items():
        has.setdefault(topic_id, []).extend(epochs)
    return response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=response.Assignment(topic_partitions=_rows(has, cache)),
        target_assignment=response.Assignment(topic_partitions=_rows(target, cache)),
        member_type=1 if member.classic is None else 0,
    )


def _rows(assignment: Mapping[bytes, Iterable[int]], cache: MetadataCache) -> list[TopicRow]:
    row = wire.ConsumerGroupDescribeResponse.TopicPartitions
    topics = [(cache.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items()]
    return [
        row(topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(partitions))
        for topic, partitions in topics
        if topic is not None
    ]


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, handle_consumer_group_heartbeat, cacheable=True),
    Handler(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, when_committed(handle_consumer_group_describe)),
)
