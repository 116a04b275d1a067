"""Where replicas are, and which of them leads: reassignments, and elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kbroker.administration.admin import by_topic
from kbroker.errors import ErrorCode, refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin, Place

    _Elected = wire.ElectLeadersResponse.PartitionResult
    _Moved = wire.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

PREFERRED, UNCLEAN = 0, 1
DONE_OR_NOT_NEEDED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


async def elect_leaders(
    admin: Admin, places: Iterable[Place] | None, *, unclean: bool = False
) -> list[tuple[Place, _Elected]]:
    """Elect the preferred replicas of partitions, of all for None; a row for each, with its error.

    `unclean`: any live replica, also one that may lack acknowledged records.
    """
    request = wire.ElectLeadersRequest
    chosen = None
    if places is not None:
        chosen = [request.TopicPartitions(topic=name, partitions=each) for name, each in by_topic(places).items()]
    answer = await admin.ask_controller(
        wire.ElectLeadersResponse,
        request(election_type=UNCLEAN if unclean else PREFERRED, topic_partitions=chosen, timeout_ms=admin.timeout_ms),
    )
    refuse(answer.error_code)
    return [
        ((topic.topic, row.partition_id), row)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]


async def reassign(admin: Admin, targets: Mapping[Place, Sequence[int] | None]) -> list[tuple[Place, _Moved]]:
    """Move replicas to other brokers, the preferred leader first, or call moves off (None); the partitions that are
    refused."""
    request = wire.AlterPartitionReassignmentsRequest
    topics = [
        request.ReassignableTopic(
            name=name,
            partitions=[
                request.ReassignablePartition(
                    partition_index=index, replicas=None if (ids := targets[name, index]) is None else [*ids]
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(targets).items()
    ]
    answer = await admin.ask_controller(
        wire.AlterPartitionReassignmentsResponse, request(timeout_ms=admin.timeout_ms, topics=topics)
    )
    refuse(answer.error_code, answer.error_message)
    return [
        ((topic.name, row.partition_index), row)
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code
    ]
