"""The picture of `kbroker trace inspect --plot`: rate over time, sizes, skew of keys and burstiness of a trace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbroker.replay.trace_schema import MICROSECONDS
from kbroker.replay.trace_statistics import Statistics
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY = "#2b6cb0", "#dd6b20", "#a0aec0"
_UNITS = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"), (0.001, "milliseconds"))
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
_YEAR_US = 365 * 86_400 * MICROSECONDS


def plot_trace(statistics: Statistics, path: str, title: str) -> None:
    """Draws into a file; its suffix says the format: .png, .svg or .pdf.  Raises ValueError on another."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                         "grid.alpha": 0.25, "axes.titlesize": 11, "axes.titleweight": "bold",
                         "axes.titlelocation": "left", "svg.hashsalt": "kbroker"}):  # fmt: skip
        figure = Figure(figsize=(13, 9), layout="constrained")
        grid = figure.add_gridspec(2, 3, height_ratios=(1.1, 1))
        _rate(figure.add_subplot(grid[0, :]), statistics)
        _sizes(figure.add_subplot(grid[1, 0]), statistics["sizes"])
        _skew(figure.add_subplot(grid[1, 1]), statistics["keys"])
        _bursts(figure.add_subplot(grid[1, 2]), statistics["bursts"])
        figure.suptitle(f"{title}\n{_facts(statistics)}", ha="left", x=0.01, fontsize=12)
        figure.savefig(path, dpi=110)


