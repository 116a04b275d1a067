"""ListOffsets and OffsetForLeaderEpoch (API keys 2 and 23)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(2, "ListOffsets", "0-11", "6+").of(
        F("replica_id", "int32", "0+"),
        F("isolation_level", "int8", "2+"),
        F("topics", "[]ListOffsetsTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]ListOffsetsPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("current_leader_epoch", "int32", "4+", default=-1, ignorable=True),
                F("timestamp", "int64", "0+"),
                F("max_num_offsets", "int32", "0", default=1),
            ),
        ),
        F("timeout_ms", "int32", "10+", ignorable=True),
    ),
    response(2, "ListOffsets", "0-11", "6+").of(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]ListOffsetsTopicResponse", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]ListOffsetsPartitionResponse", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("old_style_offsets", "[]int64", "0"),
                F("timestamp", "int64", "1+", default=-1),
                F("offset", "int64", "1+", default=-1),
                F("leader_epoch", "int32", "4+", default=-1),
            ),
        ),
    ),
    request(23, "OffsetForLeaderEpoch", "0-4", "4+").of(
        F("replica_id", "int32", "3+", default=-2, ignorable=True),
        F("topics", "[]OffsetForLeaderTopic", "0+").of(
            F("topic", "string", "0+"),
            F("partitions", "[]OffsetForLeaderPartition", "0+").of(
                F("partition", "int32", "0+"),
                F("current_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
    ),
    response(23, "OffsetForLeaderEpoch", "0-4", "4+").of(
        F("throttle_time_ms", "int32", "2+", ignorable=True),
        F("topics", "[]OffsetForLeaderTopicResult", "0+").of(
            F("topic", "string", "0+"),
            F("partitions", "[]EpochEndOffset", "0+").of(
                F("error_code", "int16", "0+"),
                F("partition", "int32", "0+"),
                F("leader_epoch", "int32", "1+", default=-1, ignorable=True),
                F("end_offset", "int64", "0+", default=-1),
            ),
        ),
    ),
)
