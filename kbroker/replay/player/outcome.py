"""What is counted during a replay: cells by second, kind, topic and partition, which add up.

A row of OUTCOME_SCHEMA may be one of several for the same cell: all of its numbers are sums.  `second` counts from the
start of the replay.  A record counts as offered, and its latency is recorded, in the second of its intended time; it
counts as sent and as acknowledged in the seconds in which that happened.  `partition` is -1 while the partitioner has
not chosen.

Times are kept as histograms of microseconds with buckets of 1/32 of their size or finer: below 64 each microsecond has
its own; above, each power of two is cut into 32.
"""

from __future__ import annotations

import pyarrow as pa

_COUNTS = ("offered", "sent", "acknowledged", "failed", "unsent", "empty", "late", "bytes", "queue_full_us")
_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
_NAMED = pa.map_(pa.string(), pa.int64())
_ID = pa.struct([pa.field("source", pa.string()), pa.field("sequence", pa.int64()), pa.field("why", pa.string())])

OUTCOME_ARROW = pa.schema(
    [
        pa.field("executor", pa.int32()),
        pa.field("second", pa.int32()),
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in _COUNTS),
        pa.field("sent_error", _HISTOGRAM),
        pa.field("latency", _HISTOGRAM),
        pa.field("errors", _NAMED),
        pa.field("events", _NAMED),
        pa.field("exceptions", pa.list_(pa.field("element", _ID))),
    ]
)

OUTCOME_SCHEMA = (
    "executor int, second int, kind string, topic string, partition int, "
    + ", ".join(f"{name} long" for name in _COUNTS)
    + ", sent_error map<int,long>, latency map<int,long>, errors map<string,long>, events map<string,long>, "
    "exceptions array<struct<source: string, sequence: long, why: string>>"
)
COUNTS = _COUNTS

NOT_SENT = "NOT_SENT"
"""Why a record has no acknowledgement: the replay was stopped before its time."""

STARTED = "STARTED_AT_US"
"""The event by which one executor tells when the replay began, in microseconds since 1970."""

LASTED = "LASTED_US"
"""The event by which each executor tells when its last record had its end, in microseconds from the start."""

Histogram = dict[int, int]


def bucket_of(microseconds: int) -> int:
    """The bucket of a time; negative times count as 0."""
    if microseconds < 64:
        return max(microseconds, 0)
    shift = microseconds.bit_length() - 6
    return (shift << 5) + (microseconds >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The microseconds from and (not including) to which a bucket holds."""
    if bucket < 64:
        return bucket, bucket + 1
    shift = (bucket >> 5) - 1
    low = (bucket - (shift << 5)) << shift
    return low, low + (1 << shift)


def percentile(histogram: Histogram, share: float) -> float | None:
    """The time in microseconds below or at which `share` (0 to 1) of the histogram is, None for an empty one."""
    total = sum(histogram.values())
    if not total:
        return None
    wanted, seen = share * total, 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            low, high = bucket_bounds(bucket)
            return (low + high - 1) / 2
    raise AssertionError("the histogram's counts changed meanwhile")


class Cell:
    """The counts of one second, kind, topic and partition."""

    __slots__ = (*_COUNTS, "errors", "events", "exceptions", "latency", "sent_error")

    def __init__(self) -> None:
        self.offered = self.sent = self.acknowledged = self.failed = self.unsent = self.empty = 0
        self.late = self.bytes = self.queue_full_us = 0
        self.sent_error: Histogram = {}
        self.latency: Histogram = {}
        self.errors: dict[str, int] = {}
        self.events: dict[str, int] = {}
        self.exceptions: list[tuple[str, int, str]] = []

    def fail(self, source: str, sequence: int, why: str) -> None:
        """One operation failed, by an error of this name."""
        self.failed += 1
        self.errors[why] = self.errors.get(why, 0) + 1
        self.exceptions.append((source, sequence, why))

    def note_event(self, name: str) -> None:
        """Count an event."""
        self.events[name] = self.events.get(name, 0) + 1


class Cells:
    """The cells of one executor since they were last taken."""

    def __init__(self, executor: int) -> None:
        self.executor = executor
        self._cells: dict[tuple[int, str, str, int], Cell] = {}

    def at(self, second: int, kind: str, topic: str, partition: int = -1) -> Cell:
        """The cell of a second, kind, topic and partition; new if there is none."""
        key = (second, kind, topic, partition)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        return cell

    def take(self) -> pa.RecordBatch | None:
        """All cells as rows of OUTCOME_SCHEMA, and none are left; None when there are none."""
        cells, self._cells = self._cells, {}
        if not cells:
            return None
        columns: dict[str, list[object]] = {name: [] for name in OUTCOME_ARROW.names}
        for (second, kind, topic, partition), cell in cells.items():
            for name, value in zip(
                ("executor", "second", "kind", "topic", "partition"),
                (self.executor, second, kind, topic, partition),
                strict=True,
            ):
                columns[name].append(value)
            for name in _COUNTS:
                columns[name].append(getattr(cell, name))
            for name in ("sent_error", "latency", "errors", "events"):
                columns[name].append(list(getattr(cell, name).items()))
            columns["exceptions"].append(
                [{"source": source, "sequence": sequence, "why": why} for source, sequence, why in cell.exceptions]
            )
        return pa.RecordBatch.from_pydict(columns, schema=OUTCOME_ARROW)
