"""Asks for the controllers' quorum of a KRaft cluster, and reads the answer (DescribeQuorum, KIP-595, KIP-836)."""

from __future__ import annotations

from kbroker.errors import ErrorCode, KafkaError, refuse
from kbroker.schemas import wire
from kbroker.types import CLUSTER_METADATA_TOPIC


def quorum_request() -> wire.DescribeQuorumRequest:
    """What asks for the quorum."""
    made = wire.DescribeQuorumRequest
    partition = made.PartitionData(partition_index=0)
    return made(topics=[made.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])])


def partition_of(answer: wire.DescribeQuorumResponse) -> wire.DescribeQuorumResponse.PartitionData:
    """What an answer says of the one partition there is.  KafkaError."""
    refuse(answer.error_code, answer.error_message)
    if not answer.topics:
        raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the answer names no metadata log")
    found = answer.topics[0].partitions[0]
    refuse(found.error_code, found.error_message)
    return found


def end_of_log(found: wire.DescribeQuorumResponse.PartitionData) -> int:
    """Where the leader's log ends; -1: no voter says it."""
    return max((each.log_end_offset for each in found.current_voters), default=-1)
