"""Settings under which Kafka's answers were recorded."""

from __future__ import annotations

SETTINGS: dict[str, object] = {
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.num.standby.replicas": 1,
}
