"""Metadata: v0-v13.

Brokers, and leaders and replicas of the topics that were asked for.

- Which topics: v0 empty means all; v1+ null means all and empty none.  v10+ answers have topic ids; v12+ requests may
  name topics by id.  If a request has any id, its names are ignored, as in Kafka.
- Names that do not exist are created when the request (v4+; before, always) and `auto.create.topics.enable` allow it.
  The answer is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, although the topic then exists: the client asks again.  With
  `kbroker.auto.create.answers.at.once` the topic is in the answer.  A topic that cannot be created is answered with the
  error of its creation, not forever with UNKNOWN_TOPIC_OR_PARTITION.
- Order: unknown ids, topics that exist, then the rest.  Repeated names are answered once.
- v1+: controller, rack, internal flag.  v2+: cluster id.  v5+: offline replicas.  v7+: leader epoch.  v8+: authorized
  operations when asked for (of the cluster: v8-v10).  v13+: an error code for the whole answer.
- Topics that the client may not describe are left out of a list of all; asked for, they are
  TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
- A broker that has just joined a cluster answers once its controller has sent the state of the cluster, or after 10 s.
  An earlier answer would have no topics, and clients would take them for deleted.
- A request that names a topic neither by name nor, from v12, by id is answered with INVALID_REQUEST throughout.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_topic
from kbroker.handlers.cluster.endpoints import brokers_shown, controller_shown, reachable_brokers
from kbroker.handlers.cluster.on_behalf import ask_creation
from kbroker.handlers.security.authorized_operations import (
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    cluster_operations,
    topic_operations,
)
from kbroker.handlers.table import Handler
from kbroker.handlers.topics import topic_partitions
from kbroker.handlers.topics.partition_view import LISTENER_NOT_FOUND_FROM, view, working_directories
from kbroker.handlers.topics.topics import may_create
from kbroker.metadata.topic_names import is_internal, is_legal
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    Topic = wire.MetadataResponse.MetadataResponseTopic
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import TopicImage

logger = logging.getLogger("kbroker.handlers")

TOPIC_ID_REQUESTS_FROM = 12
NEW_PARTITIONS_PER_REQUEST = 64
FIRST_METADATA_SECONDS = 10.0


async def handle_metadata(ctx: RequestContext, request: wire.MetadataRequest) -> Struct:
    """Metadata v0-v13; see the module's docstring."""
    pace = ctx.services.slices.pace()
    if not await _is_valid(request, ctx.api_version, pace):
        return await _invalid_request(request, pace)
    await ctx.services.metadata_cache.filled(FIRST_METADATA_SECONDS)
    refused_ids, names = await _resolve(ctx, request, pace)
    found: list[TopicImage] = []
    failed: list[tuple[str, ErrorCode]] = []
    if names is None:
        topics_of_all = ctx.services.metadata_cache.image.topics.values()
        found.extend(topic for topic in topics_of_all if may_topic(ctx, Operation.DESCRIBE, topic.name, quietly=True))
    else:
        await _look_up(ctx, names, request.allow_auto_topic_creation, found, failed, pace)
    # After the creations: they made a new image.
    image = ctx.services.metadata_cache.image
    response = wire.MetadataResponse
    brokers = reachable_brokers(ctx, image)
    alive = frozenset(broker.node_id for broker, _ in brokers)
    with_operations = request.include_topic_authorized_operations
    topics = []
    for topic_id, code in refused_ids:
        await pace
        topics.append(response.MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id))
    topics += await _structs(ctx, found, alive, with_operations, pace)
    for name, error in failed:
        await pace
        topic = response.MetadataResponseTopic(error_code=error, name=name)
        if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic.is_internal = is_internal(name)
            topic.topic_authorized_operations = topic_operations(ctx, name) if with_operations else NOT_REQUESTED
        topics.append(topic)
    shown = brokers_shown(ctx, image, brokers)
    answer = response(
        brokers=[
            response.MetadataResponseBroker(
                node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in shown
        ],
        cluster_id=image.cluster_id,
        controller_id=controller_shown(ctx, image, [broker for broker, _ in shown]),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(ctx)
    # Not cacheable if a topic is missing, as the next request may create it, depending on settings; nor if the image
    # has changed, as that invalidated the cache before this answer was in it.
    ctx.cacheable = not failed and ctx.services.metadata_cache.image is image
    return answer


def may_describe(ctx: RequestContext, name: str) -> bool:
    """Whether the client may see that topic."""
    return may_topic(ctx, Operation.DESCRIBE, name)


async def _is_valid(request: wire.MetadataRequest, version: int, pace: Pace) -> bool:
    for topic in request.topics or ():
        await pace
        if version < TOPIC_ID_REQUESTS_FROM:
            if topic.name is None or topic.topic_id != ZERO_UUID:
                return False
        elif topic.name is None and topic.topic_id == ZERO_UUID:
            return False
    return True


async def _invalid_request(request: wire.MetadataRequest, pace: Pace) -> Struct:
    response = wire.MetadataResponse
    topics = []
    for topic in request.topics or ():
        await pace
        topics.append(
            response.MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
            )
        )
    return response(error_code=ErrorCode.INVALID_REQUEST, topics=topics)


async def _resolve(
    ctx: RequestContext, request: wire.MetadataRequest, pace: Pace
) -> tuple[list[tuple[bytes, ErrorCode]], Iterable[str] | None]:
    """The ids that no topic has, or none that the client may see, and the names to look up: None for all."""
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        return [], None
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    for topic in request.topics:
        await pace
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
    if not ids:
        return [], names
    cache = ctx.services.metadata_cache
    known: list[str] = []
    refused: list[tuple[bytes, ErrorCode]] = []
    for topic_id in ids:
        await pace
        found = cache.topic_by_id(topic_id)
        if found is None:
            refused.append((topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not may_describe(ctx, found.name):
            refused.append((topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            known.append(found.name)
    return refused, known


async def _look_up(
    ctx: RequestContext,
    names: Iterable[str],
    allow_creation: bool,
    found: list[TopicImage],
    failed: list[tuple[str, ErrorCode]],
    pace: Pace,
) -> None:
    """Sort names into topics that exist, the missing ones created if allowed, and those that fail."""
    cache = ctx.services.metadata_cache
    missing: list[str] = []
    for name in names:
        await pace
        topic = cache.topic(name)
        if not may_describe(ctx, name):
            failed.append((name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            missing.append(name)
        else:
            found.append(topic)
    if not missing:
        return
    create = allow_creation and ctx.services.config.get("auto.create.topics.enable")
    created = await _create(ctx, [name for name in missing if may_create(ctx, name)]) if create else {}
    for name in missing:
        await pace
        outcome = created.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if create and not may_create(ctx, name):
            failed.append((name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not is_legal(name):
            failed.append((name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        elif isinstance(outcome, ErrorCode):
            failed.append((name, outcome))
        else:
            found.append(outcome)


async def _create(ctx: RequestContext, missing: Iterable[str]) -> dict[str, TopicImage | ErrorCode]:
    most = max(1, NEW_PARTITIONS_PER_REQUEST // ctx.services.config.get("num.partitions"))
    names = list(islice(filter(is_legal, missing), most))
    if not names:
        return {}
    try:
        outcomes = await ctx.services.controller.auto_create_topics_for(names, partial(ask_creation, ctx))
    except KafkaError as error:
        logger.error("cannot create %d topic(s) that %s asked for: %s", len(names), ctx.client_id, error)
        return dict.fromkeys(names, error.code)
    at_once = ctx.services.config.get("kbroker.auto.create.answers.at.once")
    created: dict[str, TopicImage | ErrorCode] = {}
    for name, outcome in outcomes.items():
        # Another request may have made it since it was found missing.
        topic = outcome.topic or ctx.services.metadata_cache.topic(name)
        if topic is None:
            created[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if outcome.error is None else outcome.error.code
        elif outcome.topic is None or at_once:
            created[name] = topic
        else:
            created[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return created


async def _structs(
    ctx: RequestContext,
    topics: list[TopicImage],
    alive: frozenset[int],
    with_operations: bool,
    pace: Pace,
) -> list[Topic]:
    """The topics' structs.  They are kept: what a client sees of a topic rarely changes, and is asked for often.

    What the client may do to a topic is part of what a struct is kept by."""
    version = ctx.api_version
    cache = ctx.services.metadata_cache
    view_of_version = 0 if version == 0 else 1 if version < LISTENER_NOT_FOUND_FROM else 2
    operations = TOPIC_OPERATIONS if with_operations else NOT_REQUESTED
    kept = cache.derived(("metadata", view_of_version, alive, operations))
    working: frozenset[bytes] | None = None
    structs = []
    for topic in topics:
        await pace
        if with_operations and ctx.gate is not None and operations != (allowed := topic_operations(ctx, topic.name)):
            operations = allowed
            kept = cache.derived(("metadata", view_of_version, alive, operations))
        struct = kept.get(topic.name)
        if struct is None:
            working = working_directories(cache.image) if working is None else working
            struct = await _topic(version, topic, alive, working, operations, pace)
            if cache.topic(topic.name) is topic:
                kept[topic.name] = struct
        structs.append(struct)
    return structs


async def _topic(
    version: int, topic: TopicImage, alive: frozenset[int], working: frozenset[bytes], operations: int, pace: Pace
) -> Topic:
    response = wire.MetadataResponse
    make = response.MetadataResponsePartition
    partitions = []
    for partition in topic.partitions:
        await pace
        seen = view(partition, alive, version, working)
        replicas = list(seen.replicas)
        partitions.append(
            make(
                error_code=seen.error,
                partition_index=partition.partition,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=replicas if seen.isr == seen.replicas else list(seen.isr),
                offline_replicas=list(seen.offline),
            )
        )
    return response.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.METADATA, 0, 13, handle_metadata, cacheable=True),
    *topic_partitions.HANDLERS,
)
