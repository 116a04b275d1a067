"""Committed offsets: commit, fetch, delete."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(8, "OffsetCommit", "0-10", "8+").of(
        F("group_id", "string", "0+"),
        F("generation_id_or_member_epoch", "int32", "1+", default=-1, ignorable=True),
        F("member_id", "string", "1+", ignorable=True),
        F("group_instance_id", "string", "7+", nullable="7+", default=None),
        F("retention_time_ms", "int64", "2-4", default=-1, ignorable=True),
        F("topics", "[]OffsetCommitRequestTopic", "0+").of(
            F("name", "string", "0-9", ignorable=True),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("partitions", "[]OffsetCommitRequestPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("committed_offset", "int64", "0+"),
                F("committed_leader_epoch", "int32", "6+", default=-1, ignorable=True),
                F("commit_timestamp", "int64", "1", default=-1),
                F("committed_metadata", "string", "0+", nullable="0+"),
            ),
        ),
    ),
    response(8, "OffsetCommit", "0-10", "8+").of(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("topics", "[]OffsetCommitResponseTopic", "0+").of(
            F("name", "string", "0-9", ignorable=True),
            F("topic_id", "uuid", "10+", ignorable=True),
            F("partitions", "[]OffsetCommitResponsePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
            ),
        ),
    ),
    request(9, "OffsetFetch", "0-10", "6+").of(
        F("group_id", "string", "0-7"),
        F("topics", "[]OffsetFetchRequestTopic", "0-7", nullable="2-7").of(
            F("name", "string", "0-7"),
            F("partition_indexes", "[]int32", "0-7"),
        ),
        F("groups", "[]OffsetFetchRequestGroup", "8+").of(
            F("group_id", "string", "8+"),
            F("member_id", "string", "9+", nullable="9+", default=None, ignorable=True),
            F("member_epoch", "int32", "9+", default=-1, ignorable=True),
            F("topics", "[]OffsetFetchRequestTopics", "8+", nullable="8+").of(
                F("name", "string", "8-9", ignorable=True),
                F("topic_id", "uuid", "10+", ignorable=True),
                F("partition_indexes", "[]int32", "8+"),
            ),
        ),
        F("require_stable", "bool", "7+"),
    ),
    response(9, "OffsetFetch", "0-10", "6+").of(
        F("throttle_time_ms", "int32", "3+", ignorable=True),
        F("topics", "[]OffsetFetchResponseTopic", "0-7").of(
            F("name", "string", "0-7"),
            F("partitions", "[]OffsetFetchResponsePartition", "0-7").of(
                F("partition_index", "int32", "0-7"),
                F("committed_offset", "int64", "0-7"),
                F("committed_leader_epoch", "int32", "5-7", default=-1, ignorable=True),
                F("metadata", "string", "0-7", nullable="0-7"),
                F("error_code", "int16", "0-7"),
            ),
        ),
        F("error_code", "int16", "2-7", ignorable=True),
        F("groups", "[]OffsetFetchResponseGroup", "8+").of(
            F("group_id", "string", "8+"),
            F("topics", "[]OffsetFetchResponseTopics", "8+").of(
                F("name", "string", "8-9", ignorable=True),
                F("topic_id", "uuid", "10+", ignorable=True),
                F("partitions", "[]OffsetFetchResponsePartitions", "8+").of(
                    F("partition_index", "int32", "8+"),
                    F("committed_offset", "int64", "8+"),
                    F("committed_leader_epoch", "int32", "8+", default=-1, ignorable=True),
                    F("metadata", "string", "8+", nullable="8+"),
                    F("error_code", "int16", "8+"),
                ),
            ),
            F("error_code", "int16", "8+"),
        ),
    ),
    request(47, "OffsetDelete", "0", "none").of(
        F("group_id", "string", "0+"),
        F("topics", "[]OffsetDeleteRequestTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]OffsetDeleteRequestPartition", "0+").of(
                F("partition_index", "int32", "0+"),
            ),
        ),
    ),
    response(47, "OffsetDelete", "0", "none").of(
        F("error_code", "int16", "0+"),
        F("throttle_time_ms", "int32", "0+", ignorable=True),
        F("topics", "[]OffsetDeleteResponseTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]OffsetDeleteResponsePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
            ),
        ),
    ),
)
