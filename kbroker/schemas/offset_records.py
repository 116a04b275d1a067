"""Records of `__consumer_offsets` that classic groups write: offsets and group metadata.

A key starts with its record type; LegacyOffsetCommit is the type 0 of old brokers."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, record_key, record_value

MESSAGES: tuple[MessageSchema, ...] = (
    record_key(1, "OffsetCommitKey", "0", "none").of(
        F("group", "string", "0"),
        F("topic", "string", "0"),
        F("partition", "int32", "0"),
    ),
    record_value(1, "OffsetCommitValue", "0-4", "4+").of(
        F("offset", "int64", "0+"),
        F("leader_epoch", "int32", "3+", default=-1, ignorable=True),
        F("metadata", "string", "0+"),
        F("commit_timestamp", "int64", "0+"),
        F("expire_timestamp", "int64", "1", default=-1, ignorable=True),
        F("topic_id", "uuid", "4+", tag=0, tagged="4+", ignorable=True),
    ),
    record_key(0, "LegacyOffsetCommitKey", "0", "none").of(
        F("group", "string", "0"),
        F("topic", "string", "0"),
        F("partition", "int32", "0"),
    ),
    record_value(0, "LegacyOffsetCommitValue", "0", "none").of(
        F("offset", "int64", "0"),
        F("metadata", "string", "0"),
        F("commit_timestamp", "int64", "0"),
    ),
    record_key(2, "GroupMetadataKey", "0", "none").of(
        F("group", "string", "0"),
    ),
    record_value(2, "GroupMetadataValue", "0-4", "4+")
    .of(
        F("protocol_type", "string", "0+"),
        F("generation", "int32", "0+"),
        F("protocol", "string", "0+", nullable="0+"),
        F("leader", "string", "0+", nullable="0+"),
        F("current_state_timestamp", "int64", "2+", default=-1, ignorable=True),
        F("members", "[]MemberMetadata", "0+"),
    )
    .sharing(
        SharedStruct("MemberMetadata").of(
            F("member_id", "string", "0+"),
            F("group_instance_id", "string", "3+", nullable="3+", default=None, ignorable=True),
            F("client_id", "string", "0+"),
            F("client_host", "string", "0+"),
            F("rebalance_timeout", "int32", "1+", default=-1, ignorable=True),
            F("session_timeout", "int32", "0+"),
            F("subscription", "bytes", "0+"),
            F("assignment", "bytes", "0+"),
        ),
    ),
)
