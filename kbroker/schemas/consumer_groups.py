"""Consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MIN, F, MessageSchema, SharedStruct, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(68, "ConsumerGroupHeartbeat", "0-1", "0+").of(
        F("group_id", "string", "0+"),
        F("member_id", "string", "0+"),
        F("member_epoch", "int32", "0+"),
        F("instance_id", "string", "0+", nullable="0+", default=None),
        F("rack_id", "string", "0+", nullable="0+", default=None),
        F("rebalance_timeout_ms", "int32", "0+", default=-1),
        F("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
        F("subscribed_topic_regex", "string", "1+", nullable="1+", default=None),
        F("server_assignor", "string", "0+", nullable="0+", default=None),
        F("topic_partitions", "[]TopicPartitions", "0+", nullable="0+", default=None).of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    response(68, "ConsumerGroupHeartbeat", "0-1", "0+")
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
    request(69, "ConsumerGroupDescribe", "0-1", "0+").of(
        F("group_ids", "[]string", "0+"),
        F("include_authorized_operations", "bool", "0+"),
    ),
    response(69, "ConsumerGroupDescribe", "0-1", "0+")
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
                F("instance_id", "string", "0+", nullable="0+", default=None),
                F("rack_id", "string", "0+", nullable="0+", default=None),
                F("member_epoch", "int32", "0+"),
                F("client_id", "string", "0+"),
                F("client_host", "string", "0+"),
                F("subscribed_topic_names", "[]string", "0+"),
                F("subscribed_topic_regex", "string", "0+", nullable="0+", default=None),
                F("assignment", "Assignment", "0+"),
                F("target_assignment", "Assignment", "0+"),
                F("member_type", "int8", "1+", default=-1, ignorable=True),
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
)
