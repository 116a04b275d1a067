"""The values of the families of `kafka_table`, worked out of a snapshot.  Runs on any thread."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kbroker.error_codes import error_name
from kbroker.metrics.exposition import Rows
from kbroker.metrics.families import Labelled, Labels, by_label, by_labels, number
from kbroker.metrics.kafka_quorum import HAS_CONTROLLER, quorum_rows
from kbroker.metrics.kafka_requests import request_parts
from kbroker.metrics.kafka_rows import Found, Row, Summary
from kbroker.metrics.kafka_snapshot import FLUSHES, LOOP_TIME, TIMES, KafkaSnapshot
from kbroker.metrics.kafka_sources import Traffic
from kbroker.metrics.kafka_table import SOURCED
from kbroker.metrics.percentiles import quantiles
from kbroker.metrics.recent import growth, rate
from kbroker.metrics.sources import QuotaRow

#: Of this broker, which has one event loop, in the place of Kafka's network threads.
PROCESSOR = "0"
REPLICA = ("Replica",)
#: Of the values of a broker that is ready, which knows its replicas.
IS_READY = "kbroker_replicas"
GROUP_STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")
_TRAFFIC = (
    ("messagesin", "messages_in"),
    ("bytesin", "bytes_in"),
    ("bytesout", "bytes_out"),
    ("failedproducerequests", "failed_appends"),
    ("totalfetchrequests", "fetches"),
    ("failedfetchrequests", "failed_fetches"),
    ("bytesrejected", "bytes_rejected"),
)
_QUOTAS = {"produce": ("produce", "byte_rate"), "fetch": ("fetch", "byte_rate"), "request": ("request", "request_time")}


def kafka_values(snapshot: KafkaSnapshot) -> Found:
    """By family and labels; of a family without a source nothing."""
    found: Found = {}
    for name in snapshot.figures.values:
        found[name] = dict(by_labels(snapshot.figures.values, name))
    for part in (
        _sourced,
        _traffic,
        _broker,
        _kraft,
        _cleaner,
        _flushes,
        _partitions,
        _requests,
        request_parts,
        _connections,
        _coordinators,
        _groups,
    ):
        for name, labels, value in part(snapshot):
            found.setdefault(name, {})[labels] = value
    return found


def _sourced(snapshot: KafkaSnapshot) -> Iterator[Row]:
    values, rows = snapshot.base.values, Rows(snapshot.base)
    for family in SOURCED:
        if not family.source.startswith("kbroker_"):
            yield from ((family.name, labels, value) for labels, value in rows.column(family))
            continue
        own, *more = family.source.split()
        factor = float(more[1]) if more[:1] == ["*"] else 1.0
        absent: Labelled = {(): 0.0} if more[:1] == ["or"] and IS_READY in values else {}
        for labels, value in (by_labels(values, own) or absent).items():
            yield family.name, labels, value * factor


def _traffic(snapshot: KafkaSnapshot) -> Iterator[Row]:
    def rows(labels: Labels, counted: Traffic) -> Iterator[Row]:
        for name, field in _TRAFFIC:
            yield f"kafka_server_brokertopicmetrics_{name}", labels, getattr(counted, field)
        attempts = counted.appends + counted.failed_appends + counted.refused_appends
        yield "kafka_server_brokertopicmetrics_totalproducerequests", labels, attempts

    yield from rows((), snapshot.figures.total)
    for topic, counted in snapshot.figures.traffic.items():
        yield from rows((topic,), counted)
    for kind in ("produce", "fetch"):
        converted = number(snapshot.base.values, f"kbroker_{kind}_message_conversions")
        yield f"kafka_server_brokertopicmetrics_{kind}messageconversions", (), converted


def _broker(snapshot: KafkaSnapshot) -> Iterator[Row]:
    known = snapshot.base.values
    if IS_READY in known:
        fetchers = "kafka_server_replicafetchermanager_"
        yield fetchers + "maxlag", REPLICA, number(known, "kbroker_replica_fetcher_max_lag")
        failed = number(known, "kbroker_replica_fetcher_failed_partitions")
        yield fetchers + "failedpartitionscount", REPLICA, failed
        now, old = snapshot.now, snapshot.minute
        rates = [rate(key, old, now) for key in now.counters if key[0] == "fetcher"]
        yield fetchers + "minfetchrate", REPLICA, min(rates, default=0.0)
        active = number(known, "kbroker_controller_active")
        yield "kafka_controller_kafkacontroller_activebrokercount", (), active * snapshot.figures.broker_count
        yield "kafka_controller_kafkacontroller_fencedbrokercount", (), active * snapshot.figures.fenced_count
        yield "kafka_controller_kafkacontroller_globaltopiccount", (), active * snapshot.figures.topic_count
        yield "kafka_controller_kafkacontroller_globalpartitioncount", (), active * snapshot.figures.partition_count
    offline = [path for path, value in by_label(known, "kbroker_log_dir_offline").items() if value]
    for path in dict.fromkeys((*by_label(known, "kbroker_cleaner_uncleanable_partitions"), *offline)):
        yield "kafka_log_logmanager_logdirectoryoffline", (path,), float(path in offline)


def _kraft(snapshot: KafkaSnapshot) -> Iterator[Row]:
    yield from quorum_rows(snapshot, _idle(snapshot))


def _partitions(snapshot: KafkaSnapshot) -> Iterator[Row]:
    logs = {(row.topic, row.partition): row for row in snapshot.base.partitions}
    for row in snapshot.figures.partitions:
        labels = (row.topic, str(row.partition))
        log = logs.get((row.topic, row.partition))
        lacks = float(row.in_sync < row.replicas)
        one = "kafka_topic_partition_"
        if log is not None:
            yield one + "current_offset", labels, log.high_watermark
            yield one + "oldest_offset", labels, log.log_start_offset
        yield one + "in_sync_replica", labels, row.in_sync
        yield one + "leader", labels, row.leader
        yield one + "leader_is_preferred", labels, float(row.is_preferred)
        yield one + "replicas", labels, row.replicas
        yield one + "under_replicated_partition", labels, lacks
        if row.min_in_sync == 0:
            continue
        led = "kafka_cluster_partition_"
        yield led + "replicascount", labels, row.replicas
        yield led + "insyncreplicascount", labels, row.in_sync
        yield led + "underreplicated", labels, lacks
        yield led + "underminisr", labels, float(row.in_sync < row.min_in_sync)
        yield led + "atminisr", labels, float(row.in_sync == row.min_in_sync)
        if log is not None:
            yield led + "laststableoffsetlag", labels, log.high_watermark - log.last_stable_offset
    for topic, count in snapshot.figures.topics.items():
        yield "kafka_topic_partitions", (topic,), count


def _cleaner(snapshot: KafkaSnapshot) -> Iterator[Row]:
    # `max-compaction-delay-secs` has no source here: the cleaner does not keep how late the last look found each log.
    last = number(snapshot.base.values, "kbroker_cleaner_last_clean_timestamp_seconds")
    if last:
        # Kafka counts from the start where nothing was cleaned yet; there is no such figure here.
        yield "kafka_log_logcleanermanager_time_since_last_run_ms", (), max(0.0, time.time() - last) * 1000


def _flushes(snapshot: KafkaSnapshot) -> Iterator[Row]:
    now = snapshot.now.counters.get(FLUSHES)
    if now is not None:
        recent = growth(FLUSHES, snapshot.minutes, snapshot.now)
        yield "kafka_log_logflushstats_logflushrateandtimems", (), Summary(quantiles(recent[2:]), now[0], now[1] / 1e6)


def _requests(snapshot: KafkaSnapshot) -> Iterator[Row]:
    failed: dict[str, int] = {}
    for api, code, count in snapshot.codes:
        failed[api] = failed.get(api, 0) + count
        yield "kafka_network_requestmetrics_errors", (api, error_name(code)), count
    for key, numbers in snapshot.now.counters.items():
        if key[0] == TIMES:
            yield "kafka_network_requestmetrics_requests", (key[1],), numbers[0]
            if not key[1].startswith("Fetch"):
                clean = max(0.0, numbers[0] - failed.get(key[1], 0))
                yield "kafka_network_requestmetrics_errors", (key[1], "NONE"), clean
    yield "kafka_network_requestchannel_requestqueuesize", (), 0.0
    idle = _idle(snapshot)
    if idle is not None:
        yield "kafka_network_socketserver_networkprocessoravgidle_percent", (), idle
        yield "kafka_network_socketserver_networkprocessoravgidlepercent", (), idle
        yield "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", (), idle
        yield "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total", (), idle
        yield "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", (), idle


def _idle(snapshot: KafkaSnapshot) -> float | None:
    used = growth(LOOP_TIME, snapshot.minute, snapshot.now)
    if not used:
        return None
    is_known = LOOP_TIME in snapshot.minute.counters
    # Before the first reading: since the process started.
    elapsed = (
        snapshot.now.at - snapshot.minute.at if is_known else number(snapshot.base.values, "kbroker_uptime_seconds")
    )
    return max(0.0, 1.0 - used[0] / max(elapsed, 0.001))


def _connections(snapshot: KafkaSnapshot) -> Iterator[Row]:
    confluent = "kafka_server_socketservermetrics_connection_"
    now, old = snapshot.now, snapshot.half_minute
    for listener, count in by_label(snapshot.base.values, "kbroker_connections").items():
        labels = (listener, PROCESSOR)
        yield "kafka_server_socket_server_metrics_connection_count", labels, count
        yield confluent + "count", labels, count
        yield confluent + "creation_rate", labels, rate(("accepted", listener), old, now)
        yield confluent + "close_rate", labels, rate(("ended", listener), old, now)
        yield "kafka_network_acceptor_acceptorblockedpercent", (listener,), 0.0


def _coordinators(snapshot: KafkaSnapshot) -> Iterator[Row]:
    if HAS_CONTROLLER in snapshot.base.values and IS_READY not in snapshot.base.values:
        return  # A controller alone coordinates nothing.
    one = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    states = [row.state for row in snapshot.base.groups]
    yield one, (), len(states)
    for state in GROUP_STATES:
        yield one + state.lower(), (), states.count(state)
    values = snapshot.base.values
    two = "kafka_server_transaction_coordinator_metrics_"
    yield two + "transactional_id_count", (), sum(by_label(values, "kbroker_transactional_ids").values())
    yield two + "transaction_timeout_count", (), number(values, "kbroker_transactions_timed_out")
    for row in snapshot.base.quotas:
        yield from _quota(row)


def _quota(row: QuotaRow) -> Iterator[Row]:
    named = _QUOTAS.get(row.kind)
    if named is not None:
        kind, what = named
        labels = (row.user, row.client_id)
        yield f"kafka_server_{kind}_{what}", labels, row.rate
        yield f"kafka_server_{kind}_throttle_time", labels, row.throttled_ms / max(row.throttled_count, 1)


def _groups(snapshot: KafkaSnapshot) -> Iterator[Row]:
    one = "kafka_consumergroup_"
    sums: dict[Labels, list[int]] = {}
    for row in snapshot.base.lags:
        total = sums.setdefault((row.group_id, row.topic), [0, 0])
        total[0] += row.committed
        total[1] += row.lag
    for key, (committed, lag) in sums.items():
        yield one + "current_offset_sum", key, committed
        yield one + "lag_sum", key, lag
        yield one + "uncommitted_offsets_sum", key, lag
    yield "kafka_exporter_build_info", (snapshot.base.version,), 1.0
