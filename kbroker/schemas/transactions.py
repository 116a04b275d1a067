"""Transactions and producer ids, and the state that they leave."""

from __future__ import annotations

from kbroker.protocol.schema import F, MessageSchema, SharedStruct, request, response

MESSAGES: tuple[MessageSchema, ...] = (
    request(22, "InitProducerId", "0-6", "2+").of(
        F("transactional_id", "string", "0+", nullable="0+"),
        F("transaction_timeout_ms", "int32", "0+"),
        F("producer_id", "int64", "3+", default=-1),
        F("producer_epoch", "int16", "3+", default=-1),
        F("enable2pc", "bool", "6+"),
        F("keep_prepared_txn", "bool", "6+"),
    ),
    response(22, "InitProducerId", "0-6", "2+").of(
        F("throttle_time_ms", "int32", "0+", ignorable=True),
        F("error_code", "int16", "0+"),
        F("producer_id", "int64", "0+", default=-1),
        F("producer_epoch", "int16", "0+"),
        F("ongoing_txn_producer_id", "int64", "6+", default=-1),
        F("ongoing_txn_producer_epoch", "int16", "6+", default=-1),
    ),
    request(24, "AddPartitionsToTxn", "0-5", "3+")
    .of(
        F("transactions", "[]AddPartitionsToTxnTransaction", "4+").of(
            F("transactional_id", "string", "4+"),
            F("producer_id", "int64", "4+"),
            F("producer_epoch", "int16", "4+"),
            F("verify_only", "bool", "4+"),
            F("topics", "[]AddPartitionsToTxnTopic", "4+"),
        ),
        F("v3_and_below_transactional_id", "string", "0-3"),
        F("v3_and_below_producer_id", "int64", "0-3"),
        F("v3_and_below_producer_epoch", "int16", "0-3"),
        F("v3_and_below_topics", "[]AddPartitionsToTxnTopic", "0-3"),
    )
    .sharing(
        SharedStruct("AddPartitionsToTxnTopic").of(
            F("name", "string", "0+"),
            F("partitions", "[]int32", "0+"),
        ),
    ),
    response(24, "AddPartitionsToTxn", "0-5", "3+")
    .of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "4+", ignorable=True),
        F("results_by_transaction", "[]AddPartitionsToTxnResult", "4+").of(
            F("transactional_id", "string", "4+"),
            F("topic_results", "[]AddPartitionsToTxnTopicResult", "4+"),
        ),
        F("results_by_topic_v3_and_below", "[]AddPartitionsToTxnTopicResult", "0-3"),
    )
    .sharing(
        SharedStruct("AddPartitionsToTxnTopicResult").of(
            F("name", "string", "0+"),
            F("results_by_partition", "[]AddPartitionsToTxnPartitionResult", "0+"),
        ),
        SharedStruct("AddPartitionsToTxnPartitionResult").of(
            F("partition_index", "int32", "0+"),
            F("partition_error_code", "int16", "0+"),
        ),
    ),
    request(25, "AddOffsetsToTxn", "0-4", "3+").of(
        F("transactional_id", "string", "0+"),
        F("producer_id", "int64", "0+"),
        F("producer_epoch", "int16", "0+"),
        F("group_id", "string", "0+"),
    ),
    response(25, "AddOffsetsToTxn", "0-4", "3+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
    ),
    request(26, "EndTxn", "0-5", "3+").of(
        F("transactional_id", "string", "0+"),
        F("producer_id", "int64", "0+"),
        F("producer_epoch", "int16", "0+"),
        F("committed", "bool", "0+"),
    ),
    response(26, "EndTxn", "0-5", "3+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("producer_id", "int64", "5+", default=-1, ignorable=True),
        F("producer_epoch", "int16", "5+", default=-1, ignorable=True),
    ),
    request(27, "WriteTxnMarkers", "0-2", "1+").of(
        F("markers", "[]WritableTxnMarker", "0+").of(
            F("producer_id", "int64", "0+"),
            F("producer_epoch", "int16", "0+"),
            F("transaction_result", "bool", "0+"),
            F("topics", "[]WritableTxnMarkerTopic", "0+").of(
                F("name", "string", "0+"),
                F("partition_indexes", "[]int32", "0+"),
            ),
            F("coordinator_epoch", "int32", "0+"),
            F("transaction_version", "int8", "2+", ignorable=True),
        ),
    ),
    response(27, "WriteTxnMarkers", "0-2", "1+").of(
        F("markers", "[]WritableTxnMarkerResult", "0+").of(
            F("producer_id", "int64", "0+"),
            F("topics", "[]WritableTxnMarkerTopicResult", "0+").of(
                F("name", "string", "0+"),
                F("partitions", "[]WritableTxnMarkerPartitionResult", "0+").of(
                    F("partition_index", "int32", "0+"),
                    F("error_code", "int16", "0+"),
                ),
            ),
        ),
    ),
    request(28, "TxnOffsetCommit", "0-5", "3+").of(
        F("transactional_id", "string", "0+"),
        F("group_id", "string", "0+"),
        F("producer_id", "int64", "0+"),
        F("producer_epoch", "int16", "0+"),
        F("generation_id", "int32", "3+", default=-1),
        F("member_id", "string", "3+"),
        F("group_instance_id", "string", "3+", nullable="3+", default=None),
        F("topics", "[]TxnOffsetCommitRequestTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]TxnOffsetCommitRequestPartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("committed_offset", "int64", "0+"),
                F("committed_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                F("committed_metadata", "string", "0+", nullable="0+"),
            ),
        ),
    ),
    response(28, "TxnOffsetCommit", "0-5", "3+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("topics", "[]TxnOffsetCommitResponseTopic", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]TxnOffsetCommitResponsePartition", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
            ),
        ),
    ),
    request(61, "DescribeProducers", "0", "0+").of(
        F("topics", "[]TopicRequest", "0+").of(
            F("name", "string", "0+"),
            F("partition_indexes", "[]int32", "0+"),
        ),
    ),
    response(61, "DescribeProducers", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("topics", "[]TopicResponse", "0+").of(
            F("name", "string", "0+"),
            F("partitions", "[]PartitionResponse", "0+").of(
                F("partition_index", "int32", "0+"),
                F("error_code", "int16", "0+"),
                F("error_message", "string", "0+", nullable="0+", default=None),
                F("active_producers", "[]ProducerState", "0+").of(
                    F("producer_id", "int64", "0+"),
                    F("producer_epoch", "int32", "0+"),
                    F("last_sequence", "int32", "0+", default=-1),
                    F("last_timestamp", "int64", "0+", default=-1),
                    F("coordinator_epoch", "int32", "0+"),
                    F("current_txn_start_offset", "int64", "0+", default=-1),
                ),
            ),
        ),
    ),
    request(65, "DescribeTransactions", "0", "0+").of(
        F("transactional_ids", "[]string", "0+"),
    ),
    response(65, "DescribeTransactions", "0", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("transaction_states", "[]TransactionState", "0+").of(
            F("error_code", "int16", "0+"),
            F("transactional_id", "string", "0+"),
            F("transaction_state", "string", "0+"),
            F("transaction_timeout_ms", "int32", "0+"),
            F("transaction_start_time_ms", "int64", "0+"),
            F("producer_id", "int64", "0+"),
            F("producer_epoch", "int16", "0+"),
            F("topics", "[]TopicData", "0+").of(
                F("topic", "string", "0+"),
                F("partitions", "[]int32", "0+"),
            ),
        ),
    ),
    request(66, "ListTransactions", "0-2", "0+").of(
        F("state_filters", "[]string", "0+"),
        F("producer_id_filters", "[]int64", "0+"),
        F("duration_filter", "int64", "1+", default=-1),
        F("transactional_id_pattern", "string", "2+", nullable="2+", default=None),
    ),
    response(66, "ListTransactions", "0-2", "0+").of(
        F("throttle_time_ms", "int32", "0+"),
        F("error_code", "int16", "0+"),
        F("unknown_state_filters", "[]string", "0+"),
        F("transaction_states", "[]TransactionState", "0+").of(
            F("transactional_id", "string", "0+"),
            F("producer_id", "int64", "0+"),
            F("transaction_state", "string", "0+"),
        ),
    ),
)
