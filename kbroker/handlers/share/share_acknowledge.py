"""ShareAcknowledge (API 79): what members of share groups say of records that they have acquired (KIP-932, KIP-1222).

`acknowledge_all` does it for ShareFetch, too, whose requests carry acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, UnknownTopicOrPartitionError, bare
from kbroker.gate.access import may_group, may_topic
from kbroker.handlers.cluster.endpoints import endpoint_for
from kbroker.handlers.share.share_groups import LONGEST_MEMBER_ID, check_share_groups
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.replication.commit_wait import CommitWait
from kbroker.replication.share.acknowledgements import AcknowledgementBatch, check_batches
from kbroker.replication.share.persister import SharePartitionKey
from kbroker.replication.share.share_session import FINAL_EPOCH, ShareSession, TopicIdPartition
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services

FIRST_VERSION_WITH_RENEWAL = schema("ShareFetchRequest").first_version("is_renew_ack")
# No share-partition has more records under way, so no more can be acknowledged.
MOST_RECORDS = 10_000
_NOT_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Topic = wire.ShareFetchRequest.FetchTopic | wire.ShareAcknowledgeRequest.AcknowledgeTopic
Batch = wire.ShareFetchRequest.AcknowledgementBatch | wire.ShareAcknowledgeRequest.AcknowledgementBatch
# What a request says, by partition.
Said = Mapping[TopicIdPartition, Sequence[Batch]]
Answered = wire.ShareFetchResponse.PartitionData | wire.ShareAcknowledgeResponse.PartitionData
Node = TypeVar("Node", wire.ShareFetchResponse.NodeEndpoint, wire.ShareAcknowledgeResponse.NodeEndpoint)
Results = dict[TopicIdPartition, KafkaError | None]


async def handle_share_acknowledge(ctx: RequestContext, request: wire.ShareAcknowledgeRequest) -> Struct:
    """Versions 1 and 2.  v2: records may be renewed, where the request says that it does (`is_renew_ack`)."""
    response = wire.ShareAcknowledgeResponse
    services = ctx.services
    partitions = services.share_partitions
    group_id = request.group_id or ""
    try:
        check_share_groups(ctx)
        if request.group_id is None:
            raise InvalidRequestError()
        require_read(ctx, group_id)
        check_member(request.group_id, request.member_id)
        session = partitions.sessions.for_acknowledgement(
            group_id, request.member_id or "", request.share_session_epoch, ctx.connection
        )
    except KafkaError as refusal:
        return response(error_code=refusal.code, error_message=refusal.message)
    said = await acknowledgements(request.topics, services.slices.pace())
    results = await acknowledge_all(ctx, session, said, with_renewal=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        await end_session(services, session)
    topics: dict[bytes, wire.ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    pace = services.slices.pace()
    for named, error in results.items():
        await pace
        topic = topics.get(named.topic_id)
        if topic is None:
            topic = topics[named.topic_id] = response.ShareAcknowledgeTopicResponse(topic_id=named.topic_id)
        answer = response.PartitionData(partition_index=named.partition)
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
            point_to_leader(services, named, error, answer, leaders)
        topic.partitions.append(answer)
    return response(
        acquisition_lock_timeout_ms=partitions.settings(group_id).record_lock_ms,
        responses=list(topics.values()),
        node_endpoints=endpoints(ctx, response.NodeEndpoint, leaders),
    )


def require_read(ctx: RequestContext, group_id: str | None) -> None:
    """KafkaError where the client may not read for the group.  It has no words, as Kafka's has none."""
    if not may_group(ctx, Operation.READ, group_id or ""):
        raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def require_named(ctx: RequestContext, topic: str) -> None:
    """KafkaError where the client may not read the topic."""
    if not may_topic(ctx, Operation.READ, topic):
        raise KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_member(group_id: str | None, member_id: str | None) -> None:
    """INVALID_REQUEST for a request without a group, or a member that can be one."""
    if group_id is None or not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise InvalidRequestError()


async def acknowledgements(topics: Sequence[Topic], pace: Pace) -> dict[TopicIdPartition, Sequence[Batch]]:
    """What a request says, by partition."""
    said: dict[TopicIdPartition, Sequence[Batch]] = {}
    for topic in topics:
        await pace
        topic_id = bytes(topic.topic_id)
        for partition in topic.partitions:
            await pace
            said[TopicIdPartition(topic_id, partition.partition_index)] = partition.acknowledgement_batches
    return said


def _checked(batches: Sequence[Batch], *, with_renewal: bool) -> list[AcknowledgementBatch]:
    """What is said of one partition.  InvalidRequestError where it makes no sense, or is endless."""
    if len(batches) > MOST_RECORDS or any(len(batch.acknowledge_types) > MOST_RECORDS for batch in batches):
        raise InvalidRequestError()
    said = [AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]
    check_batches(said, with_renewal=with_renewal)
    return said


async def acknowledge_all(ctx: RequestContext, session: ShareSession, said: Said, *, with_renewal: bool) -> Results:
    """Do what is said, each partition by itself, and wait until it is stored."""
    services = ctx.services
    pace = services.slices.pace()
    with_renewal = with_renewal and services.share_partitions.settings(session.group_id).renew_enabled
    results: Results = {}
    wait = CommitWait()
    for named, batches in said.items():
        results[named] = None
        settled = wait.expect(partial(results.__setitem__, named))
        await pace
        try:
            checked = _checked(batches, with_renewal=with_renewal)
        except InvalidRequestError:
            settled(KafkaError.of(ErrorCode.INVALID_REQUEST))
            continue
        try:
            known = services.share_partitions.find(_key(ctx, session.group_id, named))
            if known is None:
                raise UnknownTopicOrPartitionError()
            known.acknowledge(session.member_id, checked, settled)
        except KafkaError as error:
            settled(bare(error))
    await wait.within(None)  # The writes of the state have a time of their own.
    return results


async def end_session(services: Services, session: ShareSession) -> None:
    """Forget a session, and wait until what its member held is released."""
    wait = CommitWait()
    services.share_partitions.end_session(session, wait.expect())
    await wait.within(None)


def _key(ctx: RequestContext, group_id: str, named: TopicIdPartition) -> SharePartitionKey:
    manager = ctx.services.replica_manager
    name = manager.topic_name(named.topic_id)
    require_named(ctx, name)
    manager.partition(name, named.partition)
    return SharePartitionKey(group_id, named.topic_id, named.partition)


def point_to_leader(
    services: Services, named: TopicIdPartition, error: KafkaError, answer: Answered, leaders: set[int]
) -> None:
    """Name the leader to a client that asked the wrong broker."""
    topic = services.metadata_cache.topic_by_id(named.topic_id)
    if error.code in _NOT_LEADER and topic is not None and named.partition < len(topic.partitions):
        image = topic.partitions[named.partition]
        answer.current_leader.leader_id = image.leader
        answer.current_leader.leader_epoch = image.leader_epoch
        leaders.add(image.leader)


def endpoints(ctx: RequestContext, make: Callable[..., Node], leaders: set[int]) -> list[Node]:
    """The addresses of these brokers, for the listener that a request came by."""
    found = []
    for node_id in sorted(leaders):
        broker = ctx.services.metadata_cache.image.brokers.get(node_id)
        endpoint = None if broker is None else endpoint_for(ctx, broker)
        if broker is not None and endpoint is not None:
            found.append(make(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    return found


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, handle_share_acknowledge),)
