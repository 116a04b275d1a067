"""Records of `__transaction_state`."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, record_key, record_value

MESSAGES: tuple[MessageSchema, ...] = (
    record_key(0, "TransactionLogKey", "0", "none").of(
        F("transactional_id", "string", "0"),
    ),
    record_value(0, "TransactionLogValue", "0-1", "1+").of(
        F("producer_id", "int64", "0+"),
        F("previous_producer_id", "int64", "1+", tag=0, tagged="1+", default=-1),
        F("next_producer_id", "int64", "1+", tag=1, tagged="1+", default=-1),
        F("producer_epoch", "int16", "0+"),
        F("next_producer_epoch", "int16", "1+", tag=3, tagged="1+", default=-1),
        F("transaction_timeout_ms", "int32", "0+"),
        F("transaction_status", "int8", "0+"),
        F("transaction_partitions", "[]PartitionsSchema", "0+", nullable="0+").of(
            F("topic", "string", "0+"),
            F("partition_ids", "[]int32", "0+"),
        ),
        F("transaction_last_update_timestamp_ms", "int64", "0+"),
        F("transaction_start_timestamp_ms", "int64", "0+"),
        F("client_transaction_version", "int16", "1+", tag=2, tagged="1+"),
    ),
)
