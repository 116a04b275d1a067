"""Log directories: describe, move replicas, assign."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(35, "DescribeLogDirs", "0-5", "2+").of(
        F("topics", "[]DescribableLogDirTopic", "0+", nullable="0+").of(
            F("topic", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    response(35, "DescribeLogDirs", "0-5", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "3+", ignorable=True),
        F("results", "[]DescribeLogDirsResult", "0+").of(
            F("error_code", "int16", "0+"),
            F("log_dir", "string", "0+"),
            F("topics", "[]DescribeLogDirsTopic", "0+").of(
                F("name", "string", "0+"),
                F("partitions", "[]DescribeLogDirsPartition", "0+").of(
                    F("partition_index", "int32", "0+"),
                    F("partition_size", "int64", "0+"),
                    F("offset_lag", "int64", "0+"),
                    F("is_future_key", "bool", "0+"),
                ),
            ),
            F("total_bytes", "int64", "4+", default=-1, ignorable=True),
            F("usable_bytes", "int64", "4+", default=-1, ignorable=True),
            F("is_cordoned", "bool", "5+", ignorable=True),
        ),
    ),
    request(34, "AlterReplicaLogDirs", "0-2", "2+").of(
        F("dirs", "[]AlterReplicaLogDir", "0+").of(
            F("path", "string", "0+"),
            F("topics", "[]AlterReplicaLogDirTopic", "0+").of(
                F("name", "string", "0+"),
                F("partitions", "[]int32", "0+"),
            ),
        ),
    ),
    response(34, "AlterReplicaLogDirs", "0-2", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("results", "[]AlterReplicaLogDirTopicResult", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]AlterReplicaLogDirPartitionResult", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
            ),
        ),
    ),
    request(73, "AssignReplicasToDirs", "0", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
        F("directories", "[]DirectoryData", "0+").of(
            F("id", "uuid", "0+"),
            F("topics", "[]TopicData", "0+").of(
                F("topic_id", "uuid", "0+"),
                F("partitions", "[]PartitionData", "0+").of(
                    F("partition_index", "int32", "0+"),
                ),
            ),
        ),
    ),
    response(73, "AssignReplicasToDirs", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("directories", "[]DirectoryData", "0+").of(
            F("id", "uuid", "0+"),
            F("topics", "[]TopicData", "0+").of(
                F("topic_id", "uuid", "0+"),
                F("partitions", "[]PartitionData", "0+").of(
                    F("partition_index", "int32", "0+"),
                    F("error_code", "int16", "0+"),
                ),
            ),
        ),
    ),
)
