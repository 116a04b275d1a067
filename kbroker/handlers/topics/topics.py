"""CreateTopics: v0-v7.  CreatePartitions: v0-v3.  DeleteTopics: v0-v6.

CreateTopics and CreatePartitions
- One result per topic, errors with Kafka's texts.  Valid topics are made in one transaction before the answer.  The
  request's timeout only limits the wait for a controller that has just been elected; a timeout of 0 or less is
  REQUEST_TIMED_OUT before anything is done.  v1+ (CreatePartitions: all): `validate_only` makes nothing.
- CreateTopics v5+: the topic's partition count, replication factor and settings; v7+: its id.  A name that the request
  repeats is INVALID_REQUEST.  Counts of -1 take the broker's defaults, from any version on, as in Kafka.
- More than 10,000 new partitions in a request are POLICY_VIOLATION for all its topics (Kafka's CreatePartitions says
  UNKNOWN_SERVER_ERROR).

A `controller_mutation_rate` counts partitions that are made or deleted: CreateTopics v6+, CreatePartitions v3+ and
DeleteTopics v5+ answer THROTTLING_QUOTA_EXCEEDED for a topic behind the one that used it up; older versions do all, and
mute the connection.

DeleteTopics
- v0-v5 by name; v6+ by name or by id.  v5+ has error texts.  Names and ids that the request repeats are refused, also
  an id next to the name that it stands for.
- With `delete.topic.enable` off: TOPIC_DELETION_DISABLED; before v3, INVALID_REQUEST.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.requests import NewPartitions, NewTopic, TopicOutcome
from kbroker.errors import ErrorCode, KafkaError, RequestTimedOutError, bare
from kbroker.gate.access import may_cluster, may_topic
from kbroker.handlers.table import Handler
from kbroker.handlers.topics.config_entries import topic_entries
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID

if TYPE_CHECKING:
    Deleted = wire.DeleteTopicsResponse.DeletableTopicResult
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import ClusterImage
    from kbroker.quotas.mutation_quota import MutationQuota

logger = logging.getLogger("kbroker.handlers")

TOPIC_DELETION_DISABLED_FROM = 3
CONFIGS_FROM = schema("CreateTopicsResponse").first_version("topics.configs")
TOPICS_BY_ID_FROM = schema("DeleteTopicsRequest").first_version("topics")
# From these versions on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
Named = TypeVar("Named", NewTopic, NewPartitions)
STRICT_CREATE, STRICT_GROW, STRICT_DELETE = 6, 3, 5

NO_SUCH_TOPIC = "This server does not host this topic-partition."
NOT_ALLOWED = "Topic authorization failed."
NO_SUCH_TOPIC_ID = "This server does not host this topic ID."


async def handle_create_topics(ctx: RequestContext, request: wire.CreateTopicsRequest) -> Struct:
    """CreateTopics v0-v7; see the module's docstring."""
    pace = ctx.services.slices.pace()
    new_topics = []
    for topic in request.topics:
        await pace
        new_topics.append(
            NewTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
                {config.name: config.value for config in topic.configs},
            )
        )
    allowed, refused = await _sort_allowed(new_topics, partial(may_create, ctx), "Authorization failed.", pace)
    outcomes = await _or_all_fail(
        ctx,
        [topic.name for topic in allowed],
        lambda: ctx.services.administration.create_topics(allowed, request.validate_only, _quota(ctx, STRICT_CREATE)),
        request.timeout_ms,
        pace,
    )
    response = wire.CreateTopicsResponse
    topics = []
    for outcome in (*outcomes, *refused):
        await pace
        topics.append(_created(ctx, outcome))
    return response(topics=topics)


async def _sort_allowed(
    asked: list[Named], may: Callable[[str], bool], text: str | None, pace: Pace
) -> tuple[list[Named], list[TopicOutcome]]:
    """The entries that the client is authorized for, and refusing outcomes for the others.  Repeated names pass: the
    controller refuses them."""
    counts: Counter[str] = Counter()
    for each in asked:
        await pace
        counts[each.name] += 1
    allowed = []
    refused = []
    for each in asked:
        await pace
        if counts[each.name] > 1 or may(each.name):
            allowed.append(each)
        else:
            error = KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
            refused.append(TopicOutcome(each.name, error=error))
    return allowed, refused


