"""Offsets of clients of version 0, which live in ZooKeeper where the broker has one, as in Kafka with ZooKeeper.

Nothing is checked against a group's members: version 0 knows none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.coordinator.classic.offsets import CommittedOffset, OffsetTable
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.member import ZooKeeperOffsets
    from kbroker.coordinator.classic.messages import PartitionCommit
    from kbroker.metadata.cache import MetadataCache

# Reads and writes of ZooKeeper that are under way for one request.
PORTION = 250


async def commit_to_zookeeper(
    kept: ZooKeeperOffsets, group_id: str, commits: Sequence[PartitionCommit], max_metadata: int
) -> list[ErrorCode]:
    """One code per commit.  Raises what concerns all of them."""
    fits = [len(each.metadata) <= max_metadata for each in commits]
    stored = [each for each, does in zip(commits, fits, strict=True) if does]
    await kept.commit(group_id, {TopicPartition(each.topic, each.partition): each.offset for each in stored})
    return [ErrorCode.NONE if does else ErrorCode.OFFSET_METADATA_TOO_LARGE for does in fits]


async def read_from_zookeeper(
    kept: ZooKeeperOffsets,
    cache: MetadataCache,
    group_id: str,
    asked: Iterable[tuple[str, Sequence[int]]],
    pace: Pace,
) -> OffsetTable:
    """The offsets of what exists of the topics and partitions that are asked for.  Raises as `committed` does."""
    wanted: dict[TopicPartition, None] = {}
    for name, indexes in asked:
        topic = cache.topic(name)
        for index in indexes:
            await pace
            if topic is not None and 0 <= index < len(topic.partitions):
                wanted[TopicPartition(name, index)] = None
    found = OffsetTable()
    names = list(wanted)
    for start in range(0, len(names), PORTION):
        await pace
        for each, offset in (await kept.committed(group_id, names[start : start + PORTION])).items():
            found.put(each.topic, each.partition, CommittedOffset(offset))
    return found
