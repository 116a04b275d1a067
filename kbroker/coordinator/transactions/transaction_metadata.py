"""What the coordinator knows of one transactional id: an immutable value, replaced as a whole by each transition.

`TransactionMetadata.move` is the only way to another state, and allows only the transitions of the table.  The id's
record in `__transaction_state` has all fields but `last_producer_epoch`, which distinguishes a retried InitProducerId
from a zombie's and is lost in a restart, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kbroker._fast.base.build_facts import CHECKED
from kbroker.coordinator.transactions.transaction_state import (
    IDLE,
    PREDECESSORS,
    IllegalTransitionError,
    TransactionState,
)
from kbroker.storage.log.producer_state import EPOCH_PER_TRANSACTION
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

# Of the client: 0 before KIP-890, 2 where each transaction has an epoch of its own.
CLASSIC_VERSION = 0
MAX_EPOCH = 0x7FFF
# The last epoch is kept for a fence; a producer never gets it.
EXHAUSTED_EPOCH = MAX_EPOCH - 1

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id; a value that never changes, each decision makes a new one.

    `previous_producer_id` and `next_producer_id`: of a producer whose epochs are used up.  Times in milliseconds;
    `started_ms` is -1 before the first transaction.  `client_version`: the protocol generation of the producer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = CLASSIC_VERSION

    def move(self, state: TransactionState, now_ms: int, **fields: Any) -> TransactionMetadata:
        """The metadata in another state.  IllegalTransitionError when the table forbids it."""
        if self.state not in PREDECESSORS[state]:
            raise IllegalTransitionError(self.transactional_id, self.state, state)
        moved = replace(self, state=state, updated_ms=now_ms, **fields)
        if CHECKED:
            moved.check_invariants()
        return moved

    def check_invariants(self) -> None:
        """Raises AssertionError unless epoch and partitions are such as the state allows."""
        assert NO_PRODUCER_EPOCH <= self.producer_epoch <= MAX_EPOCH, self
        assert not self.partitions or self.state not in IDLE, self
        assert self.producer_id != NO_PRODUCER_ID or self.state in (TransactionState.EMPTY, TransactionState.DEAD), self

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to bump to."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def has_epoch_per_transaction(self) -> bool:
        """Whether its producer gets a new epoch with the end of each transaction (KIP-890)."""
        return self.client_version >= EPOCH_PER_TRANSACTION
