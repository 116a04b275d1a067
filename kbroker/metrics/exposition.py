"""A snapshot as Prometheus or OpenMetrics text, through the standard client library.

Names follow Prometheus' rules: base units, `_total` on counters.  The library is imported here, inside functions: it
costs memory and start-up time that a broker without a scraper need not pay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS
from kbroker.metrics import cluster, maintenance, quorum
from kbroker.metrics.families import ZERO, Family, Labels, Values, by_labels, number, table

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kbroker.metrics.snapshot import Snapshot
    from kbroker.metrics.sources import ClientSample

#: `le` labels of the buckets, in seconds.
BUCKET_LABELS = (*(repr(bound / 1e9) for bound in BUCKET_BOUNDS_NS), "+Inf")

_BROKER = """
kbroker_build|info|version,node_id,cluster_id|The broker's version and identity.
kbroker_uptime_seconds|gauge||Seconds since the process started.
kbroker_loop_delay_seconds|histogram||How late the event loop's timers fire.|delays.times
kbroker_loop_delay_max_seconds|gauge||The longest delay since start.
"""

_REQUESTS = """
kbroker_requests|counter|api|Requests answered.|requests.answered
kbroker_request_errors|counter|api|Requests that failed.|requests.errors
kbroker_request_bytes|counter|api|Bytes of requests.|requests.bytes_in
kbroker_response_bytes|counter|api|Bytes of answers.|requests.bytes_out
kbroker_bytes_in|counter||Bytes of all requests.
kbroker_bytes_out|counter||Bytes of all answers.
kbroker_request_seconds|histogram|api|Time from a request's last byte to its answer's hand-over.|requests.times
kbroker_fetches_waiting|gauge||Fetches that wait for data.|0
"""

_CONNECTIONS = """
kbroker_connections|gauge|listener|Open connections.
kbroker_connections_accepted|counter|listener|Connections accepted.
kbroker_connections_refused|counter|reason|Connections refused.
kbroker_connections_paced|counter|verdict|Connections that came too soon.
kbroker_connections_closed|counter|reason|Connections closed.
"""

_SECURITY = """
kbroker_tls_handshakes|counter|listener|Handshakes that clients have come through.
kbroker_tls_handshakes_failed|counter|listener,kind|
    Handshakes that came to nothing: failed, refused, plaintext (the client does not speak TLS), ended, slow, oversized.
kbroker_tls_kernel_connections|counter||Connections whose records the kernel has encrypted.
kbroker_tls_certificate_left_seconds|gauge|listener|
    Time until the first certificate that the listener shows runs out; negative behind its end.
kbroker_tls_store_changes|counter|listener,outcome|
    Changed key and trust stores that a listener has taken, and those that it could not use (failed).
kbroker_authentications|counter|listener,mechanism,outcome|
    Logins by SASL: succeeded, failed, and those of open connections: again, failed_again.
kbroker_acls|gauge||ACLs of the cluster.
kbroker_authorization_denied|counter|resource,operation|
    What clients asked for and were refused by the authorizer, by what they would have done to what (topic, group, …).
kbroker_authentications_expired|counter|listener|
    Connections that were closed as their clients did not log in again in time.
"""

_QUOTAS = """
kbroker_quota_rate|gauge|quota,user,client_id|
    What a quota's clients use: bytes a second, percent of the loop's time; of controller_mutation what is left.
    |quotas.rate
kbroker_quota_limit|gauge|quota,user,client_id|What they may use per second.|quotas.limit
kbroker_quota_throttles|counter|quota,user,client_id|Answers that named a throttle time.|quotas.throttled_count
kbroker_quota_throttle_seconds|counter|quota,user,client_id|The sum of these times.|quotas.throttled_seconds
"""

_LOGS = """
kbroker_topics|gauge||Topics with a log here.
kbroker_partitions|gauge||Partitions with a log here.
kbroker_log_size_bytes|gauge||Bytes in all segments of all partitions.
kbroker_log_segments|gauge||Segments of all partitions.
kbroker_topic_size_bytes|gauge|topic|Bytes of a topic.|topics.size_bytes
kbroker_topic_partitions|gauge|topic|Partitions of a topic.|topics.partition_count
kbroker_partition_log_start_offset|gauge|topic,partition|First offset that can be read.|partitions.log_start_offset
kbroker_partition_high_watermark|gauge|topic,partition|End of what consumers may read.|partitions.high_watermark
kbroker_partition_last_stable_offset|gauge|topic,partition|
    End of what read_committed consumers may read.|partitions.last_stable_offset
