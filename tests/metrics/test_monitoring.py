"""The alert rules and the dashboard in docs/monitoring against the metrics that a broker serves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kbroker.metrics.documentation import rows
from tests.docs_pages import anchors

DOCS = Path(__file__).parents[2] / "docs"
ALERTS = DOCS / "monitoring" / "alerts.yaml"
DASHBOARD = json.loads((DOCS / "monitoring" / "grafana-dashboard.json").read_text())
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
FROM_PROMETHEUS = {"instance", "job", "le"}
NAME = re.compile(r"\b(?:kbroker|process)_[a-z_]+")
GROUPED = re.compile(r"by \(([^)]*)\)")
MATCHED = re.compile(r"([a-z_]+)(?:=|!=|=~|!~)\"")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")


def served() -> dict[str, set[str]]:
    """The labels of each series, histograms by the name of their buckets."""
    return {
        name + ("_bucket" if kind == "histogram" else ""): set(filter(None, labels.split(", ")))
        for _, name, kind, labels, _ in rows()
    }


def panels() -> Iterator[dict[str, object]]:
    """The dashboard's panels but for the headings of its rows."""
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def queries() -> list[tuple[str, str, str]]:
    """Title, expression and text with labels of each rule and each series of a panel."""
    found = [(rule["alert"], rule["expr"], rule["annotations"]["summary"]) for rule in RULES]
    for panel in panels():
        for target in panel["targets"]:  # type: ignore[attr-defined]
            found.append((panel["title"], target["expr"], target["legendFormat"]))
    return found


@pytest.mark.parametrize(("expression", "text"), [pytest.param(*rest, id=title) for title, *rest in queries()])
def test_a_query_names_series_and_labels_that_are_served(expression: str, text: str) -> None:
    """An alert would never fire and a panel stay empty, and who relies on them would take that for health."""
    families = served()
    names = NAME.findall(expression)
    assert names or expression.startswith("up{")
    assert set(names) <= families.keys()
    known = FROM_PROMETHEUS.union(*(families[name] for name in names))
    grouped = {label.strip() for match in GROUPED.findall(expression) for label in match.split(",")}
    assert grouped | set(MATCHED.findall(expression)) <= known
    assert set(SHOWN.findall(text)) <= ((grouped or known) | {"value"}), "a label that the query sums over is empty"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    """Whoever is woken by it would find no page that says what to do."""
    assert rule["annotations"]["runbook"] in anchors(DOCS / "operations.md")
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_panels_lie_beside_each_other() -> None:
    """Panels that overlap are moved about by Grafana, differently in each version."""
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        own = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        assert grid["x"] + grid["w"] <= 24
        assert not own & places
        places |= own
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    """Prometheus would refuse to start with a file of rules that it cannot parse."""
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, capture_output=True)
