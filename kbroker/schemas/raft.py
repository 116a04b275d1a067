"""The metadata quorum (KIP-595 and KIP-853)."""

from __future__ import annotations

from kbroker.protocol.schema import INT32_MAX, F, MessageSchema, SharedStruct, data, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(52, "Vote", "0-2", "0+").of(
        F("cluster_id", "string", "0+", nullable="0+", default=None),
        F("voter_id", "int32", "1+", default=-1, ignorable=True),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("replica_epoch", "int32", "0+"),
                F("replica_id", "int32", "0+"),
                F("replica_directory_id", "uuid", "1+", ignorable=True),
                F("voter_directory_id", "uuid", "1+", ignorable=True),
                F("last_offset_epoch", "int32", "0+"),
                F("last_offset", "int64", "0+"),
                F("pre_vote", "bool", "2+"),
            ),
        ),
    ),
    response(52, "Vote", "0-2", "0+").of(
        F("error_code", "int16", "0+"),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("vote_granted", "bool", "0+"),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "1+", tag=0, tagged="1+").of(
            F("node_id", "int32", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    request(53, "BeginQuorumEpoch", "0-1", "1+").of(
        F("cluster_id", "string", "0+", nullable="0+", default=None),
        F("voter_id", "int32", "1+", default=-1, ignorable=True),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("voter_directory_id", "uuid", "1+", ignorable=True),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
        F("leader_endpoints", "[]LeaderEndpoint", "1+", ignorable=True).of(
            F("name", "string", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    response(53, "BeginQuorumEpoch", "0-1", "1+").of(
        F("error_code", "int16", "0+"),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "1+", tag=0, tagged="1+").of(
            F("node_id", "int32", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    request(54, "EndQuorumEpoch", "0-1", "1+").of(
        F("cluster_id", "string", "0+", nullable="0+", default=None),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("preferred_successors", "[]int32", "0", ignorable=True),
                F("preferred_candidates", "[]ReplicaInfo", "1+", ignorable=True).of(
                    F("candidate_id", "int32", "1+"),
                    F("candidate_directory_id", "uuid", "1+"),
                ),
            ),
        ),
        F("leader_endpoints", "[]LeaderEndpoint", "1+", ignorable=True).of(
            F("name", "string", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    response(54, "EndQuorumEpoch", "0-1", "1+").of(
        F("error_code", "int16", "0+"),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "1+", tag=0, tagged="1+").of(
            F("node_id", "int32", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    request(55, "DescribeQuorum", "0-2", "0+").of(
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
            ),
        ),
    ),
    response(55, "DescribeQuorum", "0-2", "0+")
    .of(
        F("error_code", "int16", "0+"),
        F("error_message", "string", "2+", nullable="2+", ignorable=True),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0+"),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "2+", nullable="2+", ignorable=True),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("high_watermark", "int64", "0+"),
                F("current_voters", "[]ReplicaState", "0+"),
                F("observers", "[]ReplicaState", "0+"),
            ),
        ),
        F("nodes", "[]Node", "2+").of(
            F("node_id", "int32", "2+"),
            F("listeners", "[]Listener", "2+").of(
                F("name", "string", "2+"),
                F("host", "string", "2+"),
                F("port", "uint16", "2+"),
            ),
        ),
    )
    .sharing(
        SharedStruct("ReplicaState").of(
            F("replica_id", "int32", "0+"),
            F("replica_directory_id", "uuid", "2+"),
            F("log_end_offset", "int64", "0+"),
            F("last_fetch_timestamp", "int64", "1+", default=-1, ignorable=True),
            F("last_caught_up_timestamp", "int64", "1+", default=-1, ignorable=True),
        ),
    ),
    request(59, "FetchSnapshot", "0-1", "0+").of(
        F("cluster_id", "string", "0+", nullable="0+", tag=0, tagged="0+", default=None),
        F("replica_id", "int32", "0+", default=-1),
        F("max_bytes", "int32", "0+", default=INT32_MAX),
        F("topics", "[]TopicSnapshot", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]PartitionSnapshot", "0+").of(
                F("partition", "int32", "0+"),
                F("current_leader_epoch", "int32", "0+"),
                F("snapshot_id", "SnapshotId", "0+").of(
                    F("end_offset", "int64", "0+"),
                    F("epoch", "int32", "0+"),
                ),
                F("position", "int64", "0+"),
                F("replica_directory_id", "uuid", "1+", tag=0, tagged="1+", ignorable=True),
            ),
        ),
    ),
    response(59, "FetchSnapshot", "0-1", "0+").of(
        F("throttle_time_ms", "int32", "0+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("topics", "[]TopicSnapshot", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]PartitionSnapshot", "0+").of(
                F("index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("snapshot_id", "SnapshotId", "0+").of(
                    F("end_offset", "int64", "0+"),
                    F("epoch", "int32", "0+"),
                ),
                F("current_leader", "LeaderIdAndEpoch", "0+", tag=0, tagged="0+").of(
                    F("leader_id", "int32", "0+"),
                    F("leader_epoch", "int32", "0+"),
                ),
                F("size", "int64", "0+"),
                F("position", "int64", "0+"),
                F("unaligned_records", "records", "0+"),
            ),
        ),
        F("node_endpoints", "[]NodeEndpoint", "1+", tag=0, tagged="1+").of(
            F("node_id", "int32", "1+"),
            F("host", "string", "1+"),
            F("port", "uint16", "1+"),
        ),
    ),
    request(80, "AddRaftVoter", "0-1", "0+").of(
        F("cluster_id", "string", "0+", nullable="0+"),
        F("timeout_ms", "int32", "0+"),
        F("voter_id", "int32", "0+"),
        F("voter_directory_id", "uuid", "0+"),
        F("listeners", "[]Listener", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
        F("ack_when_committed", "bool", "1+", default=True),
    ),
    response(80, "AddRaftVoter", "0-1", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", ignorable=True),
    ),
    request(81, "RemoveRaftVoter", "0", "0+").of(
        F("cluster_id", "string", "0+", nullable="0+"),
        F("voter_id", "int32", "0+"),
        F("voter_directory_id", "uuid", "0+"),
    ),
    response(81, "RemoveRaftVoter", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+", ignorable=True),
    ),
    request(82, "UpdateRaftVoter", "0", "0+").of(
        F("cluster_id", "string", "0+", nullable="0+"),
        F("current_leader_epoch", "int32", "0+"),
        F("voter_id", "int32", "0+"),
        F("voter_directory_id", "uuid", "0+"),
        F("listeners", "[]Listener", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
        ),
        F("kraft_version_feature", "KRaftVersionFeature", "0+").of(
            F("min_supported_version", "int16", "0+"),
            F("max_supported_version", "int16", "0+"),
        ),
    ),
    response(82, "UpdateRaftVoter", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("current_leader", "CurrentLeader", "0+", tag=0, tagged="0+").of(
            F("leader_id", "int32", "0+", default=-1),
            F("leader_epoch", "int32", "0+", default=-1),
            F("host", "string", "0+"),
            F("port", "int32", "0+"),
        ),
    ),
    data("QuorumStateData", "0-1", "0+").of(
        F("cluster_id", "string", "0"),
        F("leader_id", "int32", "0+", default=-1),
        F("leader_epoch", "int32", "0+", default=-1),
        F("voted_id", "int32", "0+", default=-1),
        F("voted_directory_id", "uuid", "1+"),
        F("applied_offset", "int64", "0"),
        F("current_voters", "[]Voter", "0", nullable="0").of(
            F("voter_id", "int32", "0"),
        ),
    ),
)
