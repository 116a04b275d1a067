"""The first page: whether the broker is well, and what it does.

Totals only grow while the broker runs; a browser makes rates of two answers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.metrics.families import by_label, number
from kbroker.metrics.recent import Totals
from kbroker.metrics.sources import STARTED_AT
from kbroker.protocol.api import ApiKey
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.group_lines import GroupLine
    from kbroker.console.parameters import Parameters
    from kbroker.console.parts import ConsoleParts, GroupRows, Value
    from kbroker.console.topic_lines import TopicLine
    from kbroker.metrics.snapshot import LogRows

MOST_SHOWN = 8
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory: bytes of its partitions, bytes left on its file system, whether appends find no space."""

    path: str
    partition_count: int
    size_bytes: int
    free_bytes: float | None
    is_refusing: bool
    is_offline: bool


@dataclass(frozen=True, slots=True)
class ApiTotals:
    """All requests of one API since the start."""

    api: str
    answered: int
    errors: int
    bytes_in: int
    bytes_out: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TopicSize:
    """A topic among the largest."""

    topic: str
    partition_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group among those furthest behind."""

    group_id: str
    state: str
    lag: int


@dataclass(frozen=True, slots=True)
class GrandTotals:
    """Numbers that only grow; `records` are the high watermarks of all partitions, which falls with deleted topics."""

    requests: int
    errors: int
    bytes_in: int
    bytes_out: int
    produced_bytes: int
    fetched_bytes: int
    records: int
    accepted: float
    refused: float
    rebalances: float
    cpu_seconds: float
    loop_delay_count: int
    loop_delay_seconds: float


@dataclass(frozen=True, slots=True)
class Past:
    """What the charts show of the time before a viewer came; `at` in seconds since the epoch."""

    names: Sequence[str]
    rows: Sequence[Totals]


@dataclass(frozen=True, slots=True)
class Overview:
    """Times in milliseconds since the epoch."""

    now_ms: int
    version: str
    node_id: int
    cluster_id: str
    uptime_seconds: float
    is_ready: bool
    health: Sequence[str]
    totals: GrandTotals
    loop_delay_max_seconds: float
    memory_bytes: int
    connections: Mapping[str, float]
    fetches_waiting: float
    topic_count: int
    partition_count: int
    segment_count: int
    size_bytes: int
    directories: Sequence[Directory]
    apis: Sequence[ApiTotals]
    largest_topics: Sequence[TopicSize]
    group_states: Mapping[str, int]
    lag: int
    furthest_groups: Sequence[GroupLag]
    transaction_states: Mapping[str, float]
    messages_are_shown: bool


async def overview(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/overview."""
    parts.require_cluster(Operation.DESCRIBE)
    logs = await parts.logs.get()
    groups = await parts.groups.get()
    return partial(_value, logs, groups, _moment(parts, logs))


