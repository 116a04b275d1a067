"""Produce (API key 0)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(0, "Produce", "0-13", "9+").of(
        F("transactional_id", "string", "3+", nullable="3+", default=None),
        F("acks", "int16", "0+"),
        F("timeout_ms", "int32", "0+"),
        F("topic_data", "[]TopicProduceData", "0+").of(
            F("name", "string", "0-12", ignorable=True),
            F("topic_id", "uuid", "13+", ignorable=True),
            F("partition_data", "[]PartitionProduceData", "0+").of(
                F("index", "int32", "0+"),
                F("records", "records", "0+", nullable="0+"),
            ),
        ),
    ),
    response(0, "Produce", "0-13", "9+").of(
        F("responses", "[]TopicProduceResponse", "0+").of(
            F("name", "string", "0-12", ignorable=True),
            F("topic_id", "uuid", "13+", ignorable=True),
            F("partition_responses", "[]PartitionProduceResponse", "0+").of(
                F("index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("base_offset", "int64", "0+"),
                F("log_append_time_ms", "int64", "2+", default=-1, ignorable=True),
                F("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                F("record_errors", "[]BatchIndexAndErrorMessage", "8+", ignorable=True).of(
                    F("batch_index", "int32", "8+"),
                    F("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                ),
                F("error_message", "string", "8+", nullable="8+", default=None, ignorable=True),
                F("current_leader", "LeaderIdAndEpoch", "10+", tag=0, tagged="10+").of(
                    F("leader_id", "int32", "10+", default=-1),
                    F("leader_epoch", "int32", "10+", default=-1),
                ),
            ),
        ),
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("node_endpoints", "[]NodeEndpoint", "10+", tag=0, tagged="10+").of(
            F("node_id", "int32", "10+"),
            F("host", "string", "10+"),
            F("port", "int32", "10+"),
            F("rack", "string", "10+", nullable="10+", default=None),
        ),
    ),
)