def may_create(ctx: RequestContext, name: str) -> bool:
    """Whether the client may make that topic: any, or this one."""
    return may_cluster(ctx, Operation.CREATE, quietly=True) or may_topic(ctx, Operation.CREATE, name)


def _quota(ctx: RequestContext, strict_from: int) -> MutationQuota | None:
    """What the client's changes of topics are counted against, if anything."""
    return None if ctx.gate is None else ctx.gate.mutation_quota(ctx.api_version >= strict_from)


def _created(ctx: RequestContext, outcome: TopicOutcome) -> wire.CreateTopicsResponse.CreatableTopicResult:
    response = wire.CreateTopicsResponse
    topic = outcome.topic
    if topic is None:
        code, text = _code_and_text(outcome)
        return response.CreatableTopicResult(name=outcome.name, error_code=code, error_message=text)
    result = response.CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if not may_topic(ctx, Operation.DESCRIBE_CONFIGS, topic.name, quietly=True):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions, result.replication_factor = len(topic.partitions), topic.replication_factor
    if ctx.api_version >= CONFIGS_FROM:
        result.configs = [
            response.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.value_source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(ctx.services.config, topic.configs, read=False)
        ]
    return result


async def handle_create_partitions(ctx: RequestContext, request: wire.CreatePartitionsRequest) -> Struct:
    """CreatePartitions v0-v3; see the module's docstring."""
    pace = ctx.services.slices.pace()
    growths = []
    for topic in request.topics:
        await pace
        assigned = topic.assignments
        brokers = None if assigned is None else [assignment.broker_ids for assignment in assigned]
        growths.append(NewPartitions(topic.name, topic.count, brokers))
    allowed, refused = await _sort_allowed(growths, partial(may_topic, ctx, Operation.ALTER), None, pace)
    outcomes = await _or_all_fail(
        ctx,
        [growth.name for growth in allowed],
        lambda: ctx.services.administration.create_partitions(allowed, request.validate_only, _quota(ctx, STRICT_GROW)),
        request.timeout_ms,
        pace,
    )
    response = wire.CreatePartitionsResponse
    results = []
    outcomes += refused
    outcomes.reverse()
    refused.clear()
    # What the request was made into is freed item by item.
    while outcomes:
        await pace
        outcome = outcomes.pop()
        code, text = _code_and_text(outcome)
        results.append(response.CreatePartitionsTopicResult(name=outcome.name, error_code=code, error_message=text))
    growths.clear()
    while allowed:
        await pace
        allowed.pop()
    return response(results=results)


async def _or_all_fail(
    ctx: RequestContext,
    names: list[str],
    change: Callable[[], Awaitable[list[TopicOutcome]]],
    timeout_ms: int,
    pace: Pace,
) -> list[TopicOutcome]:
    """The outcomes of `change`, or its error for every name when it fails as a whole."""
    try:
        if timeout_ms <= 0:
            raise RequestTimedOutError()
        await ctx.services.administration.ready(timeout_ms)
        return await change()
    except KafkaError as error:
        logger.warning("a request to change %d topic(s) failed: %s", len(names), error)
        refusal, outcomes = bare(error), []
        for name in dict.fromkeys(names):
            await pace
            outcomes.append(TopicOutcome(name, error=refusal))
        return outcomes


def _code_and_text(outcome: TopicOutcome) -> tuple[ErrorCode, str | None]:
    if outcome.error is None:
        return ErrorCode.NONE, None
    return outcome.error.code, outcome.error.message


