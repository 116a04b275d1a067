"""A report as files: report.html (one page, nothing from elsewhere), report.json, and Parquet of the same numbers.

The JSON of a run is what `numbers.read_numbers` gives; that of a comparison is {"runs": [{"name", "numbers"}, …],
"factors": the first run's value over the second's}.  Parquet: `report-seconds.parquet` and `report-places.parquet`, a
row for each second, and for each executor and partition, with the run's name.  Each file appears when it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kbroker.replay.player.run import STOPPED
from kbroker.replay.player.settings import ReplayError
from kbroker.replay.report import plots
from kbroker.replay.report.numbers import Numbers, read_numbers
from kbroker.replay.verify_result import judge

MOST_METRICS = 6
KEYS = ("acknowledged", "found", "distinct", "lost", "duplicates", "damaged", "out_of_order")


def _integer(value: float) -> str:
    return f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _megabytes(value: float) -> str:
    return _short(value / 1e6)


MORE, LESS, NEITHER = 1, -1, 0
"""Which way is better."""
MEASURES: list[tuple[str, str, Callable[[float], str], int]] = [
    ("records offered", "offered", _integer, NEITHER),
    ("records acknowledged", "acknowledged", _integer, MORE),
    ("records failed", "failed", _integer, LESS),
    ("records not sent (stopped)", "unsent", _integer, LESS),
    ("consume operations without a record", "empty", _integer, NEITHER),
    ("offered per second, mean", "offered_per_second", _integer, NEITHER),
    ("offered per second, peak", "offered_peak_per_second", _integer, NEITHER),
    ("acknowledged per second, mean", "acknowledged_per_second", _integer, MORE),
    ("MB per second, mean", "bytes_per_second", _megabytes, MORE),
    ("latency p50, ms", "latency_p50_ms", _short, LESS),
    ("latency p90, ms", "latency_p90_ms", _short, LESS),
    ("latency p99, ms", "latency_p99_ms", _short, LESS),
    ("latency p99.9, ms", "latency_p999_ms", _short, LESS),
    ("latency, highest, ms", "latency_max_ms", _short, LESS),
    ("intended to sent p50, ms", "sent_error_p50_ms", _short, LESS),
    ("intended to sent p99, ms", "sent_error_p99_ms", _short, LESS),
    ("intended to sent, highest, ms", "sent_error_max_ms", _short, LESS),
    ("sent late", "late_share", _percent, LESS),
    ("local queue full, s", "queue_full_seconds", _short, LESS),
    ("broker: CPU seconds", "broker_cpu_seconds", _short, LESS),
    ("broker: most memory, MB", "broker_rss_max_bytes", _megabytes, LESS),
]
_BOXES = (5, 7, 9, 11, 15)


def write_report(run: str, output: str, metrics: Sequence[str] = ()) -> Path:
    """The report of one run; the page's path.  ReplayError for a directory that is no run."""
    numbers = read_numbers(run)
    named = [(_name(numbers, run), numbers)]
    return _write(named, Path(output), metrics, numbers)


def write_comparison(first: str, second: str, output: str, metrics: Sequence[str] = ()) -> Path:
    """Two runs side by side; the page's path."""
    both = [(path, read_numbers(path)) for path in (first, second)]
    named = [(_name(numbers, path), numbers) for path, numbers in both]
    if named[0][0] == named[1][0]:
        named = [(f"{name} ({letter})", numbers) for (name, numbers), letter in zip(named, "AB", strict=True)]
    document = {
        "runs": [{"name": name, "numbers": numbers} for name, numbers in named],
        "factors": {key: _factor(*(numbers["summary"][key] for _, numbers in named)) for _, key, _, _ in MEASURES},
    }
    return _write(named, Path(output), metrics, document)


def _write(named: list[tuple[str, Numbers]], output: Path, metrics: Sequence[str], document: Numbers) -> Path:
    for metric in metrics:
        if not any(metric in one["metrics"] for _, run in named for one in run["broker"]):
            there = sorted({key for _, run in named for one in run["broker"] for key in one["metrics"]})
            known = f"there are {', '.join(there[:200])}" if there else "the run was made without --metrics-url"
            raise ReplayError(f"no sample has a metric {metric!r}; {known}")
    output.mkdir(parents=True, exist_ok=True)
    page = output / "report.html"
    _whole(page, lambda path: path.write_text(_render(named, metrics)))
    _whole(output / "report.json", lambda path: path.write_text(json.dumps(document, indent=2)))
    for key in ("seconds", "places"):
        rows = [{"run": name, **_flat(one)} for name, numbers in named for one in numbers[key]]
        if rows:
            table = pa.Table.from_pylist(rows)
            _whole(output / f"report-{key}.parquet", lambda path, table=table: pq.write_table(table, path))  # type: ignore[misc]
    return page


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    working = path.with_name(f".{path.name}.incomplete")
    write(working)
    working.replace(path)


def _flat(row: Numbers) -> Numbers:
    return {key: json.dumps(value) if isinstance(value, dict) else value for key, value in row.items()}


