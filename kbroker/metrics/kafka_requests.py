"""How requests have spent their time, and how large they were, under the names of Kafka's RequestMetrics.

A request's time in all ends when its answer has left, as in Kafka: it is the sum of all parts but the throttle time,
which begins then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbroker.metrics.families import Labels
from kbroker.metrics.kafka_rows import Row, Summary
from kbroker.metrics.kafka_snapshot import (
    HELD,
    QUEUED,
    SENT,
    SIZES,
    THROTTLED,
    TIMES,
    WAITED,
    WHOLE,
    WORKED,
    KafkaSnapshot,
)
from kbroker.metrics.percentiles import BOUNDS_BYTES, quantiles
from kbroker.metrics.recent import growth

_ONE = "kafka_network_requestmetrics_"
_NS_PER_MS = 1e6
_PARTS = (
    (QUEUED, "requestqueuetimems"),
    (WAITED, "remotetimems"),
    (THROTTLED, "throttletimems"),
    (HELD, "responsequeuetimems"),
    (SENT, "responsesendtimems"),
)
_OF_ANSWERS = (HELD, SENT)


def request_parts(snapshot: KafkaSnapshot) -> Iterator[Row]:
    """The rows of all APIs that were asked for."""
    now, old = snapshot.now, snapshot.minutes
    for _, api in [key for key in now.counters if key[0] == TIMES]:
        count, sum_ns, *_ = now.counters[TIMES, api]
        sums = {kind: now.counters[kind, api][1] for kind, _ in _PARTS}
        recent = growth((TIMES, api), old, now)
        worked = _added(recent[2:], _changes((WORKED, api), snapshot))
        whole = _added(recent[2:], _changes((WHOLE, api), snapshot))
        work_ns = sum_ns - sums[QUEUED] - sums[WAITED]
        yield _ONE + "localtimems", (api,), Summary(quantiles(worked), count, work_ns / _NS_PER_MS)
        total_ns = sum_ns + sums[HELD] + sums[SENT]
        yield _ONE + "totaltimems", (api,), Summary(quantiles(whole), count, total_ns / _NS_PER_MS)
        sent = growth((SENT, api), old, now)
        for kind, name in _PARTS:
            part = growth((kind, api), old, now)
            # What had no such part is in the first bucket, at 0.
            of_all = sent[0] if kind in _OF_ANSWERS else recent[0]
            number = now.counters[SENT, api][0] if kind in _OF_ANSWERS else count
            recent_ones = quantiles(part[2:], max(0.0, of_all - part[0]))
            yield _ONE + name, (api,), Summary(recent_ones, number, sums[kind] / _NS_PER_MS)
        size = growth((SIZES, api), old, now)
        recent_ones = quantiles(size[2:], bounds=BOUNDS_BYTES)
        yield _ONE + "requestbytes", (api,), Summary(recent_ones, count, now.counters[SIZES, api][1])


def _changes(key: Labels, snapshot: KafkaSnapshot) -> list[float]:
    """How numbers have changed that also become less."""
    now = snapshot.now.counters[key]
    then = snapshot.minutes.counters.get(key) or (0.0,) * len(now)
    return [a - b for a, b in zip(now, then, strict=True)]


def _added(buckets: Sequence[float], moved: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(buckets, moved, strict=True)]
