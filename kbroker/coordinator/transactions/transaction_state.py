"""The states of a transactional id and the moves between them.

    Empty              known, no transaction yet, or the producer began anew
    Ongoing            partitions were added
    PrepareCommit      the outcome is decided and stored: the markers are being written
    PrepareAbort       the same for an abort
    CompleteCommit     all markers are written
    CompleteAbort      the same after an abort
    Dead               the id has expired, or was never used
    PrepareEpochFence  the broker is about to abort the transaction of a producer that is gone; never stored

`PREDECESSORS` is the whole machine; a transaction of version 2 may be aborted before any partition was added (KIP-890).
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The value is the name that Kafka puts into answers; `id` is the number in the log."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    def __str__(self) -> str:
        return self.value

    @property
    def id(self) -> int:
        """The number that TransactionLogValue has for it."""
        return _IDS[self]


BY_ID = tuple(TransactionState)
BY_NAME = {state.value: state for state in TransactionState}
_IDS = {state: number for number, state in enumerate(BY_ID)}

_S = TransactionState
COMPLETE = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
# No transaction is open: the id may expire, and its producer may begin anew.
IDLE = COMPLETE | {_S.EMPTY}

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}


class IllegalTransitionError(RuntimeError):
    """A move that the table does not know: a bug in the coordinator, never a client's doing."""

    def __init__(self, transactional_id: str, source: TransactionState, target: TransactionState) -> None:
        super().__init__(f"transactional id {transactional_id!r} cannot go from {source} to {target}")
