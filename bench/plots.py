"""The report's plots as SVG text to put into a page: no file beside it, no script."""

from __future__ import annotations

import io
import math
import re
from typing import Any

from bench import verdict
from bench.report import NAMES

COLOURS = {"kbroker": "#1f77b4", "kafka": "#d9822b", "against": "#7a7a7a"}
FAR_APART = 30
"""How many times longer than the shortest bar the longest may be on one axis."""
PERCENTILES = (("p50_us", "50"), ("p90_us", "90"), ("p99_us", "99"), ("p999_us", "99.9"))


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})
    return plt.subplots(figsize=(width, height), layout="constrained")


def _svg(figure: Any) -> str:
    """The SVG element alone; identifiers made unique, because a page holds several."""
    import matplotlib.pyplot as plt

    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    stem = f"f{abs(hash(text)) % 10**8}-"
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="', f'id="{stem}', text)
    text = re.sub(r'href="#', f'href="#{stem}', text)
    return re.sub(r"url\(#", f"url(#{stem}", text)


def bars(document: dict[str, Any], names: list[str], measure: verdict.Measure) -> str:
    """One measure of many cells, the sides' bars one above the other, with the spread over the rounds; empty when no
    cell has it.  All bars begin at zero; where the cells are far apart, each has a scale of its own, up to its longer
    bar."""
    found = [
        name
        for name in names
        if any(measure.key in result for result in document["medians"].get(name, {}).values())
        and _telling(document["cells"][name], measure)
    ]
    if not found:
        return ""
    sides = document["sides"]
    figure, axes = _figure(9.5, 1.1 + 0.21 * (len(sides) + 0.6) * len(found))
    height = 0.8 / len(sides)
    scales = own_scales([[float(one[measure.key]) for one in document["medians"][name].values() if measure.key in one]
                         for name in found])  # fmt: skip
    top = 0.0
    for number, side in enumerate(sides):
        places, values, texts, below, above = [], [], [], [], []
        for row, name in enumerate(found):
            result = document["medians"][name].get(side, {})
            if measure.key not in result:
                continue
            value, scale = float(result[measure.key]), scales[row]
            rounds = [float(one[measure.key]) for one in document["rounds"][name][side] if measure.key in one]
            places.append(row + (number - (len(sides) - 1) / 2) * height)
            values.append(value / scale)
            texts.append(f" {value:{measure.form}}")
            below.append(max(0.0, value - min(rounds)) / scale)
            above.append(max(0.0, max(rounds) - value) / scale)
        axes.barh(places, values, height * 0.92, label=NAMES.get(side, side), color=COLOURS.get(side, "#999"),
                  xerr=[below, above], error_kw={"lw": 0.8, "alpha": 0.6})  # fmt: skip
        for place, value, text, more in zip(places, values, texts, above, strict=True):
            axes.text(value + more, place, text, va="center", fontsize=7.5)
        top = max([top, *(value + more for value, more in zip(values, above, strict=True))])
    axes.set_xlim(0, top * 1.15 or 1)
    own = any(scale != 1.0 for scale in scales)
    if own:
        axes.set_xticks([])
    axes.set_yticks(range(len(found)), [document["cells"][name]["title"] for name in found])
    axes.invert_yaxis()
    better = "more is better" if measure.more_is_better else "less is better"
    axes.set_xlabel(f"{measure.title} ({better}{'; each cell to a scale of its own' if own else ''})")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(sides), frameon=False)
    return _svg(figure)


def own_scales(rows: list[list[float]]) -> list[float]:
    """What each row's values are divided by: 1 for all where one axis shows them, else the row's largest."""
    positive = [value for row in rows for value in row if value > 0]
    if not positive or max(positive) <= FAR_APART * min(positive):
        return [1.0] * len(rows)
    return [max(row, default=0.0) or 1.0 for row in rows]


def _telling(cell: dict[str, Any], measure: verdict.Measure) -> bool:
    """Whether a measure says something of a cell: bytes do not of one-record requests, nor a rate that was given."""
    if measure in (verdict.MEGABYTES, verdict.CPU_GB) and cell["kind"] == "produce":
        return int(cell["records"]) > 1
    return not (measure is verdict.RATE and cell["rate"])


