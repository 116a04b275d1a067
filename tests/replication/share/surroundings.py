"""What a share-partition needs, under a test's own hand: time, timers, and a persister that answers when it is let."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kbroker.errors import KafkaError
from kbroker.replication.share.persister import (
    Loaded,
    SharePartitionKey,
    StateBatch,
    StateUpdate,
    Stored,
    StoredState,
)
from kbroker.replication.share.settings import ShareSettings
from kbroker.replication.share.share_partition import SharePartition, SharePartitionContext
from kbroker.replication.share.state_batches import combine

KEY = SharePartitionKey("group", b"t" * 16, 0)


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.seconds + delay, callback))

    def move(self, seconds: float) -> None:
        """Let time pass, and timers go off in their order."""
        end = self.seconds + seconds
        while due := sorted((timer for timer in self._timers if timer[0] <= end), key=lambda timer: timer[0]):
            self._timers.remove(due[0])
            self.seconds = max(self.seconds, due[0][0])
            due[0][1]()
        self.seconds = end


@dataclass
class HandPersister:
    """Holds writes back until `finish`; what was stored survives the share-partition."""

    start_offset: int = -1
    state_epoch: int = 0
    batches: tuple[StateBatch, ...] = ()
    waiting: list[tuple[StateUpdate, Stored]] = field(default_factory=list)
    at_once: bool = True

    def read_state(self, key: SharePartitionKey, leader_epoch: int, loaded: Loaded) -> None:
        loaded(StoredState(self.state_epoch, self.start_offset, self.batches))

    def write_state(self, key: SharePartitionKey, update: StateUpdate, stored: Stored) -> None:
        self.waiting.append((update, stored))
        if self.at_once:
            self.finish(None)

    def finish(self, error: KafkaError | None) -> None:
        """Let the write that waits succeed or fail."""
        assert len(self.waiting) == 1, "two writes of one share-partition are under way"
        update, stored = self.waiting.pop()
        if error is None:
            self.start_offset = update.start_offset
            self.batches = combine((*self.batches, *update.batches), update.start_offset)
        stored(error)


@dataclass
class World:
    """A share-partition and all around it."""

    settings: ShareSettings = field(default_factory=ShareSettings)
    clock: HandClock = field(default_factory=HandClock)
    persister: HandPersister = field(default_factory=HandPersister)
    woken: int = 0
    fenced: list[KafkaError] = field(default_factory=list)
    reset: int = 0

    def partition(self) -> SharePartition:
        """A new share-partition that has read its state."""
        context = SharePartitionContext(
            self.persister,
            self.clock,
            self.clock.call_later,
            lambda: self.settings,
            lambda _: self.reset,
            self._wake,
            lambda _, error: self.fenced.append(error),
        )
        partition = SharePartition(KEY, 0, context)
        partition.initialize(lambda error: None)
        return partition

    def _wake(self, _: SharePartition) -> None:
        self.woken += 1
