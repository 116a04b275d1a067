"""The numbers of a run, out of what its executors counted.

Rows are read batch by batch and added up; what is kept has one entry for each second and for each executor and
partition.  Times are in milliseconds, rates in records per second.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq

from kbroker.replay.player.outcome import COUNTS, LASTED, STARTED, Histogram, percentile
from kbroker.replay.player.run import COMPLETE, read_run
from kbroker.replay.player.settings import ReplayError
from kbroker.replay.trace_schema import PRODUCE
from kbroker.types import JsonObject

BEFORE_US = 3_000_000
BEGAN = "process_start_time_seconds"
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
Numbers = JsonObject


class _Sum:
    """What cells add up to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.latency: Counter[int] = Counter()
        self.sent_error: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, row: JsonObject) -> None:
        for name in COUNTS:
            self.counts[name] += row[name]
        for name, into in (("latency", self.latency), ("sent_error", self.sent_error), ("errors", self.errors)):
            for key, number in row[name]:
                into[key] += number


def summary_of(run: str) -> Numbers:
    """Totals of a run: records, rates, latency, lateness, errors."""
    summary: Numbers = read_numbers(run)["summary"]
    return summary


def read_numbers(run: str) -> Numbers:
    """Everything a report shows of a run, as JSON takes it.  ReplayError for a directory that is none."""
    document = read_run(run)
    whole = _Sum()
    by_second: defaultdict[int, _Sum] = defaultdict(_Sum)
    by_kind: defaultdict[str, _Sum] = defaultdict(_Sum)
    by_place: defaultdict[tuple[int, str, int], _Sum] = defaultdict(_Sum)
    events: Counter[str] = Counter()
    lasted_us = 0
    for row in _rows(run):
        for name, number in row["events"]:
            if name == LASTED:
                lasted_us = max(lasted_us, number)
            else:
                events[name] += number
        if not row["kind"]:
            continue
        whole.add(row)
        by_kind[row["kind"]].add(row)
        by_second[row["second"]].add(row)
        if row["kind"] == PRODUCE and row["topic"] and row["partition"] >= 0:
            by_place[row["executor"], row["topic"], row["partition"]].add(row)
    started_us = events.pop(STARTED, 0)
    samples = _samples(run, started_us)
    seconds = [_second(second, by_second[second]) for second in range(max(by_second, default=-1) + 1)]
    verified = _json(Path(run) / "verify.json")
    return {
        "run": document,
        "started_at_us": started_us,
        "summary": _summary(
            whole, document, seconds, lasted_us, {key: number for key, number in events.items() if number}
        )
        | _usage(samples),
        "kinds": {kind: _facts(own) for kind, own in sorted(by_kind.items())},
        "seconds": seconds,
        "places": [
            {"executor": executor, "topic": topic, "partition": partition, **_facts(own)}
            for (executor, topic, partition), own in sorted(by_place.items())
        ],
        "broker": samples,
        "restarts": restarts(samples),
        "verified": verified,
    }


def _rows(run: str) -> Iterator[JsonObject]:
    try:
        data = pyarrow.dataset.dataset(str(Path(run) / "outcomes"), format="parquet")
        columns = [name for name in data.schema.names if name != "exceptions"]
        for batch in data.to_batches(columns=columns):
            yield from batch.to_pylist()
    except (OSError, ValueError) as error:
        raise ReplayError(f"{run}/outcomes cannot be read: {error}") from None


def _milliseconds(histogram: Histogram, share: float) -> float | None:
    found = percentile(histogram, share)
    return None if found is None else found / 1000


def _facts(own: _Sum) -> Numbers:
    counts = {name: own.counts[name] for name in COUNTS}
    latency = {f"latency_{name}_ms": _milliseconds(own.latency, share) for name, share in SHARES.items()}
    error = {f"sent_error_{name}_ms": _milliseconds(own.sent_error, share) for name, share in SHARES.items()}
    return {**counts, **latency, **error, "errors": dict(sorted(own.errors.items()))}


def _second(second: int, own: _Sum) -> Numbers:
    return {"second": second, **_facts(own)}


def _summary(whole: _Sum, document: Numbers, seconds: list[Numbers], lasted_us: int, events: dict[str, int]) -> Numbers:
    facts = _facts(whole)
    offered = [one["offered"] for one in seconds if one["offered"]]
    busy = [one["second"] for one in seconds if one["acknowledged"]]
    span = max(document["seconds"], 1.0)
    # The end of a stopped run includes a wait for acknowledgements, so its time is counted in whole seconds of
    # activity.
    lasted = busy[-1] + 1 if busy else 0
    if lasted_us and document["status"] == COMPLETE:
        lasted = min(lasted, lasted_us / 1e6)
    taken = max(lasted, span) if facts["acknowledged"] else None
    return {
        **facts,
        "status": document["status"],
        "trace_seconds": document["seconds"],
        "offered_per_second": facts["offered"] / span,
        "offered_peak_per_second": max(offered, default=0),
        "acknowledged_per_second": facts["acknowledged"] / taken if taken else 0.0,
        "bytes_per_second": facts["bytes"] / taken if taken else 0.0,
        "late_share": facts["late"] / facts["offered"] if facts["offered"] else 0.0,
        "queue_full_seconds": facts["queue_full_us"] / 1e6,
        "events": events,
    }


def _samples(run: str, started_us: int) -> list[Numbers]:
    path = Path(run) / "broker.parquet"
    if not path.exists():
        return []
    rows: list[Numbers] = pq.read_table(path).to_pylist()
    return [
        {
            "second": (row["time_us"] - started_us) / 1e6,
            "cpu_percent": row["cpu_percent"],
            "rss_bytes": row["rss_bytes"],
            "metrics": dict(row["metrics"]),
        }
        for row in rows
        # While Spark sorts the trace nothing is sent yet.
        if row["time_us"] >= started_us - BEFORE_US
    ]


def restarts(samples: list[Numbers]) -> list[float]:
    """Seconds at which the broker had been started anew: its page names a later start, or a counter of it fell."""
    found = []
    pages = [(one["second"], one["metrics"]) for one in samples if one["metrics"]]
    for (_, before), (second, after) in pairwise(pages):
        began, begins = before.get(BEGAN), after.get(BEGAN)
        if began is not None and begins is not None:
            anew = begins > began + 1
        else:
            anew = any(name.endswith("_total") and value < before.get(name, 0) for name, value in after.items())
        if anew:
            found.append(second)
    return found


def _usage(samples: list[Numbers]) -> Numbers:
    """What the broker's process took from the replay's start: seconds of a core, and memory; None where unseen."""
    running = [(before, one) for before, one in pairwise(samples) if one["second"] >= 0]
    parts = [
        one["cpu_percent"] / 100 * (one["second"] - max(before["second"], 0.0))
        for before, one in running
        if one["cpu_percent"] is not None
    ]
    memory = [one["rss_bytes"] for one in samples if one["rss_bytes"] is not None]
    return {"broker_cpu_seconds": sum(parts) if parts else None, "broker_rss_max_bytes": max(memory, default=None)}


def _json(path: Path) -> Numbers | None:
    try:
        found: Numbers = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ReplayError(f"{path} cannot be read: {error}") from None
    return found
