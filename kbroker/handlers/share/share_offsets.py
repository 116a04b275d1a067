"""Start offsets of share groups, for administrators (KIP-932): DescribeShareGroupOffsets (API 90),
AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).

The last two need a group without members.  v1 of DescribeShareGroupOffsets adds the lag: the records from the start
offset to the high watermark that are neither acknowledged nor archived (KIP-1226); -1 if it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from kbroker.gate.access import may_group, may_topic, require_group, require_topic
from kbroker.handlers.groups.committed_state import ensure_group_topic
from kbroker.handlers.share.share_groups import check_share_groups
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.share.persister import UNINITIALIZED_START_OFFSET, SharePartitionKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.coordinator.share.share_groups import ShareGroups
    from kbroker.handlers.services import RequestContext, Services
    from kbroker.metadata.image import TopicImage

    Asked = wire.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic
    Described = wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic

UNKNOWN_LAG = -1


class SharePosition(NamedTuple):
    """Where a share group stands in a partition; `lag` is -1 where it is not known."""

    start_offset: int
    leader_epoch: int
    lag: int


NO_SUCH_TOPIC = "This server does not host this topic-partition."


async def handle_describe_offsets(ctx: RequestContext, request: wire.DescribeShareGroupOffsetsRequest) -> Struct:
    """Versions 0 and 1.  Without topics: all that the group reads."""
    response = wire.DescribeShareGroupOffsetsResponse
    known = ctx.services.metadata_cache.topic
    pace = ctx.services.slices.pace()
    groups = []
    for asked in request.groups:
        await pace
        described = response.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        try:
            check_share_groups(ctx)
            if not may_group(ctx, Operation.DESCRIBE, asked.group_id):
                raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            # As in Kafka, requests for unknown topics never reach the group, so an empty group id is no error for them.
            named = not asked.topics or any(map(known, (each.topic_name for each in asked.topics)))
            if not asked.group_id and named:
                raise KafkaError.of(ErrorCode.INVALID_GROUP_ID)
            described.topics = await _described_topics(ctx, asked.group_id, asked.topics, pace)
        except KafkaError as error:
            described.error_code, described.error_message = error.code, error.message
        groups.append(described)
    return response(groups=groups)


def _check_group(ctx: RequestContext, operation: Operation, group_id: str) -> None:
    check_share_groups(ctx)
    require_group(ctx, operation, group_id)
    if not group_id:
        raise InvalidGroupIdError()


async def _described_topics(
    ctx: RequestContext, group_id: str, asked: Iterable[Asked] | None, pace: Pace
) -> list[Described]:
    response = wire.DescribeShareGroupOffsetsResponse
    cache = ctx.services.metadata_cache
    wanted: Iterable[tuple[str, Sequence[int]]]
    if asked is None:
        known = ctx.services.share_groups.describe(group_id).state_partitions.initialized.values()
        wanted = (
            (state.name, sorted(state.partitions)) for state in known if may_topic(ctx, Operation.DESCRIBE, state.name)
        )
    else:
        wanted = ((topic.topic_name, topic.partitions) for topic in asked)
    topics = []
    for name, indexes in wanted:
        await pace
        image = cache.topic(name)
        refusal = None
        if not may_topic(ctx, Operation.DESCRIBE, name):
            image, refusal = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for index in indexes:
            await pace
            partitions.append(await _described_partition(ctx, group_id, image, index, refusal))
        topics.append(
            response.DescribeShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=ZERO_UUID if image is None else image.topic_id, partitions=partitions
            )
        )
    return topics


async def _described_partition(
    ctx: RequestContext, group_id: str, topic: TopicImage | None, index: int, refusal: ErrorCode | None
) -> wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition:
    answer = wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNINITIALIZED_START_OFFSET
    )
    try:
        if refusal is not None:
            raise KafkaError.of(refusal, "Topic authorization failed.")
        if topic is None:
            return answer
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopicOrPartitionError()
        position = await share_position(ctx.services, group_id, topic, index)
        if position is not None:
            answer.start_offset, answer.leader_epoch, answer.lag = position
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


async def share_position(services: Services, group_id: str, topic: TopicImage, index: int) -> SharePosition | None:
    """Where a share group stands in a partition; None where it has no state.  Raises KafkaError."""
    key = SharePartitionKey(group_id, topic.topic_id, index)
    state = await services.share_states.summary(key)
    if state is None:
        return None
    lag = UNKNOWN_LAG
    if state.start_offset >= 0 and state.delivery_complete_count >= 0:
        try:
            end = services.replica_manager.partition(topic.name, index).log.high_watermark
            lag = max(0, end - state.start_offset - state.delivery_complete_count)
        except NotLeaderOrFollowerError:
            # The high watermark is known to another broker, the leader: the lag stays -1.
            pass
    return SharePosition(state.start_offset, state.leader_epoch, lag)


async def handle_alter_offsets(ctx: RequestContext, request: wire.AlterShareGroupOffsetsRequest) -> Struct:
    """Version 0: partitions begin anew at the offsets that are named."""
    response = wire.AlterShareGroupOffsetsResponse
    services = ctx.services
    try:
        _check_group(ctx, Operation.READ, request.group_id)
        await ensure_group_topic(ctx)
        services.share_groups.check_alterable(request.group_id)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    pace = services.slices.pace()
    topics = []
    for asked in request.topics:
        await pace
        is_readable = may_topic(ctx, Operation.READ, asked.topic_name)
        image = services.metadata_cache.topic(asked.topic_name) if is_readable else None
        partitions = []
        for each in asked.partitions:
            await pace
            answer = response.AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            try:
                require_topic(ctx, Operation.READ, asked.topic_name)
                if image is None or not 0 <= each.partition_index < len(image.partitions):
                    raise UnknownTopicOrPartitionError(NO_SUCH_TOPIC)
                await services.share_groups.alter_offset(
                    request.group_id, image.topic_id, image.name, each.partition_index, each.start_offset
                )
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            partitions.append(answer)
        topics.append(
            response.AlterShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                topic_id=ZERO_UUID if image is None else image.topic_id,
                partitions=partitions,
            )
        )
    services.share_partitions.forget_group(request.group_id)
    return response(responses=topics)


async def handle_delete_offsets(ctx: RequestContext, request: wire.DeleteShareGroupOffsetsRequest) -> Struct:
    """Version 0: the state of whole topics is forgotten."""
    response = wire.DeleteShareGroupOffsetsResponse
    services = ctx.services
    try:
        _check_group(ctx, Operation.DELETE, request.group_id)
        services.share_groups.empty(request.group_id)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message)
    pace = services.slices.pace()
    topics = []
    for asked in request.topics:
        await pace
        image = services.metadata_cache.topic(asked.topic_name)
        answer = response.DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        try:
            require_topic(ctx, Operation.READ, asked.topic_name)
            if image is None:
                raise UnknownTopicOrPartitionError(NO_SUCH_TOPIC)
            answer.topic_id = image.topic_id
            await services.share_groups.delete_offsets(request.group_id, image.topic_id)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        topics.append(answer)
    services.share_partitions.forget_group(request.group_id)
    return response(responses=topics)


async def delete_share_group(ctx: RequestContext, group_id: str) -> ErrorCode:
    """Before DeleteGroups deletes a group: if it is a share group, the state of its partitions goes first."""
    groups: ShareGroups | None = ctx.services.share_groups
    if groups is None:
        return ErrorCode.NONE
    try:
        if await groups.delete_state(group_id):
            ctx.services.share_partitions.forget_group(group_id)
    except GroupIdNotFoundError:
        pass
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, handle_describe_offsets),
    Handler(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, handle_alter_offsets),
    Handler(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, handle_delete_offsets),
)
