"""The series that dashboards and rules for Kafka ask for, and what a broker shows of them.

`kafka_series.tsv` has the series that these use, with the labels by which they choose and group:

    strimzi-rules, -kafka, -kraft, -exporter        Strimzi's example rules and dashboards
    confluent-alerts, -platform, -cluster, -topics, -quotas, -transactions     Confluent's jmx-monitoring-stacks (KRaft)
    awesome                                         awesome-prometheus-alerts, Kafka
    exporter, -dashboard, -alerts                   kafka_exporter: its list, its dashboard, the alerts of its chart
    prometheus                                      what every exporter shows of its process

and what a series concerns: `broker`, `kraft` (a broker of a KRaft cluster), `controller` (a node with that role), or
why it is none of these.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.quotas.throttled import set_quotas

TABLE = Path(__file__).with_name("kafka_series.tsv")
BROKER, KRAFT, CONTROLLER = "broker", "kraft", "controller"


class Series(NamedTuple):
    """A row of the table."""

    name: str
    labels: frozenset[str]
    users: frozenset[str]
    concerns: str


def table() -> list[Series]:
    """All rows."""
    _, *lines = TABLE.read_text().splitlines()
    rows = (line.split("\t") for line in lines)
    return [Series(name, frozenset(labels.split()), frozenset(users.split()), why) for name, labels, users, why in rows]


Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(metrics_url: str, path: str = "/metrics/kafka") -> Samples:
    """Samples by name."""
    with urllib.request.urlopen(f"{metrics_url}{path}", timeout=60) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def of(samples: Samples, name: str, /, **labels: str) -> float:
    """The value of the one sample with exactly these labels."""
    (value,) = (value for known, value in samples[name] if known == labels)
    return value


def lacking(samples: Samples, concerns: str) -> set[str]:
    """The series of the table that a scrape does not have with its labels."""
    return {
        row.name
        for row in table()
        if row.concerns == concerns and not any(row.labels <= labels.keys() for labels, _ in samples.get(row.name, ()))
    }


def use(port: int) -> None:
    """What a broker does in a day: topics, records, a consumer group with a lag, errors, and quotas for everybody."""
    set_quotas(port, {"client-id": None}, producer_byte_rate=1e9, consumer_byte_rate=1e9, request_percentage=1e5)
    raw.create_topic(port, "seen", 2)
    with RawClient(port) as client:
        for _ in range(4):
            assert raw.produce_answer(client.ask(raw.produce("seen", 0, raw.good_batch(5))))[0] == raw.NONE
        client.ask(raw.fetch("seen", 0, 0))
        client.ask(raw.produce("nowhere", 0, raw.good_batch(1)))
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition("seen", 0, 13)], asynchronous=False)
    finally:
        consumer.close()
