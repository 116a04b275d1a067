"""A topic whose partitions hold the state of a coordinator, as the coordinator sees it: append and read back.

With one replica an append is committed when it returns; with more it will be when the high watermark passes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.storage.log_validator import AppendOrigin

if TYPE_CHECKING:
    from kbroker.replication.replica_manager import ReplicaManager


class PartitionStateLog:
    """The state log over the partitions of `topic`; `ensure` makes the topic when it is first written."""

    __slots__ = ("_ensure", "_manager", "topic")

    def __init__(self, topic: str, manager: ReplicaManager, ensure: Callable[[], object]) -> None:
        self.topic = topic
        self._manager = manager
        self._ensure = ensure

    def ensure_topic(self) -> None:
        """Make the topic if it does not exist yet."""
        self._ensure()

    def append(self, partition_index: int, batch: bytearray) -> int:
        """Append one batch; the offset of its last record.  Raises KafkaError when the partition cannot take it."""
        partition = self._manager.partition(self.topic, partition_index)
        return self._manager.append(partition, batch, origin=AppendOrigin.COORDINATOR).last_offset

    def read(self, partition_index: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one and about `max_bytes`; empty at the end."""
        return self._manager.partition(self.topic, partition_index).log.read_bytes(offset, max_bytes)

    def bounds(self, partition_index: int) -> tuple[int, int]:
        """First offset and end offset."""
        log = self._manager.partition(self.topic, partition_index).log
        return log.log_start_offset, log.log_end_offset
