"""All topics, as the list of them shows each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metadata.image import TopicImage
    from kbroker.metrics.snapshot import LogRows


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in the list.  `record_count`: offsets between log starts and high watermarks."""

    topic: str
    partition_count: int
    replication_factor: int
    is_internal: bool
    cleanup_policy: str
    size_bytes: int
    segment_count: int
    record_count: int


def topic_lines(logs: LogRows, images: Mapping[str, TopicImage], default_policy: str) -> list[TopicLine]:
    """A line for each topic, of values that no longer change: for a thread."""
    counts: dict[str, int] = {}
    for each in logs.partitions:
        counts[each.topic] = counts.get(each.topic, 0) + each.high_watermark - each.log_start_offset
    sums = {row.topic: row for row in logs.topics}
    lines = []
    for name, image in images.items():
        row = sums.get(name)
        size, segments = (0, 0) if row is None else (row.size_bytes, row.segment_count)
        lines.append(
            TopicLine(
                name,
                len(image.partitions),
                image.replication_factor,
                image.is_internal,
                image.configs.get("cleanup.policy", default_policy),
                size,
                segments,
                counts.get(name, 0),
            )
        )
    return lines