async def handle_delete_topics(ctx: RequestContext, request: wire.DeleteTopicsRequest) -> Struct:
    """DeleteTopics v0-v6; see the module's docstring."""
    response = wire.DeleteTopicsResponse
    if ctx.api_version >= TOPICS_BY_ID_FROM:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    if not ctx.services.config.get("delete.topic.enable"):
        has_code = ctx.api_version >= TOPIC_DELETION_DISABLED_FROM
        code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
        return response(responses=[_deleted(name, topic_id, code) for name, topic_id in wanted])
    if request.timeout_ms <= 0:
        code = ErrorCode.REQUEST_TIMED_OUT
        return response(responses=[_deleted(name, topic_id, code) for name, topic_id in wanted])
    pace = ctx.services.slices.pace()
    controller = ctx.services.administration
    try:
        await controller.ready(request.timeout_ms)
        # The controller decides whether a topic exists: this broker's own metadata may be behind.
        image = controller.image()
    except KafkaError as error:
        return response(responses=[_deleted(name, topic_id, error.code, error.message) for name, topic_id in wanted])
    results, topic_ids = await _sort_out(ctx, image, wanted, pace)
    try:
        outcomes = await controller.delete_topics(topic_ids, _quota(ctx, STRICT_DELETE))
    except KafkaError as error:
        logger.error("cannot delete %d topic(s): %s", len(topic_ids), error)
        # Results of existing topics carry the name: before v6 nothing else in the answer identifies the topic.
        refusal, known = bare(error), map(image.topics_by_id.get, topic_ids)
        outcomes = [TopicOutcome("" if topic is None else topic.name, error=refusal) for topic in known]
    for topic_id, outcome in zip(topic_ids, outcomes, strict=True):
        await pace
        code, text = _code_and_text(outcome)
        results.append(_deleted(outcome.name or None, topic_id, code, text))
    return response(responses=results)


def _deleted(name: str | None, topic_id: bytes, code: ErrorCode, text: str | None = None) -> Deleted:
    return wire.DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=text
    )


async def _sort_out(
    ctx: RequestContext, image: ClusterImage, wanted: list[tuple[str | None, bytes]], pace: Pace
) -> tuple[list[Deleted], list[bytes]]:
    """Results for what cannot be deleted, and the ids of what can."""
    refused: list[Deleted] = []
    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for name, topic_id in wanted:
        await pace
        if name is not None and topic_id != ZERO_UUID:
            text = "You may not specify both topic name and topic id."
            refused.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, text))
        elif name is not None:
            names[name] += 1
        elif topic_id == ZERO_UUID:
            text = "Neither topic name nor id were specified."
            refused.append(_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, text))
        else:
            ids[topic_id] += 1
    accepted: dict[bytes, None] = {}
    supplied = set(ids)
    may_all = may_cluster(ctx, Operation.DELETE, quietly=True)
    for topic_id, count in ids.items():
        await pace
        known = image.topics_by_id.get(topic_id)
        if count > 1:
            refused.append(_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        elif known is None:
            refused.append(_deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, NO_SUCH_TOPIC_ID))
        elif not may_all and not may_topic(ctx, Operation.DELETE, known.name):
            shown = known.name if may_topic(ctx, Operation.DESCRIBE, known.name) else None
            refused.append(_deleted(shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ALLOWED))
        else:
            accepted[topic_id] = None
    for name, count in names.items():
        await pace
        topic = image.topics.get(name)
        code = ErrorCode.INVALID_REQUEST
        if count > 1:
            refused.append(_deleted(name, ZERO_UUID, code, "Duplicate topic name."))
        elif not (may_all or _may_delete_by_name(ctx, name, exists=topic is not None)):
            refused.append(_deleted(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ALLOWED))
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_deleted(name, ZERO_UUID, code, NO_SUCH_TOPIC))
        elif topic.topic_id in supplied:
            accepted.pop(topic.topic_id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            refused.append(_deleted(name, topic.topic_id, code, text))
        else:
            accepted[topic.topic_id] = None
    return refused, list(accepted)


def _may_delete_by_name(ctx: RequestContext, name: str, *, exists: bool) -> bool:
    """Only clients with DESCRIBE may learn whether the topic exists, and so name one that does."""
    return may_topic(ctx, Operation.DESCRIBE, name) and (not exists or may_topic(ctx, Operation.DELETE, name))


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.CREATE_TOPICS, 0, 7, handle_create_topics),
    Handler(ApiKey.CREATE_PARTITIONS, 0, 3, handle_create_partitions),
    Handler(ApiKey.DELETE_TOPICS, 0, 6, handle_delete_topics),
)
