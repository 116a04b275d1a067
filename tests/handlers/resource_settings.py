"""What is asked of a broker about settings of groups and client metrics, and their names (`tests.handlers.changes`)."""

from __future__ import annotations

from typing import Any

from tests.handlers.changes import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    change,
    describe,
    incremental,
    op,
    resource,
    settled,
)
from tests.scenarios.session import Session

GROUP_SOURCE, CLIENT_METRICS_SOURCE = 8, 7
GROUP_VALUES = (
    ("consumer.session.timeout.ms", ("50000", " 51000 ", "5", "500000", "x", "")),
    ("consumer.heartbeat.interval.ms", ("6000", "1", "50000")),
    ("consumer.assignment.interval.ms", ("100000", "-1")),
    ("share.session.timeout.ms", ("90000",)),
    ("share.heartbeat.interval.ms", ("15000", "46000")),
    ("share.record.lock.duration.ms", ("20000", "999", "100000")),
    ("share.delivery.count.limit", ("3", "1", "11")),
    ("share.partition.max.record.locks", ("200", "99", "100000")),
    (
        "share.auto.offset.reset",
        (
            "earliest",
            "by_duration:PT1H",
            "by_duration:P1DT2H3M4.5S",
            "never",
            "EARLIEST",
            "by_duration:x",
            "by_duration:-PT1H",
        ),
    ),
    ("share.isolation.level", ("read_committed", "x")),
    ("share.renew.acknowledge.enable", ("false", "maybe")),
    ("streams.session.timeout.ms", ("1",)),
    ("streams.heartbeat.interval.ms", ("100000",)),
    ("streams.num.standby.replicas", ("1", "-1", "3")),
    ("streams.initial.rebalance.delay.ms", ("0", "-1")),
)
METRICS_VALUES = (
    ("interval.ms", ("1000", "99", "3600001", "x")),
    ("metrics", ("org.apache", "a,a", "", "*")),
    (
        "match",
        ("client_id=x.*", "client_id=a,client_id=b", "x", "nope=1", "client_id=[", "client_software_name=a=b"),
    ),
)


def values(s: Session, kind: int, name: str, wanted: Any) -> None:
    """Set each value in turn."""
    for key, texts in wanted:
        for text in texts:
            incremental(s, f"{key}={text}", resource(name, op(key, SET, text), kind=kind))


@change
def settings_of_groups(s: Session) -> None:
    describe(s, "of a group that is not there", "settings-group", kind=GROUP)
    values(s, GROUP, "settings-group", GROUP_VALUES)
    own = {
        "consumer.session.timeout.ms": "51000",
        "consumer.heartbeat.interval.ms": "6000",
        "share.heartbeat.interval.ms": "15000",
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "3",
        "share.partition.max.record.locks": "200",
        "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "streams.num.standby.replicas": "1",
        "streams.initial.rebalance.delay.ms": "0",
    }
    settled(s, "settings-group", own, GROUP, GROUP_SOURCE)
    describe(s, "described", "settings-group", kind=GROUP)
    describe(s, "some described", "settings-group", "share.isolation.level", "interval.ms", kind=GROUP)
    row = {"resource_type": GROUP, "resource_name": "settings-group"}
    configs = [{"name": "consumer.session.timeout.ms", "value": "47000"}]
    s.ask("replaced", "AlterConfigs", 2, resources=[{**row, "configs": configs}])
    settled(s, "settings-group", {"consumer.session.timeout.ms": "47000"}, GROUP, GROUP_SOURCE)
    s.ask("replaced by nothing", "AlterConfigs", 2, resources=[{**row, "configs": []}])
    settled(s, "settings-group", {}, GROUP, GROUP_SOURCE)


@change
def settings_of_groups_that_are_wrong(s: Session) -> None:
    key = "consumer.session.timeout.ms"
    incremental(s, "no such setting", resource("settings-wrong", op("no.such", SET, "1"), kind=GROUP))
    incremental(s, "no such setting deleted", resource("settings-wrong", op("no.such", DELETE), kind=GROUP))
    incremental(s, "appended", resource("settings-wrong", op(key, APPEND, "1"), kind=GROUP))
    incremental(s, "null", resource("settings-wrong", op(key, SET, None), kind=GROUP))
    incremental(s, "no name", resource("", op(key, SET, "50000"), kind=GROUP))
    incremental(s, "only validated", resource("settings-wrong", op(key, SET, "50000"), kind=GROUP), validate_only=True)
    describe(s, "described", "settings-wrong", key, kind=GROUP)
    describe(s, "no name described", "", kind=GROUP)


@change
def settings_of_client_metrics(s: Session) -> None:
    describe(s, "of a subscription that is not there", "settings-metrics", kind=CLIENT_METRICS)
    values(s, CLIENT_METRICS, "settings-metrics", METRICS_VALUES)
    own = {"interval.ms": "1000", "metrics": "*", "match": "client_id=a,client_id=b"}
    settled(s, "settings-metrics", own, CLIENT_METRICS, CLIENT_METRICS_SOURCE)
    describe(s, "described", "settings-metrics", kind=CLIENT_METRICS)
    names(s, "listed", 0)
    row = {"resource_type": CLIENT_METRICS, "resource_name": "settings-metrics"}
    s.ask("replaced by nothing", "AlterConfigs", 2, resources=[{**row, "configs": []}])
    settled(s, "settings-metrics", {}, CLIENT_METRICS, CLIENT_METRICS_SOURCE)


@change
def settings_of_client_metrics_that_are_wrong(s: Session) -> None:
    kind = CLIENT_METRICS
    incremental(s, "no such setting", resource("settings-wrong", op("no", SET, "1"), kind=kind))
    incremental(s, "no such setting deleted", resource("settings-wrong", op("no", DELETE), kind=kind))
    incremental(s, "appended", resource("settings-wrong", op("metrics", APPEND, "a,b"), kind=kind))
    incremental(s, "subtracted", resource("settings-wrong", op("match", SUBTRACT, "a"), kind=kind))
    incremental(s, "no name", resource("", op("interval.ms", SET, "1000"), kind=kind))
    incremental(s, "unknown kind", resource("settings-wrong", op("interval.ms", SET, "1000"), kind=64))
    describe(s, "no name described", "", kind=kind)


def names(s: Session, step: str, version: int, *kinds: int) -> None:
    """List what has settings."""
    s.ask(step, "ListConfigResources", version, **({"resource_types": list(kinds)} if version else {}))


@change
def names_of_what_has_settings(s: Session) -> None:
    session, interval = op("consumer.session.timeout.ms", SET, "50000"), op("interval.ms", SET, "1000")
    incremental(s, "a group", resource("names-group", session, kind=GROUP))
    incremental(s, "metrics", resource("names-metrics", interval, kind=CLIENT_METRICS))
    settled(s, "names-metrics", {"interval.ms": "1000"}, CLIENT_METRICS, CLIENT_METRICS_SOURCE)
    settled(s, "names-group", {"consumer.session.timeout.ms": "50000"}, GROUP, GROUP_SOURCE)
    names(s, "v0", 0)
    names(s, "groups listed", 1, GROUP)
    names(s, "metrics listed", 1, CLIENT_METRICS)
    names(s, "brokers and loggers", 1, BROKER, 8)
    names(s, "unknown kind", 1, 77)
    names(s, "topics and an unknown kind", 1, 2, 77)
    for kind, name, key in (
        (GROUP, "names-group", "consumer.session.timeout.ms"),
        (CLIENT_METRICS, "names-metrics", "interval.ms"),
    ):
        incremental(s, f"{name} no more", resource(name, op(key, DELETE), kind=kind))
