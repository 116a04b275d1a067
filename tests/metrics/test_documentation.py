"""docs/metrics.md against what a broker serves."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

import kbroker
from kbroker.metrics.documentation import kafka_markdown, markdown, rows
from kbroker.metrics.exposition import SECTIONS
from kbroker.metrics.kafka_table import SECTIONS as KAFKA_SECTIONS
from kbroker.metrics.snapshot import (
    DelayRow,
    DirectoryRow,
    GroupRow,
    LagRow,
    PartitionRow,
    RequestRow,
    Snapshot,
    TopicRow,
)
from kbroker.metrics.sources import QuotaRow, StableOffsetHolder
from tests.broker_process import BrokerProcess
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
PACKAGE = Path(kbroker.__file__).parent
#: Packages that give the values of metrics, or read them.
GIVE_VALUES = ("assembly", "console", "coordinator", "handlers", "storage")


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


def test_every_value_of_a_part_has_a_row() -> None:
    """A value under a name that no table has would be in no scrape, and a row that no part has a value for empty."""
    known = {family.name: family for _, families in SECTIONS for family in families}
    named = {
        name
        for path in (PACKAGE / "metrics", *(PACKAGE / room for room in GIVE_VALUES))
        for file in path.rglob("*.py")
        for name in re.findall(r"\"(kbroker_[a-z_]+)\"", file.read_text())
    }
    assert named <= known.keys()
    assert {name for name, family in known.items() if "." not in family.source} <= named


def test_every_source_is_a_column_of_rows() -> None:
    """A scrape would end in an error, or show nothing of what a row names."""
    rows = {
        "requests": RequestRow,
        "delays": DelayRow,
        "partitions": PartitionRow,
        "directories": DirectoryRow,
        "topics": TopicRow,
        "groups": GroupRow,
        "lags": LagRow,
        "quotas": QuotaRow,
        "holders": StableOffsetHolder,
    }
    tables = (*SECTIONS, *KAFKA_SECTIONS)
    sourced = [family for _, families in tables for family in families if "." in family.source]
    assert len(sourced) > 30
    for family in sourced:
        name, _, column = family.source.partition(".")
        assert name in Snapshot.__dataclass_fields__ and hasattr(rows[name], column), family
    own = {family.name for _, families in SECTIONS for family in families}
    named = {family.source.split()[0] for _, families in KAFKA_SECTIONS for family in families if family.source}
    assert {name for name in named if "." not in name} <= own
