"""Asks a transaction coordinator on another broker whether partitions are part of a transaction (AddPartitionsToTxn).

Versions are negotiated.  A coordinator that serves only versions below 4, without `verify_only` (Kafka before 3.5), is
not asked: the batch is appended unverified, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster.client import NodeError, UnsupportedVersionError
from kbroker.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest

FIRST_VERSION, LAST_VERSION = 4, 5


async def ask_elsewhere(
    clients: NodeClients,
    node_id: int,
    producer: ProducerRequest,
    partitions: frozenset[TopicPartition],
    *,
    verify_only: bool,
) -> frozenset[TopicPartition]:
    """Those of `partitions` that are part of the transaction, or, without `verify_only`, are by now.

    Raises KafkaError: what the coordinator refuses all with, COORDINATOR_NOT_AVAILABLE where it does not answer.
    """
    client = clients.of(node_id)
    try:
        await client.connect()
        try:
            version = client.version_of(ApiKey.ADD_PARTITIONS_TO_TXN, LAST_VERSION)
        except UnsupportedVersionError:
            version = FIRST_VERSION - 1
        if version < FIRST_VERSION:
            return partitions
        answer = await client.send(_request(producer, partitions, verify_only=verify_only), version)
    except NodeError as error:
        raise CoordinatorNotAvailableError(str(error)) from error
    if answer.error_code:
        raise KafkaError.of(ErrorCode(answer.error_code))
    codes = {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for row in topic.results_by_partition
    }
    added = frozenset(each for each in partitions if codes.get(each) == ErrorCode.NONE)
    not_added = {codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in partitions - added}
    if not_added - {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}:
        raise KafkaError.of(ErrorCode(max(not_added)))
    return added


def _request(
    producer: ProducerRequest, partitions: frozenset[TopicPartition], *, verify_only: bool
) -> wire.AddPartitionsToTxnRequest:
    request = wire.AddPartitionsToTxnRequest
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    return request(
        transactions=[
            request.AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=verify_only,
                topics=[request.AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()],
            )
        ]
    )
