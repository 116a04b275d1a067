"""Percentiles of times that were counted in buckets (`_fast/base/counters.pyx`), in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker._fast.base.counters import BUCKET_BOUNDS_BYTES, BUCKET_BOUNDS_NS

#: As JMX exporter writes the percentiles that Kafka's histograms have.
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
BOUNDS_MS = (0.0, *(bound / 1e6 for bound in BUCKET_BOUNDS_NS))
BOUNDS_BYTES = (0.0, *map(float, BUCKET_BOUNDS_BYTES))


def percentile(buckets: Sequence[float], quantile: float, bounds: Sequence[float] = BOUNDS_MS) -> float:
    """A value below which that share of the counted ones lie; within a bucket they count as evenly spread.

    What lies above the last bound counts as that bound.  0 where nothing was counted.
    """
    wanted = quantile * sum(buckets)
    if wanted <= 0:
        return 0.0
    below = 0.0
    for index, count in enumerate(buckets[: len(bounds) - 1]):
        if count > 0 and below + count >= wanted:
            low, high = bounds[index], bounds[index + 1]
            return low + (high - low) * (wanted - below) / count
        below += max(count, 0)
    return bounds[-1]


def quantiles(buckets: Sequence[float], zeros: float = 0.0, bounds: Sequence[float] = BOUNDS_MS) -> tuple[float, ...]:
    """Those of QUANTILES.  `zeros`: how many more values there are, each of 0."""
    total = sum(buckets) + zeros
    if total <= 0:
        return (0.0,) * len(QUANTILES)
    found = []
    for text in QUANTILES:
        above = float(text) * total - zeros
        found.append(percentile(buckets, above / sum(buckets), bounds) if above > 0 else 0.0)
    return tuple(found)
