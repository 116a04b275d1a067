"""Which records one fetch acquires: pure rules over the batches that were read.

`max_records` is a soft limit in Kafka's first mode: records are acquired by whole batches of the log, so that no batch
is sent to several members.  In the mode `record_limit` (KIP-1206) it is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

_BASE = attrgetter("base_offset")


class LogBatch(NamedTuple):
    """The offsets of one batch of the log."""

    base_offset: int
    last_offset: int


class Acquired(NamedTuple):
    """Offsets that a member has acquired, and how often they have been delivered, this time included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Demand(NamedTuple):
    """What a fetch wants of one share-partition."""

    member_id: str
    max_records: int
    batch_size: int
    exact: bool


def limit(batches: Sequence[LogBatch], first: int, last: int, count: int, exact: bool) -> int:
    """The last offset to acquire of `first` to `last`, where `count` records are wanted."""
    wanted = first + count - 1
    if wanted >= last:
        return last
    if exact:
        return wanted
    at = bisect_right(batches, wanted, key=_BASE) - 1
    if at >= 0 and batches[at].last_offset >= wanted:
        return min(last, batches[at].last_offset)
    return wanted


def portions(batches: Sequence[LogBatch], first: int, last: int, batch_size: int) -> Iterator[tuple[int, int]]:
    """`first` to `last` in portions of `batch_size` or somewhat more, which end where batches of the log do."""
    if last - first + 1 > batch_size:
        for batch in batches:
            if batch.base_offset > last:
                break
            if batch.base_offset - first >= batch_size:
                yield first, batch.base_offset - 1
                first = batch.base_offset
    yield first, last
