"""Log directories of replicas as an active controller sees them (KIP-858): whose are known, and which do not work.

A new replica is in its broker's only directory, or in one that the broker will name.  A replica whose directory its
broker does not have any more is offline; no record says so, since every reader can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING

from kbroker.metadata.features import METADATA_VERSION, NO_LEVEL
from kbroker.metadata.image import PartitionImage, TopicChange, altered
from kbroker.metadata.image_records import DIRECTORIES_FROM
from kbroker.types import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, TopicImage

NOT_NAMED = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def knows_directories(image: ClusterImage) -> bool:
    """Whether records say which directory a replica is in."""
    return image.features.chosen.get(METADATA_VERSION, NO_LEVEL) >= DIRECTORIES_FROM


def works(broker: BrokerImage | None, directory: bytes) -> bool:
    """Whether a broker has a directory, as far as it is known.

    A broker without any has registered when directories were not known yet."""
    if directory in NOT_NAMED:
        return True
    return directory != LOST_DIRECTORY and (broker is None or not broker.log_dirs or directory in broker.log_dirs)


async def with_directories(image: ClusterImage, delta: MetadataDelta, pace: Pace) -> MetadataDelta:
    """The same delta, in which each new replica has a directory."""
    if not (delta.created or delta.changed) or not knows_directories(image):
        return delta
    created = [await _placed_topic(None, topic, image.brokers, pace) for topic in delta.created]
    changed = [TopicChange(old, await _placed_topic(old, new, image.brokers, pace)) for old, new in delta.changed]
    return replace(delta, created=tuple(created), changed=tuple(changed))


async def _placed_topic(
    old: TopicImage | None, new: TopicImage, brokers: Mapping[int, BrokerImage], pace: Pace
) -> TopicImage:
    before = () if old is None else old.partitions
    count, rows = len(before), []
    for at, each in enumerate(new.partitions):
        rows.append(_placed(before[at] if at < count else None, each, brokers))
        await pace
    return new if all(map(is_, rows, new.partitions)) else replace(new, partitions=tuple(rows))


def _placed(old: PartitionImage | None, new: PartitionImage, brokers: Mapping[int, BrokerImage]) -> PartitionImage:
    if old is new or (old is not None and (old.replicas == new.replicas or new.directories != old.directories)):
        return new
    known = {} if old is None else directories_by_replica(old)
    directories = tuple(known.get(each) or first_directory(brokers.get(each)) for each in new.replicas)
    return new if directories == new.directories else _at(new, directories, new.offline_replicas)


def _at(each: PartitionImage, directories: tuple[bytes, ...], offline: tuple[int, ...]) -> PartitionImage:
    # As `replace` does, in a fifth of the time: thousands are made at once.
    return PartitionImage(
        each.partition,
        each.leader,
        each.leader_epoch,
        each.replicas,
        each.isr,
        each.partition_epoch,
        offline,
        each.adding_replicas,
        each.removing_replicas,
        each.elr,
        each.last_known_elr,
        directories,
        each.leader_recovery_state,
    )


def directories_by_replica(partition: PartitionImage) -> dict[int, bytes]:
    """In which directory each replica is."""
    if not partition.directories:
        return dict.fromkeys(partition.replicas, MIGRATING_DIRECTORY)
    return dict(zip(partition.replicas, partition.directories, strict=True))


def first_directory(broker: BrokerImage | None) -> bytes:
    """Where a new replica of a broker is."""
    if broker is None or not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


# Which replicas are offline


async def marked(image: ClusterImage, pace: Pace, nodes: Collection[int] | None = None) -> ClusterImage:
    """The image with the replicas whose directory does not work as offline ones.

    `nodes`: the brokers whose directories have changed; None: all."""
    topics = {}
    for topic in image.topics.values():
        await pace
        new = await _marked_topic(topic, topic.partitions, image.brokers, pace, nodes)
        if new is not topic:
            topics[topic.name] = new
    return _with_topics(image, topics)


async def marked_changes(image: ClusterImage, delta: MetadataDelta, pace: Pace) -> ClusterImage:
    """The image behind a delta, in which partitions that it changes or makes are marked as `marked` does."""
    topics = {}
    rows = [(topic, topic.partitions) for topic in delta.created]
    rows += [(change.new, altered(change.old, change.new)) for change in delta.changed]
    for topic, partitions in rows:
        new = await _marked_topic(topic, partitions, image.brokers, pace)
        if new is not topic:
            topics[topic.name] = new
    return _with_topics(image, topics)


def _with_topics(image: ClusterImage, topics: Mapping[str, TopicImage]) -> ClusterImage:
    if not topics:
        return image
    by_id = {topic.topic_id: topic for topic in topics.values()}
    return replace(image, topics={**image.topics, **topics}, topics_by_id={**image.topics_by_id, **by_id})


async def _marked_topic(
    topic: TopicImage,
    partitions: Iterable[PartitionImage],
    brokers: Mapping[int, BrokerImage],
    pace: Pace,
    nodes: Collection[int] | None = None,
) -> TopicImage:
    changed = {}
    for each in partitions:
        await pace
        if nodes is not None and not any(node in nodes for node in each.replicas):
            continue
        offline = tuple(
            node
            for node, directory in zip(each.replicas, each.directories, strict=False)
            if not works(brokers.get(node), directory)
        )
        if offline != each.offline_replicas:
            changed[each.partition] = _at(each, each.directories, offline)
    if not changed:
        return topic
    return replace(topic, partitions=tuple(changed.get(each.partition, each) for each in topic.partitions))
