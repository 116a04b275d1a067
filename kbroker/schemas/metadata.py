"""Metadata and DescribeTopicPartitions (API keys 3 and 75)."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MIN, F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(3, "Metadata", "0-13", "9+").of(
        F("topics", "[]MetadataRequestTopic", "0+", nullable="1+").of(
            F("topic_id", "uuid", "10+", ignorable=True),
            F("name", "string", "0+", nullable="10+"),
        ),
        F("allow_auto_topic_creation", "bool", "4+", default=True),
        F("include_cluster_authorized_operations", "bool", "8-10"),
        F("include_topic_authorized_operations", "bool", "8+"),
    ),
    response(3, "Metadata", "0-13", "9+").of(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("brokers", "[]MetadataResponseBroker", "0+").of(
            F("node_id", "int32", "0+"),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
            F("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
        ),
        F("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
        F("controller_id", "int32", "1+", default=-1, ignorable=True),
        F("topics", "[]MetadataResponseTopic", "0+").of(
            F("error_code", "int16", "0+"),
            F("name", "string", "0+", nullable="12+"),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("is_internal", "bool", "1+", ignorable=True),
            F("partitions", "[]MetadataResponsePartition", "0+").of(
                F("error_code", "int16", "0+"),
                F("partition_index", "int32", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "7+", default=-1, ignorable=True),
                F("replica_nodes", "[]int32", "0+"),
                F("isr_nodes", "[]int32", "0+"),
                F("offline_replicas", "[]int32", "5+", ignorable=True),
            ),
            F("topic_authorized_operations", "int32", "8+", default=INT32_MIN),
        ),
        F("cluster_authorized_operations", "int32", "8-10", default=INT32_MIN),
        F("error_code", "int16", "13+", ignorable=True),
    ),
    request(75, "DescribeTopicPartitions", "0", "0+").of(
        F("topics", "[]TopicRequest", "0+").of(
            F("name", "string", "0+"),
        ),
        F("response_partition_limit", "int32", "0+", default=2000),
        F("cursor", "Cursor", "0+", nullable="0+", default=None).of(
            F("topic_name", "string", "0+"),
            F("partition_index", "int32", "0+"),
        ),
    ),
    response(75, "DescribeTopicPartitions", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+", ignorable=True),
        F("topics", "[]DescribeTopicPartitionsResponseTopic", "0+").of(
            F("error_code", "int16", "0+"),
            F("name", "string", "0+", nullable="0+"),
            F("topic_id", "uuid", "0+", ignorable=True),
            F("is_internal", "bool", "0+", ignorable=True),
            F("partitions", "[]DescribeTopicPartitionsResponsePartition", "0+").of(
                F("error_code", "int16", "0+"),
                F("partition_index", "int32", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+", default=-1, ignorable=True),
                F("replica_nodes", "[]int32", "0+"),
                F("isr_nodes", "[]int32", "0+"),
                F("eligible_leader_replicas", "[]int32", "0+", nullable="0+", default=None),
                F("last_known_elr", "[]int32", "0+", nullable="0+", default=None),
                F("offline_replicas", "[]int32", "0+", ignorable=True),
            ),
            F("topic_authorized_operations", "int32", "0+", default=INT32_MIN),
        ),
        F("next_cursor", "Cursor", "0+", nullable="0+", default=None).of(
            F("topic_name", "string", "0+"),
            F("partition_index", "int32", "0+"),
        ),
    ),
)
