"""A topic whose partitions hold the state of a coordinator, as the coordinator sees it: append and read back.

With one replica an append is committed when it returns; with more it will be when the high watermark passes it.  With
`kbroker.fsync=commit` it must be durable before anybody is told of it: the state in memory changes at once, and the
answers that tell of it wait (`when_durable`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.storage.log_validator import AppendOrigin

if TYPE_CHECKING:
    from kbroker.errors import KafkaError
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.storage.group_commit import LogCommitter, Settled


class PartitionStateLog:
    """The state log over the partitions of `topic`; `ensure` makes the topic when it is first written.

    `unsettled` has the last offset of each log that may not be durable up to there yet; empty unless settings ask.
    """

    __slots__ = ("_ensure", "_manager", "topic", "unsettled")

    def __init__(self, topic: str, manager: ReplicaManager, ensure: Callable[[], object]) -> None:
        self.topic = topic
        self._manager = manager
        self._ensure = ensure
        self.unsettled: dict[LogCommitter, int] = {}

    def ensure_topic(self) -> None:
        """Make the topic if it does not exist yet."""
        self._ensure()

    def append(self, partition_index: int, batch: bytearray) -> int:
        """Append one batch; the offset of its last record.  Raises KafkaError when the partition cannot take it."""
        partition = self._manager.partition(self.topic, partition_index)
        last_offset = self._manager.append(partition, batch, origin=AppendOrigin.COORDINATOR).last_offset
        committer = partition.log.committer
        if committer is not None and committer.holds(last_offset):
            self.unsettled[committer] = last_offset
        return last_offset

    def when_durable(self, settled: Settled) -> bool:
        """Call `settled` once all that was appended so far is durable, or why it will not be; False: it is already,
        and nothing is called."""
        waiting = {committer: last for committer, last in self.unsettled.items() if committer.holds(last)}
        self.unsettled = waiting
        if not waiting:
            return False
        _Settlement(len(waiting), settled).watch(waiting)
        return True

    def read(self, partition_index: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one and about `max_bytes`; empty at the end."""
        log = self._manager.partition(self.topic, partition_index).log
        try:
            return log.read_bytes(offset, max_bytes)
        except OSError as error:
            raise log.storage_error("reading records", error) from error

    def bounds(self, partition_index: int) -> tuple[int, int]:
        """First offset and end offset."""
        if self._manager.is_unborn(self.topic, partition_index):
            return 0, 0
        log = self._manager.partition(self.topic, partition_index).log
        return log.log_start_offset, log.log_end_offset


class _Settlement:
    """Waits for several logs, and answers with the first failure."""

    __slots__ = ("_error", "_left", "_settled")

    def __init__(self, count: int, settled: Settled) -> None:
        self._left = count
        self._settled = settled
        self._error: KafkaError | None = None

    def watch(self, waiting: dict[LogCommitter, int]) -> None:
        for committer, last_offset in waiting.items():
            committer.wait(last_offset, self._one_settled)

    def _one_settled(self, error: KafkaError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._settled(self._error)
