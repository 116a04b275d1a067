"""The logs of the partitions that this broker has: opened, made later, offline, and taken away.

New logs cost several files each, and a topic may have thousands: those that do not fit into a slice of the loop's time
are deferred until they are first asked for, or until there is time.  A log that cannot be made leaves its partition
offline.  Directories of deleted partitions are renamed between other work, but before a partition of the same name is
made, and before the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError
from kbroker.metrics.readiness import Problem
from kbroker.replication.logs_without_room import LogsWithoutRoom
from kbroker.types import LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker.config import LogConfig
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.replication")

NAMED_PROBLEMS = 5


class ReplicaLogs:
    """`make(topic, image)` takes the role again of a partition whose log found no room."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[TopicImage, PartitionImage], None],
    ) -> None:
        self._node_id = node_id
        self._log_manager = log_manager
        self._deferred: dict[TopicPartition, tuple[TopicImage, PartitionImage]] = {}
        self._dying: dict[TopicPartition, None] = {}
        self.offline: set[TopicPartition] = set()
        """Partitions that have no log because of a disk."""
        self.without_room = LogsWithoutRoom(loop, make)
        self.late_count = 0
        """How many logs were made later than they were wanted."""

    def open(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> UnifiedLog | None:
        """The log of a partition, which is made if need be; None where the disk refuses it: it is offline then."""
        topic_partition = TopicPartition(topic.name, image.partition)
        self._deferred.pop(topic_partition, None)
        self.delete(topic_partition)
        assert topic_partition not in self._dying, f"{topic_partition} would be deleted as soon as it is made"
        is_known = topic_partition in self.offline  # It is tried again every second.
        try:
            log = self._log_manager.get_or_create_log(topic_partition, topic.topic_id, config, is_known=is_known)
        except (OSError, KafkaStorageError) as error:
            if not is_known:
                text = "the log of %s could not be made; it answers KAFKA_STORAGE_ERROR: %s"
                logger.error(text, topic_partition, error)
            self.offline.add(topic_partition)
            self.without_room.note(topic_partition, topic, image, error)
            return None
        if is_known:
            self.late_count += 1
            logger.warning("the log of %s is there by now", topic_partition)
            self.offline.discard(topic_partition)
        self.without_room.forget(topic_partition)
        assert log.topic_partition == topic_partition not in self.offline, (log, topic_partition)
        if image.leader == self._node_id:
            log.assign_leader_epoch(LeaderEpoch(image.leader_epoch))
            assert log.high_watermark <= log.log_end_offset, log
        return log

    def is_there(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log needs not be made."""
        return topic_partition not in self._dying and self._log_manager.get_log(topic_partition) is not None

    def may_lie_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition may be in a directory that has failed."""
        return bool(self._log_manager.failures.offline) and self._log_manager.get_log(topic_partition) is None

    # Logs that are made later

    def defer(self, topic: TopicImage, image: PartitionImage) -> None:
        """The log of a partition that is led from now on is empty until it is made."""
        assert image.leader == self._node_id, f"{topic.name}-{image.partition} is led by {image.leader}"
        self._deferred[TopicPartition(topic.name, image.partition)] = (topic, image)

    def is_deferred(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's log is still to be made, and so is empty."""
        return topic_partition in self._deferred

    def deferred(self, topic_partition: TopicPartition) -> tuple[TopicImage, PartitionImage] | None:
        """What the log of a partition is to be made of."""
        return self._deferred.get(topic_partition)

    @property
    def next_deferred(self) -> tuple[TopicImage, PartitionImage] | None:
        """The first of those that are still to be made."""
        return next(iter(self._deferred.values()), None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """No log is wanted any more."""
        self._deferred.pop(topic_partition, None)
        self.without_room.forget(topic_partition)

    # Logs that are taken away

    def take_away(self, topic_partition: TopicPartition) -> None:
        """The log of a deleted partition goes when there is time; it may have been made in part."""
        assert topic_partition not in self._deferred, f"{topic_partition} would be made again"
        self._dying[topic_partition] = None

    @property
    def next_dying(self) -> TopicPartition | None:
        """The first of those that are still to go."""
        return next(iter(self._dying), None)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log away whose partition was deleted; nothing where there is none."""
        if topic_partition not in self._dying:
            return
        del self._dying[topic_partition]
        try:
            self._log_manager.delete_log(topic_partition)
        except KafkaStorageError as error:
            # The topic is gone all the same; the next start sets the directory aside.
            logger.error("%s stays on disk: %s", topic_partition, error)

    def delete_topic(self, topic: TopicImage) -> None:
        """None of the topic's logs is made any more; of those that failed, what was made in part goes."""
        if self._deferred:
            for index in range(len(topic.partitions)):
                self._deferred.pop(TopicPartition(topic.name, index), None)
        for failed in [each for each in self.offline if each.topic == topic.name]:
            self.without_room.forget(failed)
            self.offline.discard(failed)
            self.take_away(failed)

    @property
    def has_work(self) -> bool:
        """Whether logs are to be made or to go."""
        return bool(self._dying or self._deferred)

    def retry_refused(self) -> None:
        """There is room again: partitions whose new logs found none are no longer offline, as a controller may ask."""
        assert self.without_room.refused <= self.offline, (self.without_room.refused, self.offline)
        self.offline -= self.without_room.refused
        self.without_room.refused.clear()

    def problems(self, *, serves_any: bool) -> Iterator[Problem]:
        """For readiness: partitions that are offline.  `serves_any`: others are led."""
        count = len(self.offline)
        if count:
            named = ", ".join(map(str, sorted(self.offline)[:NAMED_PROBLEMS]))
            text = f"{count} partitions are offline" if count > 1 else "1 partition is offline"
            stops_service = not (serves_any or self._deferred)
            yield Problem(f"{text}: {named}{', …' if count > NAMED_PROBLEMS else ''}", stops_service=stops_service)

    def close(self) -> None:
        """Delete what is to go, and make nothing any more."""
        self.without_room.close()
        for topic_partition in list(self._dying):
            self.delete(topic_partition)
        assert not self._dying, f"deleted partitions come back with the next start: {list(self._dying)}"
        self._deferred.clear()
