"""Records of `__consumer_offsets` about share groups (KIP-932)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, record_key, record_value

MESSAGES: tuple[MessageSchema, ...] = (
    record_key(14, "ShareGroupCurrentMemberAssignmentKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(14, "ShareGroupCurrentMemberAssignmentValue", "0", "0+")
    .of(
        F("member_epoch", "int32", "0+"),
        F("previous_member_epoch", "int32", "0+"),
        F("state", "int8", "0+"),
        F("assigned_partitions", "[]TopicPartitions", "0+"),
    )
    .sharing(
        SharedStruct("TopicPartitions").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    record_key(10, "ShareGroupMemberMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(10, "ShareGroupMemberMetadataValue", "0", "0+").of(
        F("rack_id", "string", "0+", nullable="0+"),
        F("client_id", "string", "0+"),
        F("client_host", "string", "0+"),
        F("subscribed_topic_names", "[]string", "0+"),
    ),
    record_key(11, "ShareGroupMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(11, "ShareGroupMetadataValue", "0", "0+").of(
        F("epoch", "int32", "0+"),
        F("metadata_hash", "int64", "0+"),
    ),
    record_key(15, "ShareGroupStatePartitionMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(15, "ShareGroupStatePartitionMetadataValue", "0", "0+")
    .of(
        F("initializing_topics", "[]TopicPartitionsInfo", "0+"),
        F("initialized_topics", "[]TopicPartitionsInfo", "0+"),
        F("deleting_topics", "[]TopicInfo", "0+"),
    )
    .sharing(
        SharedStruct("TopicPartitionsInfo").of(
            F("topic_id", "uuid", "0+"),
            F("topic_name", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        SharedStruct("TopicInfo").of(
            F("topic_id", "uuid", "0+"),
            F("topic_name", "string", "0+"),
        ),
    ),
    record_key(13, "ShareGroupTargetAssignmentMemberKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(13, "ShareGroupTargetAssignmentMemberValue", "0", "0+").of(
        F("topic_partitions", "[]TopicPartition", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    record_key(12, "ShareGroupTargetAssignmentMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(12, "ShareGroupTargetAssignmentMetadataValue", "0", "0+").of(
        F("assignment_epoch", "int32", "0+"),
        F("assignment_timestamp", "int64", "0+", tag=0, tagged="0+", ignorable=True),
    ),
)
