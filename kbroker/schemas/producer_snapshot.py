"""The snapshot of producer states, a file of each partition."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, data

MESSAGES: tuple[MessageSchema, ...] = (
    data("ProducerSnapshot", "1", "none").of(
        F("crc", "uint32", "1"),
        F("producer_entries", "[]ProducerEntry", "1").of(
            F("producer_id", "int64", "1"),
            F("epoch", "int16", "1"),
            F("last_sequence", "int32", "1"),
            F("last_offset", "int64", "1"),
            F("offset_delta", "int32", "1"),
            F("timestamp", "int64", "1"),
            F("coordinator_epoch", "int32", "1"),
            F("current_txn_first_offset", "int64", "1"),
        ),
    ),
)
