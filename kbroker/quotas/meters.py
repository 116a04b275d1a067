"""What clients have used, and for how long those above their limit are muted.

There is one meter for each kind of quota and each share.  A meter that was idle for all its windows is dropped, so that
the number of meters follows the number of recent clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from kbroker.metrics.sources import QuotaRow
from kbroker.quotas.rate import SampledRate, TokenBucket, Windows
from kbroker.quotas.rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    Share,
)

# Metrics of an entity stay for a while after its last request.
KEPT_MS = 60_000


class QuotaKind(Enum):
    """What is limited; the value is the setting's name."""

    PRODUCE = PRODUCER_BYTE_RATE
    FETCH = CONSUMER_BYTE_RATE
    REQUEST = REQUEST_PERCENTAGE
    CONTROLLER_MUTATION = CONTROLLER_MUTATION_RATE


class Meter:
    """What the clients of one share have used."""

    __slots__ = ("bucket", "last_ms", "limit", "rate", "throttled_count", "throttled_ms")

    def __init__(self, kind: QuotaKind, windows: Windows) -> None:
        self.rate = SampledRate(windows)
        self.bucket = TokenBucket(windows) if kind is QuotaKind.CONTROLLER_MUTATION else None
        self.last_ms = 0
        self.limit = 0.0
        self.throttled_count = 0
        self.throttled_ms = 0

    def count_throttle(self, throttle_ms: int) -> None:
        """A client was muted for so long because of this one."""
        self.throttled_count += 1
        self.throttled_ms += throttle_ms


class QuotaMeters:
    """All meters of a broker.  Times are milliseconds on a clock that does not go back."""

    __slots__ = ("_meters", "_mutation_windows", "_windows")

    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._meters: dict[tuple[QuotaKind, Share], Meter] = {}

    def windows(self, kind: QuotaKind) -> Windows:
        """Those of one kind of quota."""
        return self._mutation_windows if kind is QuotaKind.CONTROLLER_MUTATION else self._windows

    def meter(self, kind: QuotaKind, limit: Limit, now_ms: int) -> Meter:
        """The meter of a share, which is used now."""
        key = kind, limit.share
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(kind, self.windows(kind))
        meter.last_ms = now_ms
        meter.limit = limit.per_second
        return meter

    def record(self, kind: QuotaKind, limit: Limit, value: float, now_ms: int) -> int:
        """Count a use; returns the throttle time in ms, 0 while the client is within its limit.

        For the request quota it is one window at most (KIP-124), for bytes as long as the rate needs.
        """
        rate = self.meter(kind, limit, now_ms).rate
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit.per_second, now_ms)
        return min(throttle_ms, self._windows.window_ms) if kind is QuotaKind.REQUEST else throttle_ms

    def most_in_window(self, limit: Limit) -> int:
        """The most bytes that the windows allow for one answer: a Fetch reads no more than may be sent."""
        return int(min(limit.per_second * (self._windows.samples - 1) * self._windows.window_ms / 1000, 2**31 - 1))

    def expire(self, now_ms: int) -> None:
        """Drop meters without a use that still counts."""
        for key, meter in list(self._meters.items()):
            if now_ms - meter.last_ms > max(KEPT_MS, self.windows(key[0]).span_ms):
                del self._meters[key]

    def __len__(self) -> int:
        return len(self._meters)

    def rows(self, now_ms: int) -> Iterator[QuotaRow]:
        """Every meter as it is now."""
        for (kind, share), meter in self._meters.items():
            rate = meter.rate.measure(now_ms)[0]
            if meter.bucket is not None and meter.limit > 0:
                rate = meter.bucket.tokens(meter.limit, now_ms)
            yield QuotaRow(
                kind.name.lower(),
                share.user,
                share.client_id,
                rate,
                meter.limit,
                meter.throttled_count,
                meter.throttled_ms,
            )
