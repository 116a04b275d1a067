"""A snapshot as Prometheus or OpenMetrics text, through the standard client library.

Names follow Prometheus' rules: base units, `_total` on counters.  The library is imported here, inside functions:
it costs memory and start-up time that a broker without a scraper need not pay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS
from kbroker.metrics import cluster, security
from kbroker.metrics.maintenance import families
from kbroker.metrics.snapshot import PartitionRow, Snapshot
from kbroker.metrics.sources import SCHEMA_ANSWERS, SCHEMA_OUTCOMES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: `le` labels of the buckets, in seconds.
BUCKET_LABELS = (*(repr(bound / 1e9) for bound in BUCKET_BOUNDS_NS), "+Inf")

_PARTITION_GAUGES: tuple[tuple[str, str, str], ...] = (
    ("kbroker_partition_log_start_offset", "First offset that can be read.", "log_start_offset"),
    ("kbroker_partition_high_watermark", "End of what consumers may read.", "high_watermark"),
    ("kbroker_partition_last_stable_offset", "End of what read_committed consumers may read.", "last_stable_offset"),
    ("kbroker_partition_log_end_offset", "Offset that the next record gets.", "log_end_offset"),
    ("kbroker_partition_size_bytes", "Bytes in all segments of the partition.", "size_bytes"),
    ("kbroker_partition_segments", "Segments of the partition.", "segment_count"),
)


class _Collector:
    """A collector for the client library over the families that `collect` gives."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def render(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, in the format that an Accept header asks for.  Runs on any thread."""
    return encoded(lambda: (family for _, section in SECTIONS for family in section(snapshot)), accept)


