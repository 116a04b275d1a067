"""Records of `__cluster_metadata`."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, metadata_record

MESSAGES: tuple[MessageSchema, ...] = (
    metadata_record(25, "AbortTransactionRecord", "0", "0+").of(
        F("reason", "string", "0+", nullable="0+", tag=0, tagged="0+", default=None),
    ),
    metadata_record(18, "AccessControlEntryRecord", "0", "0+").of(
        F("id", "uuid", "0+"),
        F("resource_type", "int8", "0+"),
        F("resource_name", "string", "0+"),
        F("pattern_type", "int8", "0+"),
        F("principal", "string", "0+"),
        F("host", "string", "0+"),
        F("operation", "int8", "0+"),
        F("permission_type", "int8", "0+"),
    ),
    metadata_record(23, "BeginTransactionRecord", "0", "0+").of(
        F("name", "string", "0+", nullable="0+", tag=0, tagged="0+", default=None),
    ),
    metadata_record(17, "BrokerRegistrationChangeRecord", "0-3", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+"),
        F("fenced", "int8", "0+", tag=0, tagged="0+"),
        F("in_controlled_shutdown", "int8", "1+", tag=1, tagged="1+"),
        F("log_dirs", "[]uuid", "2+", tag=2, tagged="2+"),
        F("cordoned_log_dirs", "[]uuid", "3+", nullable="3+", tag=3, tagged="3+", default=None),
    ),
    metadata_record(28, "ClearElrRecord", "0", "0+").of(
        F("topic_name", "string", "0+"),
    ),
    metadata_record(14, "ClientQuotaRecord", "0", "0+").of(
        F("entity", "[]EntityData", "0+").of(
            F("entity_type", "string", "0+"),
            F("entity_name", "string", "0+", nullable="0+"),
        ),
        F("key", "string", "0+"),
        F("value", "float64", "0+"),
        F("remove", "bool", "0+"),
    ),
    metadata_record(4, "ConfigRecord", "0", "0+").of(
        F("resource_type", "int8", "0+"),
        F("resource_name", "string", "0+"),
        F("name", "string", "0+"),
        F("value", "string", "0+", nullable="0+"),
    ),
    metadata_record(10, "DelegationTokenRecord", "0", "0+").of(
        F("owner", "string", "0+"),
        F("requester", "string", "0+"),
        F("renewers", "[]string", "0+"),
        F("issue_timestamp", "int64", "0+"),
        F("max_timestamp", "int64", "0+"),
        F("expiration_timestamp", "int64", "0+"),
        F("token_id", "string", "0+"),
    ),
    metadata_record(24, "EndTransactionRecord", "0", "0+").of(),
    metadata_record(12, "FeatureLevelRecord", "0", "0+").of(
        F("name", "string", "0+"),
        F("feature_level", "int16", "0+"),
    ),
    metadata_record(7, "FenceBrokerRecord", "0", "0+").of(
        F("id", "int32", "0+"),
        F("epoch", "int64", "0+"),
    ),
    metadata_record(20, "NoOpRecord", "0", "0+").of(),
    metadata_record(5, "PartitionChangeRecord", "0-2", "0+").of(
        F("partition_id", "int32", "0+", default=-1),
        F("topic_id", "uuid", "0+"),
        F("isr", "[]int32", "0+", nullable="0+", tag=0, tagged="0+", default=None),
        F("leader", "int32", "0+", tag=1, tagged="0+", default=-2),
        F("replicas", "[]int32", "0+", nullable="0+", tag=2, tagged="0+", default=None),
        F("removing_replicas", "[]int32", "0+", nullable="0+", tag=3, tagged="0+", default=None),
        F("adding_replicas", "[]int32", "0+", nullable="0+", tag=4, tagged="0+", default=None),
        F("leader_recovery_state", "int8", "0+", tag=5, tagged="0+", default=-1),
        F("directories", "[]uuid", "1+", nullable="1+", tag=8, tagged="1+", default=None),
        F("eligible_leader_replicas", "[]int32", "2+", nullable="2+", tag=6, tagged="2+", default=None),
        F("last_known_elr", "[]int32", "2+", nullable="2+", tag=7, tagged="2+", default=None),
    ),
    metadata_record(3, "PartitionRecord", "0-2", "0+").of(
        F("partition_id", "int32", "0+", default=-1),
        F("topic_id", "uuid", "0+"),
        F("replicas", "[]int32", "0+"),
        F("isr", "[]int32", "0+"),
        F("removing_replicas", "[]int32", "0+"),
        F("adding_replicas", "[]int32", "0+"),
        F("leader", "int32", "0+", default=-1),
        F("leader_recovery_state", "int8", "0+", tag=0, tagged="0+"),
        F("leader_epoch", "int32", "0+", default=-1),
        F("partition_epoch", "int32", "0+", default=-1),
        F("directories", "[]uuid", "1+"),
        F("eligible_leader_replicas", "[]int32", "2+", nullable="2+", tag=1, tagged="2+", default=None),
        F("last_known_elr", "[]int32", "2+", nullable="2+", tag=2, tagged="2+", default=None),
    ),
    metadata_record(15, "ProducerIdsRecord", "0", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
        F("next_producer_id", "int64", "0+"),
    ),
    metadata_record(0, "RegisterBrokerRecord", "0-4", "0+").of(
        F("broker_id", "int32", "0+"),
        F("is_migrating_zk_broker", "bool", "2+"),
        F("incarnation_id", "uuid", "0+"),
        F("broker_epoch", "int64", "0+"),
        F("end_points", "[]BrokerEndpoint", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
            F("security_protocol", "int16", "0+"),
        ),
        F("features", "[]BrokerFeature", "0+").of(
            F("name", "string", "0+"),
            F("min_supported_version", "int16", "0+"),
            F("max_supported_version", "int16", "0+"),
        ),
        F("rack", "string", "0+", nullable="0+"),
        F("fenced", "bool", "0+", default=True),
        F("in_controlled_shutdown", "bool", "1+"),
        F("log_dirs", "[]uuid", "3+", tag=0, tagged="3+"),
        F("cordoned_log_dirs", "[]uuid", "4+", nullable="4+", tag=1, tagged="4+", default=None),
    ),
    metadata_record(27, "RegisterControllerRecord", "0", "0+").of(
        F("controller_id", "int32", "0+"),
        F("incarnation_id", "uuid", "0+"),
        F("zk_migration_ready", "bool", "0+"),
        F("end_points", "[]ControllerEndpoint", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
            F("security_protocol", "int16", "0+"),
        ),
        F("features", "[]ControllerFeature", "0+").of(
            F("name", "string", "0+"),
            F("min_supported_version", "int16", "0+"),
            F("max_supported_version", "int16", "0+"),
        ),
    ),
    metadata_record(19, "RemoveAccessControlEntryRecord", "0", "0+").of(
        F("id", "uuid", "0+"),
    ),
    metadata_record(26, "RemoveDelegationTokenRecord", "0", "0+").of(
        F("token_id", "string", "0+"),
    ),
    metadata_record(9, "RemoveTopicRecord", "0", "0+").of(
        F("topic_id", "uuid", "0+"),
    ),
    metadata_record(22, "RemoveUserScramCredentialRecord", "0", "0+").of(
        F("name", "string", "0+"),
        F("mechanism", "int8", "0+"),
    ),
    metadata_record(2, "TopicRecord", "0", "0+").of(
        F("name", "string", "0+"),
        F("topic_id", "uuid", "0+"),
    ),
    metadata_record(8, "UnfenceBrokerRecord", "0", "0+").of(
        F("id", "int32", "0+"),
        F("epoch", "int64", "0+"),
    ),
    metadata_record(1, "UnregisterBrokerRecord", "0", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+"),
    ),
    metadata_record(11, "UserScramCredentialRecord", "0", "0+").of(
        F("name", "string", "0+"),
        F("mechanism", "int8", "0+"),
        F("salt", "bytes", "0+"),
        F("stored_key", "bytes", "0+"),
        F("server_key", "bytes", "0+"),
        F("iterations", "int32", "0+"),
    ),
    metadata_record(21, "ZkMigrationStateRecord", "0", "0+").of(
        F("zk_migration_state", "int8", "0+"),
    ),
)
