"""Where the state of share-partitions is kept: the share coordinator, here or on another broker.

Answers come by callback, in the loop, at once or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.errors import KafkaError

UNINITIALIZED_START_OFFSET = -1
UNKNOWN_COUNT = -1


class SharePartitionKey(NamedTuple):
    """A partition as one group sees it."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """Offsets `first_offset` to `last_offset` that share a state (a number of RecordState) and a count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class StoredState(NamedTuple):
    """What the share coordinator knows of a share-partition."""

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class StateUpdate(NamedTuple):
    """What a leader wants stored; `batches` have the new states of the offsets that they name.

    `delivery_complete_count`: how many offsets from `start_offset` on have come to their end (KIP-1226).
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


Loaded = Callable[["StoredState | KafkaError"], None]
Stored = Callable[["KafkaError | None"], None]


class Persister(Protocol):
    """Reads and writes the state of share-partitions."""

    def read_state(self, key: SharePartitionKey, leader_epoch: int, loaded: Loaded) -> None:
        """The state, and the leader's epoch noted, so that an older leader is fenced."""

    def write_state(self, key: SharePartitionKey, update: StateUpdate, stored: Stored) -> None:
        """Store an update.  FencedStateEpochError, FencedLeaderEpochError, CoordinatorNotAvailableError."""
