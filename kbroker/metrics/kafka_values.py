"""The values of the families of `kafka_table`, worked out of a snapshot.  Runs on any thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from kbroker.error_codes import error_name
from kbroker.metrics.kafka_requests import request_parts
from kbroker.metrics.kafka_rows import Found, Labels, Row, Summary
from kbroker.metrics.kafka_snapshot import (
    TIMES,
    KafkaSnapshot,
)
from kbroker.metrics.kafka_sources import Traffic
from kbroker.metrics.kafka_table import NONE_ALONE, SAME
from kbroker.metrics.kafka_upkeep import upkeep
from kbroker.metrics.percentiles import quantiles
from kbroker.metrics.recent import growth, rate
from kbroker.metrics.sources import QuotaRow

#: Of this broker, which has one event loop, in the place of Kafka's network threads.
PROCESSOR = "0"
REPLICA = ("Replica",)
LOOP_TIME = ("loop", "processor")
FLUSHES = ("flushes", "all")
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
    for name, given in snapshot.figures.values.items():
        found[name] = dict(given.items()) if isinstance(given, Mapping) else {(): given}
    for name, labels, figure in upkeep(snapshot.base.maintenance, time.time()):
        found.setdefault(name, {})[labels] = figure
    for part in (
        _traffic,
        _broker,
        _logs,
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


def _traffic(snapshot: KafkaSnapshot) -> Iterator[Row]:
    def rows(labels: Labels, counted: Traffic) -> Iterator[Row]:
        for name, field in _TRAFFIC:
            yield f"kafka_server_brokertopicmetrics_{name}", labels, getattr(counted, field)
        attempts = counted.appends + counted.failed_appends + counted.refused_appends
        yield "kafka_server_brokertopicmetrics_totalproducerequests", labels, attempts

    yield from rows((), snapshot.figures.total)
    for topic, counted in snapshot.figures.traffic.items():
        yield from rows((topic,), counted)
    made = snapshot.base.conversions
    yield "kafka_server_brokertopicmetrics_producemessageconversions", (), made.produce_count
    yield "kafka_server_brokertopicmetrics_fetchmessageconversions", (), made.fetch_count


def _broker(snapshot: KafkaSnapshot) -> Iterator[Row]:
    known = snapshot.base.cluster
    is_alone = "kbroker_isr_shrinks" not in known
    for name, own in SAME.items():
        value = known.get(own, 0.0 if is_alone and known and name in NONE_ALONE else None)
        if isinstance(value, (int, float)):
            yield name, (), value
    if known:
        fetchers = "kafka_server_replicafetchermanager_"
        for name, own in (
            ("maxlag", "kbroker_replica_fetcher_max_lag"),
            ("failedpartitionscount", "kbroker_replica_fetcher_failed_partitions"),
        ):
            value = known.get(own, 0.0)
            if isinstance(value, (int, float)):
                yield fetchers + name, REPLICA, value
        now, old = snapshot.now, snapshot.minute
        rates = [rate(key, old, now) for key in now.counters if key[0] == "fetcher"]
        yield fetchers + "minfetchrate", REPLICA, min(rates, default=0.0)
    active = known.get("kbroker_controller_active")
    if isinstance(active, (int, float)):
        yield "kafka_controller_kafkacontroller_activebrokercount", (), active * snapshot.figures.broker_count
        yield "kafka_controller_kafkacontroller_fencedbrokercount", (), active * snapshot.figures.fenced_count
        yield "kafka_controller_kafkacontroller_globaltopiccount", (), active * snapshot.figures.topic_count
        yield "kafka_controller_kafkacontroller_globalpartitioncount", (), active * snapshot.figures.partition_count
    offline = snapshot.base.offline.directories
    yield "kafka_log_logmanager_offlinelogdirectorycount", (), len(offline)
    uncleanable = snapshot.base.maintenance.get("kbroker_cleaner_uncleanable_partitions", {})
    online = [path for (path,) in uncleanable] if isinstance(uncleanable, Mapping) else []
    for path in {*online, *offline}:
        yield "kafka_log_logmanager_logdirectoryoffline", (path,), float(path in offline)
    yield from _kraft(snapshot)


def _kraft(snapshot: KafkaSnapshot) -> Iterator[Row]:
    lag = snapshot.base.cluster.get("kbroker_metadata_applied_lag_seconds")
    if not isinstance(lag, (int, float)):
        return
    raft = "kafka_server_raftmetrics_"
    yield "kafka_server_brokermetadatametrics_last_applied_record_lag_ms", (), lag * 1000
    yield raft + "current_state", ("observer",), 1.0
    yield raft + "current_vote", (), -1.0
    yield raft + "append_records_rate", (), 0.0
    yield raft + "fetch_records_rate", (), rate(("metadata", "end"), snapshot.half_minute, snapshot.now)


def _logs(snapshot: KafkaSnapshot) -> Iterator[Row]:
    for row in snapshot.base.partitions:
        labels = (row.topic, str(row.partition))
        yield "kafka_log_log_size", labels, row.size_bytes
        yield "kafka_log_log_numlogsegments", labels, row.segment_count
        yield "kafka_log_log_logstartoffset", labels, row.log_start_offset
        yield "kafka_log_log_logendoffset", labels, row.log_end_offset


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
    elapsed = snapshot.now.at - snapshot.minute.at if is_known else snapshot.base.uptime_seconds
    return max(0.0, 1.0 - used[0] / max(elapsed, 0.001))


def _connections(snapshot: KafkaSnapshot) -> Iterator[Row]:
    confluent = "kafka_server_socketservermetrics_connection_"
    now, old = snapshot.now, snapshot.half_minute
    for listener, count in snapshot.base.connections.current.items():
        labels = (listener, PROCESSOR)
        yield "kafka_server_socket_server_metrics_connection_count", labels, count
        yield confluent + "count", labels, count
        yield confluent + "creation_rate", labels, rate(("accepted", listener), old, now)
        yield confluent + "close_rate", labels, rate(("ended", listener), old, now)
        yield "kafka_network_acceptor_acceptorblockedpercent", (listener,), 0.0


def _coordinators(snapshot: KafkaSnapshot) -> Iterator[Row]:
    one = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    states = [row.state for row in snapshot.base.groups]
    yield one, (), len(states)
    for state in GROUP_STATES:
        yield one + state.lower(), (), states.count(state)
    totals = snapshot.base.transactions
    two = "kafka_server_transaction_coordinator_metrics_"
    yield two + "transactional_id_count", (), sum(totals.states.values())
    yield two + "transaction_timeout_count", (), totals.timed_out
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
        labels = (row.group_id, row.topic, str(row.partition))
        yield one + "current_offset", labels, row.committed
        yield one + "lag", labels, row.lag
        yield one + "uncommitted_offsets", labels, row.lag
        total = sums.setdefault((row.group_id, row.topic), [0, 0])
        total[0] += row.committed
        total[1] += row.lag
    for key, (committed, lag) in sums.items():
        yield one + "current_offset_sum", key, committed
        yield one + "lag_sum", key, lag
        yield one + "uncommitted_offsets_sum", key, lag
    for group in snapshot.base.groups:
        yield one + "members", (group.group_id,), group.member_count
    yield "kafka_exporter_build_info", (snapshot.base.version,), 1.0