async def past(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/past: totals of the last hour, oldest first, as rows under their names."""
    parts.require_cluster(Operation.DESCRIBE)
    totals = parts.sources.hour.totals()
    return lambda: Past(Totals._fields, totals)


def _value(logs: LogRows, groups: GroupRows, moment: Overview) -> Overview:
    """With what takes a look at every row."""
    largest = sorted(logs.topics, key=attrgetter("size_bytes"), reverse=True)[:MOST_SHOWN]
    furthest = sorted((group for group in groups.groups if group.lag), key=attrgetter("lag"), reverse=True)
    return replace(
        moment,
        largest_topics=[TopicSize(row.topic, row.partition_count, row.size_bytes) for row in largest],
        group_states=Counter(group.state for group in groups.groups),
        lag=sum(group.lag for group in groups.groups),
        furthest_groups=[GroupLag(row.group_id, row.state, row.lag) for row in furthest[:MOST_SHOWN]],
    )


def _moment(parts: ConsoleParts, logs: LogRows) -> Overview:
    sources = parts.sources
    is_ready, health = parts.readiness.look()
    requests = [(sources.api_name(row[0]), row) for row in sources.requests.snapshot()]
    connections, counted = sources.connections(), sources.counted()
    delay = sources.loop_delay
    delay_sum, delay_buckets = delay.histogram.snapshot()
    return Overview(
        now_ms=int(time.time() * 1000),
        version=sources.version,
        node_id=sources.node_id,
        cluster_id=sources.cluster_id,
        uptime_seconds=time.time() - STARTED_AT,
        is_ready=is_ready,
        health=health.splitlines(),
        totals=GrandTotals(
            requests=sum(row[1] for _, row in requests),
            errors=sum(row[2] for _, row in requests),
            bytes_in=sum(row[3] for _, row in requests),
            bytes_out=sum(row[4] for _, row in requests),
            produced_bytes=sum(row[3] for _, row in requests if row[0] == ApiKey.PRODUCE),
            fetched_bytes=sum(row[4] for _, row in requests if row[0] == ApiKey.FETCH),
            records=sum(logs.ends.values()),
            accepted=sum(by_label(connections, "kbroker_connections_accepted").values()),
            refused=sum(by_label(connections, "kbroker_connections_refused").values()),
            rebalances=number(counted, "kbroker_group_rebalances"),
            cpu_seconds=time.process_time(),
            loop_delay_count=sum(delay_buckets),
            loop_delay_seconds=delay_sum / 1e9,
        ),
        loop_delay_max_seconds=delay.max_ns / 1e9,
        memory_bytes=_memory_bytes(),
        connections=by_label(connections, "kbroker_connections"),
        fetches_waiting=number(counted, "kbroker_fetches_waiting"),
        topic_count=len(logs.topics),
        partition_count=len(logs.partitions),
        segment_count=sum(row.segment_count for row in logs.topics),
        size_bytes=sum(row.size_bytes for row in logs.topics),
        directories=_directories(parts, logs),
        apis=[ApiTotals(name, row[1], row[2], row[3], row[4], row[5] / 1e9) for name, row in requests],
        largest_topics=(),
        group_states={},
        lag=0,
        furthest_groups=(),
        transaction_states=by_label(sources.transactions(), "kbroker_transactional_ids"),
        messages_are_shown=not parts.why_no_messages,
    )


def _directories(parts: ConsoleParts, logs: LogRows) -> list[Directory]:
    used = {row.path: row for row in logs.directories}
    rows = []
    values = parts.sources.directories()
    is_refusing = by_label(values, "kbroker_log_dir_refusing")
    for path, free_bytes in by_label(values, "kbroker_log_dir_free_bytes").items():
        row = used.get(path)
        count, size = (0, 0) if row is None else (row.partition_count, row.size_bytes)
        rows.append(Directory(path, count, size, free_bytes, bool(is_refusing[path]), is_offline=False))
    offline = (path for path, value in by_label(values, "kbroker_log_dir_offline").items() if value)
    return rows + [Directory(path, 0, 0, None, is_refusing=False, is_offline=True) for path in offline]


def _memory_bytes() -> int:
    """What of the process is in memory."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


@dataclass(frozen=True, slots=True)
class OwnOverview:
    """The first page of a viewer who may not describe the cluster: the topics and groups that it may describe.

    Sizes and lag are those of this broker; `lag` is None where no group has one.
    """

    principal: str
    topic_count: int
    partition_count: int
    record_count: int
    size_bytes: int
    largest_topics: Sequence[TopicSize]
    group_states: Mapping[str, int]
    lag: int | None
    furthest_groups: Sequence[GroupLag]


async def own_overview(parts: ConsoleParts, _: Parameters) -> Value:
    """GET /console/api/own."""
    topics = await parts.shown(await parts.topics.get(), ResourceKind.TOPIC, attrgetter("topic"))
    groups = await parts.shown(await parts.group_lines.get(), ResourceKind.GROUP, attrgetter("group_id"))
    return partial(_own_value, ":".join(parts.principal), topics, groups)


def _own_value(principal: str, topics: Sequence[TopicLine], groups: Sequence[GroupLine]) -> OwnOverview:
    largest = sorted(topics, key=attrgetter("size_bytes"), reverse=True)[:MOST_SHOWN]
    lags = [(each.lag, each) for each in groups if each.lag is not None]
    furthest = sorted((each for each in lags if each[0]), key=lambda each: -each[0])[:MOST_SHOWN]
    return OwnOverview(
        principal,
        len(topics),
        sum(each.partition_count for each in topics),
        sum(each.record_count for each in topics),
        sum(each.size_bytes for each in topics),
        [TopicSize(each.topic, each.partition_count, each.size_bytes) for each in largest],
        Counter(each.state for each in groups),
        sum(lag for lag, _ in lags) if lags else None,
        [GroupLag(each.group_id, each.state, lag) for lag, each in furthest],
    )
