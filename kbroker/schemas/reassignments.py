"""Replica reassignment and leader election."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(45, "AlterPartitionReassignments", "0-1", "0+").of(
        F("timeout_ms", "int32", "0+", default=60000),
        F("allow_replication_factor_change", "bool", "1+", default=True),
        F("topics", "[]ReassignableTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]ReassignablePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("replicas", "[]int32", "0+", nullable="0+", default=None),
            ),
        ),
    ),
    response(45, "AlterPartitionReassignments", "0-1", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("allow_replication_factor_change", "bool", "1+", default=True, ignorable=True),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("responses", "[]ReassignableTopicResponse", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]ReassignablePartitionResponse", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+"),
            ),
        ),
    ),
    request(46, "ListPartitionReassignments", "0", "0+").of(
        F("timeout_ms", "int32", "0+", default=60000),
        F("topics", "[]ListPartitionReassignmentsTopics", "0+", nullable="0+", default=None).of(
            F("name", "string", "0+"),
            F("partition_indexes", "[]int32", "0+"),
        ),
    ),
    response(46, "ListPartitionReassignments", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
        F("topics", "[]OngoingTopicReassignment", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]OngoingPartitionReassignment", "0+").of(
                F("partition_index", "int32", "0+"),
                F("replicas", "[]int32", "0+"),
                F("adding_replicas", "[]int32", "0+"),
                F("removing_replicas", "[]int32", "0+"),
            ),
        ),
    ),
    request(43, "ElectLeaders", "0-2", "2+").of(
        F("election_type", "int8", "1+"),
        F("topic_partitions", "[]TopicPartitions", "0+", nullable="0+").of(
            F("topic", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
        F("timeout_ms", "int32", "0+", default=60000),
    ),
    response(43, "ElectLeaders", "0-2", "2+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "1+"),
        F("replica_election_results", "[]ReplicaElectionResult", "0+").of(
            F("topic", "string", "0+"),
            F("partition_result", "[]PartitionResult", "0+").of(
                F("partition_id", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+"),
            ),
        ),
    ),
)
