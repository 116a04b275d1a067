"""A copy of everything that one scrape reports, taken on the event loop.

Reading very many partitions or groups awaits a pace, so that the loop goes on; figures of one partition are
of one moment, those of two may be a few milliseconds apart.

Values only: nothing in a snapshot refers to a live object, so a thread may render it while the loop goes on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from kbroker._fast.base.slices import Pace
from kbroker.metrics.families import Values
from kbroker.metrics.sources import STARTED_AT, ClientSample, LogView, QuotaRow, Sources, StableOffsetHolder
from kbroker.types import TopicPartition


class RequestRow(NamedTuple):
    """Totals of one API."""

    api: str
    answered: int
    errors: int
    bytes_in: int
    bytes_out: int
    sum_ns: int
    buckets: tuple[int, ...]

    @property
    def times(self) -> tuple[tuple[int, ...], int]:
        """The buckets and the sum of a histogram."""
        return self.buckets, self.sum_ns


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


class DirectoryRow(NamedTuple):
    """Sums over the partitions in one log directory."""

    path: str
    partition_count: int
    size_bytes: int


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


class LogRows(NamedTuple):
    """Sums over logs; `ends` are the high watermarks by topic and partition, `partitions` is empty unless asked for."""

    topics: tuple[TopicRow, ...]
    directories: tuple[DirectoryRow, ...]
    ends: Mapping[tuple[str, int], int]
    partitions: tuple[PartitionRow, ...]


class DelayRow(NamedTuple):
    """How late the event loop's timers fire: a histogram's buckets and sum."""

    times: tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the broker at one moment: rows, of which `exposition` shows columns, and values by family."""

    version: str
    requests: tuple[RequestRow, ...]
    delays: tuple[DelayRow, ...]
    partitions: tuple[PartitionRow, ...]
    directories: tuple[DirectoryRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    lags: tuple[LagRow, ...]
    quotas: tuple[QuotaRow, ...]
    holders: tuple[StableOffsetHolder, ...]
    client_samples: tuple[ClientSample, ...]
    values: Values


async def take(sources: Sources) -> Snapshot:
    """Read all sources.  Run it on the event loop."""
    pace = sources.slices.pace()
    most = sources.max_partitions
    logs = list(sources.logs())
    rows = await log_rows(logs, len(logs) <= most, pace)
    topics = rows.topics
    groups, lags = await group_rows(sources, rows.ends, pace)
    gathered = await sources.gathered(pace)
    samples = await _client_samples(sources, pace)
    quotas = tuple(sources.quotas())
    delay_sum, delay_buckets = sources.loop_delay.histogram.snapshot()
    return Snapshot(
        version=sources.version,
        requests=tuple(RequestRow(sources.api_name(row[0]), *row[1:]) for row in sources.requests.snapshot()),
        delays=(DelayRow((delay_buckets, delay_sum)),),
        partitions=rows.partitions,
        directories=rows.directories,
        topics=topics if len(topics) <= most else (),
        groups=groups,
        lags=lags,
        quotas=quotas if len(quotas) <= most else (),
        holders=tuple(islice(sources.stable_offset_holders(), most)),
        client_samples=samples,
        values={
            "kbroker_build": {(sources.version, str(sources.node_id), sources.cluster_id): 1},
            "kbroker_uptime_seconds": time.time() - STARTED_AT,
            "kbroker_loop_delay_max_seconds": sources.loop_delay.max_ns / 1e9,
            "kbroker_topics": len(topics),
            "kbroker_partitions": len(logs),
            "kbroker_log_size_bytes": sum(row.size_bytes for row in topics),
            "kbroker_log_segments": sum(row.segment_count for row in topics),
            "kbroker_client_metrics": len(samples),
            **sources.connections(),
            **sources.directories(),
            **sources.transactions(),
            **sources.counted(),
            **gathered,
        },
    )


async def log_rows(logs: Collection[LogView], detailed: bool, pace: Pace) -> LogRows:
    """Sums by topic and by directory, the end of each partition, and, where asked for, a row for each."""
    sums: dict[str, list[int]] = {}
    used: dict[str, list[int]] = {}
    ends: dict[tuple[str, int], int] = {}
    rows: list[PartitionRow] = []
    for log in logs:
        await pace
        tp = log.topic_partition
        size_bytes, segment_count, high_watermark = log.size_bytes, log.segment_count, log.high_watermark
        row = sums.get(tp.topic) or sums.setdefault(tp.topic, [0, 0, 0])
        row[0] += 1
        row[1] += size_bytes
        row[2] += segment_count
        parent = log.parent
        share = used.get(parent) or used.setdefault(parent, [0, 0])
        share[0] += 1
        share[1] += size_bytes
        ends[tp] = high_watermark
        if detailed:
            rows.append(
                PartitionRow(
                    tp.topic,
                    tp.partition,
                    log.log_start_offset,
                    high_watermark,
                    log.last_stable_offset,
                    log.log_end_offset,
                    size_bytes,
                    segment_count,
                )
            )
    return LogRows(
        tuple(TopicRow(topic, *row) for topic, row in sums.items()),
        tuple(DirectoryRow(path, *share) for path, share in used.items()),
        ends,
        tuple(rows),
    )


async def _client_samples(sources: Sources, pace: Pace) -> tuple[ClientSample, ...]:
    samples = []
    for sample in sources.client_samples():
        samples.append(sample)
        await pace
    return tuple(samples)


async def group_rows(
    sources: Sources, ends: Mapping[tuple[str, int], int], pace: Pace
) -> tuple[tuple[GroupRow, ...], tuple[LagRow, ...]]:
    """All groups, and how far each is behind by partition; of the latter none where there are too many.

    Where partitions end that have no log here their leaders are asked, of as many as have rows.
    """
    groups: list[GroupRow] = []
    lags: list[LagRow] = []
    elsewhere: list[tuple[int, TopicPartition, int]] = []
    for number, group in enumerate(sources.groups()):
        await pace
        total = 0
        for topic, partition, committed in group.committed:
            await pace
            end = ends.get((topic, partition))
            if end is None:
                if len(elsewhere) <= sources.max_partitions:
                    elsewhere.append((number, TopicPartition(topic, partition), committed))
                continue
            lag = max(0, end - committed)
            total += lag
            if len(lags) <= sources.max_partitions:
                lags.append(LagRow(group.group_id, topic, partition, committed, lag))
        groups.append(GroupRow(group.group_id, group.state, group.member_count, total))
    found = await sources.ends_elsewhere({name for _, name, _ in elsewhere}) if elsewhere else {}
    for number, name, committed in elsewhere:
        end = found.get(name)
        if end is None:  # the topic is gone, its offsets have not expired yet; or its leader does not answer
            continue
        row, lag = groups[number], max(0, end - committed)
        groups[number] = row._replace(lag=row.lag + lag)
        lags.append(LagRow(row.group_id, *name, committed, lag))
    return tuple(groups), tuple(lags) if len(lags) <= sources.max_partitions else ()
