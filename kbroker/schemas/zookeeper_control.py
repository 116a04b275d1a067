"""What a ZooKeeper controller sends to brokers; Kafka 4.0 removed these APIs (keys 4 to 7)."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(4, "LeaderAndIsr", "0-7", "4+")
    .of(
        F("controller_id", "int32", "0+"),
        F("is_kraft_controller", "bool", "7+"),
        F("controller_epoch", "int32", "0+"),
        F("broker_epoch", "int64", "2+", default=-1, ignorable=True),
        F("type", "int8", "5+"),
        F("ungrouped_partition_states", "[]LeaderAndIsrPartitionState", "0-1"),
        F("topic_states", "[]LeaderAndIsrTopicState", "2+").of(
            F("topic_name", "string", "2+"),
            F("topic_id", "uuid", "5+", ignorable=True),
            F("partition_states", "[]LeaderAndIsrPartitionState", "2+"),
        ),
        F("live_leaders", "[]LeaderAndIsrLiveLeader", "0+").of(
            F("broker_id", "int32", "0+"),
            F("host_name", "string", "0+"),
            F("port", "int32", "0+"),
        ),
    )
    .sharing(
        SharedStruct("LeaderAndIsrPartitionState").of(
            F("topic_name", "string", "0-1", ignorable=True),
            F("partition_index", "int32", "0+"),
            F("controller_epoch", "int32", "0+"),
            F("leader", "int32", "0+"),
            F("leader_epoch", "int32", "0+"),
            F("isr", "[]int32", "0+"),
            F("partition_epoch", "int32", "0+"),
            F("replicas", "[]int32", "0+"),
            F("adding_replicas", "[]int32", "3+", ignorable=True),
            F("removing_replicas", "[]int32", "3+", ignorable=True),
            F("is_new", "bool", "1+", ignorable=True),
            F("leader_recovery_state", "int8", "6+"),
        ),
    ),
    response(4, "LeaderAndIsr", "0-7", "4+")
    .of(
        F("error_code", "int16", "0+"),
        F("partition_errors", "[]LeaderAndIsrPartitionError", "0-4"),
        F("topics", "[]LeaderAndIsrTopicError", "5+").of(
            F("topic_id", "uuid", "5+"),
            F("partition_errors", "[]LeaderAndIsrPartitionError", "5+"),
        ),
    )
    .sharing(
        SharedStruct("LeaderAndIsrPartitionError").of(
            F("topic_name", "string", "0-4", ignorable=True),
            F("partition_index", "int32", "0+"),
            F("error_code", "int16", "0+"),
        ),
    ),
    request(5, "StopReplica", "0-4", "2+").of(
        F("controller_id", "int32", "0+"),
        F("is_kraft_controller", "bool", "4+"),
        F("controller_epoch", "int32", "0+"),
        F("broker_epoch", "int64", "1+", default=-1, ignorable=True),
        F("delete_partitions", "bool", "0-2"),
        F("ungrouped_partitions", "[]StopReplicaPartitionV0", "0").of(
            F("topic_name", "string", "0"),
            F("partition_index", "int32", "0"),
        ),
        F("topics", "[]StopReplicaTopicV1", "1-2").of(
            F("name", "string", "1-2"),
            F("partition_indexes", "[]int32", "1-2"),
        ),
        F("topic_states", "[]StopReplicaTopicState", "3+").of(
            F("topic_name", "string", "3+"),
            F("partition_states", "[]StopReplicaPartitionState", "3+").of(
                F("partition_index", "int32", "3+"),
                F("leader_epoch", "int32", "3+", default=-1),
                F("delete_partition", "bool", "3+"),
            ),
        ),
    ),
    response(5, "StopReplica", "0-4", "2+").of(
        F("error_code", "int16", "0+"),
        F("partition_errors", "[]StopReplicaPartitionError", "0+").of(
            F("topic_name", "string", "0+"),
            F("partition_index", "int32", "0+"),
            F("error_code", "int16", "0+"),
        ),
    ),
    request(6, "UpdateMetadata", "0-8", "6+")
    .of(
        F("controller_id", "int32", "0+"),
        F("is_kraft_controller", "bool", "8+"),
        F("type", "int8", "8+", tag=0, tagged="8+"),
        F("controller_epoch", "int32", "0+"),
        F("broker_epoch", "int64", "5+", default=-1, ignorable=True),
        F("ungrouped_partition_states", "[]UpdateMetadataPartitionState", "0-4"),
        F("topic_states", "[]UpdateMetadataTopicState", "5+").of(
            F("topic_name", "string", "5+"),
            F("topic_id", "uuid", "7+", ignorable=True),
            F("partition_states", "[]UpdateMetadataPartitionState", "5+"),
        ),
        F("live_brokers", "[]UpdateMetadataBroker", "0+").of(
            F("id", "int32", "0+"),
            F("v0_host", "string", "0", ignorable=True),
            F("v0_port", "int32", "0", ignorable=True),
            F("endpoints", "[]UpdateMetadataEndpoint", "1+", ignorable=True).of(
                F("port", "int32", "1+"),
                F("host", "string", "1+"),
                F("listener", "string", "3+", ignorable=True),
                F("security_protocol", "int16", "1+"),
            ),
            F("rack", "string", "2+", nullable="0+", ignorable=True),
        ),
    )
    .sharing(
        SharedStruct("UpdateMetadataPartitionState").of(
            F("topic_name", "string", "0-4", ignorable=True),
            F("partition_index", "int32", "0+"),
            F("controller_epoch", "int32", "0+"),
            F("leader", "int32", "0+"),
            F("leader_epoch", "int32", "0+"),
            F("isr", "[]int32", "0+"),
            F("zk_version", "int32", "0+"),
            F("replicas", "[]int32", "0+"),
            F("offline_replicas", "[]int32", "4+", ignorable=True),
        ),
    ),
    response(6, "UpdateMetadata", "0-8", "6+").of(
        F("error_code", "int16", "0+"),
    ),
    request(7, "ControlledShutdown", "0-3", "3+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "2+", default=-1, ignorable=True),
    ),
    response(7, "ControlledShutdown", "0-3", "3+").of(
        F("error_code", "int16", "0+"),
        F("remaining_partitions", "[]RemainingPartition", "0+").of(
            F("topic_name", "string", "0+"),
            F("partition_index", "int32", "0+"),
        ),
    ),
)
