"""The pages about logs that the metrics listener serves as JSON, which `kbroker logs` reads.

    GET /logs                     directories, and a line for each partition
    GET /logs/TOPIC               everything about the topic's partitions
    GET /logs/TOPIC/PARTITION     everything about one, with the explanation of what becomes of it

An error is a status (404) and `{"error": "..."}`.  Very many partitions are read in slices of the loop's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker._fast.base.slices import Pace
from kbroker.storage.reports.log_description import Description, description, summary
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.storage.manager.log_manager import LogManager

OK = 200
NOT_FOUND = 404
Page = tuple[int, object]


class LogPages:
    """Answers by the parts of the path after /logs."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock

    async def __call__(self, parts: Sequence[str]) -> Page:
        if not parts:
            return OK, {"directories": self._directories(), "partitions": await self._list(self._manager.slices.pace())}
        if len(parts) > 2:
            return NOT_FOUND, {"error": "there are /logs, /logs/TOPIC and /logs/TOPIC/PARTITION"}
        logs = self._logs_of(parts[0])
        if not logs:
            return NOT_FOUND, {"error": f"there is no topic {parts[0]} with a partition on this broker"}
        if len(parts) == 1:
            return OK, {"partitions": await self._describe(logs, self._manager.slices.pace())}
        return self._one(parts[0], parts[1], logs)

    def _one(self, topic: str, text: str, logs: Sequence[UnifiedLog]) -> Page:
        log = None
        if text.isascii() and text.isdigit() and len(text) < 11:
            log = self._manager.logs.get(TopicPartition(topic, int(text)))
        if log is None:
            numbers = [each.topic_partition.partition for each in logs]
            here = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
            return NOT_FOUND, {"error": f"topic {topic} has no partition {text} on this broker, which has {here}"}
        return OK, description(self._manager, log, self._clock)

    def _logs_of(self, topic: str) -> list[UnifiedLog]:
        logs = [log for tp, log in self._manager.logs.items() if tp.topic == topic]
        return sorted(logs, key=lambda log: log.topic_partition.partition)

    def _directories(self) -> list[Description]:
        manager = self._manager
        space_guards = {guard.path: guard for guard in manager.space_guards}
        return [
            {
                "path": directory.path,
                "state": "offline" if manager.failures.is_offline(directory.path) else "online",
                "free_bytes": space_guards[directory.path].free_bytes if directory.path in space_guards else None,
                "refusing_produce": space_guards[directory.path].is_refusing
                if directory.path in space_guards
                else None,
                "cordoned": directory.path in manager.plans.cordoned,
            }
            for directory in manager.directories
        ]

    async def _list(self, pace: Pace) -> list[Description]:
        rows = []
        for tp in sorted(self._manager.logs):
            await pace
            log = self._manager.logs.get(tp)
            if log is not None:
                rows.append(summary(self._manager, log))
        return rows

    async def _describe(self, logs: Sequence[UnifiedLog], pace: Pace) -> list[Description]:
        rows = []
        for log in logs:
            await pace
            if self._manager.logs.get(log.topic_partition) is log:
                rows.append(description(self._manager, log, self._clock))
        return rows
