"""The transactional ids of one partition of `__transaction_state`, and transactions whose markers are being written.

A prepared transaction is always completed.  After a restart its markers are written again to all its partitions,
because the coordinator does not know which of them already have one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbroker._fast.base.build_facts import CHECKED
from kbroker.coordinator.runtime.shard import Shard
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_records import UnknownRecordError, parse_record
from kbroker.coordinator.transactions.transaction_state import PREDECESSORS, PREPARED
from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.transactions")


class TransactionPartition:
    """`complete(partition, transactional_id)` goes on with a prepared transaction, after loading.

    `unmarked` has for each transaction that is being completed the partitions whose marker is not committed yet.
    """

    def __init__(
        self, complete: Callable[[TransactionPartition, str], None], shard: Shard[TransactionPartition]
    ) -> None:
        self.index = shard.index
        self.timers = shard.timers
        self.transactions: dict[str, TransactionMetadata] = {}
        self.unmarked: dict[str, set[TopicPartition]] = {}
        self.waiting: dict[str, list[Callable[[], None]]] = {}
        self.is_served = False
        self._complete = complete
        self._shard = shard

    @property
    def coordinator_epoch(self) -> int:
        """The epoch in markers, by which partitions refuse those of a coordinator that has been replaced."""
        return self._shard.leader_epoch

    def put(self, metadata: TransactionMetadata) -> None:
        """Take over what was written of a transactional id."""
        if CHECKED:
            known = self.transactions.get(metadata.transactional_id)
            assert known is None or known.state in PREDECESSORS[metadata.state], (self.index, known, metadata)
            # A producer gets another id when its epochs are used up; under the same one they only grow.
            is_same = known is not None and known.producer_id == metadata.producer_id
            assert known is None or not is_same or known.producer_epoch <= metadata.producer_epoch, (known, metadata)
        self.transactions[metadata.transactional_id] = metadata
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless what is being completed is known by its id."""
        for transactional_id, metadata in self.transactions.items():
            assert transactional_id == metadata.transactional_id, (self.index, transactional_id, metadata)
        assert self.unmarked.keys() <= self.transactions.keys(), (self.index, self.unmarked)

    def replay(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record of `__transaction_state`."""
        try:
            transactional_id, metadata = parse_record(key, value)
        except UnknownRecordError as error:
            logger.warning("partition %d: record skipped: %s", self.index, error)
            return
        if metadata is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = metadata

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """No transaction writes here."""

    def loaded(self, record_count: int, seconds: float) -> None:
        """Serve these ids; go on with transactions that were being ended."""
        assert not self.is_served and not self.unmarked and not self.waiting, f"{self.index} is loaded twice"
        self.is_served = True
        if record_count:
            logger.info(
                "partition %d of the transaction state: %d transactional ids from %d records in %.0f ms",
                self.index,
                len(self.transactions),
                record_count,
                seconds * 1000,
            )
        for metadata in list(self.transactions.values()):
            if metadata.state in PREPARED:
                self._complete(self, metadata.transactional_id)

    def unloaded(self) -> None:
        """Another broker coordinates these ids, and completes their transactions."""
        self.is_served = False
        self.unmarked.clear()
        waiting, self.waiting = self.waiting, {}
        for callbacks in waiting.values():
            for callback in callbacks:
                callback()

    def when_completed(self, transactional_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once when the transaction that is being ended is complete, or is no longer served here."""
        self.waiting.setdefault(transactional_id, []).append(callback)

    def completed(self, transactional_id: str) -> None:
        """All markers of a transaction are written, and that is in the log."""
        for callback in self.waiting.pop(transactional_id, ()):
            callback()
