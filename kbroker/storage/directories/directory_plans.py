"""Where partitions are to go: `cordoned.log.dirs`, AlterReplicaLogDirs, and the moves that go on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.storage.directories.future_log import FutureLog

MAX_PREFERENCES = 10_000


class MoveTotals(NamedTuple):
    """What moves between directories have come to; `bytes_copied` also of those that failed or still run."""

    done: int = 0
    failed: int = 0
    called_off: int = 0
    bytes_copied: int = 0


class DirectoryPlans:
    """Where partitions are to go: what the settings and AlterReplicaLogDirs ask for.

    `cordoned`   directories that take no new partitions (`cordoned.log.dirs`)
    `preferred`  places for partitions that do not exist yet, in memory only, as in Kafka
    `futures`    the copies of logs that move to another directory
    `found`      the copies that the start has found, for moves to go on with
    `totals`     what moves have done since the start
    """

    __slots__ = ("cordoned", "found", "futures", "preferred", "totals")

    def __init__(self, config: BrokerConfig) -> None:
        self.preferred: dict[TopicPartition, str] = {}
        self.futures: dict[TopicPartition, FutureLog] = {}
        self.found: dict[TopicPartition, str] = {}
        self.totals = MoveTotals()
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """Takes `cordoned.log.dirs` over; `*` stands for all directories."""
        named = config.get("cordoned.log.dirs")
        # As `LogDir` makes its paths: symbolic links stay as they were named.
        self.cordoned = frozenset(map(os.path.abspath, config.log_dirs if "*" in named else named))

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Remembers where to make a partition; the oldest wish goes when there are too many."""
        self.preferred[topic_partition] = path
        if len(self.preferred) > MAX_PREFERENCES:
            del self.preferred[next(iter(self.preferred))]

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Ends a move: the task that carries it out removes the copy."""
        future = self.futures.pop(topic_partition, None)
        if future is not None:
            future.cancelled = True
