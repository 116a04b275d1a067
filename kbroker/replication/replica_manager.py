"""The partitions that this broker leads, and the only way to append to them and read from them.

Follows the metadata: `apply` is a subscriber of the metadata cache, so a topic is usable the moment that it is visible.
New logs cost several files each, and a topic may have thousands: those that do not fit into CREATE_SECONDS are made
when they are first asked for, or between other work, whichever comes first (`_unborn`).  A log that cannot be created
leaves its partition without one; such a partition answers KAFKA_STORAGE_ERROR.

Everything here runs on the event loop and nothing awaits between reading and writing the state of a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker._fast.ordinary_append import append_ordinary
from kbroker.errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.partition import Partition
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from kbroker.config import LogConfig
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage
    from kbroker.storage.log_manager import LogManager
    from kbroker.storage.log_validator import AnalyzedBatch, AppendOrigin
    from kbroker.storage.log_values import AppendResult
    from kbroker.storage.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.replication")

CREATE_SECONDS = 0.010
CREATE_PAUSE_SECONDS = 0.020


class ReplicaManager:
    """`log_config(topic_configs)` merges a topic's own settings with the broker's."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._log_manager = log_manager
        self._log_config = log_config
        self.topics: dict[str, dict[int, Partition]] = {}
        self.names: dict[bytes, str] = {}
        self._failed: set[TopicPartition] = set()
        self._unborn: dict[TopicPartition, tuple[TopicImage, PartitionImage]] = {}
        self._loop = loop
        self._closed = False
        self.purgatory = FetchPurgatory(loop)

    # Following the metadata

    def apply(self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        """Bring partitions and logs in line with a new image."""
        for topic in delta.deleted:
            self._forget(topic)
        for topic in delta.created:
            self._lead(topic)
        for change in delta.changed:
            self._lead(change.new)

    def apply_image(self, image: ClusterImage) -> None:
        """Lead what the image at start-up says, each partition with the log that was loaded for it."""
        for topic in image.topics.values():
            self._lead(topic)

    def _lead(self, topic: TopicImage) -> None:
        deadline = self._loop.time() + CREATE_SECONDS
        config = self._log_config(topic.configs)
        known = self.topics.setdefault(topic.name, {})
        self.names[topic.topic_id] = topic.name
        for image in topic.partitions:
            if image.leader != self._node_id:
                if self._node_id in image.offline_replicas:
                    self._failed.add(TopicPartition(topic.name, image.partition))
                self._stop_leading(topic.name, known, image.partition)
                continue
            partition = known.get(image.partition)
            if partition is not None:
                partition.log.config = config
                partition.follow(image)
                continue
            topic_partition = TopicPartition(topic.name, image.partition)
            if self._loop.time() < deadline or self._log_manager.get_log(topic_partition) is not None:
                self._create(topic, image, config)
                continue
            if not self._unborn:
                self._loop.call_later(CREATE_PAUSE_SECONDS, self._create_some)
            self._unborn[topic_partition] = (topic, image)

    def _create(self, topic: TopicImage, image: PartitionImage, config: LogConfig) -> None:
        topic_partition = TopicPartition(topic.name, image.partition)
        self._unborn.pop(topic_partition, None)
        try:
            log = self._log_manager.get_or_create_log(topic_partition, topic.topic_id, config)
        except (OSError, KafkaStorageError) as error:
            logger.error("the log of %s could not be made; it answers KAFKA_STORAGE_ERROR: %s", topic_partition, error)
            self._failed.add(topic_partition)
            return
        log.assign_leader_epoch(image.leader_epoch)
        log.maybe_increment_high_watermark(log.log_end_offset)
        partition = Partition(topic.name, image.partition, topic.topic_id, log, self._node_id, image)
        self.topics[topic.name][image.partition] = partition

    def _create_some(self) -> None:
        """Make logs that nobody has asked for yet, a few at a time."""
        deadline = self._loop.time() + CREATE_SECONDS
        while self._unborn and self._loop.time() < deadline:
            topic, image = next(iter(self._unborn.values()))
            self._create(topic, image, self._log_config(topic.configs))
        if self._unborn:
            self._loop.call_later(CREATE_PAUSE_SECONDS, self._create_some)

    def _stop_leading(self, topic: str, known: dict[int, Partition], index: int) -> None:
        self._unborn.pop(TopicPartition(topic, index), None)
        partition = known.pop(index, None)
        if partition is not None:
            self.purgatory.expire_partition(partition)

    def _forget(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            self._unborn.pop(TopicPartition(topic.name, index), None)
        partitions = self.topics.pop(topic.name, {})
        self.names.pop(topic.topic_id, None)
        self._failed = {failed for failed in self._failed if failed.topic != topic.name}
        for partition in partitions.values():
            self.purgatory.expire_partition(partition)
            try:
                self._log_manager.delete_log(partition.topic_partition)
            except KafkaStorageError as error:
                # The topic is gone all the same; the next start sets the directory aside.
                logger.error("%s stays on disk: %s", partition.topic_partition, error)

    def close(self) -> None:
        """Lead nothing any more: a batch that a thread still judges finds no partition to be written to."""
        self._closed = True
        self.topics.clear()
        self._unborn.clear()

    # Lookup

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that sends a client to look elsewhere."""
        partitions = self.topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        return self._explain_absence(topic, index)

    @property
    def offline_count(self) -> int:
        """Partitions that have no log because of a disk."""
        return len(self._failed)

    def is_unborn(self, topic: str, index: int) -> bool:
        """Whether the partition's log is still to be made, and so is empty."""
        return TopicPartition(topic, index) in self._unborn

    def _explain_absence(self, topic: str, index: int) -> Partition:
        unborn = self._unborn.get(TopicPartition(topic, index))
        if unborn is not None:
            self._create(*unborn, self._log_config(unborn[0].configs))
            return self.partition(topic, index)
        if TopicPartition(topic, index) in self._failed:
            raise KafkaStorageError(f"Partition {topic}-{index} is offline")
        if self._closed:
            raise NotLeaderOrFollowerError()
        partitions = self.topics.get(topic)
        if partitions is None or index < 0 or index >= len(partitions):
            raise UnknownTopicOrPartitionError()
        raise NotLeaderOrFollowerError()

    def topic_name(self, topic_id: bytes) -> str:
        """The name behind a topic id.  UnknownTopicIdError when no topic has it."""
        name = self.names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError()
        return name

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.topics.values():
            yield from partitions.values()

    # Data

    def append_ordinary(self, partition: Partition, records: memoryview | bytearray | None, now_ms: int) -> int:
        """Append a client's batch if nothing is out of the ordinary (`_fast.ordinary_append`): its offset, else -1.

        With -1 nothing has been changed, and `append` does all that there is to do.
        """
        first = append_ordinary(partition.log, records, partition.leader_epoch, now_ms)
        if first >= 0 and partition.waiting:
            self.purgatory.mark(partition)
        return first

    def append(
        self,
        partition: Partition,
        records: memoryview | bytearray,
        *,
        origin: AppendOrigin,
        analyzed: AnalyzedBatch | None = None,
    ) -> AppendResult:
        """Append one batch as leader, make it visible and wake the fetches that wait for it.

        Where the settings ask for an fsync before the answer, consumers see it after that, too (`on_durable`); whoever
        answers asks the log's committer whether to wait.
        """
        log = partition.log
        try:
            result = log.append_as_leader(records, partition.leader_epoch, origin=origin, analyzed=analyzed)
        except OSError as error:
            raise log.storage_error("appending records", error) from error
        if not result.duplicate:
            if log.committer is not None and log.committer.holds(result.last_offset):
                return result
            log.maybe_increment_high_watermark(log.log_end_offset)
            if partition.waiting:
                self.purgatory.mark(partition)
        return result

    def on_durable(self, log: UnifiedLog) -> None:
        """An fsync has covered more of a log whose appends wait for that: show it to consumers."""
        partition = self.topics.get(log.topic_partition.topic, {}).get(log.topic_partition.partition)
        if partition is None or partition.log is not log or log.committer is None:
            return
        if log.maybe_increment_high_watermark(log.committer.durable_offset) and partition.waiting:
            self.purgatory.mark(partition)
