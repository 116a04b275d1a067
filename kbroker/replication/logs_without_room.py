"""Logs that could not be made because their disk had no room: they are made once there is some.

Until then their partitions are offline, and answer KAFKA_STORAGE_ERROR.  A full disk can have room again without any
event, so nothing else would try these logs again before the next start.  Apache Kafka takes the whole directory offline
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.storage.files.log_dir_failure import NO_SPACE

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.types import TopicPartition

RETRY_SECONDS = 1.0


class LogsWithoutRoom:
    """`make(topic, image)` is called again for each of them until it is forgotten, or fails for another reason.

    `refused`: partitions reported to a ZooKeeper controller, which treats them as offline.
    """

    __slots__ = ("_loop", "_make", "_timer", "_waiting", "refused")

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._waiting

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[TopicImage, PartitionImage], None]) -> None:
        self._loop = loop
        self._make = make
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[TopicPartition, tuple[TopicImage, PartitionImage]] = {}
        self.refused: set[TopicPartition] = set()

    def note(
        self, topic_partition: TopicPartition, topic: TopicImage, image: PartitionImage, error: BaseException
    ) -> None:
        """The log could not be made: try again where room is all that it lacks."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in NO_SPACE:
            return
        self._waiting[topic_partition] = (topic, image)
        if self._timer is None:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log is there by now, or is not wanted any more."""
        self._waiting.pop(topic_partition, None)
        self.refused.discard(topic_partition)

    def refuse(self, topic_partition: TopicPartition) -> None:
        """The controller hears that the log could not be made, and decides what becomes of the replica."""
        if self._waiting.pop(topic_partition, None) is not None:
            assert topic_partition not in self.refused, f"{topic_partition} is refused already, and was tried again"
            self.refused.add(topic_partition)

    def close(self) -> None:
        """Make none any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _try_again(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for topic, image in waiting.values():
            self._make(topic, image)
