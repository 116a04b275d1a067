"""Topics that are made, deleted and made again under one name, and what a request may have met of them.

A life is a topic from the moment that its making is asked for until nothing can reach it any more by its name.  Each
has ledgers of its own in the judge, under its key.  What asks by name between two moments may have met any life of that
time; what asks by topic id meets one, or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.administration.setting import Setting

if TYPE_CHECKING:
    from tests.simulation.judge import Judge, Partition
    from tests.simulation.records import ReadBatch

FOREVER = float("inf")
MIN_IN_SYNC = "min.insync.replicas"
MAX_MESSAGE = "max.message.bytes"


@dataclass(slots=True, eq=False)
class Life:
    """A topic between its making and its deletion."""

    name: str
    number: int
    asked_at: float
    """When its making was asked for."""
    partitions: int
    most_partitions: int
    """As many as were asked for."""
    replicas: int = 1
    topic_id: bytes = b""
    made_at: float = FOREVER
    grown_at: float = -FOREVER
    """When the last partitions were added."""
    deletion_asked_at: float = FOREVER
    moved_at: float = FOREVER
    """When its replicas were first told to move."""
    ended_at: float = FOREVER
    """What is asked later does not reach it by its name."""
    settings: dict[str, Setting] = field(default_factory=dict)
    grown_amid_moves: set[int] = field(default_factory=set)
    """Partitions that were added when the first one may have been moving: they have as many replicas as that had at the
    moment, with Kafka's KRaft controller as well."""
    places: dict[int, list[list[int]]] = field(default_factory=dict)
    """The brokers that a partition is to be on, where it was moved: one of these lists."""

    @property
    def key(self) -> str:
        """The topic's name in the judge's ledgers."""
        return f"{self.name}~{self.number}"


@dataclass(slots=True, eq=False)
class Wanderer:
    """Values that were sent by name, whose answer has not come: they may get to a topic that is yet to be made."""

    number: int
    values: Sequence[bytes]
    since: float


@dataclass(slots=True, eq=False)
class ChangingTopic:
    """One name, and its lives."""

    name: str
    judge: Judge
    lives: list[Life] = field(default_factory=list)
    wanderers: dict[Wanderer, None] = field(default_factory=dict)
    lag: float = 0.0
    """How long brokers may take to learn of a change that was answered."""
    goes_late: float = 0.0
    """How long they may take to learn that a topic is gone, whose deletion was answered."""

    @property
    def life(self) -> Life | None:
        """The last one that is known to have been made; whether it is still there is another question."""
        return next((each for each in reversed(self.lives) if each.topic_id), None)

    def begins(self, now: float, partitions: int) -> Life:
        """A topic's making is about to be asked for."""
        made = Life(self.name, len(self.lives), now, partitions, partitions)
        self.lives.append(made)
        for each in self.wanderers:
            self._may_hold(made, each)
        return made

    def between(self, since: float, until: float) -> list[Life]:
        """What a request by name may have met that was sent and answered then."""
        return [each for each in self.lives if each.asked_at <= until and each.ended_at + self.goes_late >= since]

    def may_be_absent(self, since: float, until: float) -> bool:
        """Whether a broker may have said that there is no such topic."""
        gone_at = -FOREVER
        for each in self.lives:
            if each.made_at == FOREVER:
                continue
            if gone_at <= until and each.made_at + self.lag >= since:
                return True
            gone_at = each.deletion_asked_at
        return gone_at <= until

    def sends(
        self, who: str, life: Life, number: int, values: Sequence[bytes], now: float, *, by_name: bool
    ) -> Wanderer:
        """Values are about to be sent."""
        wanderer = Wanderer(number, values, now)
        reached = self.between(now, now) if by_name else [life]
        for each in reached:
            self.judge.sends(who, (each.key, number), values)
        if by_name:
            self.wanderers[wanderer] = None
        return wanderer

    def _may_hold(self, life: Life, wanderer: Wanderer) -> None:
        self.judge.sends("a request by name", (life.key, wanderer.number), wanderer.values)


def fitting(judge: Judge, lives: Sequence[Life], number: int, batches: Sequence[ReadBatch]) -> list[Life]:
    """Of which lives these batches can be a part."""
    return [each for each in lives if _fits(judge, (each.key, number), batches)]


def _fits(judge: Judge, partition: Partition, batches: Sequence[ReadBatch]) -> bool:
    ledger = judge.ledger(partition)
    for batch in batches:
        for at, value in batch.values:
            if value is None or value not in ledger.sent:
                return False
            if ledger.values.get(at, value) != value or ledger.places.get(value, at) != at:
                return False
    return True
