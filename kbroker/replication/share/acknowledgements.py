"""What a client says of records that it has acquired, checked against what is under way; pure.

A request is applied as a whole or not at all: `plan` names the offsets that change, or raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from kbroker.errors import InvalidRecordStateError, InvalidRequestError
from kbroker.replication.share.in_flight import InFlight


class AcknowledgementBatch(NamedTuple):
    """One type for all of `first_offset` to `last_offset`, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Acknowledgement(NamedTuple):
    """Offsets of which a client says the same."""

    first_offset: int
    last_offset: int
    acknowledge_type: int


def check_batches(batches: Iterable[AcknowledgementBatch], *, with_renewal: bool) -> None:
    """Refuse acknowledgements that make no sense, before deliveries are looked at.  Raises InvalidRequestError."""
    end = -1
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            raise InvalidRequestError("Invalid acknowledgement batch: the first offset is past the last")
        if batch.first_offset < end:
            raise InvalidRequestError("Invalid acknowledgement batches: they overlap, or are out of order")
        if not batch.types:
            raise InvalidRequestError("Invalid acknowledgement batch: it has no types")
        if len(batch.types) > 1 and len(batch.types) != batch.last_offset - batch.first_offset + 1:
            raise InvalidRequestError("Invalid acknowledgement batch: it has too many or too few types")
        if min(batch.types) < 0 or max(batch.types) > (4 if with_renewal else 3):
            raise InvalidRequestError("Invalid acknowledgement batch: unknown type")
        end = batch.last_offset


def plan(
    in_flight: InFlight, start_offset: int, member_id: str, batches: Iterable[AcknowledgementBatch]
) -> list[Acknowledgement]:
    """The changes, in order.  InvalidRecordStateError, InvalidRequestError."""
    planned: list[Acknowledgement] = []
    end: int | None = None
    for batch in batches:
        if batch.last_offset < start_offset:
            continue  # Its end was reached in another way.
        if end is not None and batch.first_offset <= end:
            raise InvalidRecordStateError("The offset cannot be acknowledged. The offset is not acquired.")
        end = batch.last_offset
        _check_range(in_flight, start_offset, batch)
        for said in _pieces(batch):
            first = max(said.first_offset, start_offset)
            if said.last_offset < first:
                continue
            for run in in_flight.overlapping(first, said.last_offset):
                if not run.is_acquired:
                    raise InvalidRecordStateError("The offset cannot be acknowledged. The offset is not acquired.")
                if run.member_id != member_id:
                    raise InvalidRecordStateError("Member is not the owner of batch record")
            planned.append(said._replace(first_offset=first))
    return planned


def _check_range(in_flight: InFlight, start_offset: int, batch: AcknowledgementBatch) -> None:
    runs = in_flight.runs
    if not runs or (batch.first_offset < runs[0].first and not batch.first_offset < start_offset):
        raise InvalidRecordStateError("Batch record not found. The request batch offsets are not found in the cache.")
    if batch.first_offset > runs[-1].last:
        raise InvalidRequestError("Batch record not found. The first offset in request is past acquired records.")
    if batch.last_offset > runs[-1].last:
        raise InvalidRequestError("Batch record not found. The last offset in request is past acquired records.")


def _pieces(batch: AcknowledgementBatch) -> Iterator[Acknowledgement]:
    """The batch, cut where its types change."""
    if len(batch.types) == 1:
        yield Acknowledgement(batch.first_offset, batch.last_offset, batch.types[0])
        return
    first = batch.first_offset
    for acknowledge_type, same in groupby(batch.types):
        last = first + sum(1 for _ in same) - 1
        yield Acknowledgement(first, last, acknowledge_type)
        first = last + 1
