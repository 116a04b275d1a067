"""The judge of a history: what each answer may say, given all that was asked and answered before.

Offsets    of a partition belong to one value for good: the one that was acknowledged or read there first
           an acknowledged batch lies behind all that was acknowledged before it was sent
           each value is there once at most, however often an idempotent producer sends it
In the end what was acknowledged is there, where it was said to be, and nothing that was refused is
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from tests.simulation.records import ReadBatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Partition = tuple[str, int]


class ViolationError(AssertionError):
    """What must hold does not."""


@dataclass(slots=True)
class Ledger:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    """The timestamps of records that were read."""
    sent: dict[bytes, str] = field(default_factory=dict)
    """Every value that was sent here, and by whom."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    acknowledged_end: int = 0
    committed_end: int = 0
    """What is committed, as far as answers have told."""
    high_watermark: int = 0
    """The highest that an answer has told."""


class Judge:
    """Collects what was seen; the first violation is the one that counts, and raises where it is found."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.ledgers: dict[Partition, Ledger] = {}
        self.events: list[tuple[float, str, tuple[object, ...]]] = []
        self.violations: list[str] = []
        self.answers = 0
        self.next_acknowledgement: asyncio.Future[None] | None = None
        """Done when a producer is told next that something is stored."""
        self.high_is_exact = True
        """Whether an answer tells the high watermark up to which its records were read; Apache Kafka's may be older."""
        self.moved_at: dict[str, float] = {}
        """When each client has asked something last, or had an answer, or lost a connection."""

    def moved(self, client: str) -> None:
        """A client does something, or something has come for it."""
        self.moved_at[client] = self._now()

    def note(self, text: str, *values: object) -> None:
        """Something that happened, for those who read a history that failed."""
        self.events.append((self._now(), text, values))

    def fail(self, text: str) -> NoReturn:
        """Something is wrong."""
        self.note("VIOLATION: %s", text)
        self.violations.append(text)
        raise ViolationError(text)

    def faults_have_ended(self, task: asyncio.Task[None]) -> None:
        """One that had no end leaves clients to wait for ever for a broker that does not start again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"a fault has no end: {error!r}")

    def ledger(self, partition: Partition) -> Ledger:
        found = self.ledgers.get(partition)
        if found is None:
            found = self.ledgers[partition] = Ledger()
        return found

    # What producers are told

    def sends(self, who: str, partition: Partition, values: Sequence[bytes]) -> int:
        """Values are about to be sent; what the answer's offset may not be below."""
        ledger = self.ledger(partition)
        for value in values:
            ledger.sent[value] = who
        return ledger.acknowledged_end

    def acknowledged(
        self,
        who: str,
        partition: Partition,
        values: Sequence[bytes],
        base: int,
        floor: int,
        *,
        committed: bool,
        certain: bool,
    ) -> None:
        """An answer says that the values lie at `base` and behind."""
        ledger = self.ledger(partition)
        told, self.next_acknowledgement = self.next_acknowledgement, None
        if told is not None and not told.done():
            told.set_result(None)
        if base < floor:
            self.fail(f"{who}: {partition} gives offset {base}, and {floor} was the end before the request was sent")
        if not certain:
            return  # The next leader may not have it.
        for number, value in enumerate(values):
            self._lies_at(ledger, who, partition, base + number, value)
            ledger.acknowledged[value] = base + number
        end = base + len(values)
        ledger.acknowledged_end = max(ledger.acknowledged_end, end)
        if committed:
            ledger.committed_end = max(ledger.committed_end, end)

    def refused(self, partition: Partition, values: Sequence[bytes]) -> None:
        """An answer says that the values are not stored."""
        self.ledger(partition).refused.update(values)

    def _lies_at(self, ledger: Ledger, who: str, partition: Partition, offset: int, value: bytes) -> None:
        there = ledger.values.setdefault(offset, value)
        if there != value:
            self.fail(
                f"{who}: {partition} has {value[:40]!r} at {offset}, where {there[:40]!r} "
                f"of {ledger.sent.get(there)} was before"
            )
        place = ledger.places.setdefault(value, offset)
        if place != offset:
            self.fail(f"{who}: {partition} has {value[:40]!r} at {offset} and at {place}")

    # What fetchers are told

    def fetched(self, who: str, partition: Partition, batches: Sequence[ReadBatch], offset: int, high: int) -> int:
        """Batches of an answer to a fetch from `offset`; the offset to go on from."""
        ledger = self.ledger(partition)
        position = offset
        for number, batch in enumerate(batches):
            if batch.last_offset < position or (number > 0 and batch.base_offset < position):
                self.fail(
                    f"{who}: {partition}: batch {batch.base_offset}-{batch.last_offset} is no answer from {position}"
                )
            if batch.last_offset >= high and self.high_is_exact:
                self.fail(
                    f"{who}: {partition}: batch {batch.base_offset}-{batch.last_offset} is above the committed {high}"
                )
            for at, value in () if batch.is_control else batch.values:
                if value is None or value not in ledger.sent:
                    self.fail(f"{who}: {partition} has {value!r} at {at}, which nobody sent there")
                else:
                    self._lies_at(ledger, who, partition, at, value)
                    if batch.timestamp >= 0:
                        ledger.times[at] = batch.timestamp
            position = batch.last_offset + 1
        ledger.high_watermark = max(ledger.high_watermark, high)
        ledger.committed_end = max(ledger.committed_end, high)
        return position

    # In the end

    def read_back(self, partition: Partition, values: dict[int, bytes], end: int) -> None:
        """The whole of a partition, read when all is over."""
        ledger = self.ledger(partition)
        for offset, value in values.items():
            self._lies_at(ledger, "the end", partition, offset, value)
            if value not in ledger.sent:
                self.fail(f"{partition} has {value!r} at {offset}, which nobody sent there")
            if value in ledger.refused:
                self.fail(f"{partition} has {value!r} at {offset}, which was refused")
        for value, offset in ledger.acknowledged.items():
            if values.get(offset) != value:
                self.fail(f"{partition}: {value[:40]!r} was acknowledged at {offset}, where {values.get(offset)!r} is")
        if end < ledger.high_watermark:
            self.fail(f"{partition} ends at {end}, and {ledger.high_watermark} was committed")

    def story(self, last: int | None = None) -> str:
        """What happened, a line for each event."""
        events = self.events if last is None else self.events[-last:]
        return "\n".join(f"{at:10.6f} {text % values}" for at, text, values in events)