def encoded(families: Callable[[], Iterator[Metric]], accept: str) -> tuple[bytes, str]:
    """Families as text and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def cumulative(buckets: Iterable[int]) -> list[tuple[str, float]]:
    """Buckets as the format wants them: each with everything below it."""
    total = 0
    rows: list[tuple[str, float]] = []
    for label, count in zip(BUCKET_LABELS, buckets, strict=True):
        total += count
        rows.append((label, float(total)))
    return rows


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def _counts_by(name: str, text: str, label: str, values: Mapping[str, float], *, gauge: bool = False) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=[label]) if gauge else CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _about(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily

    info = {"version": snapshot.version, "node_id": str(snapshot.node_id), "cluster_id": snapshot.cluster_id}
    yield InfoMetricFamily("kbroker_build", "The broker's version and identity.", value=info)
    yield _gauge("kbroker_uptime_seconds", "Seconds since the process started.", snapshot.uptime_seconds)
    if snapshot.loop_delay_buckets:
        delay = HistogramMetricFamily("kbroker_loop_delay_seconds", "How late the event loop's timers fire.")
        delay.add_metric([], cumulative(snapshot.loop_delay_buckets), snapshot.loop_delay_sum_ns / 1e9)
        yield delay
        yield _gauge(
            "kbroker_loop_delay_max_seconds", "The longest delay since start.", snapshot.loop_delay_max_ns / 1e9
        )


def _requests(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

    rows = snapshot.requests
    by_api = (
        ("kbroker_requests", "Requests answered.", {row.api: float(row.answered) for row in rows}),
        ("kbroker_request_errors", "Requests that failed.", {row.api: float(row.errors) for row in rows}),
        ("kbroker_request_bytes", "Bytes of requests.", {row.api: float(row.bytes_in) for row in rows}),
        ("kbroker_response_bytes", "Bytes of answers.", {row.api: float(row.bytes_out) for row in rows}),
    )
    for name, text, values in by_api:
        yield _counts_by(name, text, "api", values)
    yield CounterMetricFamily("kbroker_bytes_in", "Bytes of all requests.", value=sum(row.bytes_in for row in rows))
    yield CounterMetricFamily("kbroker_bytes_out", "Bytes of all answers.", value=sum(row.bytes_out for row in rows))
    times = HistogramMetricFamily(
        "kbroker_request_seconds", "Time from a request's last byte to its answer's hand-over.", labels=["api"]
    )
    for row in rows:
        times.add_metric([row.api], cumulative(row.buckets), row.sum_ns / 1e9)
    yield times
    yield _gauge("kbroker_fetches_waiting", "Fetches that wait for data.", snapshot.fetches_waiting)


def _connections(snapshot: Snapshot) -> Iterator[Metric]:
    totals = snapshot.connections
    yield _counts_by("kbroker_connections", "Open connections.", "listener", totals.current, gauge=True)
    yield _counts_by("kbroker_connections_accepted", "Connections accepted.", "listener", totals.accepted)
    yield _counts_by("kbroker_connections_refused", "Connections refused.", "reason", totals.refused)
    yield _counts_by("kbroker_connections_paced", "Connections that came too soon.", "verdict", totals.paced)
    yield _counts_by("kbroker_connections_closed", "Connections closed.", "reason", totals.closed)


def _logs(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    yield _gauge("kbroker_topics", "Topics with a log here.", snapshot.topic_count)
    yield _gauge("kbroker_partitions", "Partitions with a log here.", snapshot.partition_count)
    yield _gauge("kbroker_log_size_bytes", "Bytes in all segments of all partitions.", snapshot.size_bytes)
    yield _gauge("kbroker_log_segments", "Segments of all partitions.", snapshot.segment_count)
    sizes = {row.topic: float(row.size_bytes) for row in snapshot.topics}
    yield _counts_by("kbroker_topic_size_bytes", "Bytes of a topic.", "topic", sizes, gauge=True)
    counts = {row.topic: float(row.partition_count) for row in snapshot.topics}
    yield _counts_by("kbroker_topic_partitions", "Partitions of a topic.", "topic", counts, gauge=True)
    for name, text, attribute in _PARTITION_GAUGES:
        family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
        column = PartitionRow._fields.index(attribute)
        for row in snapshot.partitions:
            family.add_metric([row.topic, str(row.partition)], row[column])  # type: ignore[arg-type]
        yield family


def _disks(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    partitions = {row.path: float(row.partition_count) for row in snapshot.used}
    sizes = {row.path: float(row.size_bytes) for row in snapshot.used}
    yield _counts_by(
        "kbroker_log_dir_partitions", "Partitions in a log directory.", "directory", partitions, gauge=True
    )
    yield _counts_by("kbroker_log_dir_size_bytes", "Bytes of segments in it.", "directory", sizes, gauge=True)
    free = {row.path: float(row.free_bytes) for row in snapshot.directories}
    refusing = {row.path: float(row.is_refusing) for row in snapshot.directories}
    refused = {row.path: float(row.refused_count) for row in snapshot.directories}
    yield _counts_by("kbroker_log_dir_free_bytes", "Bytes left in a log directory.", "directory", free, gauge=True)
    yield _counts_by("kbroker_log_dir_refusing", "1 while appends find no space.", "directory", refusing, gauge=True)
    yield _counts_by("kbroker_log_dir_refused", "Appends and other writes without space.", "directory", refused)
    offline = dict.fromkeys(free, 0.0) | dict.fromkeys(snapshot.offline.directories, 1.0)
    yield _counts_by("kbroker_log_dir_offline", "1 once a log directory has failed.", "directory", offline, gauge=True)
    yield _gauge("kbroker_log_dirs_offline", "Log directories that have failed.", len(snapshot.offline.directories))
    yield _gauge("kbroker_partitions_offline", "Partitions without a log.", snapshot.offline.partition_count)
    commits = snapshot.commits
    yield CounterMetricFamily("kbroker_commit_fsyncs", "fsyncs that appends waited for.", value=commits.fsync_count)
    yield CounterMetricFamily("kbroker_commit_fsync_seconds", "Time of these fsyncs.", value=commits.fsync_seconds)
    yield CounterMetricFamily("kbroker_commit_waits", "Appends that waited for them.", value=commits.settled_count)


def _storage(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    held = snapshot.storage
    for name, text, value in (
        ("kbroker_open_segments", "Segments with an open file.", held.open_segments),
        ("kbroker_open_segments_limit", "How many may be open at a time.", held.open_segments_limit),
        ("kbroker_open_index_maps", "Indexes that are mapped.", held.open_maps),
        ("kbroker_idempotent_producers", "Producers remembered, over all partitions.", held.producers),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "kbroker_open_segment_evictions", "Segments closed for others.", value=held.open_segment_evictions
    )
    yield CounterMetricFamily(
        "kbroker_idempotent_producer_evictions", "Producers forgotten for others.", value=held.producer_evictions
    )


def _conversions(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    made = snapshot.conversions
    for what, count, seconds in (
        ("produce", made.produce_count, made.produce_seconds),
        ("fetch", made.fetch_count, made.fetch_seconds),
    ):
        name = f"kbroker_{what}_message_conversions"
        yield CounterMetricFamily(name, f"Records converted between message formats in {what}.", value=count)
        yield CounterMetricFamily(f"{name}_seconds", "Time of these conversions.", value=seconds)
    yield _gauge("kbroker_converted_bytes", "Bytes of converted records not taken yet.", made.held_bytes)


def _schemas(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    said = snapshot.schemas
    batches = CounterMetricFamily(
        "kbroker_schema_validation_batches",
        "Batches of topics that ask for schemas: all ids known, registry asked, refused, registry away.",
        labels=["outcome"],
    )
    for outcome in SCHEMA_OUTCOMES:
        batches.add_metric([outcome], said.batches.get(outcome, 0))
    yield batches
    lookups = CounterMetricFamily(
        "kbroker_schema_lookups", "Ids that the registry was asked for, by its answer.", labels=["answer"]
    )
    for answer in SCHEMA_ANSWERS:
        lookups.add_metric([answer], said.lookups.get(answer, 0))
    yield lookups
    yield _gauge("kbroker_schema_known_ids", "Ids of schemas that are believed to be there.", said.known_ids)


def _groups(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states: dict[str, float] = {}
    for group in snapshot.groups:
        states[group.state] = states.get(group.state, 0.0) + 1
    yield _counts_by("kbroker_groups", "Groups in each state.", "state", states, gauge=True)
    members = {row.group_id: float(row.member_count) for row in snapshot.groups}
    yield _counts_by("kbroker_group_members", "Members of a group.", "group", members, gauge=True)
    totals = {row.group_id: float(row.lag) for row in snapshot.groups}
    yield _counts_by("kbroker_group_lag_sum", "Records a group is behind, all partitions.", "group", totals, gauge=True)
    labels = ["group", "topic", "partition"]
    lag = GaugeMetricFamily("kbroker_group_lag", "Records that a group is behind on a partition.", labels=labels)
    committed = GaugeMetricFamily("kbroker_group_committed_offset", "Offset that a group committed.", labels=labels)
    for row in snapshot.lags:
        key = [row.group_id, row.topic, str(row.partition)]
        lag.add_metric(key, row.lag)
        committed.add_metric(key, row.committed)
    yield lag
    yield committed
    yield CounterMetricFamily("kbroker_group_rebalances", "Rebalances of groups.", value=snapshot.rebalance_count)
    yield CounterMetricFamily(
        "kbroker_group_expired_offsets",
        "Committed offsets forgotten after offsets.retention.minutes.",
        value=snapshot.expired_offset_count,
    )


def _transactions(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    totals = snapshot.transactions
    states = {state: float(count) for state, count in totals.states.items()}
    yield _counts_by("kbroker_transactional_ids", "Transactional ids in each state.", "state", states, gauge=True)
    yield CounterMetricFamily(
        "kbroker_transactions_timed_out", "Transactions aborted after their timeout.", value=totals.timed_out
    )
    labels = ["topic", "partition", "transactional_id", "producer_id"]
    lag = GaugeMetricFamily(
        "kbroker_partition_last_stable_offset_lag",
        "Records that open transactions keep from read_committed consumers; the labels name the oldest.",
        labels=labels,
    )
    held = GaugeMetricFamily(
        "kbroker_partition_last_stable_offset_held_seconds", "For how long the oldest one is open.", labels=labels
    )
    for row in snapshot.stable_offset_holders:
        key = [row.topic, str(row.partition), row.transactional_id, str(row.producer_id)]
        lag.add_metric(key, row.lag)
        held.add_metric(key, row.seconds)
    yield lag
    yield held


def _quotas(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["quota", "user", "client_id"]
    rate = GaugeMetricFamily(
        "kbroker_quota_rate",
        "What a quota's clients use: bytes a second, percent of the loop's time; of controller_mutation what is left.",
        labels=labels,
    )
    limit = GaugeMetricFamily("kbroker_quota_limit", "What they may use per second.", labels=labels)
    count = CounterMetricFamily("kbroker_quota_throttles", "Answers that named a throttle time.", labels=labels)
    seconds = CounterMetricFamily("kbroker_quota_throttle_seconds", "The sum of these times.", labels=labels)
    for row in snapshot.quotas:
        key = [row.kind, row.user, row.client_id]
        rate.add_metric(key, row.rate)
        limit.add_metric(key, row.limit)
        count.add_metric(key, row.throttled_count)
        seconds.add_metric(key, row.throttled_ms / 1000)
    yield from (rate, limit, count, seconds)


def _maintenance(snapshot: Snapshot) -> Iterator[Metric]:
    yield from families(snapshot.maintenance)


def _cluster(snapshot: Snapshot) -> Iterator[Metric]:
    yield from families(snapshot.cluster, cluster.FAMILIES)


def _security(snapshot: Snapshot) -> Iterator[Metric]:
    yield from families(snapshot.security, security.FAMILIES)


def _process(_: Snapshot) -> Iterator[Metric]:
    yield from process_families()


def process_families() -> Iterator[Metric]:
    """CPU, memory, descriptors and start time under the names that the library's own collector gives them."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    yield from ProcessCollector(registry=CollectorRegistry(auto_describe=False)).collect()


