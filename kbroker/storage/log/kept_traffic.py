"""What logs count of their messages and bytes, by topic, when a log goes: sums over a topic never shrink.

A log counts in C fields of its own (`LogFields.counted`).  When a partition goes from this broker, what it counted is
kept here and added to its topic's sum.  The sum over all topics keeps what deleted topics had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.storage.log.unified_log import UnifiedLog

Counted = tuple[int, int, int, int, int, int, int, int, int]
"""The fields of `Traffic` (`_fast/log/log_fields.pxd`), in their order."""

NOTHING: Counted = (0, 0, 0, 0, 0, 0, 0, 0, 0)
#: With more topics the ones that went first are forgotten: only one that comes back would show that.
MOST_TOPICS = 10_000


class KeptTraffic:
    """What the logs that are gone have counted since the start."""

    __slots__ = ("_topics", "total")

    def __init__(self) -> None:
        self.total = NOTHING
        self._topics: dict[str, Counted] = {}

    @property
    def topics(self) -> Mapping[str, Counted]:
        """By topic."""
        return self._topics

    def keep(self, log: UnifiedLog) -> None:
        """The log is this broker's no more."""
        counted = log.counted()
        if not any(counted):
            return
        topic = log.topic_partition.topic
        self.total = added(self.total, counted)
        self._topics[topic] = added(self._topics.pop(topic, NOTHING), counted)
        if len(self._topics) > MOST_TOPICS:
            del self._topics[next(iter(self._topics))]


def added(one: Counted, other: Counted) -> Counted:
    """The sum of both, field by field."""
    a, b = one, other
    return (
        a[0] + b[0],
        a[1] + b[1],
        a[2] + b[2],
        a[3] + b[3],
        a[4] + b[4],
        a[5] + b[5],
        a[6] + b[6],
        a[7] + b[7],
        a[8] + b[8],
    )
