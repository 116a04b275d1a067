"""DescribeProducers (API 61): v0 (KIP-664).

Who writes to a partition: every idempotent or transactional producer that the replica which is asked remembers, with
the epoch, the last sequence and time, and where an open transaction begins.  Tools find hanging transactions by it.

- Producers are forgotten after `producer.id.expiration.ms` without a batch.
- An answer holds at most 100,000 producers; partitions beyond that are POLICY_VIOLATION, so that one small request that
  names a partition over and over cannot use up the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import KafkaError, PolicyViolationError, UnknownTopicOrPartitionError
from kbroker.gate.access import require_topic
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import validate
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.log.producer_entry import ProducerEntry
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.storage.log.producer_state import ProducerState

MAX_PRODUCERS = 100_000


async def handle_describe_producers(ctx: RequestContext, request: wire.DescribeProducersRequest) -> Struct:
    """DescribeProducers v0; see the module's docstring."""
    response = wire.DescribeProducersResponse
    pace = ctx.services.slices.pace()
    room = MAX_PRODUCERS
    topics = []
    for topic in request.topics:
        await pace
        rows = []
        for index in topic.partition_indexes:
            await pace
            row = response.PartitionResponse(partition_index=index)
            rows.append(row)
            try:
                state = _state(ctx, topic.name, index)
                if len(state.producers) > room:
                    raise PolicyViolationError("Excessively large number of producers per request.")
            except KafkaError as error:
                row.error_code, row.error_message = error.code, error.message
                continue
            room -= len(state.producers)
            for entry in list(state.producers.values()):
                await pace
                row.active_producers.append(_producer(entry))
        topics.append(response.TopicResponse(name=topic.name, partitions=rows))
    return response(topics=topics)


def _state(ctx: RequestContext, topic: str, index: int) -> ProducerState:
    validate(topic)
    require_topic(ctx, Operation.READ, topic)
    services = ctx.services
    if services.metadata_cache.topic(topic) is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    # Of any replica, as tools compare them: `kafka-transactions find-hanging --broker-id` asks followers.
    state: ProducerState = services.replica_manager.replica(topic, index).log.producer_state
    return state


def _producer(entry: ProducerEntry) -> wire.DescribeProducersResponse.ProducerState:
    return wire.DescribeProducersResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )


HANDLERS: tuple[Handler, ...] = (Handler(ApiKey.DESCRIBE_PRODUCERS, 0, 0, handle_describe_producers),)
