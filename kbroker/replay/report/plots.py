"""The pictures of a report, each as SVG text to stand inside a page.  One run, or two drawn over each other."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kbroker.types import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2b6cb0", "#dd6b20")
GREY, RED = "#a0aec0", "#b3261e"
WIDTH = 10.8
MARGINS = (0.85, 2.6, 0.35, 0.55)
"""Inches left, right (the legend), above and below of a picture over time."""
LEGEND_LETTERS = 26
"""Letters of a legend's line that fit the margin."""
MOST_PLACES = 40
"""Partitions that a heat map shows at most: those with the most records."""

Numbers = JsonObject
Named = Sequence[tuple[str, Numbers]]
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",
    "svg.hashsalt": "kbroker",
}


def rate(runs: Named) -> str:
    """Offered and acknowledged records per second; lines part where the broker does not keep up."""
    with _drawing(3.4, over_time=True) as (figure, result):
        axes = figure.add_subplot()
        for (name, run), colour in zip(runs, COLOURS, strict=False):
            if name == runs[0][0]:
                axes.stairs(*bins(run["seconds"], "offered"), color=GREY, linewidth=4, alpha=0.7, label="offered")
            label = _label("acknowledged", name, runs)
            axes.stairs(*bins(run["seconds"], "acknowledged"), color=colour, linewidth=1.4, label=label)
        _over_time(axes, runs, "Offered and achieved rate", "records/s")
        _legend(axes)
    return result[0]


def latency(runs: Named) -> str:
    """Percentiles of the latency from the intended time, by second, on a logarithmic scale."""
    with _drawing(3.6, over_time=True) as (figure, result):
        axes = figure.add_subplot()
        styles = (("p50", ":"), ("p99", "-"), ("max", "--")) if len(runs) > 1 else (
            ("p50", "-"), ("p90", "-"), ("p99", "-"), ("p999", "-"), ("max", ":"))  # fmt: skip
        shades = ("#1a4971", "#2b6cb0", "#dd6b20", "#b3261e", "#718096")
        for (name, run), colour in zip(runs, COLOURS, strict=False):
            for (which, style), shade in zip(styles, shades, strict=False):
                label = _label("p99.9" if which == "p999" else which, name, runs)
                own = colour if len(runs) > 1 else shade
                _line(axes, run["seconds"], f"latency_{which}_ms", style, color=own, label=label)
        _over_time(axes, runs, "Latency to the acknowledgement, from the intended time", "ms")
        _logarithmic(axes)
        _legend(axes)
    return result[0]


def sending(runs: Named) -> str:
    """How far sending itself was behind its time, and how long local queues were full."""
    with _drawing(3.0, over_time=True) as (figure, result):
        axes = figure.add_subplot()
        for (name, run), colour in zip(runs, COLOURS, strict=False):
            label = _label("sent late, p99", name, runs)
            _line(axes, run["seconds"], "sent_error_p99_ms", "-", color=colour, label=label)
            full = [(one["second"], one["queue_full_us"] / 1000) for one in run["seconds"] if one["queue_full_us"]]
            if full:
                label = _label("waited for the local queue, sum", name, runs)
                axes.plot(*zip(*full, strict=True), "x", color=colour, label=label)
        _over_time(axes, runs, "Back-pressure: intended to sent", "ms")
        _logarithmic(axes)
        _legend(axes)
    return result[0]


def errors(runs: Named) -> str:
    """Records that failed, by second and error; empty without any."""
    if not any(one["errors"] for _, run in runs for one in run["seconds"]):
        return ""
    with _drawing(2.6, over_time=True) as (figure, result):
        axes = figure.add_subplot()
        for (name, run), marker in zip(runs, ("o", "x"), strict=False):
            for code in sorted({code for one in run["seconds"] for code in one["errors"]}):
                found = [(one["second"], one["errors"][code]) for one in run["seconds"] if code in one["errors"]]
                axes.plot(*zip(*found, strict=True), marker, label=_label(code, name, runs))
        _over_time(axes, runs, "Failed records by error", "records/s")
        _legend(axes)
    return result[0]


def heat_map(name: str, run: Numbers) -> str:
    """Records and p99 latency by executor and partition; empty without any."""
    import numpy as np

    places = run["places"]
    if not places:
        return ""
    totals: dict[tuple[str, int], int] = {}
    for one in places:
        at = (one["topic"], one["partition"])
        totals[at] = totals.get(at, 0) + one["acknowledged"]
    shown = sorted(sorted(totals, key=lambda at: -totals[at])[:MOST_PLACES])
    executors = sorted({one["executor"] for one in places})
    labels = [f"{topic}-{partition}" for topic, partition in shown]
    upright = sum(map(len, labels)) > 40
    room = 0.07 * max(map(len, labels)) if upright else 0.0
    with _drawing(1.6 + room + 0.34 * max(len(executors), 2)) as (figure, result):
        pair = figure.subplots(1, 2)
        for axes, (title, measure) in zip(
            pair, (("records", "acknowledged"), ("p99 latency, ms", "latency_p99_ms")), strict=True
        ):
            grid = np.full((len(executors), len(shown)), np.nan)
            for one in places:
                at = (one["topic"], one["partition"])
                if at in shown and one[measure] is not None:
                    grid[executors.index(one["executor"]), shown.index(at)] = one[measure]
            axes.grid(visible=False)
            picture = axes.imshow(grid, aspect="auto", cmap="YlGnBu", vmin=0)
            figure.colorbar(picture, ax=axes, shrink=0.9)
            axes.set_title(f"By executor and partition: {title}")
            axes.set_yticks(range(len(executors)), [f"executor {number}" for number in executors])
            axes.set_xticks(range(len(shown)), labels, rotation=90 if upright else 0, fontsize=8)
    del name
    return result[0]


