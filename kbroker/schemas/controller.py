"""Between brokers and controllers: registration, heartbeats, ISR changes, producer id blocks, forwarded requests."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(56, "AlterPartition", "0-3", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0-1", ignorable=True),
            F("topic_id", "uuid", "2+", ignorable=True),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("new_isr", "[]int32", "0-2"),
                F("new_isr_with_epochs", "[]BrokerState", "3+").of(
                    F("broker_id", "int32", "3+"),
                    F("broker_epoch", "int64", "3+", default=-1),
                ),
                F("leader_recovery_state", "int8", "1+"),
                F("partition_epoch", "int32", "0+"),
            ),
        ),
    ),
    response(56, "AlterPartition", "0-3", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("topics", "[]TopicData", "0+").of(
            F("topic_name", "string", "0-1", ignorable=True),
            F("topic_id", "uuid", "2+", ignorable=True),
            F("partitions", "[]PartitionData", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("leader_id", "int32", "0+"),
                F("leader_epoch", "int32", "0+"),
                F("isr", "[]int32", "0+"),
                F("leader_recovery_state", "int8", "1+", ignorable=True),
                F("partition_epoch", "int32", "0+"),
            ),
        ),
    ),
    request(62, "BrokerRegistration", "0-4", "0+").of(
        F("broker_id", "int32", "0+"),
        F("cluster_id", "string", "0+"),
        F("incarnation_id", "uuid", "0+"),
        F("listeners", "[]Listener", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
            F("security_protocol", "int16", "0+"),
        ),
        F("features", "[]Feature", "0+").of(
            F("name", "string", "0+"),
            F("min_supported_version", "int16", "0+"),
            F("max_supported_version", "int16", "0+"),
        ),
        F("rack", "string", "0+", nullable="0+"),
        F("is_migrating_zk_broker", "bool", "1+"),
        F("log_dirs", "[]uuid", "2+", ignorable=True),
        F("previous_broker_epoch", "int64", "3+", default=-1, ignorable=True),
    ),
    response(62, "BrokerRegistration", "0-4", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
    ),
    request(63, "BrokerHeartbeat", "0-2", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
        F("current_metadata_offset", "int64", "0+"),
        F("want_fence", "bool", "0+"),
        F("want_shut_down", "bool", "0+"),
        F("offline_log_dirs", "[]uuid", "1+", tag=0, tagged="1+"),
        F("cordoned_log_dirs", "[]uuid", "2+", nullable="2+", tag=1, tagged="2+", default=None),
    ),
    response(63, "BrokerHeartbeat", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("is_caught_up", "bool", "0+"),
        F("is_fenced", "bool", "0+", default=True),
        F("should_shut_down", "bool", "0+"),
    ),
    request(70, "ControllerRegistration", "0", "0+").of(
        F("controller_id", "int32", "0+"),
        F("incarnation_id", "uuid", "0+"),
        F("zk_migration_ready", "bool", "0+"),
        F("listeners", "[]Listener", "0+").of(
            F("name", "string", "0+"),
            F("host", "string", "0+"),
            F("port", "uint16", "0+"),
            F("security_protocol", "int16", "0+"),
        ),
        F("features", "[]Feature", "0+").of(
            F("name", "string", "0+"),
            F("min_supported_version", "int16", "0+"),
            F("max_supported_version", "int16", "0+"),
        ),
    ),
    response(70, "ControllerRegistration", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("error_message", "string", "0+", nullable="0+"),
    ),
    request(67, "AllocateProducerIds", "0", "0+").of(
        F("broker_id", "int32", "0+"),
        F("broker_epoch", "int64", "0+", default=-1),
    ),
    response(67, "AllocateProducerIds", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("producer_id_start", "int64", "0+"),
        F("producer_id_len", "int32", "0+"),
    ),
    request(58, "Envelope", "0", "0+").of(
        F("request_data", "bytes", "0+"),
        F("request_principal", "bytes", "0+", nullable="0+"),
        F("client_host_address", "bytes", "0+"),
    ),
    response(58, "Envelope", "0", "0+").of(
        F("response_data", "bytes", "0+", nullable="0+", default=None),
        F("error_code", "int16", "0+"),
    ),
)
