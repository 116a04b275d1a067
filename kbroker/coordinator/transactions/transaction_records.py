"""The records of `__transaction_state`, byte for byte as Kafka 4.3's coordinator writes them.

    key    int16 0, then the transactional id
    value  int16 version, then TransactionLogValue; a null value is a tombstone: the id has expired

Written: version 1, which has the client's protocol generation and other producer ids as tagged fields; version 0 where
`transaction.version` is 0.  Read: both.  The partitions are null in state Empty.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.transactions.transaction_metadata import NO_PARTITIONS, TransactionMetadata
from kbroker.coordinator.transactions.transaction_state import BY_ID, TransactionState
from kbroker.schemas import program, wire
from kbroker.types import TopicPartition

_SHORT = struct.Struct(">h")
_KEY_TYPE = 0
_KEY_PREFIX = _SHORT.pack(_KEY_TYPE)
_PREFIXES = {version: _SHORT.pack(version) for version in (0, 1)}
_NEVER_STORED = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


class UnknownRecordError(ValueError):
    """A record that this broker does not know how to read."""


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    return program("TransactionLogKey").encode(wire.TransactionLogKey(transactional_id=transactional_id), _KEY_PREFIX)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    # Numbers are sorted many times faster than pairs.
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def transaction_value(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """The value of a transactional id; `transaction_version` is the cluster's feature level."""
    version = min(transaction_version, 1)
    value_class = wire.TransactionLogValue
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            value_class.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(metadata.partitions).items()
        ]
    value = value_class(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.id,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )
    if version >= 1:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return program("TransactionLogValue", version).encode(value, _PREFIXES[version])


def parse_record(key: bytes | None, value: bytes | None) -> tuple[str, TransactionMetadata | None]:
    """A transactional id and what the record says of it; None: it has expired.  UnknownRecordError when it cannot be
    read."""
    if key is None or len(key) < _SHORT.size:
        raise UnknownRecordError("a record without a key")
    (key_type,) = _SHORT.unpack_from(key)
    if key_type != _KEY_TYPE:
        raise UnknownRecordError(f"record type {key_type}")
    try:
        transactional_id: str = program("TransactionLogKey").decode(key, _SHORT.size).transactional_id
        return transactional_id, None if value is None else _parse_value(transactional_id, value)
    except DecodeError as error:
        raise UnknownRecordError(f"a transaction's record: {error}") from error


def _parse_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    if len(data) < _SHORT.size:
        raise UnknownRecordError(f"a value of {len(data)} bytes")
    (version,) = _SHORT.unpack_from(data)
    if version not in _PREFIXES:
        raise UnknownRecordError(f"TransactionLogValue version {version}")
    value: wire.TransactionLogValue = program("TransactionLogValue", version).decode(data, _SHORT.size)
    if not 0 <= value.transaction_status < len(BY_ID) or BY_ID[value.transaction_status] in _NEVER_STORED:
        raise UnknownRecordError(f"transaction state {value.transaction_status}")
    state = BY_ID[value.transaction_status]
    partitions = NO_PARTITIONS
    if state is not TransactionState.EMPTY:
        partitions = frozenset(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        )
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        value.transaction_last_update_timestamp_ms,
        partitions,
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )
