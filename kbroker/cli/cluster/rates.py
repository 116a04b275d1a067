"""What a broker does per second, from two looks at its metrics page and at its connections.

A look has sums: for a topic its bytes and the end offsets of its partitions, for a group its committed offsets and its
lag.  Rates are differences divided by the broker's own time (`kbroker_uptime_seconds`); after a restart in between they
count from the start of the broker.  A client is all connections with its client id; connections that were closed in
between are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from kbroker.types import JsonObject

P99 = 0.99


@dataclass(slots=True)
class Sums:
    """Totals of one thing since the start; what is no total is as it is now."""

    totals: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    now: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class Look:
    """One look at the page."""

    labels: dict[str, str] = field(default_factory=dict)
    broker: Sums = field(default_factory=Sums)
    delays: dict[float, float] = field(default_factory=dict)
    apis: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    topics: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    groups: defaultdict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    connections: dict[str, JsonObject] | None = None
    """By their keys, as the console's page of clients has them; None where there is no console."""

    @property
    def uptime(self) -> float:
        """Seconds since the broker's start."""
        return self.broker.now["uptime_seconds"]


class _Place(NamedTuple):
    """Where a series goes: the look's table, the label that names the row, whether it counts up, and its name here."""

    table: str
    label: str
    counts: bool
    name: str


_PLACES: Mapping[str, _Place] = {
    "kbroker_uptime_seconds": _Place("broker", "", False, "uptime_seconds"),
    "kbroker_bytes_in_total": _Place("broker", "", True, "bytes_in"),
    "kbroker_bytes_out_total": _Place("broker", "", True, "bytes_out"),
    "kbroker_connections": _Place("broker", "", False, "connections"),
    "kbroker_connections_accepted_total": _Place("broker", "", True, "connections_accepted"),
    "process_cpu_seconds_total": _Place("broker", "", True, "cpu_seconds"),
    "process_resident_memory_bytes": _Place("broker", "", False, "resident_bytes"),
    "kbroker_requests_total": _Place("apis", "api", True, "requests"),
    "kbroker_request_errors_total": _Place("apis", "api", True, "errors"),
    "kbroker_request_bytes_total": _Place("apis", "api", True, "bytes_in"),
    "kbroker_response_bytes_total": _Place("apis", "api", True, "bytes_out"),
    "kbroker_request_seconds_sum": _Place("apis", "api", True, "seconds"),
    "kbroker_topic_size_bytes": _Place("topics", "topic", False, "size_bytes"),
    "kbroker_topic_partitions": _Place("topics", "topic", False, "partitions"),
    "kbroker_partition_log_end_offset": _Place("topics", "topic", True, "records"),
    "kbroker_group_members": _Place("groups", "group", False, "members"),
    "kbroker_group_lag_sum": _Place("groups", "group", False, "lag"),
    "kbroker_group_committed_offset": _Place("groups", "group", True, "records"),
}
_DELAY = "kbroker_loop_delay_seconds_bucket"


def read_look(page: str) -> Look:
    """A look, of the page's text.  ValueError when it is none of Prometheus."""
    from prometheus_client.parser import text_string_to_metric_families

    look = Look()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "kbroker_build_info":
                look.labels = dict(sample.labels)
            elif sample.name == _DELAY:
                look.delays[float(sample.labels["le"])] = sample.value
            elif (place := _PLACES.get(sample.name)) is not None:
                table = getattr(look, place.table)
                sums = table[sample.labels[place.label]] if place.label else table
                (sums.totals if place.counts else sums.now)[place.name] += sample.value
    return look


