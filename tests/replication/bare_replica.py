"""A partition and its log as fields alone."""

from __future__ import annotations

from typing import Any

from kbroker._fast.log.log_fields import EpochFields, LocalLogFields, LogFields, PartitionFields


class Replica(PartitionFields):
    """As much of a partition as a follower's request is made of."""

    topic, index, topic_id = "t", 0, b"0" * 16


class Log(LogFields):
    """As much of its log."""

    log_end_offset = property(lambda self: self.local.log_end_offset)
    latest_epoch = property(lambda self: self.leader_epoch_cache.latest_epoch)


def replica() -> Any:
    found, log = Replica(), Log()
    log.local, log.leader_epoch_cache = LocalLogFields(), EpochFields()
    log.leader_epoch_cache.latest_epoch = -1
    found.log = log
    return found
