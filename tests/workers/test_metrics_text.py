"""The page of all workers, made of their pages."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from kbroker.supervision.metrics_text import merged
from kbroker.supervision.worker_pages import merged_pages

PAGE = """\
# HELP kbroker_requests_total Requests.
# TYPE kbroker_requests_total counter
kbroker_requests_total{{api="Produce {{odd}} name"}} {count}
# HELP kbroker_seconds How long.
# TYPE kbroker_seconds histogram
kbroker_seconds_bucket{{le="0.1"}} {count}
kbroker_seconds_bucket{{le="+Inf"}} {count}
kbroker_seconds_count {count}
kbroker_seconds_sum 0.5
"""
EXTRA = "# HELP kbroker_own Only here.\n# TYPE kbroker_own gauge\nkbroker_own 7.0\n"


def test_samples_of_a_family_stand_together_each_with_its_worker() -> None:
    """Prometheus refuses a page with a family in two places, and samples that only the order tells apart."""
    text = merged({1: PAGE.format(count="3.0"), 2: PAGE.format(count="4.0") + EXTRA})
    families = {family.name: family for family in prometheus(text)}
    assert list(families) == ["kbroker_requests", "kbroker_seconds", "kbroker_own"]
    assert [(each.labels, each.value) for each in families["kbroker_requests"].samples] == [
        ({"worker": "1", "api": "Produce {odd} name"}, 3.0),
        ({"worker": "2", "api": "Produce {odd} name"}, 4.0),
    ]
    buckets = [each for each in families["kbroker_seconds"].samples if each.name.endswith("_bucket")]
    assert [(each.labels["worker"], each.labels["le"]) for each in buckets] == [
        ("1", "0.1"),
        ("1", "+Inf"),
        ("2", "0.1"),
        ("2", "+Inf"),
    ]
    assert families["kbroker_seconds"].type == "histogram"
    assert [each.labels for each in families["kbroker_own"].samples] == [{"worker": "2"}]


def test_open_metrics_end_once() -> None:
    """What stands behind the end is not read."""
    page = "# HELP kbroker_own Only here.\n# TYPE kbroker_own gauge\nkbroker_own 7.0\n# EOF\n"
    (family,) = open_metrics(merged({1: page, 3: page}))
    assert [each.labels["worker"] for each in family.samples] == ["1", "3"]


def test_no_worker_that_answers_gives_an_empty_page() -> None:
    """The page would fail just when all workers are away."""
    assert merged({}) == ""


def test_pages_of_logs_become_one_in_the_words_of_a_single_broker() -> None:
    """`kbroker logs` would show the partitions of one worker, or none."""
    pages = {
        1: {"directories": [{"path": "/a"}], "partitions": [{"topic": "t", "partition": 0}], "now_ms": 5},
        2: {"directories": [{"path": "/b"}], "partitions": [], "now_ms": 6},
    }
    assert merged_pages(pages) == {
        "directories": [{"path": "/a", "worker": 1}, {"path": "/b", "worker": 2}],
        "partitions": [{"topic": "t", "partition": 0, "worker": 1}],
        "now_ms": 5,
    }
