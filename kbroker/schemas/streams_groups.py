"""Streams groups (KIP-1071), and the user data of the classic Streams assignor."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MIN, F, MessageSchema, SharedStruct, data, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(88, "StreamsGroupHeartbeat", "0", "0+")
    .of(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0+"),
        F("member_epoch", "int32", "0+"),
        F("endpoint_information_epoch", "int32", "0+"),
        F("instance_id", "string", "0+", nullable="0+", default=None),
        F("rack_id", "string", "0+", nullable="0+", default=None),
        F("rebalance_timeout_ms", "int32", "0+", default=-1),
        F("topology", "Topology", "0+", nullable="0+", default=None).of(
            F("epoch", "int32", "0+"),
            F("subtopologies", "[]Subtopology", "0+").of(
                F("subtopology_id", "string", "0+"),
                F("source_topics", "[]string", "0+"),
                F("source_topic_regex", "[]string", "0+"),
                F("state_changelog_topics", "[]TopicInfo", "0+"),
                F("repartition_sink_topics", "[]string", "0+"),
                F("repartition_source_topics", "[]TopicInfo", "0+"),
                F("copartition_groups", "[]CopartitionGroup", "0+").of(
                    F("source_topics", "[]int16", "0+"),
                    F("source_topic_regex", "[]int16", "0+"),
                    F("repartition_source_topics", "[]int16", "0+"),
                ),
            ),
        ),
        F("active_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("standby_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("warmup_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("process_id", "string", "0+", nullable="0+", default=None),
        F("user_endpoint", "Endpoint", "0+", nullable="0+", default=None),
        F("client_tags", "[]KeyValue", "0+", nullable="0+", default=None),
        F("task_offsets", "[]TaskOffset", "0+", nullable="0+", default=None),
        F("task_end_offsets", "[]TaskOffset", "0+", nullable="0+", default=None),
        F("shutdown_application", "bool", "0+"),
    )
    .sharing(
        SharedStruct("KeyValue").of(
            F("key", "string", "0+"),
            F("value", "string", "0+"),
        ),
        SharedStruct("TopicInfo").of(
            F("name", "string", "0+"),
            F("partitions", "int32", "0+"),
            F("replication_factor", "int16", "0+"),
            F("topic_configs", "[]KeyValue", "0+"),
        ),
        SharedStruct("Endpoint").of(
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
        SharedStruct("TaskOffset").of(
            F("subtopology_id", "string", "0+"),
            F("partition", "int32", "0+"),
            F("offset", "int64", "0+"),
        ),
        SharedStruct("TaskIds").of(
            F("subtopology_id", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    response(88, "StreamsGroupHeartbeat", "0", "0+")
    .of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", default=None),
        F("member_id", "string", "0+"),
        F("member_epoch", "int32", "0+"),
        F("heartbeat_interval_ms", "int32", "0+"),
        F("acceptable_recovery_lag", "int32", "0+"),
        F("task_offset_interval_ms", "int32", "0+"),
        F("status", "[]Status", "0+", nullable="0+"),
        F("active_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("standby_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("warmup_tasks", "[]TaskIds", "0+", nullable="0+", default=None),
        F("endpoint_information_epoch", "int32", "0+"),
        F("partitions_by_user_endpoint", "[]EndpointToPartitions", "0+", nullable="0+", default=None).of(
            F("user_endpoint", "Endpoint", "0+"),
            F("active_partitions", "[]TopicPartition", "0+"),
            F("standby_partitions", "[]TopicPartition", "0+"),
        ),
    )
    .sharing(
        SharedStruct("Status").of(
            F("status_code", "int8", "0+"),
            F("status_detail", "string", "0+"),
        ),
        SharedStruct("TopicPartition").of(
            F("topic", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        SharedStruct("TaskIds").of(
            F("subtopology_id", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        SharedStruct("Endpoint").of(
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
    ),
    request(89, "StreamsGroupDescribe", "0", "0+").of(
        F("group_ids", "[]string", "0+"),
        F("include_authorized_operations", "bool", "0+"),
    ),
    response(89, "StreamsGroupDescribe", "0", "0+")
    .of(
        F("throttle_time_ms", "int32", "0+"),
        F("groups", "[]DescribedGroup", "0+").of(
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
            F("group_id", "string", "0+"),
            F("group_state", "string", "0+"),
            F("group_epoch", "int32", "0+"),
            F("assignment_epoch", "int32", "0+"),
            F("topology", "Topology", "0+", nullable="0+", default=None).of(
                F("epoch", "int32", "0+"),
                F("subtopologies", "[]Subtopology", "0+", nullable="0+", default=None).of(
                    F("subtopology_id", "string", "0+"),
                    F("source_topics", "[]string", "0+"),
                    F("repartition_sink_topics", "[]string", "0+"),
                    F("state_changelog_topics", "[]TopicInfo", "0+"),
                    F("repartition_source_topics", "[]TopicInfo", "0+"),
                ),
            ),
            F("members", "[]Member", "0+").of(
                F("member_id", "string", "0+"),
                F("member_epoch", "int32", "0+"),
                F("instance_id", "string", "0+", nullable="0+", default=None),
                F("rack_id", "string", "0+", nullable="0+", default=None),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("topology_epoch", "int32", "0+"),
                F("process_id", "string", "0+"),
                F("user_endpoint", "Endpoint", "0+", nullable="0+", default=None),
                F("client_tags", "[]KeyValue", "0+"),
                F("task_offsets", "[]TaskOffset", "0+"),
                F("task_end_offsets", "[]TaskOffset", "0+"),
                F("assignment", "Assignment", "0+"),
                F("target_assignment", "Assignment", "0+"),
                F("is_classic", "bool", "0+"),
            ),
            F("authorized_operations", "int32", "0+", default=INT32_MIN),
        ),
    )
    .sharing(
        SharedStruct("Endpoint").of(
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
        SharedStruct("TaskOffset").of(
            F("subtopology_id", "string", "0+"),
            F("partition", "int32", "0+"),
            F("offset", "int64", "0+"),
        ),
        SharedStruct("Assignment").of(
            F("active_tasks", "[]TaskIds", "0+"),
            F("standby_tasks", "[]TaskIds", "0+"),
            F("warmup_tasks", "[]TaskIds", "0+"),
        ),
        SharedStruct("TaskIds").of(
            F("subtopology_id", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        SharedStruct("KeyValue").of(
            F("key", "string", "0+"),
            F("value", "string", "0+"),
        ),
        SharedStruct("TopicInfo").of(
            F("name", "string", "0+"),
            F("partitions", "int32", "0+"),
            F("replication_factor", "int16", "0+"),
            F("topic_configs", "[]KeyValue", "0+"),
        ),
    ),
    data("SubscriptionInfoData", "1-11", "none")
    .of(
        F("version", "int32", "1+"),
        F("latest_supported_version", "int32", "3+", default=-1),
        F("process_id", "uuid", "1+"),
        F("prev_tasks", "[]TaskId", "1-6"),
        F("standby_tasks", "[]TaskId", "1-6"),
        F("user_end_point", "bytes", "2+"),
        F("task_offset_sums", "[]TaskOffsetSum", "7+"),
        F("unique_field", "int8", "8+"),
        F("error_code", "int32", "9+"),
        F("client_tags", "[]ClientTag", "11+"),
    )
    .sharing(
        SharedStruct("TaskId").of(
            F("topic_group_id", "int32", "1-6"),
            F("partition", "int32", "1-6"),
        ),
        SharedStruct("TaskOffsetSum").of(
            F("topic_group_id", "int32", "7+"),
            F("partition", "int32", "10+"),
            F("offset_sum", "int64", "10+"),
            F("named_topology", "string", "10+", nullable="10+", ignorable=True),
            F("partition_to_offset_sum", "[]PartitionToOffsetSum", "7-9"),
        ),
        SharedStruct("PartitionToOffsetSum").of(
            F("partition", "int32", "7-9"),
            F("offset_sum", "int64", "7-9"),
        ),
        SharedStruct("ClientTag").of(
            F("key", "bytes", "11+"),
            F("value", "bytes", "11+"),
        ),
    ),
)
