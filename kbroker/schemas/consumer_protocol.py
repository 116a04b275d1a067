"""What consumers put into JoinGroup metadata and SyncGroup assignments."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, data

MESSAGES: tuple[MessageSchema, ...] = (
    data("ConsumerProtocolSubscription", "0-3", "none").of(
        F("topics", "[]string", "0+"),
        F("user_data", "bytes", "0+", nullable="0+", default=None),
        F("owned_partitions", "[]TopicPartition", "1+", ignorable=True).of(
            F("topic", "string", "1+"),
            F("partitions", "[]int32", "1+"),
        ),
        F("generation_id", "int32", "2+", default=-1, ignorable=True),
        F("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True),
    ),
    data("ConsumerProtocolAssignment", "0-3", "none").of(
        F("assigned_partitions", "[]TopicPartition", "0+").of(
            F("topic", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        F("user_data", "bytes", "0+", nullable="0+", default=None),
    ),
)
