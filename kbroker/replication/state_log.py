"""A topic whose partitions hold the state of a coordinator, as the coordinator sees it: append and read back.

The state in memory changes with the append.  Answers that depend on it wait until the append is committed
(`when_committed`): until each in-sync replica has it, durably where the settings ask for that (`Partition`).  The
waiting callbacks run in a turn of the loop of their own: an answer lets its connection begin the next request at once,
and that request must not reach a coordinator which is half way through an append.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kbroker.records.batch import TRANSACTIONAL_FLAG
from kbroker.records.layout import ATTRIBUTES_LOW_POSITION, PRODUCER_ID_POSITION
from kbroker.replication.commit_wait import CommitWait
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.verification import NO_GUARD
from kbroker.types import FIRST_OFFSET, Offset, TopicPartition

_PRODUCER_ID = struct.Struct(">q")

if TYPE_CHECKING:
    from kbroker.errors import KafkaError
    from kbroker.replication.partition import Partition, Settled
    from kbroker.replication.replica_manager import ReplicaManager

_COORDINATOR = AppendOrigin.COORDINATOR


class PartitionStateLog:
    """The state log over the partitions of `topic`; `max_batch_bytes()` is that topic's `max.message.bytes`.

    `uncommitted` has the last offset of each partition that may not be committed up to there yet.
    """

    __slots__ = ("_call_soon", "_manager", "max_batch_bytes", "topic", "uncommitted")

    def __init__(
        self,
        topic: str,
        manager: ReplicaManager,
        max_batch_bytes: Callable[[], int],
        call_soon: Callable[..., object],
    ) -> None:
        self.topic = topic
        self._manager = manager
        self._call_soon = call_soon
        self.max_batch_bytes = max_batch_bytes
        self.uncommitted: dict[Partition, Offset] = {}

    def append(self, partition_index: int, batch: bytearray) -> Offset:
        """Append one batch; the offset of its last record.  Raises KafkaError when the partition cannot take it."""
        partition = self._manager.partition(self.topic, partition_index)
        guard = NO_GUARD
        if batch[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_FLAG:
            # Given out when the transaction was verified, and taken away by a marker since.
            guard = partition.log.producer_state.verification_guard(
                _PRODUCER_ID.unpack_from(batch, PRODUCER_ID_POSITION)[0]
            )
        last_offset = self._manager.append(partition, batch, origin=_COORDINATOR, guard=guard).last_offset
        if not partition.is_acknowledged(last_offset, by_all=True):
            self.uncommitted[partition] = last_offset
        return last_offset

    def is_committed(self, partition_index: int) -> bool:
        """Whether all that was appended to the partition is committed."""
        if not self.uncommitted:
            return True
        return not any(partition.index == partition_index for partition in self._waiting())

    def when_committed(self, partition_index: int, settled: Settled) -> None:
        """Call `settled`, in another turn of the loop, once all that was appended to the partition so far is committed,
        or with why it will not be."""
        self._watch({each: last for each, last in self._waiting().items() if each.index == partition_index}, settled)

    def when_all_committed(self, settled: Settled) -> None:
        """The same for all partitions, but at once where all is committed already."""
        if self.uncommitted and (waiting := self._waiting()):
            self._watch(waiting, settled)
        else:
            settled(None)

    def _waiting(self) -> dict[Partition, Offset]:
        waiting = {
            partition: last
            for partition, last in self.uncommitted.items()
            if not partition.is_acknowledged(last, by_all=True)
        }
        self.uncommitted = waiting
        return waiting

    def _watch(self, waiting: dict[Partition, Offset], settled: Settled) -> None:
        wait = CommitWait()
        for partition, last_offset in list(waiting.items()):
            partition.wait(last_offset, True, wait.expect(partial(self._forget_failed, partition)))
        wait.then(lambda: self._call_soon(settled, wait.error))

    def _forget_failed(self, partition: Partition, error: KafkaError | None) -> None:
        """What cannot be committed here no later answer waits for."""
        if error is not None:
            self.uncommitted.pop(partition, None)

    def read(self, partition_index: int, offset: Offset, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one and about `max_bytes`; empty at the end."""
        log = self._manager.partition(self.topic, partition_index).log
        try:
            return log.read_bytes(offset, max_bytes)
        except OSError as error:
            raise log.storage_error("reading records", error) from error

    def bounds(self, partition_index: int) -> tuple[Offset, Offset]:
        """First offset on this disk, where all of these logs is, and end offset."""
        if self._manager.logs.is_deferred(TopicPartition(self.topic, partition_index)):
            return FIRST_OFFSET, FIRST_OFFSET
        log = self._manager.partition(self.topic, partition_index).log
        return log.local_log_start_offset, log.log_end_offset

    def leads(self, partition_index: int) -> bool:
        """Whether this broker's replica of the partition is its leader by now."""
        return self._manager.roles.leads(self.topic, partition_index)

    def on_leadership(self, changed: Callable[[int], None]) -> None:
        """Have `changed(partition_index)` called when this broker's replica becomes the leader or ceases to be."""
        self._manager.roles.subscribe(self.topic, changed)
