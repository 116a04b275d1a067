"""What happens to partitions when a log directory fails, on the event loop.

    channel wakes the loop -> logs closed -> image without their leaders -> clients are told, groups are sent away

As in Kafka a partition on a failed directory has no leader, an empty ISR and this broker as an offline replica in the
metadata, and everything that asks for its records is answered with KAFKA_STORAGE_ERROR.  The store is not told: after
a start the directories that work say which partitions are there.  While one is missing at a start, a partition that is
in none of the others is taken to lie there, so it is not made anew and empty.

The first directory has the metadata: without it, or without any directory left, the broker halts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER, ClusterImage, MetadataDelta, TopicChange, TopicImage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker.metadata.cache import MetadataCache
    from kbroker.storage.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")


class LogDirFailureHandler:
    """`halt` is called, once, with the reason why the broker cannot go on."""

    __slots__ = ("_cache", "_halt", "_halted", "_log_manager", "_loop", "_node_id")

    def __init__(
        self,
        log_manager: LogManager,
        cache: MetadataCache,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        halt: Callable[[str], None],
    ) -> None:
        self._log_manager = log_manager
        self._cache = cache
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
    partitions = tuple(
        replace(
            partition,
            leader=NO_LEADER if partition.leader == node_id else partition.leader,
            isr=tuple(each for each in partition.isr if each != node_id),
            offline_replicas=(*partition.offline_replicas, node_id),
        )
        if TopicPartition(topic.name, partition.partition) in gone and node_id not in partition.offline_replicas
        else partition
        for partition in topic.partitions
    )
    return replace(topic, partitions=partitions)


def offline_at_start(image: ClusterImage, node_id: int, log_manager: LogManager) -> ClusterImage:
    """The image that the broker starts with: partitions that are not found while a directory is missing are offline."""
    if not log_manager.failures.offline:
        return image
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
    return image.with_topics(offline_delta(image, node_id, gone))
