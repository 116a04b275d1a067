"""What the metrics under Kafka's names need besides what those under kbroker's own do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.metrics.families import Values


class Traffic(NamedTuple):
    """What leaders here have taken and given: of one topic, or of all."""

    messages_in: int = 0
    bytes_in: int = 0
    appends: int = 0
    failed_appends: int = 0
    bytes_out: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    bytes_rejected: int = 0
    refused_appends: int = 0


NO_TRAFFIC = Traffic()


class ShownPartition(NamedTuple):
    """A partition of the cluster that this broker shows, as every partition is shown by one broker: by its leader, or
    without one (-1) by the broker with the least id.  `min_in_sync`: 0 where it is not led here."""

    topic: str
    partition: int
    leader: int
    replicas: int
    in_sync: int
    is_preferred: bool
    min_in_sync: int


@dataclass(frozen=True, slots=True)
class KafkaFigures:
    """`topics`: how many partitions the topics have that this broker shows: those whose first partition it shows.

    `partitions` is empty with more than `kbroker.metrics.max.partitions`; `traffic` and `topics` with as many topics.
    `topic_count`, `partition_count`: of the cluster; `broker_count`: its brokers that are not fenced.  `values`: by the
    name of the family."""

    total: Traffic = NO_TRAFFIC
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    partitions: tuple[ShownPartition, ...] = ()
    topics: Mapping[str, int] = field(default_factory=dict)
    topic_count: int = 0
    partition_count: int = 0
    broker_count: int = 0
    fenced_count: int = 0
    values: Values = field(default_factory=dict)