kbroker_partition_log_end_offset|gauge|topic,partition|Offset that the next record gets.|partitions.log_end_offset
kbroker_partition_size_bytes|gauge|topic,partition|Bytes in all segments of the partition.|partitions.size_bytes
kbroker_partition_segments|gauge|topic,partition|Segments of the partition.|partitions.segment_count
"""

_DIRECTORIES = """
kbroker_log_dir_partitions|gauge|directory|Partitions in a log directory.|directories.partition_count
kbroker_log_dir_size_bytes|gauge|directory|Bytes of segments in it.|directories.size_bytes
kbroker_log_dir_free_bytes|gauge|directory|Bytes left in a log directory.
kbroker_log_dir_refusing|gauge|directory|1 while appends find no space.
kbroker_log_dir_refused|counter|directory|Appends and other writes without space.
kbroker_log_dir_offline|gauge|directory|1 once a log directory has failed.
kbroker_log_dirs_offline|gauge||Log directories that have failed.
kbroker_partitions_offline|gauge||Partitions without a log.|0
kbroker_commit_fsyncs|counter||fsyncs that appends waited for.
kbroker_commit_fsync_seconds|counter||Time of these fsyncs.
kbroker_commit_waits|counter||Appends that waited for them.
"""

_STORAGE = """
kbroker_open_segments|gauge||Segments with an open file.
kbroker_open_segments_limit|gauge||How many may be open at a time.
kbroker_open_index_maps|gauge||Indexes that are mapped.
kbroker_idempotent_producers|gauge||Producers remembered, over all partitions.
kbroker_open_segment_evictions|counter||Segments closed for others.
kbroker_idempotent_producer_evictions|counter||Producers forgotten for others.
"""

_CONVERSIONS = """
kbroker_produce_message_conversions|counter||Records converted between message formats in produce.|0
kbroker_produce_message_conversions_seconds|counter||Time of these conversions.|0
kbroker_fetch_message_conversions|counter||Records converted between message formats in fetch.|0
kbroker_fetch_message_conversions_seconds|counter||Time of these conversions.|0
kbroker_converted_bytes|gauge||Bytes of converted records not taken yet.|0
"""

_SCHEMAS = """
kbroker_schema_validation_batches|counter|outcome|
    Batches of topics that ask for schemas: all ids known, registry asked, refused, registry away.
kbroker_schema_lookups|counter|answer|Ids that the registry was asked for, by its answer.
kbroker_schema_known_ids|gauge||Ids of schemas that are believed to be there.|0
"""

_GROUPS = """
kbroker_groups|gauge|state|Groups in each state.
kbroker_group_members|gauge|group|Members of a group.|groups.member_count
kbroker_group_lag_sum|gauge|group|Records a group is behind, all partitions.|groups.lag
kbroker_group_lag|gauge|group,topic,partition|Records that a group is behind on a partition.|lags.lag
kbroker_group_committed_offset|gauge|group,topic,partition|Offset that a group committed.|lags.committed
kbroker_group_rebalances|counter||Rebalances of groups.|0
kbroker_group_expired_offsets|counter||Committed offsets forgotten after offsets.retention.minutes.|0
"""

_TRANSACTIONS = """
kbroker_transactional_ids|gauge|state|Transactional ids in each state.
kbroker_transactions_timed_out|counter||Transactions aborted after their timeout.|0
kbroker_partition_last_stable_offset_lag|gauge|topic,partition,transactional_id,producer_id|
    Records that open transactions keep from read_committed consumers; the labels name the oldest.|holders.lag
kbroker_partition_last_stable_offset_held_seconds|gauge|topic,partition,transactional_id,producer_id|
    For how long the oldest one is open.|holders.seconds
