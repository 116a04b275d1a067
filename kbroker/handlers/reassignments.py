"""AlterPartitionReassignments (API 45): v0-v1, and ListPartitionReassignments (API 46): v0.

A single node holds the one replica of every partition, so there is one assignment that a partition can be given: the
one that it has, which changes nothing and is done at once.  kafka-reassign-partitions asks for it when it moves
partitions between the log directories of a broker (AlterReplicaLogDirs), and lists reassignments before and after.

- Replicas elsewhere, none, or one twice: INVALID_REPLICA_ASSIGNMENT, in Kafka's words.
- Null replicas call a reassignment off: NO_REASSIGNMENT_IN_PROGRESS, as there is never one.
- A topic or partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; when listing it is left out without a word.

v1 may refuse a change of the number of replicas (KIP-860), which cannot come about here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError
from kbroker.handlers.table import Handler
from kbroker.metadata.placement import check_assignment
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import ClusterImage


async def handle_alter_partition_reassignments(
    ctx: RequestContext, request: wire.AlterPartitionReassignmentsRequest
) -> Struct:
    """AlterPartitionReassignments v0-v1; see the module's docstring."""
    response = wire.AlterPartitionReassignmentsResponse
    pace = ctx.services.slices.pace()
    image = ctx.services.metadata_cache.image
    topics = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            await pace
            row = response.ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
            rows.append(row)
            try:
                _check(image, topic.name, partition.partition_index, partition.replicas)
            except KafkaError as error:
                row.error_code, row.error_message = error.code, str(error) or None
        topics.append(response.ReassignableTopicResponse(name=topic.name, partitions=rows))
    return response(
        error_message=None, responses=topics, allow_replication_factor_change=request.allow_replication_factor_change
    )


def _check(image: ClusterImage, name: str, index: int, replicas: Sequence[int] | None) -> None:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise UnknownTopicOrPartitionError(f"Unable to find partition {name}:{index}.")
    if replicas is None:
        raise KafkaError.of(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    check_assignment(replicas, frozenset(broker.node_id for broker in image.brokers.values()), None)


def handle_list_partition_reassignments(ctx: RequestContext, request: wire.ListPartitionReassignmentsRequest) -> Struct:
    """ListPartitionReassignments v0; see the module's docstring."""
    return wire.ListPartitionReassignmentsResponse(error_message=None)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, handle_alter_partition_reassignments),
    Handler(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, handle_list_partition_reassignments),
)
