"""AlterPartitionReassignments (API 45): v0-v1, and ListPartitionReassignments (API 46): v0.

The controller moves replicas between brokers.  On a single node there is one assignment that a partition can be given:
the one that it has, which changes nothing and is done at once.  kafka-reassign-partitions asks for it when it moves
partitions between the log directories of a broker (AlterReplicaLogDirs), and lists reassignments before and after.

- Replicas on unknown brokers, duplicate replicas or an empty list: INVALID_REPLICA_ASSIGNMENT, with Kafka's messages.
- Null replicas call a reassignment off: NO_REASSIGNMENT_IN_PROGRESS where there is none.
- A topic or partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; when listing it is left out without a word.

v1 may refuse a change of the number of replicas (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.reassignments import is_reassigning, reassigning
from kbroker.cluster.requests import PartitionOutcome, Reassignment
from kbroker.errors import ErrorCode, KafkaError, RequestTimedOutError, bare
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import PartitionImage


async def handle_alter_partition_reassignments(
    ctx: RequestContext, request: wire.AlterPartitionReassignmentsRequest
) -> Struct:
    """AlterPartitionReassignments v0-v1; see the module's docstring."""
    response = wire.AlterPartitionReassignmentsResponse
    pace = ctx.services.slices.pace()
    wanted = []
    for topic in request.topics:
        await pace
        for partition in topic.partitions:
            await pace
            name = TopicPartition(topic.name, partition.partition_index)
            wanted.append(Reassignment(name, partition.replicas))
    refusal: KafkaError | None = None
    outcomes: Iterator[PartitionOutcome]
    try:
        require_cluster(ctx, Operation.ALTER)
        if request.timeout_ms <= 0:
            # The time has passed before anything is done, as for a controller elsewhere.
            raise RequestTimedOutError()
        await ctx.services.administration.ready(request.timeout_ms)
        outcomes = iter(
            await ctx.services.administration.alter_reassignments(wanted, request.allow_replication_factor_change)
        )
    except KafkaError as error:
        refusal = bare(error)
        outcomes = (PartitionOutcome(each.partition, error=refusal) for each in wanted)
    topics = []
    for topic in request.topics:
        await pace
        rows = []
        for partition in topic.partitions:
            await pace
            row = response.ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
            rows.append(row)
            failure = next(outcomes).error
            if failure is not None:
                row.error_code, row.error_message = failure.code, str(failure) or None
        topics.append(response.ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response(
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
        responses=topics,
        allow_replication_factor_change=refusal is not None or request.allow_replication_factor_change,
    )


async def handle_list_partition_reassignments(
    ctx: RequestContext, request: wire.ListPartitionReassignmentsRequest
) -> Struct:
    """ListPartitionReassignments v0; see the module's docstring."""
    try:
        require_cluster(ctx, Operation.DESCRIBE)
        await ctx.services.administration.ready(request.timeout_ms)
        image = ctx.services.administration.image()
    except KafkaError as error:
        return _refused_list(request, error)
    pace = ctx.services.slices.pace()
    found: Iterable[tuple[TopicPartition, PartitionImage]]
    if request.topics is None:
        found = reassigning(image)
    else:
        found = []
        for topic in request.topics:
            await pace
            known = image.topics.get(topic.name)
            for index in topic.partition_indexes:
                await pace
                if known is not None and 0 <= index < len(known.partitions) and is_reassigning(known.partitions[index]):
                    found.append((TopicPartition(topic.name, index), known.partitions[index]))
    response = wire.ListPartitionReassignmentsResponse
    topics: dict[str, wire.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for name, partition in found:
        await pace
        row = topics.setdefault(name.topic, response.OngoingTopicReassignment(name=name.topic))
        row.partitions.append(
            response.OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
        )
    return response(error_message=None, topics=list(topics.values()))


def _refused_list(request: wire.ListPartitionReassignmentsRequest, error: KafkaError) -> Struct:
    response = wire.ListPartitionReassignmentsResponse
    topics = [
        response.OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                response.OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return response(error_code=error.code, error_message=error.message, topics=topics)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, handle_alter_partition_reassignments),
    Handler(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, handle_list_partition_reassignments),
)
