"""Which offsets of a read belong to aborted transactions: a share group that reads committed records never sees them.

Unlike a consumer, which gets aborted transactions and skips their records itself, a share consumer only gets
what it has acquired; so the broker looks for the batches itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker._fast.records.batch_info import BatchInfo
    from kbroker.storage.log.txn_index import AbortedTransaction


def aborted_offsets(
    headers: Iterable[BatchInfo], aborted: Iterable[AbortedTransaction] | None
) -> list[tuple[int, int]]:
    """First and last offsets of the batches that were aborted, in their order."""
    by_producer: dict[int, list[tuple[int, int]]] = {}
    for each in aborted or ():
        by_producer.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
    return [
        (info.base_offset, info.last_offset)
        for info in headers
        if info.is_transactional
        and not info.is_control
        and any(first <= info.base_offset <= last for first, last in by_producer.get(info.producer_id, ()))
    ]
