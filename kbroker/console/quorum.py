"""The controllers' quorum of a KRaft cluster, as its active controller describes it to the viewer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.administration.quorum import end_of_log, partition_of, quorum_request
from kbroker.errors import KafkaError
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.metadata.image import ClusterImage, Endpoint

ANSWER_SECONDS = 2.0
"""Without a leader nothing answers: the page of brokers is shown all the same."""
LEADER, VOTER, OBSERVER = "leader", "voter", "observer"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter, or a broker or controller that observes.  `lag`: records that it lacks; None where it has not fetched
    from this leader.  Times in ms since the epoch, -1: never; `directory`: the id of its log's, empty: not known."""

    node_id: int
    role: str
    endpoints: Sequence[str]
    directory: str
    log_end_offset: int
    lag: int | None
    fetched_ms: int
    caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """`has_quorum`: whether the cluster has one; `problem`: why nothing is known of it, empty where it is."""

    has_quorum: bool
    problem: str
    leader_id: int
    epoch: int
    high_watermark: int
    replicas: Sequence[QuorumReplica]


def _unknown(*, has_quorum: bool, problem: str = "") -> Quorum:
    return Quorum(has_quorum, problem, -1, -1, -1, ())


async def quorum(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/quorum"""
    parts.require_cluster(Operation.DESCRIBE)
    if parts.services.forwarding is None:
        return lambda: _unknown(has_quorum=False)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await parts.client.ask(wire.DescribeQuorumResponse, quorum_request())
        found = partition_of(answer)
    except TimeoutError:
        text = f"The active controller has not answered within {ANSWER_SECONDS:g} s: none may be elected."
        return lambda: _unknown(has_quorum=True, problem=text)
    except KafkaError as error:
        text = f"The quorum is not described: {error}"
        return lambda: _unknown(has_quorum=True, problem=text)
    image = parts.services.metadata_cache.image
    return lambda: _described(answer, found, image)


def _described(
    answer: wire.DescribeQuorumResponse, found: wire.DescribeQuorumResponse.PartitionData, image: ClusterImage
) -> Quorum:
    said = {
        node.node_id: [f"{each.name}://{each.host}:{each.port}" for each in node.listeners] for node in answer.nodes
    }
    end = end_of_log(found)
    rows = [
        _row(each, LEADER if each.replica_id == found.leader_id else VOTER, end, said, image)
        for each in found.current_voters
    ]
    rows += [_row(each, OBSERVER, end, said, image) for each in found.observers]
    rows.sort(key=lambda row: (row.role == OBSERVER, row.node_id, row.directory))
    return Quorum(True, "", found.leader_id, found.leader_epoch, found.high_watermark, rows)


def _row(
    state: wire.DescribeQuorumResponse.ReplicaState,
    role: str,
    end: int,
    said: Mapping[int, Sequence[str]],
    image: ClusterImage,
) -> QuorumReplica:
    directory = bytes(state.replica_directory_id)
    known = state.log_end_offset >= 0
    return QuorumReplica(
        state.replica_id,
        role,
        said.get(state.replica_id) or _endpoints(state.replica_id, image),
        "" if directory == ZERO_UUID else uuid_to_text(directory),
        state.log_end_offset,
        max(0, end - state.log_end_offset) if known else None,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _endpoints(node_id: int, image: ClusterImage) -> Sequence[str]:
    """Of a node that is no voter: where it has registered."""
    node = image.controllers.get(node_id) or image.brokers.get(node_id)
    return [] if node is None else list(_texts(node.endpoints.items()))


def _texts(endpoints: Iterable[tuple[str, Endpoint]]) -> Iterable[str]:
    return (f"{name}://{endpoint.host}:{endpoint.port}" for name, endpoint in sorted(endpoints))
