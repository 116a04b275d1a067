"""What is known of the records of a share group, and what each answer to its members may say given that.

Held         by one member at a time: nobody else is given a record before its lock has ended, or it was given back
Settled      what was acknowledged or rejected, and answered so, never comes again, whatever fails
Released     comes again, with a higher delivery count
In the end   every record was settled, or delivered as often as the group allows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.transactions.ledger import Fate

if TYPE_CHECKING:
    from tests.simulation.judge import Judge, Partition
    from tests.simulation.records import ReadBatch
    from tests.simulation.transactions.ledger import TransactionLedger

ACCEPT, RELEASE, REJECT = 1, 2, 3
SETTLING = (ACCEPT, REJECT)


@dataclass(slots=True, eq=False)
class Held:
    """A record that a member was given; `until` is when its lock ends at the earliest."""

    member: str
    count: int
    until: float
    is_linked: Callable[[], bool]
    """Whether the connection that it came by is there, which the leader takes for the member."""
    is_certain: bool = True
    """Whether nothing was asked for, or has failed, that would end it sooner."""

    def is_certain_until(self, until: float) -> bool:
        """Whether nobody else can have it by then."""
        return self.is_certain and self.is_linked() and until < self.until


@dataclass(slots=True)
class Record:
    """One offset of a share-partition."""

    held: Held | None = None
    settled_at: float | None = None
    may_be_settled: bool = False
    """Whether it was said that it is, and not given to anybody since."""
    least_count: int = 1
    least_count_since: float = 0.0
    highest_count: int = 0


@dataclass(slots=True)
class ShareGroup:
    """One group; `limit` deliveries of a record are the most."""

    name: str
    topic: str
    lock_seconds: float
    limit: int
    committed: bool
    """Whether records of transactions are given when they are committed, and not before."""
    judge: Judge
    transactions: TransactionLedger
    is_configured: bool = False
    records: dict[Partition, dict[int, Record]] = field(default_factory=dict)

    def record(self, partition: Partition, offset: int) -> Record:
        """What is known of an offset."""
        return self.records.setdefault(partition, {}).setdefault(offset, Record())

    def acquired(
        self,
        who: str,
        partition: Partition,
        first: int,
        last: int,
        count: int,
        batches: Sequence[ReadBatch],
        times: tuple[float, float],
        is_linked: Callable[[], bool],
    ) -> None:
        """A member is given a range; `times`: when it asked, and now."""
        sent, now = times
        if not 1 <= count <= self.limit:
            self.judge.fail(f"{who}: {partition} {first}-{last} of {self.name} is delivered for the {count}th time")
        values = {at: value for batch in batches if not batch.is_control for at, value in batch.values}
        for offset in range(first, last + 1):
            record = self.record(partition, offset)
            place = f"{partition} {offset} of {self.name}"
            if record.settled_at is not None and record.settled_at <= sent:
                self.judge.fail(f"{who}: {place} is settled, and is given again")
            held = record.held
            if held is not None and held.member != who and held.is_certain_until(now):
                self.judge.fail(f"{who}: {place} is given, and {held.member} has it until {held.until:.3f}")
            if record.least_count_since <= sent and count < record.least_count:
                self.judge.fail(f"{who}: {place} was released, and is delivered for the {count}th time again")
            record.may_be_settled = False
            record.highest_count = max(record.highest_count, count)
            record.held = Held(who, count, sent + self.lock_seconds, is_linked)
            value = values.get(offset)
            if self.committed and value is not None and self._is_uncommitted(value):
                self.judge.fail(f"{who}: {place} is {value!r}, of a transaction that is not committed")

    def _is_uncommitted(self, value: bytes) -> bool:
        transaction = self.transactions.of_value(value)
        return transaction is not None and transaction.fate is Fate.ABORTED

    def acknowledges(self, partition: Partition, offsets: Iterable[int], kind: int) -> None:
        """A member is about to say something of records that it holds."""
        for offset in offsets:
            record = self.record(partition, offset)
            record.may_be_settled = kind in SETTLING
            if record.held is not None:
                record.held.is_certain = False

    def acknowledged(self, who: str, partition: Partition, offsets: Iterable[int], kind: int, now: float) -> None:
        """It was answered: that is stored."""
        for offset in offsets:
            record = self.record(partition, offset)
            held, record.held = record.held, None
            if kind in SETTLING:
                record.settled_at = now
            elif held is not None and held.member == who:
                record.least_count, record.least_count_since = held.count + 1, now

    def lets_go(self, who: str | None) -> None:
        """What a member holds may be given to others; None: whoever holds it, as its leader is no more."""
        for records in self.records.values():
            for record in records.values():
                if record.held is not None and who in (None, record.held.member):
                    record.held.is_certain = False

    def missing(self, partition: Partition) -> list[int]:
        """What was neither settled nor delivered as often as it may be, of all that the partition has."""
        found = []
        known = self.records.get(partition, {})
        for offset, value in self.judge.ledger(partition).values.items():
            transaction = self.transactions.of_value(value)
            if self.committed and transaction is not None and transaction.fate is not Fate.COMMITTED:
                continue
            record = known.get(offset)
            is_over = record is not None and (
                record.settled_at is not None or record.may_be_settled or record.highest_count >= self.limit
            )
            if not is_over:
                found.append(offset)
        return found
