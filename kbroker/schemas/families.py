"""Which module of `kbroker.schemas` holds which message."""

from __future__ import annotations

_APIS: dict[str, str] = {
    "produce": "Produce",
    "fetch": "Fetch",
    "list_offsets": "ListOffsets OffsetForLeaderEpoch",
    "metadata": "Metadata DescribeTopicPartitions",
    "api_versions": "ApiVersions",
    "topics": "CreateTopics DeleteTopics CreatePartitions DeleteRecords",
    "configs": "DescribeConfigs AlterConfigs IncrementalAlterConfigs ListConfigResources",
    "cluster": "DescribeCluster UpdateFeatures UnregisterBroker",
    "groups": ("FindCoordinator JoinGroup SyncGroup Heartbeat LeaveGroup DescribeGroups ListGroups DeleteGroups"),
    "offsets": "OffsetCommit OffsetFetch OffsetDelete",
    "consumer_groups": "ConsumerGroupHeartbeat ConsumerGroupDescribe",
    "transactions": (
        "InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeProducers "
        "DescribeTransactions ListTransactions"
    ),
    "sasl": (
        "SaslHandshake SaslAuthenticate CreateDelegationToken RenewDelegationToken ExpireDelegationToken "
        "DescribeDelegationToken"
    ),
    "acls": "DescribeAcls CreateAcls DeleteAcls DescribeUserScramCredentials AlterUserScramCredentials",
    "quotas": "DescribeClientQuotas AlterClientQuotas",
    "log_dirs": "DescribeLogDirs AlterReplicaLogDirs AssignReplicasToDirs",
    "reassignments": "AlterPartitionReassignments ListPartitionReassignments ElectLeaders",
    "controller": (
        "AlterPartition BrokerRegistration BrokerHeartbeat ControllerRegistration AllocateProducerIds Envelope"
    ),
    "raft": (
        "Vote BeginQuorumEpoch EndQuorumEpoch DescribeQuorum FetchSnapshot AddRaftVoter RemoveRaftVoter UpdateRaftVoter"
    ),
    "telemetry": "GetTelemetrySubscriptions PushTelemetry",
    "share_groups": (
        "ShareGroupHeartbeat ShareGroupDescribe ShareFetch ShareAcknowledge DescribeShareGroupOffsets "
        "AlterShareGroupOffsets DeleteShareGroupOffsets"
    ),
    "share_state": (
        "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState "
        "ReadShareGroupStateSummary"
    ),
    "streams_groups": "StreamsGroupHeartbeat StreamsGroupDescribe",
    "zookeeper_control": "LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown",
}

_DATA: dict[str, str] = {
    "headers": "RequestHeader ResponseHeader",
    "sasl": "DefaultPrincipalData",
    "raft": "QuorumStateData",
    "share_state": "ShareSnapshotKey ShareSnapshotValue ShareUpdateKey ShareUpdateValue",
    "streams_groups": "SubscriptionInfoData",
    "consumer_protocol": "ConsumerProtocolSubscription ConsumerProtocolAssignment",
    "control_records": (
        "ControlRecordTypeSchema EndTxnMarker LeaderChangeMessage SnapshotHeaderRecord SnapshotFooterRecord "
        "KRaftVersionRecord VotersRecord"
    ),
    "offset_records": (
        "OffsetCommitKey OffsetCommitValue LegacyOffsetCommitKey LegacyOffsetCommitValue GroupMetadataKey "
        "GroupMetadataValue"
    ),
    "consumer_group_records": (
        "ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue "
        "ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue ConsumerGroupMetadataKey "
        "ConsumerGroupMetadataValue ConsumerGroupPartitionMetadataKey ConsumerGroupPartitionMetadataValue "
        "ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue ConsumerGroupTargetAssignmentMemberKey "
        "ConsumerGroupTargetAssignmentMemberValue ConsumerGroupTargetAssignmentMetadataKey "
        "ConsumerGroupTargetAssignmentMetadataValue"
    ),
    "share_group_records": (
        "ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue ShareGroupMemberMetadataKey "
        "ShareGroupMemberMetadataValue ShareGroupMetadataKey ShareGroupMetadataValue "
        "ShareGroupStatePartitionMetadataKey ShareGroupStatePartitionMetadataValue "
        "ShareGroupTargetAssignmentMemberKey ShareGroupTargetAssignmentMemberValue "
        "ShareGroupTargetAssignmentMetadataKey ShareGroupTargetAssignmentMetadataValue"
    ),
    "streams_group_records": (
        "StreamsGroupCurrentMemberAssignmentKey StreamsGroupCurrentMemberAssignmentValue "
        "StreamsGroupMemberMetadataKey StreamsGroupMemberMetadataValue StreamsGroupMetadataKey "
        "StreamsGroupMetadataValue StreamsGroupTargetAssignmentMemberKey StreamsGroupTargetAssignmentMemberValue "
        "StreamsGroupTargetAssignmentMetadataKey StreamsGroupTargetAssignmentMetadataValue StreamsGroupTopologyKey "
        "StreamsGroupTopologyValue"
    ),
    "transaction_records": "TransactionLogKey TransactionLogValue",
    "metadata_records": (
        "AbortTransactionRecord AccessControlEntryRecord BeginTransactionRecord BrokerRegistrationChangeRecord "
        "ClearElrRecord ClientQuotaRecord ConfigRecord DelegationTokenRecord EndTransactionRecord FeatureLevelRecord "
        "FenceBrokerRecord NoOpRecord PartitionChangeRecord PartitionRecord ProducerIdsRecord RegisterBrokerRecord "
        "RegisterControllerRecord RemoveAccessControlEntryRecord RemoveDelegationTokenRecord RemoveTopicRecord "
        "RemoveUserScramCredentialRecord TopicRecord UnfenceBrokerRecord UnregisterBrokerRecord "
        "UserScramCredentialRecord ZkMigrationStateRecord"
    ),
    "producer_snapshot": "ProducerSnapshot",
    "remote_log_records": (
        "RemoteLogSegmentMetadataRecord RemoteLogSegmentMetadataSnapshotRecord "
        "RemoteLogSegmentMetadataUpdateRecord RemotePartitionDeleteMetadataRecord"
    ),
}

# API name (without Request or Response) to family; other messages by their whole name.
FAMILY_OF_API = {name: family for family, names in _APIS.items() for name in names.split()}
FAMILY_OF_DATA = {name: family for family, names in _DATA.items() for name in names.split()}
