"""Offsets by place or by time (ListOffsets), for many partitions at once, each asked of its leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import (
    PASSING,
    BrokerAnsweredError,
    ClientError,
    MalformedAnswerError,
    UnsupportedError,
)
from kbroker.errors import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import request_message
from kbroker.types import MAX_TIMESTAMP, READ_UNCOMMITTED

NO_OFFSET = -1

# From version 1 on an answer has one offset instead of a list; MAX_TIMESTAMP exists from version 7 on (KIP-734).
_MIN_VERSION = 1
_MAX_TIMESTAMP_VERSION = 7

TopicPartition = tuple[str, int]


class FoundOffset(NamedTuple):
    """`offset` is -1 when no record is as late as the time asked for; `timestamp` is that of the record, or -1."""

    offset: int
    timestamp: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the offset of EARLIEST, LATEST or MAX_TIMESTAMP, or of the first record at or after a time.

    Times are milliseconds since 1970.  With READ_COMMITTED, LATEST is the last stable offset: where the oldest open
    transaction begins.  Retries while leaders move; raises a `ClientError`.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    patience = cluster.patience("asking for offsets")
    while True:
        failure: ClientError | None = None
        for leader, partitions in _by_leader(cluster, wanted, found).items():
            try:
                connection = cluster.leader(*leader)
                failure = _ask(connection, {at: wanted[at] for at in partitions}, isolation, found) or failure
            except PASSING as error:
                failure = error
            except BrokerAnsweredError as error:
                if not error.retriable:
                    raise
                failure = error
        if failure is None:
            return found
        patience.again(failure)
        cluster.forget(*{topic for topic, _ in wanted.keys() - found.keys()})


def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], found: Mapping[TopicPartition, object]
) -> dict[TopicPartition, list[TopicPartition]]:
    """The partitions to ask for, those with the same leader together, under the first of them."""
    first: dict[int, TopicPartition] = {}
    groups: dict[TopicPartition, list[TopicPartition]] = defaultdict(list)
    for at in wanted:
        if at in found:
            continue
        info = cluster.topic(at[0]).partitions.get(at[1])
        # One that is unknown gets a group of its own, in which its error is raised.
        leader = at if info is None or info.leader_id < 0 else first.setdefault(info.leader_id, at)
        groups[leader].append(at)
    return groups


def _ask(
    connection: Connection,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    found: dict[TopicPartition, FoundOffset],
) -> ClientError | None:
    """Asks one broker and notes what it found; the last error that may pass."""
    request_class = request_message(ApiKey.LIST_OFFSETS)
    version = connection.version_of(ApiKey.LIST_OFFSETS)
    if version < (_MAX_TIMESTAMP_VERSION if MAX_TIMESTAMP in wanted.values() else _MIN_VERSION):
        raise UnsupportedError(f"the broker at {connection.address} is too old: it has ListOffsets up to {version}")
    topics = defaultdict(list)
    for (topic, partition), timestamp in wanted.items():
        topics[topic].append(request_class.ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    answer = connection.send(
        request_class(
            replica_id=-1,
            isolation_level=isolation,
            topics=[request_class.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        ),
        version=version,
    )
    failure = None
    for topic in answer.topics:
        for row in topic.partitions:
            at = (topic.name, row.partition_index)
            if at not in wanted:
                raise MalformedAnswerError(f"the broker at {connection.address} answered for {at}, which was not asked")
            if row.error_code == ErrorCode.NONE:
                found[at] = FoundOffset(row.offset, row.timestamp)
                continue
            error = BrokerAnsweredError(row.error_code, f"asking for offsets of {at[0]}-{at[1]}")
            if not error.retriable:
                raise error
            failure = error
    return failure
