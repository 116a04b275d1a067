"""The state of share groups (KIP-932): the persister's APIs and the records of `__share_group_state`."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, record_key, record_value, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(83, "InitializeShareGroupState", "0", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]InitializeStateData", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition", "int32", "0+"),
                F("state_epoch", "int32", "0+"),
                F("start_offset", "int64", "0+"),
            ),
        ),
    ),
    response(83, "InitializeShareGroupState", "0", "0+").of(
        F("results", "[]InitializeStateResult", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionResult", "0+").of(
                F("partition", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
            ),
        ),
    ),
    request(84, "ReadShareGroupState", "0", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]ReadStateData", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
    ),
    response(84, "ReadShareGroupState", "0", "0+").of(
        F("results", "[]ReadStateResult", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionResult", "0+").of(
                F("partition", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
                F("state_epoch", "int32", "0+"),
                F("start_offset", "int64", "0+"),
                F("state_batches", "[]StateBatch", "0+").of(
                    F("first_offset", "int64", "0+"),
                    F("last_offset", "int64", "0+"),
                    F("delivery_state", "int8", "0+"),
                    F("delivery_count", "int16", "0+"),
                ),
            ),
        ),
    ),
    request(85, "WriteShareGroupState", "0-1", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]WriteStateData", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition", "int32", "0+"),
                F("state_epoch", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("start_offset", "int64", "0+"),
                F("delivery_complete_count", "int32", "1+", default=-1, ignorable=True),
                F("state_batches", "[]StateBatch", "0+").of(
                    F("first_offset", "int64", "0+"),
                    F("last_offset", "int64", "0+"),
                    F("delivery_state", "int8", "0+"),
                    F("delivery_count", "int16", "0+"),
                ),
            ),
        ),
    ),
    response(85, "WriteShareGroupState", "0-1", "0+").of(
        F("results", "[]WriteStateResult", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionResult", "0+").of(
                F("partition", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
            ),
        ),
    ),
    request(86, "DeleteShareGroupState", "0", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]DeleteStateData", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition", "int32", "0+"),
            ),
        ),
    ),
    response(86, "DeleteShareGroupState", "0", "0+").of(
        F("results", "[]DeleteStateResult", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionResult", "0+").of(
                F("partition", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
            ),
        ),
    ),
    request(87, "ReadShareGroupStateSummary", "0-1", "0+").of(
        F("group_id", "string", "0+"),
        F("topics", "[]ReadStateSummaryData", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
    ),
    response(87, "ReadShareGroupStateSummary", "0-1", "0+").of(
        F("results", "[]ReadStateSummaryResult", "0+").of(
            F("topic_id", "uuid", "0+"),
            F("partitions", "[]PartitionResult", "0+").of(
                F("partition", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
                F("state_epoch", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("start_offset", "int64", "0+"),
                F("delivery_complete_count", "int32", "1+", default=-1, ignorable=True),
            ),
        ),
    ),
    record_key(0, "ShareSnapshotKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("topic_id", "uuid", "0"),
        F("partition", "int32", "0"),
    ),
    record_value(0, "ShareSnapshotValue", "0", "0+").of(
        F("snapshot_epoch", "int32", "0+"),
        F("state_epoch", "int32", "0+"),
        F("leader_epoch", "int32", "0+"),
        F("start_offset", "int64", "0+"),
        F("delivery_complete_count", "int32", "0+", tag=0, tagged="0+", default=-1),
        F("create_timestamp", "int64", "0+"),
        F("write_timestamp", "int64", "0+"),
        F("state_batches", "[]StateBatch", "0+").of(
            F("first_offset", "int64", "0+"),
            F("last_offset", "int64", "0+"),
            F("delivery_state", "int8", "0+"),
            F("delivery_count", "int16", "0+"),
        ),
    ),
    record_key(1, "ShareUpdateKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("topic_id", "uuid", "0"),
        F("partition", "int32", "0"),
    ),
    record_value(1, "ShareUpdateValue", "0", "0+").of(
        F("snapshot_epoch", "int32", "0+"),
        F("leader_epoch", "int32", "0+"),
        F("start_offset", "int64", "0+"),
        F("delivery_complete_count", "int32", "0+", tag=0, tagged="0+", default=-1),
        F("state_batches", "[]StateBatch", "0+").of(
            F("first_offset", "int64", "0+"),
            F("last_offset", "int64", "0+"),
            F("delivery_state", "int8", "0+"),
            F("delivery_count", "int16", "0+"),
        ),
    ),
)
