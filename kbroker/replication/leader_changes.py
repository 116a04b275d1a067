"""How leaders and their epochs change when log directories fail and come back; what of it may be published.

Leader epochs never go down, as clients drop metadata with an older epoch than they know:

- Losing the leader raises the epoch, and so does getting it back.  An epoch is stored before it is published.  Where
  the store fails, as when its own disk is the one that failed, the partition is offline in the epoch that is stored.
- A start after an unclean stop begins a new epoch, as Kafka's does: records may be lost, and a client that has read
  them finds the end of the old epoch below its position (KIP-320).
- No leader begins below the epochs that its log holds, as it would with a backup of the store.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER, ClusterImage, MetadataDelta, PartitionImage, TopicChange
from kbroker.metadata.store import MetadataStoreError
from kbroker.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.store import MetadataStore
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")

Changes = Mapping[TopicPartition, PartitionImage]


def offline_delta(
    image: ClusterImage, node_id: int, gone: Collection[TopicPartition], store: MetadataStore
) -> MetadataDelta:
    """What may be published when partitions of this node have no log any more: stored, or without new epochs."""
    found = {tp: _partition(image, tp) for tp in gone if tp.topic in image.topics}
    delta = _delta(image, {tp: _offline(partition, node_id) for tp, partition in found.items()})
    if _is_stored(store, delta):
        return delta
    return _delta(image, {tp: _unserved(partition, node_id) for tp, partition in found.items()})


def leaders_at_start(image: ClusterImage, node_id: int, log_manager: LogManager, store: MetadataStore) -> ClusterImage:
    """The image that the broker starts with.

    The directories that work say which partitions are there.  While one is missing, a partition that is in none of the
    others is taken to lie there and is offline, so it is not made anew and empty.
    """
    found = _find(image, node_id, log_manager)
    if found.gone:
        logger.error(
            "%d partitions are not in the log directories that work, so they are offline: %s are missing",
            len(found.gone),
            ", ".join(log_manager.failures.offline),
        )
    offline = {tp: _offline(partition, node_id) for tp, partition in found.gone.items()}
    delta = _delta(image, {**offline, **found.due, **found.wanted})
    if not _is_stored(store, delta):
        unserved = (*found.gone, *found.due)
        delta = _delta(image, {tp: _unserved(_partition(image, tp), node_id) for tp in unserved})
    return image.with_topics(delta)


@dataclass(slots=True)
class _Found:
    """Partitions of this node at a start: those without a log, and new images of those that begin a new epoch.

    `due` cannot be led in the epoch that is stored, `wanted` can.
    """

    gone: dict[TopicPartition, PartitionImage] = field(default_factory=dict)
    due: dict[TopicPartition, PartitionImage] = field(default_factory=dict)
    wanted: dict[TopicPartition, PartitionImage] = field(default_factory=dict)


def _find(image: ClusterImage, node_id: int, log_manager: LogManager) -> _Found:
    found = _Found()
    unclean = {directory.path for directory in log_manager.online_directories() if not directory.clean}
    is_one_missing = bool(log_manager.failures.offline)
    for tp, partition in _partitions(image, node_id):
        log = log_manager.get_log(tp)
        if log is None and is_one_missing:
            found.gone[tp] = partition
            continue
        if partition.leader not in (NO_LEADER, node_id):
            continue
        held_epoch = log.latest_epoch if log is not None else NO_LEADER_EPOCH
        if partition.leader == NO_LEADER or held_epoch > partition.leader_epoch:
            found.due[tp] = _leading(partition, node_id, held_epoch)
        elif log is None or log.parent in unclean:
            found.wanted[tp] = _leading(partition, node_id, held_epoch)
    return found


def _partitions(image: ClusterImage, node_id: int) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """The partitions with a replica on a node."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if node_id in partition.replicas:
                yield TopicPartition(topic.name, partition.partition), partition


def _partition(image: ClusterImage, topic_partition: TopicPartition) -> PartitionImage:
    return image.topics[topic_partition.topic].partitions[topic_partition.partition]


def _delta(image: ClusterImage, changes: Changes) -> MetadataDelta:
    """The delta from an image to one with other partitions."""
    names = dict.fromkeys(tp.topic for tp in changes)
    changed = []
    for topic in (image.topics[name] for name in names):
        partitions = tuple(changes.get(TopicPartition(topic.name, each.partition), each) for each in topic.partitions)
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed.append(TopicChange(topic, replace(topic, partitions=partitions)))
    return MetadataDelta(changed=tuple(changed))


def _unserved(partition: PartitionImage, node_id: int) -> PartitionImage:
    """A partition whose replica on a node has failed, with the leader and the epochs that are stored."""
    if node_id in partition.offline_replicas:
        return partition
    return replace(partition, offline_replicas=(*partition.offline_replicas, node_id))


def _offline(partition: PartitionImage, node_id: int) -> PartitionImage:
    """A partition whose replica on a node has failed; one that had no leader before keeps its epochs."""
    if node_id in partition.offline_replicas:
        return partition
    led = partition.leader == node_id
    return replace(
        _unserved(partition, node_id),
        leader=NO_LEADER if led else partition.leader,
        leader_epoch=partition.leader_epoch + led,
        partition_epoch=partition.partition_epoch + (node_id in partition.isr),
        isr=tuple(each for each in partition.isr if each != node_id),
    )


def _leading(partition: PartitionImage, node_id: int, held_epoch: int) -> PartitionImage:
    """A partition that a node leads from now on, in an epoch above the stored one and those that its log holds."""
    return replace(
        partition,
        leader=node_id,
        leader_epoch=max(partition.leader_epoch, held_epoch) + 1,
        partition_epoch=partition.partition_epoch + 1,
        isr=(node_id,),
    )


def _is_stored(store: MetadataStore, delta: MetadataDelta) -> bool:
    """Writes the partitions that a delta changes; whether they are durable, so that the delta may be published."""
    if delta.is_empty():
        return True
    changes = []
    for old, new in delta.changed:
        changed = [each for before, each in zip(old.partitions, new.partitions, strict=True) if each is not before]
        changes.append((new.topic_id, changed))
    try:
        store.alter_partitions(changes)
    except MetadataStoreError as error:
        logger.error("New leader epochs of %d topics can't be stored, so the old ones stay: %s", len(changes), error)
        return False
    return True
