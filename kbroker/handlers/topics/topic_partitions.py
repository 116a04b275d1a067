"""DescribeTopicPartitions: v0.

Topics with their partitions, page by page (KIP-966): topics in order of name, at most `response_partition_limit`
partitions (itself between 1 and `max.request.partition.size.limit`), and a cursor where the next page starts.

- No names means all topics.  With names, the cursor must point at one of them, else every topic of the answer has
  INVALID_REQUEST; so has a negative partition in the cursor.
- Topics that sort before the cursor are left out.  If the cursor is behind a topic's last partition, the topic has no
  partitions in the answer.
- Unknown and illegal names are answered with their errors and do not count towards the page's limit.
- Topics that the client may not describe are left out of a list of all; named, they come last and are
  TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
- Authorized operations are always in; eligible leader replicas (KIP-966) are what the controller has stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.gate.access import may_topic
from kbroker.handlers.security.authorized_operations import NOT_REQUESTED, topic_operations
from kbroker.handlers.table import Handler
from kbroker.handlers.topics.partition_view import alive_for, view, working_directories
from kbroker.metadata.topic_names import is_internal, is_legal
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    Topic = wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import PartitionImage, TopicImage

NEWEST_METADATA_VERSION = schema("MetadataRequest").max_version
SORTED_AT_ONCE = 2_000


async def handle_describe_topic_partitions(ctx: RequestContext, request: wire.DescribeTopicPartitionsRequest) -> Struct:
    """DescribeTopicPartitions v0; see the module's docstring."""
    image = ctx.services.metadata_cache.image
    pace = ctx.services.slices.pace()
    requested = []
    for each in request.topics:
        await pace
        requested.append(each.name)
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (requested and cursor.topic_name not in requested)):
        return await _invalid_request(requested, pace)
    first_name = "" if cursor is None else cursor.topic_name
    limit = min(ctx.services.config.get("max.request.partition.size.limit"), max(1, request.response_partition_limit))
    response = wire.DescribeTopicPartitionsResponse
    alive = alive_for(ctx, image)
    topics: list[Topic] = []
    hidden: list[Topic] = []
    if requested:
        async for name in _in_order(requested, pace):
            await pace
            if name >= first_name and not may_topic(ctx, Operation.DESCRIBE, name):
                hidden.append(_refused(name))
    async for name in _in_order(requested or image.topics, pace):
        await pace
        if name < first_name or not may_topic(ctx, Operation.DESCRIBE, name):
            continue
        if limit <= 0:
            return _page(topics + hidden, name, 0)
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(ctx, name))
            continue
        start = cursor.partition_index if cursor is not None and name == first_name else 0
        end = min(len(topic.partitions), start + limit)
        topics.append(_topic(ctx, topic, topic.partitions[start:end], alive))
        if end < len(topic.partitions):
            return _page(topics + hidden, name, end)
        limit -= max(0, end - start)
    return response(topics=topics + hidden)


async def _in_order(names: Iterable[str], pace: Pace) -> AsyncIterator[str]:
    """Each name once, in order.  Portions are sorted one by one and merged as they are taken: sorting the million names
    that a message may hold would be one step of a second."""
    portions = []
    left = iter(names)
    while portion := sorted(islice(left, SORTED_AT_ONCE)):
        portions.append(portion)
        await pace
    last = None
    for name in merge(*portions):
        await pace
        if name != last:
            yield name
        last = name


def _page(topics: list[Topic], next_name: str, next_partition: int) -> Struct:
    response = wire.DescribeTopicPartitionsResponse
    return response(topics=topics, next_cursor=response.Cursor(topic_name=next_name, partition_index=next_partition))


async def _invalid_request(names: list[str], pace: Pace) -> Struct:
    response = wire.DescribeTopicPartitionsResponse
    topics = []
    for name in names:
        await pace
        topics.append(response.DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name))
    return response(topics=topics)


def _refused(name: str) -> Topic:
    return wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
    )


def _unknown(ctx: RequestContext, name: str) -> Topic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        # As in Kafka: a topic without a name has no operations.
        topic_authorized_operations=topic_operations(ctx, name) if name else NOT_REQUESTED,
    )


def _topic(
    ctx: RequestContext, topic: TopicImage, partitions: tuple[PartitionImage, ...], alive: frozenset[int]
) -> Topic:
    response = wire.DescribeTopicPartitionsResponse
    structs = []
    working = working_directories(ctx.services.metadata_cache.image)
    for partition in partitions:
        seen = view(partition, alive, NEWEST_METADATA_VERSION, working)
        # A replica on a failed log directory leads again once the directory is repaired, so it is listed as eligible,
        # and Kafka's answer has no error then.
        eligible = list(partition.elr) or ([] if seen.isr else list(partition.offline_replicas))
        last_known = list(partition.last_known_elr) or ([] if seen.isr else eligible)
        structs.append(
            response.DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if eligible else seen.error,
                partition_index=partition.partition,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(seen.replicas),
                isr_nodes=list(seen.isr),
                eligible_leader_replicas=eligible,
                last_known_elr=last_known,
                offline_replicas=list(seen.offline),
            )
        )
    return response.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=structs,
        topic_authorized_operations=topic_operations(ctx, topic.name),
    )


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, handle_describe_topic_partitions),)
