"""Share groups (KIP-932), as clients see them."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MAX, INT32_MIN, F, MessageSchema, SharedStruct, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(76, "ShareGroupHeartbeat", "0-1", "0+").of(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0+"),
        F("member_epoch", "int32", "0+"),
        F("rack_id", "string", "0+", nullable="0+", default=None),
        F("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
    ),
    response(76, "ShareGroupHeartbeat", "0-1", "0+")
    .of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("member_id", "string", "0+", nullable="0+", default=None),
        F("member_epoch", "int32", "0+"),
        F("heartbeat_interval_ms", "int32", "0+"),
        F("assignment", "Assignment", "0+", nullable="0+", default=None).of(
            F("topic_partitions", "[]TopicPartitions", "0+"),
        ),
    )
    .sharing(
        SharedStruct("TopicPartitions").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    request(77, "ShareGroupDescribe", "0-1", "0+").of(
        F("group_ids", "[]string", "0+"),
        F("include_authorized_operations", "bool", "0+"),
    ),
    response(77, "ShareGroupDescribe", "0-1", "0+")
    .of(
        F("throttle_time_ms", "int32", "0+"),
        F("groups", "[]DescribedGroup", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
            F("group_id", "string", "0+"),
            F("group_state", "string", "0+"),
            F("group_epoch", "int32", "0+"),
            F("assignment_epoch", "int32", "0+"),
            F("assignor_name", "string", "0+"),
            F("members", "[]Member", "0+").of(
                F("member_id", "string", "0+"),
                F("rack_id", "string", "0+", nullable="0+", default=None),
                F("member_epoch", "int32", "0+"),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("subscribed_topic_names", "[]string", "0+"),
                F("assignment", "Assignment", "0+"),
            ),
            F("authorized_operations", "int32", "0+", default=INT32_MIN),
        ),
    )
    .sharing(
        SharedStruct("TopicPartitions").of(
            F("topic_id", "uuid", "0+"),
            F("topic_name", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        SharedStruct("Assignment").of(
            F("topic_partitions", "[]TopicPartitions", "0+"),
        ),
    ),
    request(78, "ShareFetch", "0-2", "0+").of(
        F("group_id", "string", "0+", nullable="0+", default=None),
        F("member_id", "string", "0+", nullable="0+"),
        F("share_session_epoch", "int32", "0+"),
        F("max_wait_ms", "int32", "0+"),
        F("min_bytes", "int32", "0+"),
        F("max_bytes", "int32", "0+", default=INT32_MAX),
        F("max_records", "int32", "1+"),
        F("batch_size", "int32", "1+"),
        F("share_acquire_mode", "int8", "2+", ignorable=True),
        F("is_renew_ack", "bool", "2+"),
        F("topics", "[]FetchTopic", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]FetchPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("partition_max_bytes", "int32", "0"),
                F("acknowledgement_batches", "[]AcknowledgementBatch", "0+").of(
                    F("first_offset", "int64", "0+"),
                    F("last_offset", "int64", "0+"),
                    F("acknowledge_types", "[]int8", "0+"),
                ),
            ),
        ),
        F("forgotten_topics_data", "[]ForgottenTopic", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    response(78, "ShareFetch", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("acquisition_lock_timeout_ms", "int32", "1+"),
        F("responses", "[]ShareFetchableTopicResponse", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
                F("acknowledge_error_code", "int16", "0+"),
                F("acknowledge_error_message", "string", "0+", nullable="0+", default=None),
                F("current_leader", "LeaderIdAndEpoch", "0+").of(
                    F("leader_id", "int32", "0+"),
                    F("leader_epoch", "int32", "0+"),
                ),
                F("records", "records", "0+", nullable="0"),
                F("acquired_records", "[]AcquiredRecords", "0+").of(
                    F("first_offset", "int64", "0+"),
                    F("last_offset", "int64", "0+"),
                    F("delivery_count", "int16", "0+"),
                ),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "0+").of(
            F("node_id", "int32", "0+"),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
            F("rack", "string", "0+", nullable="0+", default=None),
        ),
    ),
    request(79, "ShareAcknowledge", "0-2", "0+").of(
        F("group_id", "string", "0+", nullable="0+", default=None),
        F("member_id", "string", "0+", nullable="0+"),
        F("share_session_epoch", "int32", "0+"),
        F("is_renew_ack", "bool", "2+"),
        F("topics", "[]AcknowledgeTopic", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]AcknowledgePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("acknowledgement_batches", "[]AcknowledgementBatch", "0+").of(
                    F("first_offset", "int64", "0+"),
                    F("last_offset", "int64", "0+"),
                    F("acknowledge_types", "[]int8", "0+"),
                ),
            ),
        ),
    ),
    response(79, "ShareAcknowledge", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("acquisition_lock_timeout_ms", "int32", "2+", ignorable=True),
        F("responses", "[]ShareAcknowledgeTopicResponse", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
                F("current_leader", "LeaderIdAndEpoch", "0+").of(
                    F("leader_id", "int32", "0+"),
                    F("leader_epoch", "int32", "0+"),
                ),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "0+").of(
            F("node_id", "int32", "0+"),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
            F("rack", "string", "0+", nullable="0+", default=None),
        ),
    ),
    request(90, "DescribeShareGroupOffsets", "0-1", "0+").of(
        F("groups", "[]DescribeShareGroupOffsetsRequestGroup", "0+").of(
            F("group_id", "string", "0+"),
            F("topics", "[]DescribeShareGroupOffsetsRequestTopic", "0+", nullable="0+").of(
                F("topic_name", "string", "0+"),
                F("partitions", "[]int32", "0+"),
            ),
        ),
    ),
    response(90, "DescribeShareGroupOffsets", "0-1", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("groups", "[]DescribeShareGroupOffsetsResponseGroup", "0+").of(
            F("group_id", "string", "0+"),
            F("topics", "[]DescribeShareGroupOffsetsResponseTopic", "0+").of(
                F("topic_name", "string", "0+"),
                F("topic_id", "uuid", "0+"),
                F("partitions", "[]DescribeShareGroupOffsetsResponsePartition", "0+").of(
                    F("partition_index", "int32", "0+"),
                    F("start_offset", "int64", "0+"),
                    F("leader_epoch", "int32", "0+"),
                    F("lag", "int64", "1+", default=-1, ignorable=True),
                    F("error_code", "int16", "0+"),
                    F("error_message", "string", "0+", nullable="0+", default=None),
                ),
            ),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
        ),
    ),
    request(91, "AlterShareGroupOffsets", "0", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]AlterShareGroupOffsetsRequestTopic", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]AlterShareGroupOffsetsRequestPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("start_offset", "int64", "0+"),
            ),
        ),
    ),
    response(91, "AlterShareGroupOffsets", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("responses", "[]AlterShareGroupOffsetsResponseTopic", "0+").of(
            F("topic_name", "string", "0+"),
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]AlterShareGroupOffsetsResponsePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
            ),
        ),
    ),
    request(92, "DeleteShareGroupOffsets", "0", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]DeleteShareGroupOffsetsRequestTopic", "0+").of(
            F("topic_name", "string", "0+"),
        ),
    ),
    response(92, "DeleteShareGroupOffsets", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("responses", "[]DeleteShareGroupOffsetsResponseTopic", "0+").of(
            F("topic_name", "string", "0+"),
            F("topic_id", "uuid", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
        ),
    ),
)
