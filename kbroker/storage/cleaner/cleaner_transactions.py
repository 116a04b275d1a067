"""Transactions as a pass of the cleaner meets them, batch by batch in the log's order.

The cleaner works below the last stable offset, so every transaction it meets is decided, and the transaction index
says which were aborted.  Batches of those are dropped with all their keys.  A marker may be removed once a whole
pass finds no batch of its transaction, and its delete horizon, which the caller checks, has passed.  `kept` collects
the aborted transactions of which the pass has found batches: they are written to the transaction index of the new
segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kbroker._fast.records.record_batch import BatchInfo
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.storage.log.txn_index import AbortedTransaction


class CleanedTransactions:
    """`aborted`: those that overlap what the pass reads, and no others: an older one would never end."""

    __slots__ = ("_aborted", "_committed", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        # Open aborted transactions by producer, and whether a batch of each was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].first_offset <= offset:
            entry = waiting.popleft()
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def is_aborted(self, info: BatchInfo) -> bool:
        """Takes note of a data batch; True when it belongs to an aborted transaction."""
        self._begin_up_to(info.last_offset)
        if not info.is_transactional:
            return False
        found = self._aborted.get(info.producer_id)
        if found is None:
            self._committed.add(info.producer_id)
            return False
        self._aborted[info.producer_id] = (found[0], True)
        return True

    def is_marker_done(self, batch: memoryview | bytes | bytearray, info: BatchInfo) -> bool:
        """Takes note of a control batch; True when nothing of its transaction was met, so that it may go."""
        self._begin_up_to(info.last_offset)
        if info.records_count == 0:
            return True
        marker = read_end_transaction(batch, info)
        if marker is None:
            return False
        producer_id = info.producer_id
        if marker.control_type is ControlType.ABORT:
            entry, met = self._aborted.pop(producer_id, (None, False))
            if entry is not None and met:
                self.kept.append(entry)
                return False
            return True
        if producer_id in self._committed:
            self._committed.remove(producer_id)
            return False
        return True
