"""The records of `__remote_log_metadata` (KIP-405)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, metadata_record

MESSAGES: tuple[MessageSchema, ...] = (
    metadata_record(0, "RemoteLogSegmentMetadataRecord", "0", "0+").of(
        F("remote_log_segment_id", "RemoteLogSegmentIdEntry", "0+").of(
            F("topic_id_partition", "TopicIdPartitionEntry", "0+").of(
                F("name", "string", "0+"),
                F("id", "uuid", "0+"),
                F("partition", "int32", "0+"),
            ),
            F("id", "uuid", "0+"),
        ),
        F("start_offset", "int64", "0+"),
        F("end_offset", "int64", "0+"),
        F("broker_id", "int32", "0+"),
        F("max_timestamp_ms", "int64", "0+"),
        F("event_timestamp_ms", "int64", "0+"),
        F("segment_leader_epochs", "[]SegmentLeaderEpochEntry", "0+").of(
            F("leader_epoch", "int32", "0+"),
            F("offset", "int64", "0+"),
        ),
        F("segment_size_in_bytes", "int32", "0+"),
        F("custom_metadata", "bytes", "0+", nullable="0+", default=None),
        F("remote_log_segment_state", "int8", "0+"),
        F("txn_index_empty", "bool", "0+", tag=0, tagged="0+"),
    ),
    metadata_record(3, "RemoteLogSegmentMetadataSnapshotRecord", "0", "0+").of(
        F("segment_id", "uuid", "0+"),
        F("start_offset", "int64", "0+"),
        F("end_offset", "int64", "0+"),
        F("broker_id", "int32", "0+"),
        F("max_timestamp_ms", "int64", "0+"),
        F("event_timestamp_ms", "int64", "0+"),
        F("segment_leader_epochs", "[]SegmentLeaderEpochEntry", "0+").of(
            F("leader_epoch", "int32", "0+"),
            F("offset", "int64", "0+"),
        ),
        F("segment_size_in_bytes", "int32", "0+"),
        F("custom_metadata", "bytes", "0+", nullable="0+", default=None),
        F("remote_log_segment_state", "int8", "0+"),
        F("txn_index_empty", "bool", "0+", tag=0, tagged="0+"),
    ),
    metadata_record(1, "RemoteLogSegmentMetadataUpdateRecord", "0", "0+").of(
        F("remote_log_segment_id", "RemoteLogSegmentIdEntry", "0+").of(
            F("topic_id_partition", "TopicIdPartitionEntry", "0+").of(
                F("name", "string", "0+"),
                F("id", "uuid", "0+"),
                F("partition", "int32", "0+"),
            ),
            F("id", "uuid", "0+"),
        ),
        F("broker_id", "int32", "0+"),
        F("event_timestamp_ms", "int64", "0+"),
        F("custom_metadata", "bytes", "0+", nullable="0+", default=None),
        F("remote_log_segment_state", "int8", "0+"),
    ),
    metadata_record(2, "RemotePartitionDeleteMetadataRecord", "0", "0+").of(
        F("topic_id_partition", "TopicIdPartitionEntry", "0+").of(
            F("name", "string", "0+"),
            F("id", "uuid", "0+"),
            F("partition", "int32", "0+"),
        ),
        F("broker_id", "int32", "0+"),
        F("event_timestamp_ms", "int64", "0+"),
        F("remote_partition_delete_state", "int8", "0+"),
    ),
)
