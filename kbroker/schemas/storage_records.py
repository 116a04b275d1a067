"""The snapshot of producer states, and the records of `__remote_log_metadata`."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, data, metadata_record

MESSAGES: tuple[MessageSchema, ...] = (
    data("ProducerSnapshot", "1", "none").of(
        F("crc", "uint32", "1"),
        F("producer_entries", "[]ProducerEntry", "1").of(
            F("producer_id", "int64", "1"),
            F("epoch", "int16", "1"),
            F("last_sequence", "int32", "1"),
            F("last_offset", "int64", "1"),
            F("offset_delta", "int32", "1"),
            F("timestamp", "int64", "1"),
            F("coordinator_epoch", "int32", "1"),
            F("current_txn_first_offset", "int64", "1"),
        ),
    ),
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