@dataclass(frozen=True, slots=True)
class _Interval:
    """What lies between two looks.  `anew`: the broker was started between them."""

    before: Look
    after: Look
    anew: bool
    seconds: float

    def per_second(self, now: Sums, then: Sums | None, name: str) -> float | None:
        """How much a total has grown; None where it is not known."""
        if name not in now.totals:
            return None
        # A row that was missing at the first look counts from 0.
        base = 0.0 if self.anew or then is None else then.totals.get(name, 0.0)
        return max(0.0, now.totals[name] - base) / self.seconds

    def apis(self) -> Iterator[JsonObject]:
        """A row for each API."""
        for name, sums in self.after.apis.items():
            then = self.before.apis.get(name)
            yield {
                "api": name,
                "requests_per_second": self.per_second(sums, then, "requests"),
                "errors_per_second": self.per_second(sums, then, "errors"),
                "bytes_in_per_second": self.per_second(sums, then, "bytes_in"),
                "bytes_out_per_second": self.per_second(sums, then, "bytes_out"),
                "mean_ms": _mean_ms(sums, None if self.anew else then),
            }

    def topics(self) -> Iterator[JsonObject]:
        """A row for each topic."""
        for name, sums in self.after.topics.items():
            grown = sums.now["size_bytes"] - _then(self.before.topics, name, "size_bytes", sums)
            yield {
                "topic": name,
                "records_per_second": self.per_second(sums, self.before.topics.get(name), "records"),
                "growth_bytes_per_second": grown / self.seconds,
                "size_bytes": int(sums.now["size_bytes"]),
                "partitions": int(sums.now["partitions"]),
            }

    def groups(self) -> Iterator[JsonObject]:
        """A row for each group."""
        for name, sums in self.after.groups.items():
            grown = sums.now["lag"] - _then(self.before.groups, name, "lag", sums)
            yield {
                "group": name,
                "records_per_second": self.per_second(sums, self.before.groups.get(name), "records"),
                "lag": int(sums.now["lag"]),
                "lag_change_per_second": grown / self.seconds,
                "members": int(sums.now["members"]),
            }

    def broker(self, apis: Sequence[JsonObject]) -> JsonObject:
        """The broker as a whole; `apis`: its rows."""
        before, after = self.before.broker, self.after.broker
        cpu = self.per_second(after, before, "cpu_seconds")
        return {
            **self.after.labels,
            "uptime_seconds": round(self.after.uptime, 1),
            "cpu_percent": None if cpu is None else cpu * 100,
            "resident_bytes": int(after.now["resident_bytes"]),
            "loop_delay_p99_ms": _p99_ms({} if self.anew else self.before.delays, self.after.delays),
            "connections": int(after.now["connections"]),
            "connections_accepted_per_second": self.per_second(after, before, "connections_accepted"),
            "bytes_in_per_second": self.per_second(after, before, "bytes_in"),
            "bytes_out_per_second": self.per_second(after, before, "bytes_out"),
            "requests_per_second": sum(each["requests_per_second"] or 0.0 for each in apis),
            "errors_per_second": sum(each["errors_per_second"] or 0.0 for each in apis),
        }


def rates(before: Look, after: Look) -> JsonObject:
    """What happened between two looks, busiest first; numbers of which nothing is known are None."""
    anew = after.uptime < before.uptime
    seconds = max(after.uptime - (0.0 if anew else before.uptime), 1e-9)
    interval = _Interval(before, after, anew, seconds)
    apis = list(interval.apis())
    lines = after.connections
    return {
        "seconds": round(seconds, 3),
        "broker": interval.broker(apis),
        "apis": _sorted(apis, "api", lambda row: row["requests_per_second"]),
        "topics": _sorted(list(interval.topics()), "topic", lambda row: row["records_per_second"]),
        "groups": _sorted(list(interval.groups()), "group", lambda row: row["records_per_second"]),
        "clients": None if lines is None else _clients(before.connections or {}, lines, seconds),
    }


_TRAFFIC = ("request_count", "bytes_in", "bytes_out")


def _clients(before: Mapping[str, JsonObject], after: Mapping[str, JsonObject], seconds: float) -> list[JsonObject]:
    """What connections did since the first look, by client id and software."""
    found: dict[tuple[str, str], JsonObject] = {}
    for key, line in after.items():
        then = before.get(key, {})
        # A counter that fell: the port belongs to another connection now, which began in between.
        if any(line[name] < then.get(name, 0) for name in _TRAFFIC):
            then = {}
        row = found.setdefault(
            (line["client_id"], line["software"]),
            {
                "client_id": line["client_id"],
                "software": line["software"],
                "connections": 0,
                "throttled": 0,
                "requests_per_second": 0.0,
                "bytes_in_per_second": 0.0,
                "bytes_out_per_second": 0.0,
            },
        )
        row["connections"] += 1
        row["throttled"] += bool(line["is_throttled"])
        for name, rate in zip(_TRAFFIC, ("requests", "bytes_in", "bytes_out"), strict=True):
            row[f"{rate}_per_second"] += (line[name] - then.get(name, 0)) / seconds
    return _sorted(
        list(found.values()), "client_id", lambda row: row["bytes_in_per_second"] + row["bytes_out_per_second"]
    )


def _then(table: Mapping[str, Sums], name: str, value: str, now: Sums) -> float:
    """A value at the first look; the present value, so no change, where the row was missing."""
    then = table.get(name)
    return now.now[value] if then is None else then.now[value]


def _mean_ms(now: Sums, then: Sums | None) -> float | None:
    count = now.totals["requests"] - (then.totals["requests"] if then is not None else 0.0)
    spent = now.totals["seconds"] - (then.totals["seconds"] if then is not None else 0.0)
    return spent / count * 1000 if count > 0 else None


def _p99_ms(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """The upper bound of the bucket in which the 99th percentile is."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    bounds = (bound for bound, count in counts.items() if count >= total * P99 and isfinite(bound))
    return next((bound * 1000 for bound in bounds), None)


def _sorted(rows: list[JsonObject], name: str, busy: Callable[[JsonObject], float | None]) -> list[JsonObject]:
    return sorted(rows, key=lambda row: (-(busy(row) or 0.0), str(row[name])))


def looks(look: Callable[[], Look], wait: Callable[[], object]) -> Iterator[JsonObject]:
    """Rates from one look to the next, for ever."""
    before = look()
    while True:
        wait()
        after = look()
        yield rates(before, after)
        before = after