def bytes_text(number: float) -> str:
    """A number of bytes for people, in units of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def time_text(microseconds: int) -> str:
    """A time for people; one near 0 counts from the trace's own start."""
    if abs(microseconds) < _YEAR_US:
        return f"{microseconds / MICROSECONDS:g} s"
    try:
        moment = datetime.fromtimestamp(microseconds / MICROSECONDS, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{microseconds} us"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def duration_text(seconds: float) -> str:
    """A length of time for people, in the largest unit of which there are two or more."""
    length, unit = next(((length, unit) for length, unit in _UNITS if seconds >= 2 * length), _UNITS[-1])
    return f"{seconds / length:.4g} {unit}"


def window_text(milliseconds: int) -> str:
    """A window of `trace_statistics.WINDOWS_MS`."""
    return f"{milliseconds // 1000} s" if milliseconds >= 1000 else f"{milliseconds} ms"


def _facts(statistics: Statistics) -> str:
    facts = [
        f"{statistics['rows']:,} records",
        f"{bytes_text(statistics['bytes'])} of values",
        duration_text(statistics["seconds"]),
        f"{statistics['sources']['count']:,} source{'s' if statistics['sources']['count'] != 1 else ''}",
        f"{statistics['topic_count']:,} topic{'s' if statistics['topic_count'] != 1 else ''}",
        f"starts {time_text(statistics['first_us'])}",
    ]
    late = statistics["order"]["share"]
    if late:
        facts.append(f"{late:.2%} out of order")
    return "  ·  ".join(facts)


def _rate(axes: Axes, statistics: Statistics) -> None:
    import numpy as np

    rate = statistics["rate"]
    step = rate["step_seconds"]
    span = step * len(rate["rows"])
    length, unit = next(((length, unit) for length, unit in _UNITS if span >= 2 * length), _UNITS[-1])
    edges = np.arange(len(rate["rows"]) + 1) * step / length
    rows = np.array(rate["rows"]) / step
    size = np.array(rate["bytes"]) / step
    axes.stairs(rows, edges, fill=True, color=BLUE, alpha=0.85)
    mean = statistics["rows"] / max(statistics["seconds"], step)
    axes.axhline(mean, color="black", linewidth=1, linestyle="--")
    title = f"Rate over time, in steps of {duration_text(step)}; dashed: mean, {mean:,.3g}/s"
    axes.set(xlim=(0, edges[-1]), ylim=(0, max(rows.max() * 1.1, 1e-9)), xlabel=f"{unit} from the start",
             ylabel="records/s (filled)", title=title)  # fmt: skip
    axes.yaxis.label.set_color(BLUE)
    if size.max() > 0:
        other = axes.twinx()
        factor, name = next((f, n) for f, n in ((1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")) if size.max() >= f or f == 1)
        other.stairs(size / factor, edges, color=ORANGE, linewidth=1.2)
        other.set(ylim=(0, size.max() / factor * 1.1), ylabel=f"{name} (line)")
        other.grid(visible=False)
        other.spines["right"].set_visible(True)
        other.yaxis.label.set_color(ORANGE)


def _sizes(axes: Axes, sizes: Statistics) -> None:
    axes.set(title="Sizes of values", ylabel="records")
    some = [one for one in sizes["histogram"] if one["from"] > 0]
    if not some:
        _nothing(axes, "all values are empty")
        return
    lefts = [one["from"] for one in some]
    widths = [left * (2**0.25 - 1) for left in lefts]
    axes.bar(lefts, [one["rows"] for one in some], widths, align="edge", color=BLUE, alpha=0.85)
    axes.set_xscale("log")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    top = axes.get_ylim()[1]
    for row, (name, value) in enumerate((("median", sizes["p50"]), ("p99", sizes["p99"]))):
        if value > 0:
            axes.axvline(value, color="black", linewidth=1, linestyle="--")
            axes.annotate(f"{name} {bytes_text(value)}", (value, top), xytext=(-4, -12 - 16 * row), ha="right",
                          textcoords="offset points", bbox=_PAPER)  # fmt: skip
    axes.set_xlim(max(lefts[0] / 4, 0.5), lefts[-1] * 3)
    axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))


def _skew(axes: Axes, keys: Statistics) -> None:
    axes.set(title="Skew of keys", xlabel="busiest keys, % of all keys", ylabel="% of records with a key")
    if not keys["distinct"]:
        _nothing(axes, "no record has a key")
        return
    shares = [(100 * one["keys"] / keys["distinct"], 100 * one["share"]) for one in keys["skew"]]
    axes.plot(*zip(*shares, strict=True), color=BLUE, linewidth=2, marker="o" if len(shares) < 12 else None)
    lowest = min(shares[0][0], 99)
    even = [lowest + (100 - lowest) * step / 100 for step in range(101)]
    axes.plot(even, even, color=GREY, linestyle="--", linewidth=1)
    axes.annotate("all keys alike", (even[20], even[20]), color="#718096", ha="right", xytext=(-4, 0),
                  textcoords="offset points")  # fmt: skip
    axes.set(xscale="log", xlim=(lowest * 0.9, 100), ylim=(0, 103))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    top = keys["top_1_percent"]
    text = f"{keys['distinct']:,} keys; top 1 % ({top['keys']:,}): {top['share']:.0%}"
    axes.annotate(text, (0.02, 0.95), xycoords="axes fraction", va="top",
                  bbox=_PAPER)  # fmt: skip


def _bursts(axes: Axes, bursts: Statistics) -> None:
    axes.set(title="Burstiness", xlabel="window", ylabel="variance / mean of records in a window")
    windows: list[JsonObject] = [one for one in bursts["windows"] if one["dispersion"] > 0]
    if not windows:
        _nothing(axes, "too short to tell")
        return
    places = list(range(len(windows)))
    values = [one["dispersion"] for one in windows]
    axes.plot(places, values, color=BLUE, linewidth=2, marker="o")
    for place, one in zip(places, windows, strict=True):
        axes.annotate(f"{one['dispersion']:.3g}", (place, one["dispersion"]), xytext=(-5, 7), ha="right",
                      textcoords="offset points")  # fmt: skip
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1)
    axes.annotate("1: at random (Poisson)", (0.98, 1), xycoords=("axes fraction", "data"), xytext=(0, -12), ha="right",
                  textcoords="offset points", color="#718096")  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(min(0.5, *values) / 1.6, max(2.0, *values) * 2.5)
    axes.set_xlim(-0.6, len(windows) - 0.7)
    axes.set_xticks(places, [window_text(one["window_ms"]) for one in windows])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _nothing(axes: Axes, text: str) -> None:
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set(xlabel="", ylabel="")
    axes.annotate(text, (0.5, 0.5), xycoords="axes fraction", ha="center", color="#718096")
