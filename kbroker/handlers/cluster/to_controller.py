"""What brokers ask of the controller: ControlledShutdown (API 7): v0-v3, AlterPartition (56): v0-v3,
AllocateProducerIds (67): v0.

Served by a broker that is a member of a cluster, and advertised by it alone; one that is not the controller answers
NOT_CONTROLLER, ControlledShutdown with STALE_CONTROLLER_EPOCH, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.requests import BrokerEpoch, IsrChange
from kbroker.errors import ErrorCode, KafkaError, NotControllerError
from kbroker.gate.access import require_cluster
from kbroker.handlers.table import Handler
from kbroker.metadata.image import RECOVERED
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

FIRST_WITH_TOPIC_IDS = schema("AlterPartitionRequest").first_version("topics.topic_id")
FIRST_WITH_EPOCHS = schema("AlterPartitionRequest").first_version("topics.partitions.new_isr_with_epochs")
FIRST_WITH_RECOVERY = schema("AlterPartitionRequest").first_version("topics.partitions.leader_recovery_state")
NO_EPOCH = -1


async def handle_controlled_shutdown(ctx: RequestContext, request: wire.ControlledShutdownRequest) -> Struct:
    """ControlledShutdown v0-v3: move the leaders of a broker that wants to stop; what could not be moved."""
    response = wire.ControlledShutdownResponse
    broker = BrokerEpoch(request.broker_id, request.broker_epoch)
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        remaining = await ctx.services.administration.controlled_shutdown(broker)
    except NotControllerError:
        return response(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    except KafkaError as error:
        return response(error_code=error.code)
    return response(
        remaining_partitions=[
            response.RemainingPartition(topic_name=each.topic, partition_index=each.partition) for each in remaining
        ]
    )


async def handle_alter_partition(ctx: RequestContext, request: wire.AlterPartitionRequest) -> Struct:
    """AlterPartition v0-v3: the ISRs that a leader proposes."""
    response = wire.AlterPartitionResponse
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        # The controller's own image: this broker's metadata may be behind, and a leader would take its answer for the
        # controller's.
        known = ctx.services.administration.image().topics_by_id if ctx.api_version >= FIRST_WITH_TOPIC_IDS else None
    except KafkaError as error:
        return response(error_code=error.code)
    rows: list[tuple[str, bytes, list[wire.AlterPartitionResponse.PartitionData]]] = []
    changes: list[IsrChange] = []
    asked: list[wire.AlterPartitionResponse.PartitionData] = []
    for topic in request.topics:
        found = None if known is None else known.get(topic.topic_id)
        name = topic.topic_name if known is None else None if found is None else found.name
        answers: list[wire.AlterPartitionResponse.PartitionData] = []
        rows.append((topic.topic_name, topic.topic_id, answers))
        for row in topic.partitions:
            answer = response.PartitionData(partition_index=row.partition_index)
            answers.append(answer)
            if name is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            isr = (
                [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
                if ctx.api_version >= FIRST_WITH_EPOCHS
                else [(each, NO_EPOCH) for each in row.new_isr]
            )
            named = TopicPartition(name, row.partition_index)
            change = IsrChange(
                named,
                row.leader_epoch,
                row.partition_epoch,
                isr,
                ZERO_UUID if found is None else found.topic_id,
                row.leader_recovery_state if ctx.api_version >= FIRST_WITH_RECOVERY else RECOVERED,
            )
            changes.append(change)
            asked.append(answer)
    try:
        broker = BrokerEpoch(request.broker_id, request.broker_epoch)
        outcomes = await ctx.services.controller.alter_partitions(broker, changes)
    except KafkaError as error:
        return response(error_code=error.code)
    for answer, outcome in zip(asked, outcomes, strict=True):
        if outcome.error is not None:
            answer.error_code = outcome.error.code
        elif outcome.image is not None:
            image = outcome.image
            answer.leader_id, answer.leader_epoch = image.leader, image.leader_epoch
            answer.isr, answer.partition_epoch = list(image.isr), image.partition_epoch
            answer.leader_recovery_state = image.leader_recovery_state
    return response(
        topics=[
            response.TopicData(topic_name=name, topic_id=topic_id, partitions=answers)
            for name, topic_id, answers in rows
        ]
    )


async def handle_allocate_producer_ids(ctx: RequestContext, request: wire.AllocateProducerIdsRequest) -> Struct:
    """AllocateProducerIds v0: a block of ids that no broker was given before."""
    response = wire.AllocateProducerIdsResponse
    broker = BrokerEpoch(request.broker_id, request.broker_epoch)
    try:
        require_cluster(ctx, Operation.CLUSTER_ACTION)
        first, length = await ctx.services.controller.allocate_producer_ids(broker)
    except KafkaError as error:
        return response(error_code=error.code)
    return response(producer_id_start=first, producer_id_len=length)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, handle_controlled_shutdown),
    Handler(ApiKey.ALTER_PARTITION, 0, 3, handle_alter_partition),
    Handler(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, handle_allocate_producer_ids),
)
