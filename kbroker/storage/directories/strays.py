"""Partition directories that belong to no topic: kept on the disk under a name ending in `-stray`, and not served.

As Kafka's stray replicas (LogManager.isStrayKraftReplica): the topic does not exist, has another id, or has no
partition of that number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kbroker.config import LogConfig
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import ZERO_UUID

logger = logging.getLogger("kbroker.storage")


class KnownTopic(NamedTuple):
    """A topic in the metadata at start.  Without `partition_count`, partitions of every number belong to it."""

    topic_id: bytes
    config: LogConfig
    partition_count: int | None = None


def is_of_another_topic(log: UnifiedLog, topic_id: bytes) -> bool:
    """Whether a log belongs to another topic of that name.  One without an id could be of any."""
    return log.topic_id not in (topic_id, ZERO_UUID)


def stray_logs(logs: Iterable[UnifiedLog], topics: Mapping[str, KnownTopic]) -> Iterator[tuple[UnifiedLog, str]]:
    """The logs that are strays, each with the reason."""
    for log in logs:
        name, partition = log.topic_partition
        known = topics.get(name)
        if known is None:
            yield log, "its topic does not exist"
        elif is_of_another_topic(log, known.topic_id):
            yield log, "it belongs to a topic of that name that was deleted"
        elif known.partition_count is not None and partition >= known.partition_count:
            yield log, f"its topic has {known.partition_count} partition(s)"


def log_strays(path: str, names: list[str]) -> None:
    """Logs the directories of earlier strays in a log directory: they take space until they are deleted."""
    if names:
        logger.warning(
            "%s holds %d partition(s) that were set aside and are not served; delete what is not needed: %s",
            path,
            len(names),
            ", ".join(sorted(names)),
        )