def _clients(snapshot: Snapshot) -> Iterator[Metric]:
    """What clients pushed, under their own names.  If clients push one name with two metric types, only the first type
    is shown."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield _gauge("kbroker_client_metrics", "Values of metrics that clients pushed.", len(snapshot.client_samples))
    families: dict[str, tuple[bool, Metric]] = {}
    for name, labels, value, is_counter in snapshot.client_samples:
        base = name.removesuffix("_total") if is_counter else name
        known = families.get(base)
        if known is None:
            make = CounterMetricFamily if is_counter else GaugeMetricFamily
            known = families[base] = is_counter, make(base, "Pushed by clients.")
        if known[0] == is_counter:
            known[1].add_sample(f"{base}_total" if is_counter else base, dict(labels), value)
    for _, family in families.values():
        yield family


SECTIONS: tuple[tuple[str, Callable[[Snapshot], Iterator[Metric]]], ...] = (
    ("The broker", _about),
    ("Requests", _requests),
    ("Connections", _connections),
    ("Encryption and logins", _security),
    ("Quotas", _quotas),
    ("Topics and partitions", _logs),
    ("Replication and the controller", _cluster),
    ("Log directories", _disks),
    ("Open files and producers", _storage),
    ("Message formats", _conversions),
    ("Schemas", _schemas),
    ("Groups", _groups),
    ("Transactions", _transactions),
    ("Compaction, retention, flushes", _maintenance),
    ("Metrics of clients", _clients),
    ("The process", _process),
)
"""What a scrape and docs/metrics.md show, in this order."""
