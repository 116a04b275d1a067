"""Fetch (API 1): read record batches, waiting for them if asked to.

The answer names file regions, not bytes: record batches go from the page cache to the socket.  Sizes follow Kafka: the
first batch found comes whole even when it is larger than every limit, later partitions get what is left of `max_bytes`.

Most requests are served from their bytes (`FAST_FETCH`).  What is not plain by its form comes here decoded, and is read
by the same code: the session's plan (`replication.fetch_session`) gives the targets, `TargetsRead` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker._fast.log.fetch_target import FetchTarget
from kbroker._fast.net.pending import Pending
from kbroker._fast.requests.fast_fetch import FastFetch
from kbroker._fast.requests.fetch_answer import FetchRules, FetchVersions
from kbroker._fast.requests.targets_read import TargetsRead
from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster, may_topic
from kbroker.handlers.records.fetch_partition import FIRST_VERSION_WITH_TOPIC_IDS, failed, note_end, read_partition
from kbroker.handlers.records.old_fetch import handle_old_fetch
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.delayed_fetch import FetchWait
from kbroker.replication.fetch_session import FetchPlan, PartitionKey
from kbroker.replication.replica_selector import Reader
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import NO_LEADER_EPOCH, READ_COMMITTED, READ_UNCOMMITTED, ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.log.log_fields import RecordSource
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

FetchResponse = wire.FetchResponse
FetchableTopicResponse = FetchResponse.FetchableTopicResponse

FIRST_VERSION, FIRST_VERSION_OF_BATCHES, LAST_VERSION = 0, 4, 18
FIRST_VERSION_WITH_REPLICA_STATE = schema("FetchRequest").first_version("replica_state")
# From so many named partitions on, a fetch is served in slices of the loop's time (2,000 take some 2 ms).
MANY_PARTITIONS = 2_000
# The same for partitions that this broker does not lead: Python looks up and refuses each, so fewer take as long.
MANY_REFUSED = 400
STEP_PARTITIONS = 64


def handle_fetch(
    ctx: RequestContext, request: wire.FetchRequest
) -> Struct | Pending | Coroutine[object, None, Struct | Pending]:
    """Versions 0 to 18.  Up to v3: `old_fetch`.  v7 on: incremental sessions; v13 on: topics by id; v15 on: replica id
    in a tagged field.

    A follower reads to the log end, and its fetch offset tells the leader its position (`Partition.follower_fetched`).
    A fetch that names more than MANY_PARTITIONS, or more than MANY_REFUSED that are not led here, is served in slices
    of the loop's time, and pauses between two attempts.
    """
    if ctx.api_version < FIRST_VERSION_OF_BATCHES:
        return handle_old_fetch(ctx, request)
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    if _takes_long(ctx, request, by_id):
        return _fetch_many(ctx, request, by_id)
    targets = [_target(topic, partition, by_id) for topic in request.topics for partition in topic.partitions]
    plan = _plan(ctx, request, _named_once(targets), by_id)
    if not isinstance(plan, FetchPlan):
        return plan
    if ctx.gate is not None:
        refuse = _refusal(ctx, request, by_id)
        for target in plan.targets:
            target.refusal = refuse(target)
    if not _has_level(request) and any(_is_read(ctx, target, by_id) for target in plan.targets):
        return _refuse_level(ctx, request, plan, by_id)
    return _read(ctx, request, plan).start()


def _has_level(request: wire.FetchRequest) -> bool:
    return request.isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)


def _is_read(ctx: RequestContext, target: FetchTarget, by_id: bool) -> bool:
    """Whether the answer has more of a partition than an error: the client may read it, and it is in the metadata, or
    this broker has a replica of it already (ZooKeeper's controllers send LeaderAndIsr before UpdateMetadata)."""
    cache, manager = ctx.services.metadata_cache, ctx.services.replica_manager
    topic = cache.topic_by_id(target.topic_id) if by_id else cache.topic(target.topic or "")
    if target.refusal:
        return False
    if topic is not None:
        return 0 <= target.index < len(topic.partitions)
    name = manager.names.get(target.topic_id) if by_id else target.topic
    return manager.hosted(TopicPartition(name or "", target.index)) is not None


def _refuse_level(ctx: RequestContext, request: wire.FetchRequest, plan: FetchPlan, by_id: bool) -> Struct:
    """The answer to an isolation level that is none.  As in Kafka the level counts where something is read; a session
    that is known stays, a new one is not made."""
    if plan.session is not None and not plan.incremental:
        ctx.services.fetch_sessions.drop_new(plan.session.session_id)
    return _refuse(request, by_id, ErrorCode.UNKNOWN_SERVER_ERROR)


def _takes_long(ctx: RequestContext, request: wire.FetchRequest, by_id: bool) -> bool:
    count = sum([len(topic.partitions) for topic in request.topics])
    if count + sum([len(topic.partitions) for topic in request.forgotten_topics_data]) > MANY_PARTITIONS:
        return True
    if count <= MANY_REFUSED:
        return False
    manager, refused = ctx.services.replica_manager, 0
    for topic in request.topics:
        led = manager.topics.get(manager.names.get(topic.topic_id, "") if by_id else topic.topic, {})
        refused += sum([each.partition not in led for each in topic.partitions])
    return refused > MANY_REFUSED


def _plan(
    ctx: RequestContext,
    request: wire.FetchRequest,
    targets: list[FetchTarget],
    by_id: bool,
    forgotten: list[PartitionKey] | None = None,
) -> FetchPlan | Struct:
    """The `FetchPlan`, or the answer that refuses it.  `forgotten`: what the request forgets, where that is known."""
    if forgotten is None:
        forgotten = [
            _forgotten(topic, index, by_id) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
    services = ctx.services
    try:
        plan: FetchPlan = services.fetch_sessions.plan(
            request.session_id,
            request.session_epoch,
            targets,
            forgotten,
            by_id,
            services.clock.now_ms(),
            is_of_follower=_replica_id(ctx, request) >= 0,
        )
    except KafkaError as error:
        refusal: Struct = FetchResponse(error_code=error.code)
        return refusal
    return plan


def _replica_id(ctx: RequestContext, request: wire.FetchRequest) -> int:
    if ctx.api_version < FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_id
    return request.replica_state.replica_id


def _refusal(ctx: RequestContext, request: wire.FetchRequest, by_id: bool) -> Callable[[FetchTarget], ErrorCode]:
    """A function from a target to its error code: NONE if the client may read it.

    A follower needs CLUSTER_ACTION, and no right to the topics.  A session's targets are authorized anew with each
    fetch, as permissions may have changed."""
    names = ctx.services.replica_manager.names
    is_follower = _replica_id(ctx, request) >= 0
    is_trusted = is_follower and may_cluster(ctx, Operation.CLUSTER_ACTION)

    def refuse(target: FetchTarget) -> ErrorCode:
        # An id that no topic has is an unknown one.
        name = names.get(target.topic_id, target.topic) if by_id else target.topic
        if is_trusted or name is None or (not is_follower and may_topic(ctx, Operation.READ, name)):
            return ErrorCode.NONE
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return refuse


def _note_epoch(ctx: RequestContext, request: wire.FetchRequest) -> None:
    changes = ctx.services.replica_manager.isr_changes
    if changes is None or ctx.api_version < FIRST_VERSION_WITH_REPLICA_STATE:
        return
    follower = request.replica_state
    if follower.replica_id >= 0 and may_cluster(ctx, Operation.CLUSTER_ACTION):
        changes.fetches(follower.replica_id, follower.replica_epoch)


def _read(ctx: RequestContext, request: wire.FetchRequest, plan: FetchPlan) -> TargetsRead:
    _note_epoch(ctx, request)
    replica_id = _replica_id(ctx, request)
    ctx.by_follower = replica_id >= 0
    return TargetsRead(
        FAST_FETCH.rules,
        ctx.services,
        ctx.api_version,
        ctx.correlation_id,
        replica_id,
        request.isolation_level == READ_COMMITTED,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        list(plan.targets),
        plan.session,
        plan.incremental,
        _reader(ctx, request),
        ctx.gate,
    )


def _reader(ctx: RequestContext, request: wire.FetchRequest) -> Reader | None:
    """Where a consumer stands, if a nearer replica may serve it."""
    if ctx.services.replica_manager.selector is None or not request.rack_id or _replica_id(ctx, request) >= 0:
        return None
    return Reader(request.rack_id, ctx.connection.listener_name)


async def _fetch_many(ctx: RequestContext, request: wire.FetchRequest, by_id: bool) -> Struct | Pending:
    """Read many partitions in slices, again and again until there is enough or the time is up."""
    pace = ctx.services.slices.pace()
    named: dict[PartitionKey, FetchTarget] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            await pace
            target = _target(topic, partition, by_id)
            named[_key(target)] = target
    forgotten = []
    for dropped in request.forgotten_topics_data:
        for index in dropped.partitions:
            await pace
            forgotten.append(_forgotten(dropped, index, by_id))
    plan = _plan(ctx, request, list(named.values()), by_id, forgotten)
    if not isinstance(plan, FetchPlan):
        return plan
    refused_whole = await _judge_many(ctx, request, plan, by_id, pace)
    if refused_whole is not None:
        return refused_whole
    read = _read(ctx, request, plan)

    async def attempt(force: bool) -> bool:
        read.begin()
        while not read.look(STEP_PARTITIONS):
            await pace
        return read.is_enough(wait.watch(read.late, force))

    def ended(source: RecordSource) -> None:
        target = sources[source]
        note_end(ctx.services, ctx.api_version, _replica_id(ctx, request), target)
        refused.append(target)

    refused: list[FetchTarget] = []
    purgatory, sources = ctx.services.replica_manager.purgatory, await _sources(ctx, plan, by_id, pace)
    wait = FetchWait(purgatory, tuple(sources), request.max_wait_ms, ended, rests=True)
    try:
        await wait.until(ctx, attempt)
        while (frame := read.write(STEP_PARTITIONS)) is None:
            await pace
    finally:
        for target in refused:
            target.refusal = ErrorCode.NONE  # A session keeps its targets.
    answer = Pending()
    answer.answer_frame(frame)
    return answer


async def _judge_many(
    ctx: RequestContext, request: wire.FetchRequest, plan: FetchPlan, by_id: bool, pace: Pace
) -> Struct | None:
    """Give each target its refusal, in slices; the answer where the request is refused as a whole."""
    refuse = None if ctx.gate is None else _refusal(ctx, request, by_id)
    has_level = _has_level(request)
    if refuse is None and has_level:
        return None
    for target in plan.targets:
        await pace
        if refuse is not None:
            target.refusal = refuse(target)
        if not has_level and _is_read(ctx, target, by_id):
            return _refuse_level(ctx, request, plan, by_id)
    return None


async def _sources(ctx: RequestContext, plan: FetchPlan, by_id: bool, pace: Pace) -> dict[RecordSource, FetchTarget]:
    """The partitions of a plan that this broker has, each with what is asked of it."""
    manager = ctx.services.replica_manager
    found: dict[RecordSource, FetchTarget] = {}
    for target in plan.targets:
        await pace
        name = manager.names.get(target.topic_id) if by_id else target.topic
        with suppress(KafkaError):
            found[manager.replica(name or "", target.index)] = target
    return found


def _refuse(request: wire.FetchRequest, by_id: bool, code: ErrorCode) -> Struct:
    """The answer to a request that makes no sense; up to v12 its partitions are named, each with the code."""
    topics = [
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=[failed(partition.partition, code, []) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    response: Struct = FetchResponse(error_code=code, session_id=request.session_id, responses=[] if by_id else topics)
    return response


def _target(
    topic: wire.FetchRequest.FetchTopic, partition: wire.FetchRequest.FetchPartition, by_id: bool
) -> FetchTarget:
    return FetchTarget(
        # With topic ids, the name is known only if the fetch has waited before.
        (topic.topic or None) if by_id else topic.topic,
        topic.topic_id if by_id else ZERO_UUID,
        partition.partition,
        partition.fetch_offset,
        partition.partition_max_bytes,
        max(partition.current_leader_epoch, NO_LEADER_EPOCH),
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )


def _named_once(targets: list[FetchTarget]) -> list[FetchTarget]:
    if len(targets) > 1:
        # A partition named twice is read once, by its last row.
        targets = list({_key(target): target for target in targets}.values())
    return targets


def _key(target: FetchTarget) -> PartitionKey:
    return target.topic or target.topic_id, target.index


def _forgotten(topic: wire.FetchRequest.ForgottenTopic, index: int, by_id: bool) -> PartitionKey:
    return (topic.topic_id if by_id else topic.topic), index


def versions() -> FetchVersions:
    """What the fast path has to know of the field tables."""
    request, response = schema("FetchRequest"), schema("FetchResponse")
    return FetchVersions(
        first=FIRST_VERSION_OF_BATCHES,
        last=LAST_VERSION,
        throttle_times=response.first_version("throttle_time_ms"),
        max_bytes=request.first_version("max_bytes"),
        isolation_levels=request.first_version("isolation_level"),
        log_starts=response.first_version("responses.partitions.log_start_offset"),
        sessions=request.first_version("session_id"),
        leader_epochs=request.first_version("topics.partitions.current_leader_epoch"),
        racks=request.first_version("rack_id"),
        flexible=request.first_flexible_version,
        topic_ids=request.first_version("topics.topic_id"),
        replica_states=request.first_version("replica_state"),
    )


FAST_FETCH = FastFetch(FetchRules(versions(), FileSystem, read_partition, wire.FetchResponse.program))
HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.FETCH, FIRST_VERSION, LAST_VERSION, handle_fetch, direct=FAST_FETCH),)
