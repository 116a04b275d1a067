"""Which side is ahead in a cell, measure by measure.  Less than EQUAL_SHARE apart counts as equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EQUAL_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that is compared: `key` in a result, how it is shown, and whether more is better."""

    key: str
    title: str
    form: str
    more_is_better: bool = False


RATE = Measure("requests_per_s", "requests/s", ",.0f", more_is_better=True)
RECORDS = Measure("records_per_s", "records/s", ",.0f", more_is_better=True)
MEGABYTES = Measure("mb_per_s", "MB/s", ",.0f", more_is_better=True)
P50 = Measure("p50_us", "p50 µs", ",.0f")
P99 = Measure("p99_us", "p99 µs", ",.0f")
P999 = Measure("p999_us", "p99.9 µs", ",.0f")
CPU_REQUEST = Measure("cpu_us_per_request", "CPU µs/request", ",.1f")
CPU_RECORD = Measure("cpu_us_per_record", "CPU µs/record", ",.3f")
CPU_GB = Measure("cpu_s_per_gb", "CPU s/GB", ",.2f")
SECONDS = Measure("seconds", "seconds", ",.2f")
FIRST = Measure("first_record_s", "first record s", ",.2f")
CPU_SECONDS = Measure("broker_cpu_s", "CPU s", ",.2f")
MEMORY = Measure("resident_mb", "memory MB", ",.0f")
IDLE_CPU = Measure("idle_cpu_percent", "idle CPU %", ",.2f")
EACH = Measure("bytes_per_connection", "bytes/connection", ",.0f")
FAILED = Measure("errors", "failed", ",.0f")

_SMALL = (RATE, P50, P99, CPU_REQUEST, MEMORY)
#: What is compared in cells of each kind, the most telling first.
MEASURES: dict[str, tuple[Measure, ...]] = {
    "produce": (RATE, MEGABYTES, P50, P99, CPU_REQUEST, CPU_GB, MEMORY),
    "fetch": (RATE, MEGABYTES, P50, P99, CPU_REQUEST, CPU_GB, MEMORY),
    "metadata": _SMALL,
    "api_versions": _SMALL,
    "e2e": (P50, P99, P999, CPU_REQUEST, MEMORY),
    "heartbeat": _SMALL,
    "heartbeat_classic": _SMALL,
    "group_members": (SECONDS, CPU_SECONDS, MEMORY),
    "commit_offsets": (RATE, RECORDS, P50, P99, CPU_REQUEST, CPU_RECORD, MEMORY),
    "librdkafka_produce": (RECORDS, MEGABYTES, CPU_RECORD, CPU_GB, MEMORY),
    "librdkafka_consume": (RECORDS, MEGABYTES, FIRST, CPU_RECORD, CPU_GB, MEMORY),
    "librdkafka_transact": (RATE, P50, P99, CPU_REQUEST, CPU_RECORD, MEMORY),
    "java_share": (RECORDS, MEGABYTES, CPU_RECORD, CPU_GB, MEMORY),
    "java_produce": (RECORDS, MEGABYTES, P50, P99, CPU_RECORD, CPU_GB, MEMORY),
    "java_consume": (RECORDS, MEGABYTES, FIRST, CPU_RECORD, CPU_GB, MEMORY),
    "java_e2e": (P50, P99, CPU_RECORD, MEMORY),
    "storm": (SECONDS, FAILED, EACH, CPU_SECONDS),
    "start": (SECONDS, CPU_SECONDS, MEMORY),
    "idle": (IDLE_CPU, MEMORY),
    "restart_partitions": (SECONDS, CPU_SECONDS, MEMORY),
    "restart_killed": (SECONDS, CPU_SECONDS, MEMORY),
    "compaction": (SECONDS, MEGABYTES, CPU_GB, MEMORY),
    "retention": (SECONDS, P50, P99, CPU_SECONDS),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "Raw frames: produce": ("produce",),
    "Raw frames: fetch": ("fetch",),
    "Raw frames: small requests and latency": ("metadata", "api_versions", "e2e"),
    "Raw frames: groups": ("heartbeat", "heartbeat_classic", "commit_offsets", "group_members"),
    "librdkafka": ("librdkafka_produce", "librdkafka_transact", "librdkafka_consume"),
    "Java clients": ("java_produce", "java_consume", "java_share", "java_e2e"),
    "Operations": ("storm", "start", "idle", "restart_partitions", "restart_killed", "compaction", "retention"),
}
SWEEPS = "More partitions, more connections"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure on two sides.  `factor` is how many times better the first side is; `word` is ahead, equal or
    behind."""

    measure: Measure
    ours: float
    theirs: float
    factor: float
    word: str


def group_of(cell: dict[str, Any]) -> str:
    """The part of the report that a cell belongs to."""
    if cell.get("sweep"):
        return SWEEPS
    return next((title for title, kinds in GROUPS.items() if cell["kind"] in kinds), "Others")


def groups(document: dict[str, Any]) -> dict[str, list[str]]:
    """The names of the cells by part of the report, in order; without those that nothing is known of."""
    wanted: dict[str, list[str]] = {title: [] for title in (*list(GROUPS)[:4], SWEEPS, *list(GROUPS)[4:], "Others")}
    for name, cell in document["cells"].items():
        if name in document["medians"] or name in document.get("not_served", {}):
            wanted[group_of(cell)].append(name)
    return {title: names for title, names in wanted.items() if names}


def measures_of(kind: str, results: list[dict[str, Any]]) -> list[Measure]:
    """The measures of a kind that any of the results has."""
    return [measure for measure in MEASURES.get(kind, _SMALL) if any(measure.key in result for result in results)]


def compare(kind: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[Comparison]:
    """All measures that both results have."""
    return [
        _judge(measure, float(ours[measure.key]), float(theirs[measure.key]))
        for measure in MEASURES.get(kind, _SMALL)
        if measure.key in ours and measure.key in theirs
    ]


def _judge(measure: Measure, ours: float, theirs: float) -> Comparison:
    if ours == theirs:
        return Comparison(measure, ours, theirs, 1.0, "equal")
    better, worse = (ours, theirs) if measure.more_is_better else (theirs, ours)
    factor = better / worse if worse > 0 else float("inf")
    word = "equal" if abs(factor - 1) <= EQUAL_SHARE else "ahead" if factor > 1 else "behind"
    return Comparison(measure, ours, theirs, factor, word)
