"""Votes and epochs between voters on the wire (KIP-595, KIP-853, KIP-996), and what they say in the machine's terms.

    Vote 0              no directories; 1 voter ids and directories; 2 pre-votes
    BeginQuorumEpoch 0  no directories, no endpoints; 1 both
    EndQuorumEpoch 0    successors by id; 1 with their directories

Requests name the one partition of `__cluster_metadata`; others are refused with INVALID_REQUEST, another cluster's with
INCONSISTENT_CLUSTER_ID, both for the whole request (`refusal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.cluster.raft.election import (
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    ReplicaKey,
    Request,
    Vote,
    VoteAnswer,
)
from kbroker.error_codes import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.types import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from kbroker.metadata.image import Endpoint

VoterRequest = wire.VoteRequest | wire.BeginQuorumEpochRequest | wire.EndQuorumEpochRequest
VoterResponse = wire.VoteResponse | wire.BeginQuorumEpochResponse | wire.EndQuorumEpochResponse
_FIRST_WITH_VOTER = schema("VoteRequest").first_version("voter_id")
_FIRST_WITH_CANDIDATES = schema("EndQuorumEpochRequest").first_version("topics.partitions.preferred_candidates")
_FIRST_WITH_PRE_VOTE = schema("VoteRequest").first_version("topics.partitions.pre_vote")
KEYS = {Vote: ApiKey.VOTE, BeginEpoch: ApiKey.BEGIN_QUORUM_EPOCH, EndEpoch: ApiKey.END_QUORUM_EPOCH}
"""The API of each request."""


class MalformedRequestError(ValueError):
    """A request that is not of the metadata log's one partition, or of another cluster; `code` is answered."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def refusal(cluster_id: str | None, ours: str) -> ErrorCode | None:
    """Why a request that names a cluster is refused as a whole; None: it is not."""
    return ErrorCode.INCONSISTENT_CLUSTER_ID if cluster_id is not None and cluster_id != ours else None


class _Indexed(Protocol):
    partition_index: int


class _Topic(Protocol):
    topic_name: str

    @property
    def partitions(self) -> Sequence[_Indexed]: ...


def _check_topics(topics: Sequence[_Topic]) -> None:
    """MalformedRequestError where a request or an answer is not of the metadata log's one partition."""
    if len(topics) != 1 or topics[0].topic_name != CLUSTER_METADATA_TOPIC or len(topics[0].partitions) != 1:
        raise MalformedRequestError(ErrorCode.INVALID_REQUEST)
    if topics[0].partitions[0].partition_index != 0:
        raise MalformedRequestError(ErrorCode.INVALID_REQUEST)


# What others ask


def request_of(request: VoterRequest, cluster_id: str, me: ReplicaKey) -> Request:
    """What another voter asks; one that does not say whom it takes for the receiver means this node.

    MalformedRequestError."""
    code = refusal(request.cluster_id, cluster_id)
    if code is not None:
        raise MalformedRequestError(code)
    _check_topics(request.topics)
    if isinstance(request, wire.EndQuorumEpochRequest):
        ended = request.topics[0].partitions[0]
        successors = [ReplicaKey(each) for each in ended.preferred_successors or ()]
        candidates = [
            ReplicaKey(each.candidate_id, bytes(each.candidate_directory_id))
            for each in ended.preferred_candidates or ()
        ]
        return EndEpoch(me, ended.leader_epoch, ended.leader_id, tuple(candidates or successors))
    to = ReplicaKey(request.voter_id, bytes(request.topics[0].partitions[0].voter_directory_id))
    to = me if request.voter_id < 0 else to
    if isinstance(request, wire.BeginQuorumEpochRequest):
        begun = request.topics[0].partitions[0]
        return BeginEpoch(to, begun.leader_epoch, ReplicaKey(begun.leader_id))
    row = request.topics[0].partitions[0]
    candidate = ReplicaKey(row.replica_id, bytes(row.replica_directory_id))
    return Vote(to, row.replica_epoch, candidate, row.last_offset_epoch, row.last_offset, row.pre_vote)


def refused(request: VoterRequest, code: ErrorCode) -> VoterResponse:
    """The answer to a request that is refused as a whole."""
    match request:
        case wire.VoteRequest():
            return wire.VoteResponse(error_code=int(code))
        case wire.BeginQuorumEpochRequest():
            return wire.BeginQuorumEpochResponse(error_code=int(code))
    return wire.EndQuorumEpochResponse(error_code=int(code))