def _render(named: list[tuple[str, Numbers]], metrics: Sequence[str]) -> str:
    from jinja2 import Environment, PackageLoader

    page = Environment(loader=PackageLoader("kbroker.replay", "report"), autoescape=True).get_template("page.html")
    drawn = [plots.rate(named), plots.latency(named), plots.sending(named), plots.errors(named)]
    beside = [svg for svg in [plots.broker(named)] if svg]
    beside += [plots.metric(named, name) for name in (metrics or _chosen(named))]
    return page.render(
        title=" beside ".join(name for name, _ in named) if len(named) > 1 else f"Replay: {named[0][0]}",
        preamble="; ".join(_preamble(name, run, len(named) > 1) for name, run in named),
        warnings=[text for name, run in named for text in _warnings(name, run)],
        boxes=[_box(index, named[0][1]) for index in _BOXES] if len(named) == 1 else [],
        names=[*(name for name, _ in named), *([f"{named[0][0]} : {named[1][0]}"] if len(named) > 1 else [])],
        rows=[_row(*measure, named) for measure in MEASURES] + _error_rows(named),
        plots=[svg for svg in drawn if svg],
        failed=any(run["summary"]["failed"] for _, run in named),
        maps=[(name, svg) for name, run in named if (svg := plots.heat_map(name, run))],
        metrics=beside,
        verified=[
            (name, run["verified"], judge(run["verified"]) if run["verified"] is not None else [])
            for name, run in named
        ],
        keys=KEYS,
        settings=_settings(named),
    )


def _row(
    label: str, key: str, form: Callable[[float], str], better: int, named: list[tuple[str, Numbers]]
) -> tuple[str, list[str]]:
    values = [run["summary"][key] for _, run in named]
    cells = ["-" if value is None else form(value) for value in values]
    if len(named) > 1:
        cells.append(_direction(_factor(*values), better, named[0][0]))
    return label, cells


def _direction(factor: float | None, better: int, first: str) -> str:
    """How the first run's value stands to the second's, and whether that speaks for the first."""
    if factor is None:
        return ""
    text = f"{factor:.2f}"
    if better == NEITHER or text == "1.00":
        return text
    return f"{text}, {first} is {'better' if (factor > 1) == (better == MORE) else 'worse'}"


def _factor(first: float | None, second: float | None) -> float | None:
    return first / second if first is not None and second else None


def _error_rows(named: list[tuple[str, Numbers]]) -> list[tuple[str, list[str]]]:
    rows = []
    for key, label in (("errors", "error: {}"), ("events", "said by the client: {}")):
        for code in sorted({code for _, run in named for code in run["summary"][key]}):
            rows.append((label.format(code), [f"{run['summary'][key].get(code, 0):,}" for _, run in named]))
    return rows


def _box(index: int, run: Numbers) -> tuple[str, str]:
    label, key, form, _ = MEASURES[index]
    value = run["summary"][key]
    return label, "-" if value is None else form(value)


def _warnings(name: str, run: Numbers) -> list[str]:
    summary, found = run["summary"], []
    if summary["status"] == STOPPED:
        found.append(f"{name} was stopped: {summary['unsent']:,} operations were not sent.")
    if summary["failed"]:
        found.append(f"{name}: {summary['failed']:,} operations failed.")
    if summary["late_share"] > 0.01:
        limit = run["run"]["delivery"]["late_ms"]
        found.append(f"{name}: {summary['late_share']:.1%} of the operations were sent more than {limit:g} ms late: "
                     "the machine of the replay, or its local queue, was the limit.")  # fmt: skip
    return found


def _preamble(name: str, run: Numbers, several: bool) -> str:
    document = run["run"]
    started = datetime.fromtimestamp((run["started_at_us"] or document["submitted_at"] * 1e6) / 1e6, UTC)
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in document["kinds"].items() if number)
    return (
        (f"{name}: " if several else "")
        + f"{kinds} of about {document['sources']:,} sources in {document['seconds']:,.4g} s "
        f"against {document['bootstrap']}, "
        f"{started:%Y-%m-%d %H:%M:%S} UTC, {document['executors']} executors; {_said(document['delivery'])}"
        + (f"; the broker was restarted {len(run['restarts'])} times, dashed lines" if run["restarts"] else "")
    )


def _said(delivery: Numbers) -> str:
    """The settings that tell most about a run's figures."""
    parts = [f"acks {delivery['acks']}", "idempotent" if delivery["idempotence"] else "not idempotent"]
    parts += [f"{delivery['compression']} compression", f"linger {delivery['linger_ms']:g} ms"]
    if delivery.get("transaction_records"):
        parts.append(f"transactions of {delivery['transaction_records']:,}")
    return ", ".join(parts)


def _settings(named: list[tuple[str, Numbers]]) -> list[tuple[str, list[str]]]:
    keys = list(named[0][1]["run"]["delivery"])
    rows = [(key.replace("_", " "), [str(run["run"]["delivery"].get(key)) for _, run in named]) for key in keys]
    return [*rows, ("kbroker (the tool)", [run["run"]["kbroker"] for _, run in named])]


def _name(numbers: Numbers, path: str) -> str:
    return str(numbers["run"]["name"] or Path(path).name)


def _chosen(named: list[tuple[str, Numbers]]) -> list[str]:
    """The broker's counters that moved most, where the user did not name any."""
    moved: dict[str, float] = {}
    for _, run in named:
        pages = [one["metrics"] for one in run["broker"] if one["metrics"]]
        for name in pages[-1] if pages else ():
            if name.endswith("_total") and name in pages[0]:
                grown = pages[-1][name] - pages[0][name]
                moved[name] = max(moved.get(name, 0.0), grown)
    return sorted(sorted((name for name in moved if moved[name] > 0), key=lambda name: -moved[name])[:MOST_METRICS])