"""

_CLIENTS = """
kbroker_client_metrics|gauge||Values of metrics that clients pushed.
"""

SECTIONS = (
    ("The broker", table(_BROKER)),
    ("Requests", table(_REQUESTS)),
    ("Connections", table(_CONNECTIONS)),
    ("Encryption and logins", table(_SECURITY)),
    ("Quotas", table(_QUOTAS)),
    ("Topics and partitions", table(_LOGS)),
    ("Replication and the controller", cluster.FAMILIES),
    ("A node with the controller role", quorum.FAMILIES),
    ("Log directories", table(_DIRECTORIES)),
    ("Open files and producers", table(_STORAGE)),
    ("Message formats", table(_CONVERSIONS)),
    ("Schemas", table(_SCHEMAS)),
    ("Groups", table(_GROUPS)),
    ("Transactions", table(_TRANSACTIONS)),
    ("Compaction, retention, flushes", maintenance.FAMILIES),
    ("Metrics of clients", table(_CLIENTS)),
)
"""What a scrape and docs/metrics.md show, in this order; behind them what clients pushed, and the process's metrics."""


class _Collector:
    """A collector for the client library over the families that `collect` gives."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def render(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, in the format that an Accept header asks for.  Runs on any thread."""
    return encoded(lambda: metrics(snapshot), accept)


def encoded(families: Callable[[], Iterator[Metric]], accept: str) -> tuple[bytes, str]:
    """Families as text and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """All families with their samples, in a fixed order."""
    values: Values = {
        "kbroker_bytes_in": sum(row.bytes_in for row in snapshot.requests),
        "kbroker_bytes_out": sum(row.bytes_out for row in snapshot.requests),
        "kbroker_groups": Counter((row.state,) for row in snapshot.groups),
        **snapshot.values,
    }
    rows = Rows(snapshot)
    for _, families in SECTIONS:
        for family in families:
            yield _metric(family, rows, values)
    yield from _pushed(snapshot.client_samples)
    yield from process_families()


class Rows:
    """The rows that sources name, each with the values of its labels, which are made once for all columns."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._labels: dict[str, list[Labels]] = {}

    def column(self, family: Family) -> Iterable[tuple[Labels, Any]]:
        """Labels and values of a family with a source."""
        name, _, column = family.source.partition(".")
        rows = getattr(self._snapshot, name)
        labels = self._labels.get(name)
        if labels is None:
            labels = self._labels[name] = [tuple(map(str, row[: len(family.labels)])) for row in rows]
        return zip(labels, map(attrgetter(column), rows), strict=True)


def _metric(family: Family, rows: Rows, values: Values) -> Metric:
    from prometheus_client import core

    if family.kind == "histogram":
        times = core.HistogramMetricFamily(family.name, family.text, labels=family.labels)
        for labels, (buckets, sum_ns) in rows.column(family):
            times.add_metric(labels, cumulative(buckets), sum_ns / 1e9)
        return times
    if family.kind == "info":
        info = core.InfoMetricFamily(family.name, family.text, labels=family.labels)
        for labels in by_labels(values, family.name):
            info.add_metric(labels, {})
        return info
    kind = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
    metric = kind(family.name, family.text, labels=family.labels)
    if family.source == ZERO:
        metric.add_metric((), number(values, family.name))
        return metric
    for labels, value in rows.column(family) if family.source else by_labels(values, family.name).items():
        metric.add_metric(labels, value)
    return metric


def cumulative(buckets: Iterable[int]) -> list[tuple[str, float]]:
    """Buckets as the format wants them: each with everything below it."""
    return list(zip(BUCKET_LABELS, map(float, accumulate(buckets)), strict=True))


def process_families() -> Iterator[Metric]:
    """CPU, memory, descriptors and start time under the names that the library's own collector gives them."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    yield from ProcessCollector(registry=CollectorRegistry(auto_describe=False)).collect()


def _pushed(samples: Iterable[ClientSample]) -> Iterator[Metric]:
    """What clients pushed, under their own names.  If clients push one name with two metric types, only the first type
    is shown."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: dict[str, tuple[bool, Metric]] = {}
    for name, labels, value, is_counter in samples:
        base = name.removesuffix("_total") if is_counter else name
        known = families.get(base)
        if known is None:
            make = CounterMetricFamily if is_counter else GaugeMetricFamily
            known = families[base] = is_counter, make(base, "Pushed by clients.")
        if known[0] == is_counter:
            known[1].add_sample(f"{base}_total" if is_counter else base, dict(labels), value)
    for _, family in families.values():
        yield family
