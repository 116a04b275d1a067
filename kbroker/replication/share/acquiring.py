"""Hands out records that are under way already: those that were released, or whose lock has timed out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.replication.share.acquisition import Demand, LogBatch, limit
from kbroker.replication.share.in_flight import InFlight, Run
from kbroker.replication.share.record_state import RecordState

# From so many deliveries on, or half of the limit, records are delivered in ever smaller portions.
LEAST_SUSPICIOUS_COUNT = 2


def acquire_suspects(
    in_flight: InFlight, demand: Demand, offsets: tuple[int, int], expires: float, count_limit: int
) -> list[Run]:
    """Acquire the first available records in ever smaller portions, in the end one by one, if they have been delivered
    again and again without success.  Nothing else is acquired with them, so a record that no member can process makes
    few others fail."""
    run = next((run for run in in_flight.overlapping(*offsets) if run.is_available), None)
    suspicious = max(LEAST_SUSPICIOUS_COUNT, (count_limit + 1) // 2)
    if run is None or run.delivery_count < suspicious:
        return []
    most = 1 if run.delivery_count >= count_limit - 1 else len(run) >> (run.delivery_count - suspicious + 1)
    first = max(run.first, offsets[0])
    (piece,) = in_flight.cut(first, min(run.last, offsets[1], first + min(max(1, most), demand.max_records) - 1))
    piece.acquire(demand.member_id, expires)
    return [piece]


def acquire_again(
    in_flight: InFlight, demand: Demand, batches: Sequence[LogBatch], begin: int, expires: float
) -> list[Run]:
    """Acquire what is available again, from `begin` on, up to what the demand says."""
    runs: list[Run] = []
    count = 0
    last = batches[-1].last_offset
    for run in in_flight.overlapping(begin, last):
        if count >= demand.max_records:
            break
        if not run.is_available:
            continue
        first = max(run.first, begin)
        end = limit(batches, first, min(run.last, last), demand.max_records - count, demand.exact)
        for piece in in_flight.cut(first, end):
            piece.acquire(demand.member_id, expires)
            runs.append(piece)
            count += len(piece)
    return runs


def without(in_flight: InFlight, runs: Iterable[Run], aborted: Sequence[tuple[int, int]]) -> list[Run]:
    """Archive what was just acquired of aborted transactions; the rest."""
    spans = [(run.first, run.last) for run in runs]
    for first, last in spans:
        for low, high in aborted:
            if first <= high and low <= last:
                for piece in in_flight.cut(max(low, first), min(high, last)):
                    piece.settle(RecordState.ARCHIVED)
    return [run for span in spans for run in in_flight.overlapping(*span) if run.is_acquired]
