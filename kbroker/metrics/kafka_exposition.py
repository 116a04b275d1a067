"""A snapshot as text under Kafka's names, through the standard client library.

Series that exporters of Kafka give no type have none here, either: dashboards name them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.metrics.exposition import encoded, process_families
from kbroker.metrics.families import Family, Labels
from kbroker.metrics.kafka_rows import Found, Summary, Value
from kbroker.metrics.kafka_table import EXPORTER, SECTIONS
from kbroker.metrics.kafka_values import kafka_values
from kbroker.metrics.percentiles import QUANTILES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kbroker.metrics.kafka_snapshot import KafkaSnapshot
    from kbroker.metrics.recent_rates import RecentRates

QUANTILE = "quantile"


def render(snapshot: KafkaSnapshot, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, in the format that an Accept header asks for.  Runs on any thread."""
    return encoded(lambda: kafka_families(snapshot), accept)


def render_named(snapshot: KafkaSnapshot, accept: str, naming: str, rates: RecentRates) -> tuple[bytes, str]:
    """The same under one of NAMINGS.  Runs on any thread, one at a time."""
    return encoded(lambda: named(snapshot, naming, rates), accept)


def named(snapshot: KafkaSnapshot, naming: str, rates: RecentRates) -> Iterator[Metric]:
    """What all beans say, kafka_exporter's families, and the process's."""
    from kbroker.metrics.kafka_naming import named_families
    from kbroker.metrics.kafka_namings import NAMINGS

    values = kafka_values(snapshot)
    rates.begin(snapshot.now.at)
    yield from named_families(NAMINGS[naming], values, rates)
    rates.end()
    for family in EXPORTER:
        yield from shown(family, values)
    yield from process_families()


def kafka_families(snapshot: KafkaSnapshot) -> Iterator[Metric]:
    """All families, in a fixed order."""
    values = kafka_values(snapshot)
    for _, rows in SECTIONS:
        for family in rows:
            yield from shown(family, values)
    yield from process_families()


def series_of(family: Family) -> tuple[str, ...]:
    """The names of a family's series; of a summary without those of its count and sum."""
    if family.kind == "both":
        return f"{family.name}_total", f"{family.name}persec"
    return (f"{family.name}_total" if family.kind == "counter" else family.name,)


def shown(family: Family, values: Found) -> Iterator[Metric]:
    """The family's metrics: two where the exporters do not agree on a name."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily, UnknownMetricFamily

    rows = values.get(family.name, {})
    if family.kind == "summary":
        summary = SummaryMetricFamily(family.name, family.text, labels=family.labels)
        for key, value in rows.items():
            if isinstance(value, Summary):
                _add_summary(summary, family, key, value)
        yield summary
        return
    first, *others = series_of(family)
    if family.kind == "gauge":
        yield _filled(GaugeMetricFamily(first, family.text), first, family, rows)
    else:
        yield _filled(CounterMetricFamily(family.name, family.text), first, family, rows)
    for name in others:
        yield _filled(UnknownMetricFamily(name, family.text), name, family, rows)


def _filled(metric: Metric, name: str, family: Family, rows: dict[Labels, Value]) -> Metric:
    for key, value in rows.items():
        # A sum over all topics has no label for one.
        if not isinstance(value, Summary):
            metric.add_sample(name, dict(zip(family.labels, key, strict=False)), value)
    return metric


def _add_summary(metric: Metric, family: Family, key: Labels, value: Summary) -> None:
    labels = dict(zip(family.labels, key, strict=True))
    for quantile, milliseconds in zip(QUANTILES, value.quantiles, strict=False):
        metric.add_sample(family.name, {**labels, QUANTILE: quantile}, milliseconds)
    metric.add_sample(f"{family.name}_count", labels, value.number)
    metric.add_sample(f"{family.name}_sum", labels, value.total)
