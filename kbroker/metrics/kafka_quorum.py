"""The values of Kafka's controllers and of its quorum's members, under Kafka's names.  Runs on any thread."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kbroker.metrics.families import by_label, number
from kbroker.metrics.kafka_rows import Row, Summary
from kbroker.metrics.kafka_snapshot import KafkaSnapshot
from kbroker.metrics.percentiles import quantiles
from kbroker.metrics.recent import growth, rate

#: Keys of readings, of a node with the controller role.
CHANGES_WAITED, CHANGES_WORKED = ("changes", "waited"), ("changes", "worked")
COMMITS, ELECTIONS, APPENDED = ("quorum", "commits"), ("quorum", "elections"), ("quorum", "appended")
FETCHED = ("metadata", "end")
#: Of the values of a node with the controller role.
HAS_CONTROLLER = "kbroker_quorum_voters"
RAFT = "kafka_server_raftmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
_VOTERS_STATES = {"unattached": "unattached-voted", "prospective": "prospective-voted"}


def quorum_rows(snapshot: KafkaSnapshot, idle: float | None) -> Iterator[Row]:
    """Of a node that follows a metadata log, and of one that keeps it.  `idle`: the share of its loop's time."""
    known = snapshot.base.values
    if HAS_CONTROLLER in known:
        yield from _controller(snapshot)
        yield from _raft(snapshot, idle)
    if "kbroker_metadata_applied_lag_seconds" not in known:
        return
    yield RAFT + "fetch_records_rate", (), rate(FETCHED, snapshot.half_minute, snapshot.now)
    if "kbroker_broker_fenced" in known:
        lag = number(known, "kbroker_metadata_applied_lag_seconds")
        yield "kafka_server_brokermetadatametrics_last_applied_record_lag_ms", (), lag * 1000
        offset = number(known, "kbroker_metadata_applied_offset")
        yield "kafka_server_brokermetadatametrics_last_applied_record_offset", (), offset
    if HAS_CONTROLLER not in known:
        yield RAFT + "current_state", ("observer",), 1.0
        yield RAFT + "current_vote", (), -1.0
        yield RAFT + "append_records_rate", (), 0.0


def _controller(snapshot: KafkaSnapshot) -> Iterator[Row]:
    known = snapshot.base.values
    brokers = by_label(known, "kbroker_controller_brokers")
    yield CONTROLLER + "activebrokercount", (), brokers.get("active", 0.0)
    yield CONTROLLER + "fencedbrokercount", (), brokers.get("fenced", 0.0)
    yield CONTROLLER + "controlledshutdownbrokercount", (), brokers.get("leaving", 0.0)
    yield CONTROLLER + "globaltopiccount", (), number(known, "kbroker_controller_topics")
    yield CONTROLLER + "globalpartitioncount", (), number(known, "kbroker_controller_partitions")
    at_ms = number(known, "kbroker_controller_last_record_timestamp_seconds") * 1000
    yield CONTROLLER + "lastappliedrecordtimestamp", (), at_ms
    yield CONTROLLER + "lastappliedrecordlagms", (), max(0.0, time.time() * 1000 - at_ms) if at_ms > 0 else 0.0
    high_watermark = number(known, "kbroker_metadata_high_watermark")
    yield CONTROLLER + "lastcommittedrecordoffset", (), max(high_watermark - 1, -1.0)
    # A change waits for its turn, however long: none is given up.
    yield CONTROLLER + "eventqueueoperationstimedoutcount", (), 0.0
    yield CONTROLLER + "timedoutbrokerheartbeatcount", (), 0.0
    for feature, level in by_label(known, "kbroker_metadata_feature_level").items():
        if feature != "kraft.version":
            first, *words = feature.split(".")
            shown = first + "".join(map(str.capitalize, words))
            yield "kafka_server_metadataloader_finalizedlevel", (shown,), level
    for key, name in ((CHANGES_WAITED, "eventqueuetimems"), (CHANGES_WORKED, "eventqueueprocessingtimems")):
        now = snapshot.now.counters.get(key)
        if now is not None:
            recent = growth(key, snapshot.minutes, snapshot.now)
            summary = Summary(quantiles(recent[2:]), now[0], now[1] / 1e6)
            yield f"kafka_controller_controllereventmanager_{name}", (), summary
    yield CONTROLLER + "eventqueueoperationsstartedcount", (), snapshot.now.counters.get(CHANGES_WAITED, (0,))[0]


def _raft(snapshot: KafkaSnapshot, idle: float | None) -> Iterator[Row]:
    known, old, now = snapshot.base.values, snapshot.half_minute, snapshot.now
    has_voted = number(known, "kbroker_quorum_vote") >= 0
    for state, value in by_label(known, "kbroker_quorum_state").items():
        if value:
            # Kafka has no name of its own for a leader that has resigned.
            shown = "unattached" if state == "resigned" else state
            yield RAFT + "current_state", (_VOTERS_STATES.get(state, shown) if has_voted else shown,), 1.0
    yield RAFT + "append_records_rate", (), rate(APPENDED, old, now)
    for key, kind in ((COMMITS, "commit"), (ELECTIONS, "election")):
        grown = growth(key, old, now)
        if grown and grown[0]:
            yield f"{RAFT}{kind}_latency_avg", (), grown[1] / grown[0] * 1000
            yield f"{RAFT}{kind}_latency_max", (), number(known, f"kbroker_quorum_{kind}_max_seconds") * 1000
    if idle is not None:
        yield RAFT + "poll_idle_ratio_avg", (), idle
