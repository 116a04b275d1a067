"""What is known of the transactions of a history, and what each answer may say given that.

Producers    of one transactional id follow each other: each `InitProducerId` has a later epoch, and the producer
             before can do nothing any more
Open         transactions bound the last stable offset of their partitions, and nothing of them is seen
Committed    transactions are seen whole, with the offsets of groups that belong to them; aborted ones not at all
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from tests.simulation.records import ReadBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.judge import Judge, Partition

GroupPartition = tuple[str, str, int]
"""A group, and a partition whose offset it commits."""
NOTHING = -1


class Fate(Enum):
    """What became of a transaction, as far as its producer was told."""

    ABORTED = 0
    COMMITTED = 1
    UNKNOWN = 2


@dataclass(slots=True, eq=False)
class Transaction:
    """Values by partition, offsets by what they are of; `expires` is when the coordinator may abort it by itself."""

    who: str
    number: int = 0
    expires: float = float("inf")
    values: dict[Partition, list[bytes]] = field(default_factory=dict)
    offsets: dict[GroupPartition, int] = field(default_factory=dict)
    firsts: dict[Partition, int] = field(default_factory=dict)
    """The offset of the first batch in each partition that was acknowledged."""
    added: set[Partition] = field(default_factory=set)
    """The partitions that are part of it, so that each is to have its marker."""
    fate: Fate = Fate.ABORTED
    is_open: bool = True
    """Whether nothing was asked for yet that would end it."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """A producer from one `InitProducerId` on."""

    producer: tuple[int, int]
    attempts: int
    is_certain: bool
    """Whether no earlier `InitProducerId` may still come to be served."""


@dataclass(slots=True, eq=False)
class TransactionalId:
    """All producers of one transactional id."""

    name: str
    attempts: int = 0
    answered: int = 0
    newest: Incarnation | None = None
    top_epoch: int = -1
    producers: dict[int, None] = field(default_factory=dict)
    added: dict[Partition, int] = field(default_factory=dict)
    """How many transactions each partition was made part of."""
    is_exact: bool = True
    """Whether `added` is: no request was lost, after which nobody knows what was served, or how often."""
    users: int = 0

    def may_be_fenced(self, who: Incarnation) -> bool:
        """Whether another `InitProducerId` may have been served since."""
        is_behind = self.newest is not None and self.newest.producer[1] > who.producer[1]
        return is_behind or not who.is_certain or self.attempts != who.attempts


class TransactionLedger:
    """All transactions of a history, in the order in which they began."""

    def __init__(self, judge: Judge, now: Callable[[], float]) -> None:
        self._judge = judge
        self._now = now
        self.all: list[Transaction] = []
        self.ids: dict[str, TransactionalId] = {}
        self._open: dict[Partition, list[Transaction]] = {}
        self._by_value: dict[bytes, Transaction] = {}
        self._commits: dict[GroupPartition, list[tuple[Transaction, int]]] = {}
        """Offsets in the order in which they were written, of transactions and plain ones."""
        self._offset = 0

    def __bool__(self) -> bool:
        return bool(self.all)

    def of(self, name: str) -> TransactionalId:
        """What is known of a transactional id."""
        return self.ids.setdefault(name, TransactionalId(name))

    def sends_offset(self, transaction: Transaction, place: GroupPartition) -> int:
        """An offset is about to be committed in a transaction; higher than all before."""
        self._offset += 1
        transaction.offsets[place] = self._offset
        self._commits.setdefault(place, []).append((transaction, self._offset))
        return self._offset

    def sends_plain_offset(self, who: str, place: GroupPartition) -> tuple[Transaction, int]:
        """The same without a transaction: as of one of its own, which is decided with the answer."""
        alone = Transaction(who, fate=Fate.UNKNOWN)
        return alone, self.sends_offset(alone, place)

    # What producers do

    def initializes(self, each: TransactionalId) -> tuple[int, int]:
        """InitProducerId is about to be sent: it ends what is open.  What `initialized` is to be told."""
        each.attempts += 1
        self._may_end_all(each)
        return each.attempts, each.top_epoch

    def initialized(self, each: TransactionalId, sent: tuple[int, int], producer: tuple[int, int]) -> Incarnation:
        """A producer has its id and epoch."""
        each.answered += 1
        # One that has begun while the request was on its way is fenced as well.
        self._may_end_all(each)
        attempt, top_epoch = sent
        if producer[1] <= top_epoch:
            self._judge.fail(f"{each.name} is given epoch {producer[1]}, and {top_epoch} was given before it asked")
        each.producers[producer[0]] = None
        each.top_epoch = max(each.top_epoch, producer[1])
        made = Incarnation(producer, attempt, each.attempts == each.answered)
        if each.newest is None or each.newest.producer[1] < producer[1]:
            each.newest = made
        return made

    def not_initialized(self, each: TransactionalId) -> None:
        """InitProducerId was answered with an error: what was open may be being ended for its sake."""
        each.answered += 1
        self._may_end_all(each)

    def _may_end_all(self, each: TransactionalId) -> None:
        for transaction in self.all:
            if transaction.who == each.name:
                transaction.is_open = False

    def goes_on(self, each: TransactionalId, who: Incarnation, producer: tuple[int, int]) -> None:
        """The end of a transaction gave its producer another epoch."""
        who.producer = producer
        each.producers[producer[0]] = None
        each.top_epoch = max(each.top_epoch, producer[1])

    def begins(self, each: TransactionalId, timeout: float) -> Transaction:
        """A transaction begins: its first request is about to be sent."""
        made = Transaction(each.name, len(self.all), self._now() + timeout)
        self.all.append(made)
        return made

    def sends(self, transaction: Transaction, partition: Partition, values: Sequence[bytes]) -> None:
        """Values of a transaction are about to be sent."""
        transaction.values.setdefault(partition, []).extend(values)
        for value in values:
            self._by_value[value] = transaction

    def acknowledged(self, transaction: Transaction, partition: Partition, base: int) -> None:
        """A batch of the transaction lies at this offset."""
        before = transaction.firsts.get(partition)
        if before is None:
            self._open.setdefault(partition, []).append(transaction)
        transaction.firsts[partition] = base if before is None else min(base, before)

    def ends(self, transaction: Transaction, *, commits: bool) -> None:
        """EndTxn is about to be sent."""
        transaction.is_open = False
        transaction.fate = Fate.UNKNOWN if commits else Fate.ABORTED

    def ended(self, transaction: Transaction, *, commits: bool) -> None:
        """EndTxn was answered."""
        transaction.fate = Fate.COMMITTED if commits else Fate.ABORTED

    # What is seen

    def of_value(self, value: bytes) -> Transaction | None:
        """The transaction that a value is of."""
        return self._by_value.get(value)

    def fetched(
        self, who: str, partition: Partition, batches: Sequence[ReadBatch], row: Any, *, committed: bool
    ) -> None:
        """An answer to a fetch; `committed`: one of what is committed alone."""
        if not self.all:
            return
        stable = row.last_stable_offset
        if stable >= 0:
            self._judge_stable(who, partition, stable)
        if not committed:
            return
        for batch in batches:
            if batch.last_offset >= stable:
                self._judge.fail(
                    f"{who}: {partition}: batch {batch.base_offset}-{batch.last_offset} is above the stable {stable}"
                )
        for value in delivered(batches, row.aborted_transactions or ()).values():
            transaction = self._by_value.get(value)
            if transaction is not None and transaction.fate is Fate.ABORTED:
                self._judge.fail(f"{who}: {partition} shows {value!r} of a transaction that is not committed")

    def _judge_stable(self, who: str, partition: Partition, stable: int) -> None:
        found = self._open.get(partition)
        if not found:
            return
        now = self._now()
        self._open[partition] = found = [each for each in found if each.is_open and each.expires > now]
        for each in found:
            if stable > each.firsts[partition]:
                self._judge.fail(
                    f"{who}: {partition} is stable up to {stable}, and the transaction of {each.who} that is open "
                    f"begins at {each.firsts[partition]}"
                )

    def judge_whole(self, visible: dict[Partition, set[bytes]]) -> None:
        """Each is visible as a whole or not at all, as its producer was told; one whose producer was told nothing is
        known from then on."""
        for each in self.all:
            seen = [value in visible[partition] for partition, values in each.values.items() for value in values]
            if not seen:
                continue
            if each.fate is Fate.UNKNOWN and all(seen) is any(seen):
                each.fate = Fate.COMMITTED if all(seen) else Fate.ABORTED
            if any(seen) is not all(seen) or all(seen) is not (each.fate is Fate.COMMITTED):
                self._judge.fail(
                    f"{each.who}: of a transaction that is {each.fate.name}, {sum(seen)} of {len(seen)} are seen"
                )

    def possible_offsets(self, place: GroupPartition) -> set[int]:
        """What may be committed, where no transaction is pending there."""
        found: set[int] = set()
        # What was written last counts, not what is decided last.
        for each, offset in reversed(self._commits.get(place, ())):
            if each.fate is Fate.ABORTED:
                continue
            found.add(offset)
            if each.fate is Fate.COMMITTED:
                return found
        return found | {NOTHING}

    def judge_offset(self, place: GroupPartition, offset: int, *, stable: bool) -> None:
        """An answer says what a group has committed; `stable`: only where nothing of it is pending."""
        if stable:
            possible = self.possible_offsets(place)
        else:
            found = self._commits.get(place, ())
            possible = {NOTHING, *(offset for each, offset in found if each.fate is not Fate.ABORTED)}
        if offset not in possible:
            self._judge.fail(f"{place} is committed at {offset}, where transactions have {sorted(possible)}")

    def judge_markers(self, partition: Partition, batches: Sequence[ReadBatch], *, exact: bool) -> None:
        """Each transaction has one marker in each of its partitions; coordinators' epochs in them never go back.

        `exact`: nothing has failed, after which a coordinator may write one again, not knowing that it is there."""
        markers: dict[int, int] = {}
        epochs: dict[int, int] = {}
        for batch in batches:
            if not batch.is_control:
                continue
            markers[batch.producer_id] = markers.get(batch.producer_id, 0) + 1
            value = batch.values[0][1] or b""
            epoch = int.from_bytes(value[2:6], "big", signed=True)
            if epoch < epochs.get(batch.producer_id, -1):
                self._judge.fail(f"{partition} has a marker of an older coordinator at {batch.base_offset}")
            epochs[batch.producer_id] = epoch
        for each, found, expected in self._counted(partition, markers):
            if exact and each.is_exact and found != expected:
                self._judge.fail(
                    f"{partition} has {found} markers of {each.name}, which had {expected} transactions there"
                )

    def _counted(self, partition: Partition, markers: Mapping[int, int]) -> Iterator[tuple[TransactionalId, int, int]]:
        """How many markers each transactional id has in a partition, and is to have; `markers`: by producer id."""
        for each in self.ids.values():
            found = sum(markers.get(producer_id, 0) for producer_id in each.producers)
            yield each, found, each.added.get(partition, 0)

    def lacks_markers(self, partition: Partition, batches: Sequence[ReadBatch]) -> bool:
        """Whether markers have yet to come: one of a transaction that wrote nothing here holds nothing up."""
        markers = Counter(batch.producer_id for batch in batches if batch.is_control)
        return any(each.is_exact and found < expected for each, found, expected in self._counted(partition, markers))


def delivered(batches: Sequence[ReadBatch], aborted_transactions: Sequence[Any]) -> dict[int, bytes]:
    """What a consumer of committed records gets of an answer, by offset."""
    aborted = sorted((each.first_offset, each.producer_id) for each in aborted_transactions)
    dropped: set[int] = set()
    found: dict[int, bytes] = {}
    for batch in batches:
        while aborted and aborted[0][0] <= batch.last_offset:
            dropped.add(aborted.pop(0)[1])
        if batch.is_control:
            dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            found.update((at, value) for at, value in batch.values if value is not None)
    return found
