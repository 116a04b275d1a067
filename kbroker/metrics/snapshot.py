"""A copy of everything that one scrape reports, taken on the event loop in one go.

Values only: nothing in a snapshot refers to a live object, so a thread may render it while the loop goes on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.metrics.sources import (
    STARTED_AT,
    CommitTotals,
    ConnectionTotals,
    DirectorySpace,
    LogView,
    Sources,
    StorageTotals,
)


class RequestRow(NamedTuple):
    """Totals of one API."""

    api: str
    answered: int
    errors: int
    bytes_in: int
    bytes_out: int
    sum_ns: int
    buckets: tuple[int, ...]


class PartitionRow(NamedTuple):
    """Offsets and sizes of one partition."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    size_bytes: int
    segment_count: int


class TopicRow(NamedTuple):
    """Sums over the partitions of one topic."""

    topic: str
    partition_count: int
    size_bytes: int
    segment_count: int


class GroupRow(NamedTuple):
    """One group with its lag over all partitions."""

    group_id: str
    state: str
    member_count: int
    lag: int


class LagRow(NamedTuple):
    """How far one group is behind on one partition."""

    group_id: str
    topic: str
    partition: int
    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the broker at one moment."""

    version: str
    node_id: int
    cluster_id: str
    uptime_seconds: float
    requests: tuple[RequestRow, ...]
    connections: ConnectionTotals
    fetches_waiting: int
    partition_count: int
    topic_count: int
    size_bytes: int
    segment_count: int
    partitions: tuple[PartitionRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    lags: tuple[LagRow, ...]
    loop_delay_sum_ns: int
    loop_delay_max_ns: int
    loop_delay_buckets: tuple[int, ...]
    directories: tuple[DirectorySpace, ...]
    commits: CommitTotals
    storage: StorageTotals


def take(sources: Sources) -> Snapshot:
    """Read all sources.  Call it on the event loop."""
    logs = sources.logs()
    topics = _topic_rows(logs)
    detailed = len(logs) <= sources.max_partitions
    ends: dict[tuple[str, int], int] = {log.topic_partition: log.high_watermark for log in logs}
    groups, lags = _group_rows(sources, ends)
    delay = sources.loop_delay
    delay_sum, delay_buckets = delay.histogram.snapshot() if delay is not None else (0, ())
    totals = sources.connections()
    return Snapshot(
        version=sources.version,
        node_id=sources.node_id,
        cluster_id=sources.cluster_id,
        uptime_seconds=time.time() - STARTED_AT,
        requests=tuple(RequestRow(sources.api_name(row[0]), *row[1:]) for row in sources.requests.snapshot()),
        connections=ConnectionTotals(
            dict(totals.current), dict(totals.accepted), dict(totals.refused), dict(totals.closed)
        ),
        fetches_waiting=sources.fetches_waiting(),
        partition_count=len(logs),
        topic_count=len(topics),
        size_bytes=sum(row.size_bytes for row in topics),
        segment_count=sum(row.segment_count for row in topics),
        partitions=_partition_rows(logs) if detailed else (),
        topics=topics if len(topics) <= sources.max_partitions else (),
        groups=groups,
        lags=lags,
        loop_delay_sum_ns=delay_sum,
        loop_delay_max_ns=delay.max_ns if delay is not None else 0,
        loop_delay_buckets=delay_buckets,
        directories=tuple(sources.directories()),
        commits=sources.commits(),
        storage=sources.storage(),
    )


def _partition_rows(logs: Collection[LogView]) -> tuple[PartitionRow, ...]:
    return tuple(
        PartitionRow(
            log.topic_partition.topic,
            log.topic_partition.partition,
            log.log_start_offset,
            log.high_watermark,
            log.last_stable_offset,
            log.log_end_offset,
            log.size_bytes,
            log.segment_count,
        )
        for log in logs
    )


def _topic_rows(logs: Collection[LogView]) -> tuple[TopicRow, ...]:
    sums: dict[str, list[int]] = {}
    for log in logs:
        row = sums.setdefault(log.topic_partition.topic, [0, 0, 0])
        row[0] += 1
        row[1] += log.size_bytes
        row[2] += log.segment_count
    return tuple(TopicRow(topic, *row) for topic, row in sums.items())


def _group_rows(
    sources: Sources, ends: Mapping[tuple[str, int], int]
) -> tuple[tuple[GroupRow, ...], tuple[LagRow, ...]]:
    groups: list[GroupRow] = []
    lags: list[LagRow] = []
    for group in sources.groups():
        total = 0
        for topic, partition, committed in group.committed:
            end = ends.get((topic, partition))
            if end is None:  # the topic is gone, its offsets have not expired yet
                continue
            lag = max(0, end - committed)
            total += lag
            if len(lags) <= sources.max_partitions:
                lags.append(LagRow(group.group_id, topic, partition, committed, lag))
        groups.append(GroupRow(group.group_id, group.state, group.member_count, total))
    return tuple(groups), tuple(lags) if len(lags) <= sources.max_partitions else ()
