"""Partitions and offsets as JSON: in options, as Spark's Kafka connector writes them, and in a query's checkpoint.

    assign           {"topicA":[0,1],"topicB":[2]}
    offsets, times   {"topicA":{"0":23,"1":-2},"topicB":{"0":-1}}

A checkpoint's offsets have the second form, and contain the start of the query under "@start", which cannot be a
topic's name.  Spark asks for the initial offsets again after a crash within the first batch, and "latest" would be
other offsets by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kbroker.client.list_offsets import TopicPartition
from kbroker.types import JsonObject

Offsets = dict[TopicPartition, int]

START_KEY = "@start"
_PARTITIONS_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'


def parse_partitions(option: str, text: str) -> list[TopicPartition]:
    """ValueError, with an example, for anything that is not topics and lists of partitions."""
    found = []
    try:
        for topic, partitions in _object(json.loads(text)).items():
            for partition in partitions:
                if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                    raise ValueError(partition)
                found.append((topic, partition))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"option {option}: expected e.g. {_PARTITIONS_EXAMPLE}, got {text}") from error
    if not found:
        raise ValueError(f"option {option} names no partition: expected e.g. {_PARTITIONS_EXAMPLE}, got {text}")
    return found


def parse_offsets(option: str, text: str) -> Offsets:
    """ValueError, with an example, for anything that is not topics, partitions and whole numbers."""
    try:
        return from_plain(_object(json.loads(text)))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"option {option}: expected e.g. {_OFFSETS_EXAMPLE}, got {text}") from error


def from_plain(plain: Mapping[str, Any]) -> Offsets:
    """Offsets out of `{topic: {partition: offset}}`.  ValueError."""
    found: Offsets = {}
    for topic, offsets in plain.items():
        for partition, offset in offsets.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError(offset)
            found[topic, int(partition)] = offset
    return found


def to_plain(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Sorted, so that equal offsets are equal as text."""
    plain: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        plain.setdefault(topic, {})[str(partition)] = offset
    return plain


def to_checkpoint(offsets: Mapping[TopicPartition, int], start: Mapping[TopicPartition, int]) -> dict[str, object]:
    """Offsets and where the query began, as Spark's checkpoint keeps them."""
    return {**to_plain(offsets), START_KEY: to_plain(start)}


def from_checkpoint(plain: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """The offsets and where the query began."""
    offsets = from_plain({topic: found for topic, found in plain.items() if topic != START_KEY})
    return offsets, from_plain(plain.get(START_KEY, {}))


def names(partitions: Iterable[TopicPartition]) -> str:
    """`topic-0, topic-1`, cut short where there are many."""
    found = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    return ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value
