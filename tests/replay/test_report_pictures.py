"""The pictures of a replay's report, and what a comparison says of a factor: without Spark, from numbers made up."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")
pytest.importorskip("jinja2")

from kbroker.replay.report import page, plots
from kbroker.replay.report.numbers import restarts

pytestmark = pytest.mark.spark


def second(at: int, latency: float | None = None) -> dict[str, Any]:
    """One second of a run; None: nothing was acknowledged in it."""
    names = ("p50", "p90", "p99", "p999", "max")
    facts = {f"{kind}_{name}_ms": latency for kind in ("latency", "sent_error") for name in names}
    count = 0 if latency is None else 10
    return {"second": at, "offered": 10, "acknowledged": count, "queue_full_us": 0, "errors": {}, **facts}


def run(*latencies: float | None, restarted: tuple[float, ...] = ()) -> dict[str, Any]:
    return {
        "seconds": [second(at, latency) for at, latency in enumerate(latencies)],
        "broker": [],
        "restarts": list(restarted),
    }


def test_the_last_second_is_as_wide_as_the_others() -> None:
    """The end of a run would look like a second in which nothing was sent."""
    values, edges = plots.bins(run(1.0, None, 2.0)["seconds"], "acknowledged")
    assert (values, edges) == ([10, 0, 10], [0, 1, 2, 3])
    assert plots.bins([], "offered") == ([], [0.0])


def test_no_line_goes_through_seconds_without_a_value() -> None:
    """A broker that was away would seem to have answered, with a latency between those before and after."""
    at, values, alone = plots.with_gaps(run(1.0, 2.0, None, 3.0, None, None, 4.0, 5.0)["seconds"], "latency_p99_ms")
    assert at == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
    assert [math.isnan(value) for value in values] == [False, False, True, False, True, True, False, False]
    assert [at for at, is_alone in enumerate(alone) if is_alone] == [3]


def test_pictures_over_time_stand_below_each_other() -> None:
    """The same second would be at another place in each picture."""
    named = [("a", run(1.0, 2.0, 3.0)), ("a run with a long name", run(1.0, 900.0))]
    places = set()
    for draw in (plots.rate, plots.latency, plots.sending):
        # The white background of the axes: its left edge and its width.
        corners = re.search(r'<g id="patch_2">\s*<path d="M ([\d.]+) [\d.]+\s*L ([\d.]+) ', draw(named))
        assert corners is not None
        places.add(corners.groups())
    assert len(places) == 1


def test_a_restart_of_the_broker_is_found_and_marked() -> None:
    """A gap in the lines would have no reason."""
    began = "process_start_time_seconds"
    samples = [
        {"second": 0.0, "metrics": {began: 100.0, "a_total": 5.0}},
        {"second": 1.0, "metrics": {}},
        {"second": 2.0, "metrics": {began: 200.0, "a_total": 1.0}},
        {"second": 3.0, "metrics": {began: 200.0, "a_total": 2.0}},
        {"second": 4.0, "metrics": {"a_total": 3.0}},
        {"second": 5.0, "metrics": {"a_total": 1.0}},
    ]
    assert restarts(samples) == [2.0, 5.0]
    assert "broker restarted" in plots.rate([("a", run(1.0, 2.0, restarted=(1.0,)))])
    assert "broker restarted" not in plots.rate([("a", run(1.0, 2.0))])


@pytest.mark.parametrize(
    ("factor", "better", "said"),
    [
        (2.0, page.MORE, "2.00, A is better"),
        (0.5, page.MORE, "0.50, A is worse"),
        (0.5, page.LESS, "0.50, A is better"),
        (2.0, page.LESS, "2.00, A is worse"),
        (1.001, page.LESS, "1.00"),
        (2.0, page.NEITHER, "2.00"),
        (None, page.MORE, ""),
    ],
)
def test_a_factor_says_which_run_it_speaks_for(factor: float | None, better: int, said: str) -> None:
    """1.30 would be read as a gain by one reader and as a loss by the next."""
    assert page._direction(factor, better, "A") == said
    assert {key for _, key, _, way in page.MEASURES if way == page.MORE} == {
        "acknowledged",
        "acknowledged_per_second",
        "bytes_per_second",
    }


def test_a_long_name_of_a_run_is_whole_in_the_legend() -> None:
    """The picture's edge would cut it, and two runs whose names begin alike look the same."""
    name = "three brokers behind a switch that drops one packet in a thousand"
    svg = plots.latency([(name, run(5, 6, 7)), ("other", run(5, 6, 7))])
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert all(any(word in text for text in texts) for word in name.split())
    assert max(len(text) for text in texts if text.split()[0] in name.split()) <= plots.LEGEND_LETTERS
