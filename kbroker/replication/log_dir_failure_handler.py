"""What happens to partitions when a log directory fails, on the event loop.

    channel wakes the loop -> logs closed -> image without their leaders -> clients are told, groups are sent away

As in Kafka a partition on a failed directory has no leader, an empty ISR and this broker as an offline replica in the
metadata, and everything that asks for its records is answered with KAFKA_STORAGE_ERROR.  Losing the leader raises the
leader epoch, and so does getting it back.  The store keeps both: clients take metadata with an older epoch for stale.

After a start the directories that work say which partitions are there.  While one is missing at a start, a partition
that is in none of the others is taken to lie there, so it is not made anew and empty.

The first directory has the metadata: without it, or without any directory left, the broker halts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER, ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.metadata.store import MetadataStoreError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.store import MetadataStore
    from kbroker.storage.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")


class LogDirFailureHandler:
    """`halt` is called, once, with the reason why the broker cannot go on."""

    __slots__ = ("_cache", "_halt", "_halted", "_log_manager", "_loop", "_node_id", "_store")

    def __init__(
        self,
        log_manager: LogManager,
        cache: MetadataCache,
        store: MetadataStore,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        halt: Callable[[str], None],
    ) -> None:
        self._log_manager = log_manager
        self._cache = cache
        self._store = store
        self._node_id = node_id
        self._loop = loop
        self._halt = halt
        self._halted = False

    def start(self) -> None:
        """From now on act on failures, those that wait already included."""
        self._log_manager.failures.listen(lambda: self._loop.call_soon_threadsafe(self.handle_log_dir_failures))

    def stop(self) -> None:
        """The broker stops: what fails now is for the next start to find."""
        self._log_manager.failures.listen(None)

    def handle_log_dir_failures(self) -> None:
        """Take every directory that has failed since the last time offline."""
        gone = self._log_manager.drop_failed()
        if gone:
            delta = offline_delta(self._cache.image, self._node_id, frozenset(gone))
            _keep(self._store, delta)
            self._cache.publish(self._cache.image.with_topics(delta), delta)
        reason = reason_to_halt(self._log_manager)
        if reason is not None and not self._halted:
            self._halted = True
            self._halt(reason)


def reason_to_halt(log_manager: LogManager) -> str | None:
    """Why the broker cannot go on with the directories that are left; None when it can."""
    offline = log_manager.failures.offline
    if not log_manager.online_directories():
        reasons = "; ".join(f"{path}: {reason}" for path, reason in offline.items())
        return f"all log directories have failed ({reasons})"
    first = log_manager.directories[0].path
    if first in offline:
        return f"log directory {first}, which has the metadata, has failed ({offline[first]})"
    return None


def offline_delta(image: ClusterImage, node_id: int, gone: Collection[TopicPartition]) -> MetadataDelta:
    """What changes when partitions of this node have no log any more."""
    changes = []
    for name in dict.fromkeys(each.topic for each in gone):
        topic = image.topics.get(name)
        if topic is not None:
            changes.append(TopicChange(topic, _without_leader(topic, node_id, gone)))
    return MetadataDelta(changed=tuple(changes))


def _without_leader(topic: TopicImage, node_id: int, gone: Collection[TopicPartition]) -> TopicImage:
    return replace(
        topic,
        partitions=tuple(
            _offline(partition, node_id)
            if TopicPartition(topic.name, partition.partition) in gone and node_id not in partition.offline_replicas
            else partition
            for partition in topic.partitions
        ),
    )


def _offline(partition: PartitionImage, node_id: int) -> PartitionImage:
    """A partition whose replica on a node has failed; one that had no leader before keeps its epochs."""
    led = partition.leader == node_id
    return replace(
        partition,
        leader=NO_LEADER if led else partition.leader,
        leader_epoch=partition.leader_epoch + led,
        partition_epoch=partition.partition_epoch + (node_id in partition.isr),
        isr=tuple(each for each in partition.isr if each != node_id),
        offline_replicas=(*partition.offline_replicas, node_id),
    )


def _back(partition: PartitionImage, node_id: int) -> PartitionImage:
    return replace(
        partition,
        leader=node_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        isr=(node_id,),
    )


def _back_delta(image: ClusterImage, node_id: int, gone: Collection[TopicPartition]) -> MetadataDelta:
    """What changes for partitions without a leader whose directory works again."""
    changes = []
    for topic in image.topics.values():
        if any(each.leader == NO_LEADER for each in topic.partitions):
            partitions = tuple(
                _back(each, node_id)
                if each.leader == NO_LEADER
                and node_id in each.replicas
                and TopicPartition(topic.name, each.partition) not in gone
                else each
                for each in topic.partitions
            )
            changes.append(TopicChange(topic, replace(topic, partitions=partitions)))
    return MetadataDelta(changed=tuple(changes))


def _keep(store: MetadataStore, delta: MetadataDelta) -> None:
    """Writes the partitions that a delta changes; without it their epochs go back with the next start."""
    changes = []
    for old, new in delta.changed:
        changed = [each for before, each in zip(old.partitions, new.partitions, strict=True) if each is not before]
        changes.append((new.topic_id, changed))
    try:
        store.alter_partitions(changes)
    except MetadataStoreError as error:
        logger.error("The leader epochs of %d topics are not kept for the next start: %s", len(changes), error)


def leaders_at_start(image: ClusterImage, node_id: int, log_manager: LogManager, store: MetadataStore) -> ClusterImage:
    """The image that the broker starts with.

    Partitions that are not found while a directory is missing are offline; those that are back get their leader back.
    """
    gone: frozenset[TopicPartition] = frozenset()
    if log_manager.failures.offline:
        gone = frozenset(
            tp
            for topic in image.topics.values()
            for partition in topic.partitions
            if node_id in partition.replicas
            and log_manager.get_log(tp := TopicPartition(topic.name, partition.partition)) is None
        )
    if gone:
        logger.error(
            "%d partitions are not in the log directories that work, so they are offline: %s are missing",
            len(gone),
            ", ".join(log_manager.failures.offline),
        )
    for delta in (_back_delta(image, node_id, gone), offline_delta(image, node_id, gone)):
        if not delta.is_empty():
            _keep(store, delta)
            image = image.with_topics(delta)
    return image
