"""Topics: create, delete, add partitions, delete records."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(19, "CreateTopics", "0-7", "5+").of(
        F("topics", "[]CreatableTopic", "0+").of(
            F("name", "string", "0+"),
            F("num_partitions", "int32", "0+"),
            F("replication_factor", "int16", "0+"),
            F("assignments", "[]CreatableReplicaAssignment", "0+").of(
                F("partition_index", "int32", "0+"),
                F("broker_ids", "[]int32", "0+"),
            ),
            F("configs", "[]CreatableTopicConfig", "0+").of(
                F("name", "string", "0+"),
                F("value", "string", "0+", nullable="0+"),
            ),
        ),
        F("timeout_ms", "int32", "0+", default=60000),
        F("validate_only", "bool", "1+"),
    ),
    response(19, "CreateTopics", "0-7", "5+").of(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]CreatableTopicResult", "0+").of(
            F("name", "string", "0+"),
            F("topic_id", "uuid", "7+", ignorable=True),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "1+", nullable="0+", ignorable=True),
            F("topic_config_error_code", "int16", "5+", tag=0, tagged="5+", ignorable=True),
            F("num_partitions", "int32", "5+", default=-1, ignorable=True),
            F("replication_factor", "int16", "5+", default=-1, ignorable=True),
            F("configs", "[]CreatableTopicConfigs", "5+", nullable="5+", ignorable=True).of(
                F("name", "string", "5+"),
                F("value", "string", "5+", nullable="5+"),
                F("read_only", "bool", "5+"),
                F("config_source", "int8", "5+", default=-1, ignorable=True),
                F("is_sensitive", "bool", "5+"),
            ),
        ),
    ),
    request(20, "DeleteTopics", "0-6", "4+").of(
        F("topics", "[]DeleteTopicState", "6+").of(
            F("name", "string", "6+", nullable="6+", default=None),
            F("topic_id", "uuid", "6+"),
        ),
        F("topic_names", "[]string", "0-5", ignorable=True),
        F("timeout_ms", "int32", "0+"),
    ),
    response(20, "DeleteTopics", "0-6", "4+").of(
        F("throttle_time_ms", "int32", "1+", ignorable=True),
        F("responses", "[]DeletableTopicResult", "0+").of(
            F("name", "string", "0+", nullable="6+"),
            F("topic_id", "uuid", "6+", ignorable=True),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "5+", nullable="5+", default=None, ignorable=True),
        ),
    ),
    request(37, "CreatePartitions", "0-3", "2+").of(
        F("topics", "[]CreatePartitionsTopic", "0+").of(
            F("name", "string", "0+"),
            F("count", "int32", "0+"),
            F("assignments", "[]CreatePartitionsAssignment", "0+", nullable="0+").of(
                F("broker_ids", "[]int32", "0+"),
            ),
        ),
        F("timeout_ms", "int32", "0+"),
        F("validate_only", "bool", "0+"),
    ),
    response(37, "CreatePartitions", "0-3", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]CreatePartitionsTopicResult", "0+").of(
            F("name", "string", "0+"),
            F("error_code", "int16", "0+"),
            F("error_message", "string", "0+", nullable="0+", default=None),
        ),
    ),
    request(21, "DeleteRecords", "0-2", "2+").of(
        F("topics", "[]DeleteRecordsTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]DeleteRecordsPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("offset", "int64", "0+"),
            ),
        ),
        F("timeout_ms", "int32", "0+"),
    ),
    response(21, "DeleteRecords", "0-2", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("topics", "[]DeleteRecordsTopicResult", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]DeleteRecordsPartitionResult", "0+").of(
                F("partition_index", "int32", "0+"),
                F("low_watermark", "int64", "0+"),
                F("error_code", "int16", "0+"),
            ),
        ),
    ),
)
