"""Lag of groups, with the partitions that they read and have never committed.

Such a partition counts with all its records: where the group's consumers begin is not known
(`auto.offset.reset` is theirs), but that they have not said to have read anything.  Which topics a group reads is known
from its subscription; of a group without members, from what it has committed.  A group that assigns partitions by
itself reads those that it has committed, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.share.group import ShareGroup

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.coordinator.classic.group import Group
    from kbroker.metadata.image import TopicImage

Bounds = Mapping[tuple[str, int], tuple[int, int]]
"""Log start and high watermark of the partitions whose logs are here."""


@dataclass(frozen=True, slots=True)
class Place:
    """A partition that a group reads.  `committed`: None where it never committed; `lag`: None where the log is not
    here."""

    topic: str
    partition: int
    committed: int | None
    lag: int | None

    @property
    def key(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition


def read_topics(group: Group, topics: Mapping[str, TopicImage]) -> Iterator[str]:
    """The topics of which a group reads all partitions."""
    kind = group.kind
    if isinstance(kind, ShareGroup):
        return
    if kind is None and not group.protocol_type:
        return
    for name in list(group.offsets.topics):
        if name in topics:
            yield name
    for name in _subscribed(group):
        if name in topics and name not in group.offsets.topics:
            yield name


def _subscribed(group: Group) -> list[str]:
    kind = group.kind
    if kind is None:
        return list(group.subscribed_topics or ())
    return [*kind.names, *kind.regex_names] if isinstance(kind, ConsumerGroup) else []


def reads(group: Group, topic: str) -> bool:
    """Whether a group reads a topic, or has committed offsets of it."""
    if topic in group.offsets.topics:
        return True
    if group.kind is None:
        return topic in (group.subscribed_topics or ())
    return group.kind.is_subscribed_to(topic)


def lag_at(committed: int | None, bounds: tuple[int, int] | None) -> int | None:
    """Records between a committed offset, or the first one, and the high watermark."""
    if bounds is None:
        return None
    start, end = bounds
    return max(0, end - (start if committed is None else committed))


async def places_of(group: Group, topics: Mapping[str, TopicImage], bounds: Bounds, pace: Pace) -> list[Place]:
    """All partitions that a group reads, in no order."""
    found = []
    for topic, partition, committed in list(group.offsets):
        await pace
        found.append(
            Place(topic, partition, committed.offset, lag_at(committed.offset, bounds.get((topic, partition))))
        )
    for name in list(read_topics(group, topics)):
        for image in topics[name].partitions:
            await pace
            if group.offsets.get(name, image.partition) is None:
                found.append(Place(name, image.partition, None, lag_at(None, bounds.get((name, image.partition)))))
    return found


async def lag_of_uncommitted(group: Group, topics: Mapping[str, TopicImage], bounds: Bounds, pace: Pace) -> int:
    """The records of partitions that a group reads and has never committed."""
    total = 0
    for name in list(read_topics(group, topics)):
        for image in topics[name].partitions:
            await pace
            if group.offsets.get(name, image.partition) is None:
                total += lag_at(None, bounds.get((name, image.partition))) or 0
    return total
