"""Members of share groups (KIP-932): ShareGroupHeartbeat (API 76) and ShareGroupDescribe (77)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config.classes import assignor_name
from kbroker.coordinator.modern.group import LEAVE_EPOCH
from kbroker.coordinator.share.assignor import Assignment
from kbroker.coordinator.share.group import ShareGroup
from kbroker.coordinator.share.group_records import by_topic
from kbroker.coordinator.share.heartbeat import HeartbeatRequest
from kbroker.coordinator.share.member import ShareMember
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.handlers.groups.committed_state import ensure_group_topic
from kbroker.handlers.groups.group_access import described_groups, refused_heartbeat, require_topics
from kbroker.handlers.groups.heartbeat_size import MOST_NAMES, check_count
from kbroker.handlers.table import Handler
from kbroker.metadata.features import SHARE_VERSION
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.cache import MetadataCache


LONGEST_MEMBER_ID = 36


def has_share_groups(ctx: RequestContext) -> bool:
    """Not while `share.version` is 0."""
    return ctx.services.metadata_cache.image.features.level(SHARE_VERSION) > 0


def check_share_groups(ctx: RequestContext) -> None:
    """UNSUPPORTED_VERSION while `share.version` is 0."""
    if not has_share_groups(ctx):
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION)


async def handle_share_group_heartbeat(ctx: RequestContext, request: wire.ShareGroupHeartbeatRequest) -> Struct:
    """Version 1: the member makes its own id.  Epoch 0 joins, -1 leaves; what is null is as before."""
    response = wire.ShareGroupHeartbeatResponse
    names = request.subscribed_topic_names
    try:
        check_share_groups(ctx)
        check_count([names or ()], MOST_NAMES, "topics")
        refusal = refused_heartbeat(ctx, request.group_id, names)
        if refusal:
            return response(error_code=refusal)
        if len(request.member_id) > LONGEST_MEMBER_ID:
            raise InvalidRequestError(f"MemberId can't be longer than {LONGEST_MEMBER_ID} characters.")
        await ensure_group_topic(ctx)
        answer = await ctx.services.share_groups.heartbeat(
            HeartbeatRequest(
                request.group_id,
                request.member_id,
                request.member_epoch,
                request.rack_id,
                None if names is None else tuple(names),
                ctx.client_id or "",
                f"/{ctx.connection.peer_host}",
            )
        )
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    settings = ctx.services.share_partitions.settings(request.group_id)
    return response(
        member_id=request.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=0 if answer.member_epoch == LEAVE_EPOCH else settings.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assigned(answer.assignment),
    )


def _assigned(assignment: Assignment) -> wire.ShareGroupHeartbeatResponse.Assignment:
    response = wire.ShareGroupHeartbeatResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(assignment).items()
        ]
    )


async def handle_share_group_describe(ctx: RequestContext, request: wire.ShareGroupDescribeRequest) -> Struct:
    """Version 1.  A group that does not exist is GROUP_ID_NOT_FOUND."""
    response = wire.ShareGroupDescribeResponse
    assignor = assignor_name(ctx.services.config.get("group.share.assignors")[0])

    async def describe(group_id: str, _: Pace) -> wire.ShareGroupDescribeResponse.DescribedGroup:
        group = ctx.services.share_groups.describe(group_id)
        line = _described(ctx.services.metadata_cache, group, assignor)
        require_topics(ctx, (row.topic_name for member in line.members for row in member.assignment.topic_partitions))
        return line

    is_enabled = has_share_groups(ctx)
    return response(groups=await described_groups(ctx, request, response.DescribedGroup, is_enabled, describe))


def _described(
    cache: MetadataCache, group: ShareGroup, assignor: str
) -> wire.ShareGroupDescribeResponse.DescribedGroup:
    response = wire.ShareGroupDescribeResponse
    return response.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=[_described_member(cache, member) for member in group.members.values()],
    )


def _described_member(cache: MetadataCache, member: ShareMember) -> wire.ShareGroupDescribeResponse.Member:
    response = wire.ShareGroupDescribeResponse
    topics = []
    for topic_id, partitions in by_topic(member.assigned).items():
        topic = cache.topic_by_id(topic_id)
        if topic is not None:
            topics.append(response.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions))
    return response.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=response.Assignment(topic_partitions=topics),
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, handle_share_group_heartbeat),
    Handler(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, handle_share_group_describe),
)
