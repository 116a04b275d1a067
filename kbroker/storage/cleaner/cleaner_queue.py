"""The order in which logs that are due are compacted.

The log with the largest dirty share comes first, as in Kafka.  In Kafka a log that becomes the dirtiest again soon
after each clean can starve the others.  Here `PATIENCE_SECONDS` of waiting add 1 to the dirty share, so that every log
has its turn.
"""

from __future__ import annotations

from heapq import heappop, heappush

from kbroker.types import TopicPartition

PATIENCE_SECONDS = 300.0


class DueLogs:
    """The logs that wait.  Times are seconds of one clock.  Belongs to the loop."""

    __slots__ = ("_order", "_since")

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        # Ratio + (now - since) / patience orders logs in the same way at any time, so `now` is left out.
        self._order: list[tuple[float, TopicPartition]] = []

    def __len__(self) -> int:
        return len(self._since)

    def restart(self) -> None:
        """Before all logs are offered or withdrawn anew, with how dirty they are now."""
        self._order.clear()

    def offer(self, topic_partition: TopicPartition, dirty_ratio: float, now: float) -> None:
        """A log is due, and waits since it was first offered."""
        since = self._since.setdefault(topic_partition, now)
        heappush(self._order, (since / PATIENCE_SECONDS - dirty_ratio, topic_partition))

    def withdraw(self, topic_partition: TopicPartition) -> None:
        """A log is not due."""
        self._since.pop(topic_partition, None)

    def take(self) -> TopicPartition | None:
        """The log whose turn it is; it waits no longer."""
        while self._order:
            _, topic_partition = heappop(self._order)
            if self._since.pop(topic_partition, None) is not None:
                return topic_partition
        return None
