"""Records of `__consumer_offsets` about consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, record_key, record_value

MESSAGES: tuple[MessageSchema, ...] = (
    record_key(8, "ConsumerGroupCurrentMemberAssignmentKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(8, "ConsumerGroupCurrentMemberAssignmentValue", "0", "0+")
    .of(
        F("member_epoch", "int32", "0+"),
        F("previous_member_epoch", "int32", "0+"),
        F("state", "int8", "0+"),
        F("assigned_partitions", "[]TopicPartitions", "0+"),
        F("partitions_pending_revocation", "[]TopicPartitions", "0+"),
    )
    .sharing(
        SharedStruct("TopicPartitions").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
            F("assignment_epochs", "[]int32", "0+", nullable="0+", tag=0, tagged="0+"),
        ),
    ),
    record_key(5, "ConsumerGroupMemberMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(5, "ConsumerGroupMemberMetadataValue", "0", "0+").of(
        F("instance_id", "string", "0+", nullable="0+"),
        F("rack_id", "string", "0+", nullable="0+"),
        F("client_id", "string", "0+"),
        F("client_host", "string", "0+"),
        F("subscribed_topic_names", "[]string", "0+"),
        F("subscribed_topic_regex", "string", "0+", nullable="0+"),
        F("rebalance_timeout_ms", "int32", "0+", default=-1),
        F("server_assignor", "string", "0+", nullable="0+"),
        F("classic_member_metadata", "ClassicMemberMetadata", "0+", nullable="0+", tag=0, tagged="0+").of(
            F("session_timeout_ms", "int32", "0+"),
            F("supported_protocols", "[]ClassicProtocol", "0+").of(
                F("name", "string", "0+"),
                F("metadata", "bytes", "0+"),
            ),
        ),
    ),
    record_key(3, "ConsumerGroupMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(3, "ConsumerGroupMetadataValue", "0", "0+").of(
        F("epoch", "int32", "0+"),
        F("metadata_hash", "int64", "0+", tag=0, tagged="0+"),
    ),
    record_key(4, "ConsumerGroupPartitionMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(4, "ConsumerGroupPartitionMetadataValue", "0", "0+").of(
        F("topics", "[]TopicMetadata", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("topic_name", "string", "0+"),
            F("num_partitions", "int32", "0+"),
            F("partition_metadata", "[]PartitionMetadata", "0+").of(
                F("partition", "int32", "0+"),
                F("racks", "[]string", "0+"),
            ),
        ),
    ),
    record_key(16, "ConsumerGroupRegularExpressionKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("regular_expression", "string", "0"),
    ),
    record_value(16, "ConsumerGroupRegularExpressionValue", "0", "0+").of(
        F("topics", "[]string", "0+"),
        F("version", "int64", "0+"),
        F("timestamp", "int64", "0+"),
    ),
    record_key(7, "ConsumerGroupTargetAssignmentMemberKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(7, "ConsumerGroupTargetAssignmentMemberValue", "0", "0+").of(
        F("topic_partitions", "[]TopicPartition", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    record_key(6, "ConsumerGroupTargetAssignmentMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(6, "ConsumerGroupTargetAssignmentMetadataValue", "0", "0+").of(
        F("assignment_epoch", "int32", "0+"),
        F("assignment_timestamp", "int64", "0+", tag=0, tagged="0+", ignorable=True),
    ),
)
