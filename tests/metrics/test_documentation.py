"""docs/metrics.md against what a broker serves."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from kbroker.metrics.documentation import kafka_markdown, markdown, rows
from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_up_to_date() -> None:
    """Operators would look for metrics that are not there, or not know of those that are (`make docs`)."""
    assert DOCS.read_text() == markdown()


def test_the_page_of_kafkas_names_is_up_to_date() -> None:
    """As above, for those who come from Kafka."""
    assert DOCS.with_name("metrics-kafka.md").read_text() == kafka_markdown()


def test_every_family_that_a_broker_serves_is_on_the_page(broker: BrokerProcess) -> None:
    """A metric would only be found by reading a scrape."""
    raw.create_topic(broker.port, "served", 1)
    with RawClient(broker.port) as client:
        client.ask(raw.produce("served", 0, raw.good_batch(3)))
    request = urllib.request.Request(
        broker.metrics_url + "/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        families = list(parse_openmetrics(answer.read().decode()))
    named = {name: (kind, set(labels.split(", ")) - {""}) for _, name, kind, labels, _ in rows()}
    suffixes = {"counter": "_total", "info": "_info"}
    for family in families:
        name = family.name + suffixes.get(family.type, "")
        assert name in named
        kind, labels = named[name]
        assert kind == family.type
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, name
    assert len(families) == len(named)
