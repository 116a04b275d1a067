"""Metadata (API key 3)."""

from __future__ import annotations

from kbroker.protocol.schema import Field as F
from kbroker.protocol.schema import INT32_MIN, MessageSchema, request, response

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
)
