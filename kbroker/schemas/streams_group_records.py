"""Records of `__consumer_offsets` about Streams groups (KIP-1071)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, record_key, record_value

MESSAGES: tuple[MessageSchema, ...] = (
    record_key(22, "StreamsGroupCurrentMemberAssignmentKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(22, "StreamsGroupCurrentMemberAssignmentValue", "0", "0+")
    .of(
        F("member_epoch", "int32", "0+"),
        F("previous_member_epoch", "int32", "0+"),
        F("state", "int8", "0+"),
        F("active_tasks", "[]TaskIds", "0+"),
        F("standby_tasks", "[]TaskIds", "0+"),
        F("warmup_tasks", "[]TaskIds", "0+"),
        F("active_tasks_pending_revocation", "[]TaskIds", "0+"),
        F("standby_tasks_pending_revocation", "[]TaskIds", "0+"),
        F("warmup_tasks_pending_revocation", "[]TaskIds", "0+"),
    )
    .sharing(
        SharedStruct("TaskIds").of(
            F("subtopology_id", "string", "0+"),
            F("partitions", "[]int32", "0+"),
            F("assignment_epochs", "[]int32", "0+", nullable="0+", tag=0, tagged="0+"),
        ),
    ),
    record_key(19, "StreamsGroupMemberMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(19, "StreamsGroupMemberMetadataValue", "0", "0+")
    .of(
        F("instance_id", "string", "0+", nullable="0+"),
        F("rack_id", "string", "0+", nullable="0+"),
        F("client_id", "string", "0+"),
        F("client_host", "string", "0+"),
        F("rebalance_timeout_ms", "int32", "0+", default=-1),
        F("topology_epoch", "int32", "0+"),
        F("process_id", "string", "0+"),
        F("user_endpoint", "Endpoint", "0+", nullable="0+", default=None),
        F("client_tags", "[]KeyValue", "0+"),
    )
    .sharing(
        SharedStruct("Endpoint").of(
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
        SharedStruct("KeyValue").of(
            F("key", "string", "0+"),
            F("value", "string", "0+"),
        ),
    ),
    record_key(17, "StreamsGroupMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(17, "StreamsGroupMetadataValue", "0", "0+")
    .of(
        F("epoch", "int32", "0+"),
        F("metadata_hash", "int64", "0+"),
        F("validated_topology_epoch", "int32", "0+", tag=0, tagged="0+", default=-1),
        F("last_assignment_configs", "[]LastAssignmentConfig", "0+", nullable="0+", tag=1, tagged="0+"),
    )
    .sharing(
        SharedStruct("LastAssignmentConfig").of(
            F("key", "string", "0+"),
            F("value", "string", "0+"),
        ),
    ),
    record_key(21, "StreamsGroupTargetAssignmentMemberKey", "0", "none").of(
        F("group_id", "string", "0"),
        F("member_id", "string", "0"),
    ),
    record_value(21, "StreamsGroupTargetAssignmentMemberValue", "0", "0+")
    .of(
        F("active_tasks", "[]TaskIds", "0+"),
        F("standby_tasks", "[]TaskIds", "0+"),
        F("warmup_tasks", "[]TaskIds", "0+"),
    )
    .sharing(
        SharedStruct("TaskIds").of(
            F("subtopology_id", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    record_key(20, "StreamsGroupTargetAssignmentMetadataKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(20, "StreamsGroupTargetAssignmentMetadataValue", "0", "0+").of(
        F("assignment_epoch", "int32", "0+"),
        F("assignment_timestamp", "int64", "0+", tag=0, tagged="0+", ignorable=True),
    ),
    record_key(23, "StreamsGroupTopologyKey", "0", "none").of(
        F("group_id", "string", "0"),
    ),
    record_value(23, "StreamsGroupTopologyValue", "0", "0+")
    .of(
        F("epoch", "int32", "0+"),
        F("subtopologies", "[]Subtopology", "0+").of(
            F("subtopology_id", "string", "0+"),
            F("source_topics", "[]string", "0+"),
            F("source_topic_regex", "[]string", "0+"),
            F("state_changelog_topics", "[]TopicInfo", "0+"),
            F("repartition_sink_topics", "[]string", "0+"),
            F("repartition_source_topics", "[]TopicInfo", "0+"),
            F("copartition_groups", "[]CopartitionGroup", "0+").of(
                F("source_topics", "[]int16", "0+"),
                F("source_topic_regex", "[]int16", "0+"),
                F("repartition_source_topics", "[]int16", "0+"),
            ),
        ),
    )
    .sharing(
        SharedStruct("TopicConfig").of(
            F("key", "string", "0+"),
            F("value", "string", "0+"),
        ),
        SharedStruct("TopicInfo").of(
            F("name", "string", "0+"),
            F("partitions", "int32", "0+"),
            F("replication_factor", "int16", "0+"),
            F("topic_configs", "[]TopicConfig", "0+"),
        ),
    ),
)