def broker(runs: Named) -> str:
    """CPU and memory of the broker's process; empty where they could not be read."""
    if not any(one["rss_bytes"] is not None for _, run in runs for one in run["broker"]):
        return ""
    with _drawing(3.0) as (figure, result):
        pair = figure.subplots(1, 2)
        for axes, title, unit, of in (
            (pair[0], "Broker: CPU", "% of a core", lambda one: one["cpu_percent"]),
            (pair[1], "Broker: memory", "MB", lambda one: None if one["rss_bytes"] is None else one["rss_bytes"] / 1e6),
        ):
            _sampled(axes, runs, of)
            _over_time(axes, runs, title, unit)
            _legend(axes)
    return result[0]


def metric(runs: Named, name: str) -> str:
    """One of the broker's own metrics over time: counters (`…_total`, `…_count`, `…_sum`) as their rate."""
    cumulative = name.endswith(("_total", "_count", "_sum"))
    with _drawing(2.4, over_time=True) as (figure, result):
        axes = figure.add_subplot()
        for (label, run), colour in zip(runs, COLOURS, strict=False):
            points = [(one["second"], one["metrics"][name]) for one in run["broker"] if name in one["metrics"]]
            if cumulative:
                steps = pairwise(points)
                # A counter that falls is one of a broker that was restarted.
                points = [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in steps if b[0] > a[0] and b[1] >= a[1]]
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, label=_label(name, label, runs))
        _over_time(axes, runs, name, "per second" if cumulative else "")
        _legend(axes)
    return result[0]


@contextmanager
def _drawing(height: float, *, over_time: bool = False) -> Iterator[tuple[Figure, list[str]]]:
    """A figure; `over_time`: with margins of a fixed width, so that the time axes of several stand below each other."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    result: list[str] = []
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout=None if over_time else "constrained")
        if over_time:
            left, right, top, bottom = MARGINS
            figure.subplots_adjust(left / WIDTH, bottom / height, 1 - right / WIDTH, 1 - top / height)
        yield figure, result
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    # Only the element: a page may hold several, without their prologues.
    result.append(re.sub(r"^.*?(?=<svg)", "", text.getvalue(), flags=re.DOTALL))


def _label(what: str, name: str, runs: Named) -> str:
    return f"{name}: {what}" if len(runs) > 1 else what


def bins(seconds: list[Numbers], measure: str) -> tuple[list[float], list[float]]:
    """Values and edges of a histogram over time: a second is as wide as any other, the last one too."""
    if not seconds:
        return [], [0.0]
    return [one[measure] for one in seconds], [*(one["second"] for one in seconds), seconds[-1]["second"] + 1]


def with_gaps(seconds: list[Numbers], measure: str) -> tuple[list[float], list[float], list[bool]]:
    """Middles of seconds, values (NaN, which draws no line, for a missing one), and which values have no neighbour."""
    values = [float("nan") if one[measure] is None else float(one[measure]) for one in seconds]
    there = [False, *(one[measure] is not None for one in seconds), False]
    alone = [here and not (before or after) for before, here, after in zip(there, there[1:], there[2:], strict=False)]
    return [one["second"] + 0.5 for one in seconds], values, alone


def _line(axes: Axes, seconds: list[Numbers], measure: str, style: str, **how: Any) -> None:
    """A line through seconds that follow each other; a second between two without a value is a dot."""
    at, values, alone = with_gaps(seconds, measure)
    axes.plot(at, values, style, linewidth=1.3, **how)
    dots = [(x, y) for x, y, is_alone in zip(at, values, alone, strict=True) if is_alone]
    if dots:
        axes.plot(*zip(*dots, strict=True), ".", markersize=4, color=how["color"])


def _sampled(axes: Axes, runs: Named, of: Callable[[Numbers], float | None]) -> None:
    for (name, run), colour in zip(runs, COLOURS, strict=False):
        # What could not be seen is a gap in the line.
        values = [of(one) for one in run["broker"]]
        at = [one["second"] for one in run["broker"]]
        axes.plot(at, [float("nan") if one is None else one for one in values], color=colour,
                  label=name if len(runs) > 1 else None)  # fmt: skip
    axes.set_ylim(bottom=0)


def _over_time(axes: Axes, runs: Named, title: str, unit: str) -> None:
    axes.set(title=title, xlabel="seconds from the start", ylabel=unit)
    # The same seconds in all pictures, and in those of full width at the same place, one below the other.
    axes.set_xlim(-1, max((len(run["seconds"]) for _, run in runs), default=0) + 1)
    for (_, run), colour in zip(runs, COLOURS, strict=False):
        for number, at in enumerate(run["restarts"]):
            mine = colour if len(runs) > 1 else RED
            axes.axvline(at, color=mine, linewidth=1, linestyle=(0, (4, 3)), zorder=0,
                         label="broker restarted" if number == 0 else None)  # fmt: skip


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    # An axis over one or two powers of ten needs labels between them, too.
    axes.yaxis.set_minor_formatter(lambda value, _: _between(value, *axes.get_ylim()))


def _between(value: float, low: float, high: float) -> str:
    return f"{value:g}" if high < 100 * low and f"{value:e}"[0] in "25" else ""


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        # As wide as its margin: what is longer would be cut by the picture's edge.
        whole = ["\n".join(textwrap.wrap(label, LEGEND_LETTERS)) for label in labels]
        axes.legend(handles, whole, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
