"""Merges overlapping batches of states of offsets into one consistent list (Kafka's PersisterStateBatchCombiner).

Where two batches overlap, the one with the higher delivery count wins; at equal counts, the one with the higher state.
Within one delivery states only go up, so the newer state wins, whatever the order of the batches.  Neighbours that are
equal become one batch, and nothing below the start offset is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise

from kbroker._fast.base.build_facts import CHECKED
from kbroker.replication.share.persister import StateBatch

_Sorted = tuple[int, int, int, int]


def combine(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches, sorted, disjoint, and as few as may be."""
    heap: list[_Sorted] = []
    for each in batches:
        if each.last_offset >= start_offset:
            heap.append((max(each.first_offset, start_offset), *each[1:]))
    heapify(heap)
    done: list[_Sorted] = []
    while heap:
        batch = heappop(heap)
        if not done or done[-1][1] < batch[0]:
            _add(done, batch)
            continue
        known = done.pop()
        if _rank(batch) > _rank(known):
            if known[0] < batch[0]:
                _add(done, (known[0], batch[0] - 1, *known[2:]))
            if known[1] > batch[1]:
                heappush(heap, (batch[1] + 1, *known[1:]))
            _add(done, batch)
        else:
            _add(done, known)
            if batch[1] > known[1]:
                heappush(heap, (known[1] + 1, *batch[1:]))
    if CHECKED:
        assert not done or done[0][0] >= start_offset, (done[0], start_offset)
        assert all(one[1] < other[0] for one, other in pairwise(done)), done
    return tuple(StateBatch(*batch) for batch in done)


def _rank(batch: _Sorted) -> tuple[int, int]:
    return batch[3], batch[2]


def _add(done: list[_Sorted], batch: _Sorted) -> None:
    if done and done[-1][1] + 1 == batch[0] and done[-1][2:] == batch[2:]:
        batch = (done.pop()[0], *batch[1:])
    done.append(batch)