def response_of(request: VoterRequest, answer: Answer, endpoints: Mapping[int, Endpoint]) -> VoterResponse:
    """The answer, with the address of the leader that it names, where that is known."""
    named = {each: at for each, at in endpoints.items() if each == answer.leader_id}
    if isinstance(answer, VoteAnswer):
        vote = wire.VoteResponse
        voted = vote.PartitionData(
            partition_index=0,
            error_code=answer.error,
            leader_id=answer.leader_id,
            leader_epoch=answer.epoch,
            vote_granted=answer.is_granted,
        )
        return vote(
            topics=[vote.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[voted])],
            node_endpoints=[vote.NodeEndpoint(node_id=each, host=at.host, port=at.port) for each, at in named.items()],
        )
    if isinstance(request, wire.BeginQuorumEpochRequest):
        begin = wire.BeginQuorumEpochResponse
        begun = begin.PartitionData(
            partition_index=0, error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        return begin(
            topics=[begin.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[begun])],
            node_endpoints=[begin.NodeEndpoint(node_id=each, host=at.host, port=at.port) for each, at in named.items()],
        )
    end = wire.EndQuorumEpochResponse
    ended = end.PartitionData(
        partition_index=0, error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
    )
    return end(
        topics=[end.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[ended])],
        node_endpoints=[end.NodeEndpoint(node_id=each, host=at.host, port=at.port) for each, at in named.items()],
    )


# What this node asks


def request_for(
    asked: Request, version: int, cluster_id: str, me: ReplicaKey, endpoints: Mapping[str, Endpoint]
) -> VoterRequest:
    """A request in a version; `endpoints`: this node's, by the names of its listeners.

    A pre-vote is none in older versions: `knows_pre_votes`.
    """
    match asked:
        case Vote():
            return _vote_request(asked, version, cluster_id)
        case BeginEpoch():
            begin = wire.BeginQuorumEpochRequest
            row = begin.PartitionData(partition_index=0, leader_id=me.node_id, leader_epoch=asked.epoch)
            request = begin(
                cluster_id=cluster_id, topics=[begin.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])]
            )
            if version >= _FIRST_WITH_VOTER:
                request.voter_id, row.voter_directory_id = asked.to
                request.leader_endpoints = [
                    begin.LeaderEndpoint(name=name, host=at.host, port=at.port) for name, at in endpoints.items()
                ]
            return request
    end = wire.EndQuorumEpochRequest
    last = end.PartitionData(partition_index=0, leader_id=asked.leader_id, leader_epoch=asked.epoch)
    made = end(cluster_id=cluster_id, topics=[end.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[last])])
    if version < _FIRST_WITH_CANDIDATES:
        last.preferred_successors = [each.node_id for each in asked.preferred]
        return made
    last.preferred_candidates = [
        end.ReplicaInfo(candidate_id=each.node_id, candidate_directory_id=each.directory_id) for each in asked.preferred
    ]
    return made


def knows_pre_votes(version: int) -> bool:
    """Whether a Vote of this version may be a pre-vote."""
    return version >= _FIRST_WITH_PRE_VOTE


def _vote_request(asked: Vote, version: int, cluster_id: str) -> wire.VoteRequest:
    vote = wire.VoteRequest
    row = vote.PartitionData(
        partition_index=0,
        replica_epoch=asked.epoch,
        replica_id=asked.candidate.node_id,
        last_offset_epoch=asked.last_epoch,
        last_offset=asked.end_offset,
    )
    request = vote(cluster_id=cluster_id, topics=[vote.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])])
    if version >= _FIRST_WITH_VOTER:
        request.voter_id, row.voter_directory_id = asked.to
        row.replica_directory_id = asked.candidate.directory_id
    if version >= _FIRST_WITH_PRE_VOTE:
        row.pre_vote = asked.is_pre_vote
    assert version >= _FIRST_WITH_PRE_VOTE or not asked.is_pre_vote, "no pre-vote in this version"
    return request


def answer_of(response: VoterResponse) -> Answer:
    """What another voter has answered.  MalformedRequestError, with its code where it refused the whole request."""
    if response.error_code:
        raise MalformedRequestError(ErrorCode(response.error_code))
    _check_topics(response.topics)
    if isinstance(response, wire.VoteResponse):
        voted = response.topics[0].partitions[0]
        leader_id = max(voted.leader_id, NO_LEADER)
        return VoteAnswer(voted.error_code, voted.leader_epoch, leader_id, voted.vote_granted)
    row = response.topics[0].partitions[0]
    return EpochAnswer(row.error_code, row.leader_epoch, max(row.leader_id, NO_LEADER))


def endpoints_of(response: VoterResponse) -> list[tuple[int, str, int]]:
    """The addresses that an answer names: node id, host and port."""
    return [(each.node_id, each.host, each.port) for each in response.node_endpoints or ()]
