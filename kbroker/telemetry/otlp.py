"""Metrics as clients push them: OTLP's `MetricsData` in protobuf, read by the package `opentelemetry-proto`.

The package is imported with the first push: it costs memory that a broker without subscriptions need not pay.  Gauges
and sums are read, which is what Kafka's clients send; histograms and summaries are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import InvalidRecordError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

MAX_LABELS = 16
MAX_NAME = 200
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")
_OWN_NAMES = "org_apache_kafka_"


class Point(NamedTuple):
    """One value.  `is_delta`: it is what came since the last push; `is_counter`: it only ever grows."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool


def read_points(data: bytes, most: int) -> list[Point]:
    """At most `most` values of a push.  InvalidRecordError where it is not OTLP's."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        message = MetricsData.FromString(data)
    except DecodeError as error:
        raise InvalidRecordError(f"The metrics are not OTLP's MetricsData: {error}") from None
    points: list[Point] = []
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points += _points(metric, most - len(points))
                if len(points) >= most:
                    return points
    return points


def _points(metric: Metric, most: int) -> list[Point]:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

    kind = metric.WhichOneof("data")
    found: Iterable[NumberDataPoint]
    is_counter = is_delta = False
    if kind == "gauge":
        found = metric.gauge.data_points
    elif kind == "sum":
        found = metric.sum.data_points
        is_counter = metric.sum.is_monotonic
        is_delta = metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    else:
        return []
    name = metric_name(metric.name)
    points: list[Point] = []
    for point in found:
        if len(points) >= most:
            break
        value = float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double
        points.append(Point(name, _labels(point.attributes), value, is_counter, is_delta))
    return points


def metric_name(name: str) -> str:
    """A metric's name as Prometheus takes it; not one of the broker's own."""
    plain = _NOT_IN_NAMES.sub("_", name[:MAX_NAME])
    return plain if plain.startswith(_OWN_NAMES) else f"client_{plain}"


def _labels(attributes: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    labels: dict[str, str] = {}
    for attribute in attributes:
        if len(labels) == MAX_LABELS:
            break
        name = _NOT_IN_NAMES.sub("_", attribute.key[:MAX_NAME])
        if not name or name[0].isdigit() or name.startswith("__"):
            name = f"attribute_{name.lstrip('_')}"
        labels[name] = _text(attribute.value)[:MAX_NAME]
    return tuple(sorted(labels.items()))


def _text(value: AnyValue) -> str:
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return str(value.double_value)
    return ""
