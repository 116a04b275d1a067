"""Vote (API 52): v0-v2.  BeginQuorumEpoch (53): v0-v1.  EndQuorumEpoch (54): v0-v1.  Fetch (1): v4-v18.
FetchSnapshot (59): v0-v1.  DescribeQuorum (55): v0-v2.  AddRaftVoter (80): v0-v1.  RemoveRaftVoter (81): v0.
UpdateRaftVoter (82): v0.

The requests of the quorum, answered by any controller.  They need CLUSTER_ACTION, DescribeQuorum needs DESCRIBE, adding
and removing voters ALTER; behind that `cluster.raft.service` answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.raft.service import SERVED
from kbroker.errors import KafkaError
from kbroker.gate.access import require_cluster
from kbroker.handlers.cluster.forwarded_errors import refusal
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.handlers.table import HandlerFunction
    from kbroker.protocol.messages import Message

PARTITION_ERRORS_BEFORE = schema("FetchRequest").first_version("topics.topic_id")
"""Older versions of a refused Fetch have the error in each partition as well."""


def refused(ctx: RequestContext, request: Message, operation: Operation) -> Struct | None:
    """The answer to a client that may not do that to the cluster; None where it may."""
    try:
        require_cluster(ctx, operation)
    except KafkaError as error:
        return refusal(request, ctx.api_version, error)
    return None


async def handle_vote(ctx: RequestContext, request: wire.VoteRequest) -> Struct:
    """Vote v0-v2."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    return denial or await ctx.services.raft.vote(request, ctx.api_version)


async def handle_begin_quorum_epoch(ctx: RequestContext, request: wire.BeginQuorumEpochRequest) -> Struct:
    """BeginQuorumEpoch v0-v1."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    return denial or await ctx.services.raft.begin_epoch(request, ctx.api_version)


async def handle_end_quorum_epoch(ctx: RequestContext, request: wire.EndQuorumEpochRequest) -> Struct:
    """EndQuorumEpoch v0-v1."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    return denial or await ctx.services.raft.end_epoch(request, ctx.api_version)


async def handle_fetch(ctx: RequestContext, request: wire.FetchRequest) -> Struct:
    """Fetch v4-v18: of the metadata log."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    if denial is None:
        return await ctx.services.raft.fetch(request, ctx.api_version)
    if isinstance(denial, wire.FetchResponse) and ctx.api_version < PARTITION_ERRORS_BEFORE:
        denial.responses = [_refused_topic(topic, denial.error_code) for topic in request.topics]
    return denial


def _refused_topic(topic: wire.FetchRequest.FetchTopic, code: int) -> wire.FetchResponse.FetchableTopicResponse:
    rows = [
        wire.FetchResponse.PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1)
        for each in topic.partitions
    ]
    return wire.FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=rows)


async def handle_fetch_snapshot(ctx: RequestContext, request: wire.FetchSnapshotRequest) -> Struct:
    """FetchSnapshot v0-v1."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    return denial or await ctx.services.raft.fetch_snapshot(request, ctx.api_version)


async def handle_describe_quorum(ctx: RequestContext, request: wire.DescribeQuorumRequest) -> Struct:
    """DescribeQuorum v0-v2."""
    denial = refused(ctx, request, Operation.DESCRIBE)
    return denial or await ctx.services.raft.describe(request, ctx.api_version)


async def handle_add_raft_voter(ctx: RequestContext, request: wire.AddRaftVoterRequest) -> Struct:
    """AddRaftVoter v0-v1."""
    denial = refused(ctx, request, Operation.ALTER)
    return denial or await ctx.services.raft.add_voter(request, ctx.api_version)


async def handle_remove_raft_voter(ctx: RequestContext, request: wire.RemoveRaftVoterRequest) -> Struct:
    """RemoveRaftVoter v0."""
    denial = refused(ctx, request, Operation.ALTER)
    return denial or await ctx.services.raft.remove_voter(request, ctx.api_version)


async def handle_update_raft_voter(ctx: RequestContext, request: wire.UpdateRaftVoterRequest) -> Struct:
    """UpdateRaftVoter v0."""
    denial = refused(ctx, request, Operation.CLUSTER_ACTION)
    return denial or await ctx.services.raft.update_voter(request, ctx.api_version)


def _row(api_key: ApiKey, handle: HandlerFunction) -> Handler:
    return Handler(api_key, *SERVED[api_key], handle)


HANDLERS: tuple[Handler, ...] = (
    _row(ApiKey.VOTE, handle_vote),
    _row(ApiKey.BEGIN_QUORUM_EPOCH, handle_begin_quorum_epoch),
    _row(ApiKey.END_QUORUM_EPOCH, handle_end_quorum_epoch),
    _row(ApiKey.FETCH, handle_fetch),
    _row(ApiKey.FETCH_SNAPSHOT, handle_fetch_snapshot),
    _row(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum),
    _row(ApiKey.ADD_RAFT_VOTER, handle_add_raft_voter),
    _row(ApiKey.REMOVE_RAFT_VOTER, handle_remove_raft_voter),
    _row(ApiKey.UPDATE_RAFT_VOTER, handle_update_raft_voter),
)
