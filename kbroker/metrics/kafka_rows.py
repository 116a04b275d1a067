"""The values under Kafka's names, as rows: a family, its labels' values, and a number or a summary."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.metrics.families import Labels


class Summary(NamedTuple):
    """Of recent values the percentiles, in the order of QUANTILES; number and sum of all since the start.  Times are
    milliseconds."""

    quantiles: tuple[float, ...]
    number: float
    total: float


Value = float | Summary
Found = dict[str, dict[Labels, Value]]
Row = tuple[str, Labels, Value]
