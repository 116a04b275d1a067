"""Transactional ids that this broker coordinates, and transactions that hold readers of committed records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.parameters import PageOf, keys_of, page_of, view_of
from kbroker.coordinator.transactions.transaction_records import by_topic
from kbroker.metrics.families import by_label, number
from kbroker.security.authorizer import Operation, ResourceKind

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters, View
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata

MOST_HOLDERS = 100


@dataclass(frozen=True, slots=True)
class Touched:
    """Partitions of a topic that a transaction has written to."""

    topic: str
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """One transactional id.  Times in ms since the epoch; None before its first transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partition_count: int
    partitions: Sequence[Touched]


@dataclass(frozen=True, slots=True)
class Holder:
    """A partition whose readers of committed records wait.  `transactional_id` is empty where no coordinator here knows
    the transaction."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    lag: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Transactions:
    """A page of ids, and the holders, the first of them."""

    now_ms: int
    states: Mapping[str, float]
    timed_out: float
    holders: Sequence[Holder]
    page: PageOf[TransactionLine]


_KEYS: Mapping[str, Key[TransactionLine]] = {
    **keys_of("transactional_id", "state", "producer_id", "updated_ms"),
    "started_ms": lambda line: -1 if line.started_ms is None else line.started_ms,
    **keys_of("partition_count"),
}


async def transactions(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/transactions?q=&sort=&start=&count="""
    view = view_of(parameters, _KEYS)
    services = parts.services
    pace = parts.sources.slices.pace()
    known = []
    for metadata in services.transaction_coordinator.all_transactions():
        await pace
        if parts.may(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, metadata.transactional_id):
            known.append(metadata)
    holders = []
    for row in islice(parts.sources.stable_offset_holders(), MOST_HOLDERS):
        await pace
        holder = Holder(*row)
        if parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, holder.topic):
            holders.append(holder)
    totals = parts.sources.transactions()
    states, timed_out = by_label(totals, "kbroker_transactional_ids"), number(totals, "kbroker_transactions_timed_out")
    return partial(_value, services.clock.now_ms(), states, timed_out, holders, known, view)


def _value(
    now_ms: int,
    states: Mapping[str, float],
    timed_out: float,
    holders: Sequence[Holder],
    known: Sequence[TransactionMetadata],
    view: View,
) -> Transactions:
    page = page_of([_line(metadata) for metadata in known], view, _KEYS, attrgetter("transactional_id"))
    return Transactions(now_ms, states, timed_out, holders, page)


def _line(metadata: TransactionMetadata) -> TransactionLine:
    touched = by_topic(metadata.partitions)
    return TransactionLine(
        metadata.transactional_id,
        metadata.state.value,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.started_ms if metadata.started_ms >= 0 else None,
        metadata.updated_ms,
        len(metadata.partitions),
        [Touched(topic, sorted(partitions)) for topic, partitions in sorted(touched.items())],
    )