def percentiles(document: dict[str, Any], names: list[str]) -> str:
    """Latency by percentile for each cell that has it: small plots beside each other, logarithmic."""
    found = [
        name
        for name in names
        if any(
            sum(key in result for key, _ in PERCENTILES) > 2 for result in document["medians"].get(name, {}).values()
        )
    ]
    if not found:
        return ""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(4, len(found))
    rows = math.ceil(len(found) / columns)
    figure, grid = plt.subplots(rows, columns, figsize=(9.5, 1.9 * rows + 0.3), layout="constrained", squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(found):
            axes.set_visible(False)
            continue
        for side in document["sides"]:
            result = document["medians"][found[place]].get(side, {})
            points = [(label, float(result[key])) for key, label in PERCENTILES if key in result]
            if points:
                labels, values = zip(*points, strict=True)
                axes.plot(
                    labels,
                    values,
                    marker="o",
                    ms=3,
                    lw=1.4,
                    color=COLOURS.get(side, "#999"),
                    label=NAMES.get(side, side),
                )
        axes.set_yscale("log")
        axes.set_title(document["cells"][found[place]]["title"], fontsize=7)
        axes.tick_params(labelsize=7)
        axes.grid(axis="y", alpha=0.3)
        if place % columns == 0:
            axes.set_ylabel("µs", fontsize=7)
        if place == 0:
            axes.legend(fontsize=7, frameon=False)
    return _svg(figure)


def sweep(document: dict[str, Any], axis: str) -> str:
    """CPU per request over the number of partitions or connections; empty with fewer than two points."""
    names = [
        name
        for name, cell in document["cells"].items()
        if axis in cell.get("sweep", ()) and name in document["medians"]
    ]
    if len(names) < 2:
        return ""
    figure, axes = _figure(4.7, 3.0)
    for side in document["sides"]:
        points = [
            (int(document["cells"][name][axis]), float(document["medians"][name][side]["cpu_us_per_request"]))
            for name in names
            if "cpu_us_per_request" in document["medians"][name].get(side, {})
        ]
        if not points:
            continue
        numbers, values = zip(*sorted(points), strict=True)
        axes.plot(numbers, values, marker="o", color=COLOURS.get(side, "#999"), label=NAMES.get(side, side))
        for number, value in zip(numbers, values, strict=True):
            axes.annotate(
                f"{value:.1f}", (number, value), xytext=(0, 5), textcoords="offset points", fontsize=7, ha="center"
            )
    axes.set_xscale("log")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.set_xlabel(f"{axis} (one-record requests)")
    axes.set_ylabel("broker CPU µs per request")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    return _svg(figure)


def memory(document: dict[str, Any]) -> str:
    """Resident memory over the run, and which cells were running; empty when nothing was sampled."""
    points = document.get("over_time", {}).get("points", {})
    if not any(points.values()):
        return ""
    figure, axes = _figure(9.5, 3.2)
    for side, samples in points.items():
        times: list[float] = []
        values: list[float] = []
        for seconds, megabytes, _ in samples:
            if times and seconds - times[-1] > 5:  # between two brokers there was none
                times.append(seconds)
                values.append(float("nan"))
            times.append(seconds)
            values.append(megabytes)
        axes.plot(times, values, lw=1.3, color=COLOURS.get(side, "#999"), label=NAMES.get(side, side))
    axes.set_ylim(0, None)
    high = axes.get_ylim()[1]
    end = max(samples[-1][0] for samples in points.values() if samples)
    last = -math.inf
    for seconds, name in document["over_time"]["marks"]:
        if name and seconds - last > end / 42:
            axes.axvline(seconds, color="#ccc", lw=0.5, zorder=0)
            axes.text(seconds, high, f" {name}", rotation=90, va="top", fontsize=5.5, color="#777")
            last = seconds
    axes.set_xlabel("seconds since the first broker was started")
    axes.set_ylabel("resident memory, MB")
    axes.legend(loc="center right", frameon=False)
    return _svg(figure)
