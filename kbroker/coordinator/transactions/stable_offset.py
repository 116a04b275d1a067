"""Who holds the last stable offset of a partition, and since when: what a read_committed consumer waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.metrics.sources import StableOffsetHolder
from kbroker.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from kbroker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from kbroker.storage.log.unified_log import UnifiedLog


def stable_offset_holders(
    logs: Iterable[UnifiedLog], coordinator: TransactionCoordinator, now_ms: int
) -> Iterator[StableOffsetHolder]:
    """For each partition with records that read_committed consumers do not get yet, the oldest open transaction.

    The transactional id is known where this broker coordinates the transaction; it is empty where the transaction hangs
    or another broker coordinates it.  The time is the transaction's beginning where it is coordinated here, else the
    time of the producer's last record.
    """
    for log in logs:
        state = log.producer_state
        if state.first_unstable_offset is None or log.high_watermark <= log.last_stable_offset:
            continue
        holder = state.oldest_open()
        producer_id, last_written_ms = (-1, NO_TIMESTAMP) if holder is None else holder
        metadata = coordinator.open_transaction_of(producer_id)
        since_ms = last_written_ms if metadata is None else metadata.started_ms
        yield StableOffsetHolder(
            log.topic_partition.topic,
            log.topic_partition.partition,
            "" if metadata is None else metadata.transactional_id,
            producer_id,
            log.high_watermark - log.last_stable_offset,
            max(0.0, (now_ms - since_ms) / 1000) if since_ms >= 0 else 0.0,
        )
