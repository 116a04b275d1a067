"""What an active controller has written, as rows that are compared to those of Apache Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.cluster.controller.led import Led

Rows = list[tuple[str, Any]]


def rows(led: Led) -> Rows:
    """What was written, topics by name, directories by broker."""
    names = {topic.topic_id: name for name, topic in led.written.topics.items()}
    found = []
    for kind, _, fields in led.records():
        if "topic_id" in fields:
            fields["topic_id"] = names.get(fields["topic_id"], "gone")
        if "directories" in fields:
            fields["directories"] = [each[0] - 100 for each in fields["directories"]]
        found.append((kind, fields))
    return found


def partition(number: int, replicas: Sequence[int], topic: str) -> tuple[str, dict[str, Any]]:
    fields = {
        "topic_id": topic,
        "replicas": list(replicas),
        "isr": list(replicas),
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": list(replicas),
    }
    return "PartitionRecord", {**({"partition_id": number} if number else {}), **fields}


def change(topic: str, number: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "PartitionChangeRecord", {"partition_id": number, "topic_id": topic, **fields}


def config(kind: int, resource: str, name: str, value: str | None) -> tuple[str, dict[str, Any]]:
    fields = {"resource_type": kind, "resource_name": resource, "name": name, "value": value}
    return "ConfigRecord", {key: each for key, each in fields.items() if each != ""}


def level(name: str, number: int) -> tuple[str, dict[str, Any]]:
    return "FeatureLevelRecord", {"name": name, **({"feature_level": number} if number else {})}


def plain(found: Rows) -> Rows:
    """Without zeros, which are the defaults of some fields and not of others."""
    return [
        (kind, {name: each for name, each in fields.items() if each is None or each != 0}) for kind, fields in found
    ]


def assert_rows(led: Led, expected: Rows) -> None:
    assert plain(rows(led)) == plain(expected)
