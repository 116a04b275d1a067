"""The series that public dashboards and rules ask a Kafka broker for, against what it shows; and the tool that counts.

`kafka_asked.tsv` has names alone, with how often a file asks for them, and the naming that fits the file: of 67 public
dashboards, rules and guides found in November 2026, of which many repeat the same few alerts, and of many of which a
part was read.  Of `bench.asked_series`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.asked_series import Selector, expressions, has_data, is_there, scrapes, selectors, share
from tests.broker_process import BrokerProcess
from tests.metrics.kafka_series import use

TABLE = Path(__file__).with_name("kafka_asked.tsv")
ROOT = Path(__file__).parents[2]
WANTED = 0.85
#: What kbroker has no source for, or a name that no rules of an exporter give what Kafka's beans say.
LACKING = {
    "kafka_controller_controllereventmanager_eventqueuetimems": "a controller's queue",
    "kafka_controller_controllerstats_leaderelectionrateandtimems": "a controller's elections are not timed",
    "kafka_server_delayedfetchmetrics_expires_total": "not counted",
    "kafka_network_requestmetrics_messageconversionstimems": "not counted by request",
    "kafka_coordinator_group_groupcompletedrebalancecount": "Kafka has no such bean",
    "kafka_server_MetadataLoader_Value": "of KRaft's loader",
    "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms": "in a KRaft cluster alone",
    "kafka_server_socket_server_metrics_failed_authentication_rate": "counted under kbroker's names",
}


class Asked(NamedTuple):
    """A row: who asks, under which naming, and how often."""

    asker: str
    naming: str
    series: Selector
    count: int


def rows() -> list[Asked]:
    _, *lines = TABLE.read_text().splitlines()
    made = []
    for asker, naming, name, labels, count in (line.split("\t") for line in lines):
        equal = tuple((label, text) for label, _, text in (each.partition("=") for each in labels.split(",") if each))
        made.append(Asked(asker, naming, Selector(name, equal), int(count)))
    return made


def test_what_public_dashboards_ask_for_is_there(module_broker: BrokerProcess) -> None:
    """Those who come from Kafka would find their dashboards empty, and their alerts silent."""
    use(module_broker.port)
    shown = scrapes(module_broker.metrics_url)
    there: dict[bool, int] = defaultdict(int)
    lacking = set()
    for row in rows():
        found = is_there(row.series, shown[row.naming])
        there[found] += row.count
        if not found:
            lacking.add(row.series.name)
    assert there[True] / (there[True] + there[False]) >= WANTED
    documented = (ROOT / "docs" / "metrics-kafka.md").read_text()
    total, askers = sum(there.values()), len({row.asker for row in rows()})
    words = (
        f"Of {total} series that {askers} public dashboards, rules and guides ask a broker for, {there[True]} are shown"
    )
    assert words in " ".join(documented.split()), words
    assert {*LACKING} <= lacking, "what is shown now is no more lacking"


DASHBOARD = """{"panels": [{"targets": [
  {"expr": "sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic=~\\"$topic\\"}[5m])) by (topic)"},
  {"expr": "jvm_memory_bytes_used"}, {"expr": "kafka_server_nothing_like_it"}]}]}"""
RULES = """
groups:
- rules:
  - alert: One
    expr: kafka_network_RequestMetrics_999thPercentile{name="TotalTimeMs",request="Produce"} > 5
  - alert: Two
    expr: |
      sum by (request) (kafka_server_ReplicaManager_Value{name="LeaderCount"})
      or kafka_server_replicamanager_leadercount
    for: 5m
  - alert: Three
    expr: kafka_consumer_fetch_manager_records_lag > 1
"""


def test_expressions_and_series_are_read_from_files() -> None:
    """A file would be counted as one that asks for nothing, or for what it does not."""
    assert len(list(expressions(DASHBOARD))) == 3
    first, second, third = expressions(RULES)
    assert second.endswith("or kafka_server_replicamanager_leadercount")
    assert selectors(first) == [
        Selector("kafka_network_RequestMetrics_999thPercentile", (("name", "TotalTimeMs"), ("request", "Produce")))
    ]
    assert [one.name for one in selectors(second)] == [
        "kafka_server_ReplicaManager_Value",
        "kafka_server_replicamanager_leadercount",
    ]
    assert selectors(third) == []


def test_an_expression_has_data_where_one_alternative_has() -> None:
    """A dashboard for several exporters would count as empty, or one with half of a ratio as full."""
    samples = {"kafka_server_a": [{"name": "x"}], "kafka_server_b": [{}]}
    assert has_data('kafka_server_a{name="x"} / kafka_server_b', samples)
    assert not has_data('kafka_server_a{name="y"} / kafka_server_b', samples)
    assert has_data("kafka_server_c or kafka_server_b", samples)
    assert not has_data("kafka_server_c / kafka_server_b", samples)
    best = share("f", ["kafka_server_a", "kafka_server_c"], {"strimzi": {}, "raw": samples})
    assert best == ("f", "raw", 2, 1, ("kafka_server_c",))


@pytest.mark.parametrize("as_names", [True, False])
def test_the_tool_counts_a_folder(module_broker: BrokerProcess, tmp_path: Path, as_names: bool) -> None:
    """An operator could not see what of his own dashboards will stay empty."""
    (tmp_path / "board.json").write_text(DASHBOARD)
    (tmp_path / "rules.yml").write_text(RULES)
    command = [sys.executable, "-m", "bench.asked_series", str(tmp_path), "--metrics", module_broker.metrics_url]
    done = subprocess.run(
        command + ["--names"] * as_names, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    if as_names:
        assert "board.json\tkafka_server_nothing_like_it\t\t1" in done.stdout.splitlines()
    else:
        assert "2 files: 3 of 4 expressions on brokers have data, 75.0 %" in done.stdout
