"""What the ledger of transactions has to see, and what it may not invent."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.judge import Judge, ViolationError
from tests.simulation.records import CONTROL, TRANSACTIONAL, ReadBatch, encode_batch, read_batches
from tests.simulation.transactions.ledger import Fate, TransactionLedger

PARTITION = ("t", 0)
PLACE = ("g", "t", 0)


class History:
    """A ledger with one transaction, open, of one value at offset 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ledger = TransactionLedger(Judge(lambda: self.now), lambda: self.now)
        self.id = self.ledger.of("id")
        self.who = self.ledger.initialized(self.id, self.ledger.initializes(self.id), (7, 0))
        self.transaction = self.ledger.begins(self.id, 60.0)
        self.ledger.sends(self.transaction, PARTITION, [b"a"])
        self.ledger.acknowledged(self.transaction, PARTITION, 0)
        self.offset = self.ledger.sends_offset(self.transaction, PLACE)

    def end(self, *, commits: bool) -> None:
        self.ledger.ends(self.transaction, commits=commits)
        self.ledger.ended(self.transaction, commits=commits)

    def fetched(self, stable: int, values: tuple[bytes, ...] = (b"a",), aborted: tuple[Any, ...] = ()) -> None:
        row = SimpleNamespace(last_stable_offset=stable, aborted_transactions=list(aborted))
        data = encode_batch(values, 0, producer=(7, 0, 0), transactional=True)
        self.ledger.fetched("f", PARTITION, list(read_batches(data)), row, committed=True)


def marker(offset: int, coordinator_epoch: int = 0) -> ReadBatch:
    value = struct.pack(">hi", 0, coordinator_epoch)
    return ReadBatch(offset, offset, 0, TRANSACTIONAL | CONTROL, 7, 0, -1, ((offset, value),))


def test_what_is_right_is_no_violation() -> None:
    """Nobody would look at what the simulation reports."""
    history = History()
    history.end(commits=True)
    history.fetched(2)
    history.ledger.judge_whole({PARTITION: {b"a"}})
    history.ledger.judge_offset(PLACE, 1, stable=True)
    history.id.added[PARTITION] = 1
    history.ledger.judge_markers(PARTITION, [marker(1)], exact=True)


def test_a_stable_offset_above_an_open_transaction_is_seen() -> None:
    """Consumers of committed records would go past some that are committed later."""
    history = History()
    with pytest.raises(ViolationError, match="is open"):
        history.fetched(1, ())
    # One that may have been aborted for its time bounds nothing.
    history.now = 61.0
    history.fetched(1, ())


def test_records_of_what_is_not_committed_are_seen() -> None:
    """Consumers could get what an application has taken back."""
    history = History()
    history.end(commits=False)
    with pytest.raises(ViolationError, match="not committed"):
        history.fetched(2)
    history.fetched(2, aborted=(SimpleNamespace(first_offset=0, producer_id=7),))


def test_records_above_the_stable_offset_are_seen() -> None:
    """Consumers would get them, and be told later that they were aborted."""
    history = History()
    history.end(commits=True)
    with pytest.raises(ViolationError, match="above the stable"):
        history.fetched(0)


def test_a_transaction_that_is_seen_in_part_or_otherwise_than_told_is_seen() -> None:
    """Half a transaction, or one that was aborted, could be there for good."""
    history = History()
    history.ledger.sends(history.transaction, PARTITION, [b"b"])
    history.ledger.ends(history.transaction, commits=True)
    with pytest.raises(ViolationError, match="1 of 2"):
        history.ledger.judge_whole({PARTITION: {b"a"}})
    history.end(commits=True)
    with pytest.raises(ViolationError, match="COMMITTED, 0 of 2"):
        history.ledger.judge_whole({PARTITION: set()})


def test_what_nobody_was_told_is_known_by_what_is_seen() -> None:
    """Offsets of a transaction could be judged by another outcome than its records."""
    history = History()
    history.ledger.ends(history.transaction, commits=True)
    assert history.ledger.possible_offsets(PLACE) == {1, -1}
    history.ledger.judge_whole({PARTITION: {b"a"}})
    assert history.transaction.fate is Fate.COMMITTED
    assert history.ledger.possible_offsets(PLACE) == {1}


def test_offsets_of_another_outcome_are_seen() -> None:
    """A group would read what was processed once more, or leave it out."""
    history = History()
    with pytest.raises(ViolationError, match="is committed at 1,"):
        history.ledger.judge_offset(PLACE, 1, stable=False)
    history.end(commits=True)
    with pytest.raises(ViolationError, match="is committed at -1"):
        history.ledger.judge_offset(PLACE, -1, stable=True)


def test_a_marker_too_many_or_of_an_older_coordinator_is_seen() -> None:
    """The mutation that writes each marker twice would go unnoticed."""
    history = History()
    history.id.added[PARTITION] = 1
    with pytest.raises(ViolationError, match="has 2 markers"):
        history.ledger.judge_markers(PARTITION, [marker(1), marker(2)], exact=True)
    with pytest.raises(ViolationError, match="older coordinator"):
        history.ledger.judge_markers(PARTITION, [marker(1, 3), marker(2, 2)], exact=False)


def test_an_epoch_that_was_given_before_is_seen() -> None:
    """Two producers would write as one."""
    history = History()
    sent = history.ledger.initializes(history.id)
    with pytest.raises(ViolationError, match="is given epoch 0"):
        history.ledger.initialized(history.id, sent, (7, 0))


def test_who_has_a_successor_may_be_fenced_and_nobody_else() -> None:
    """A producer could be fenced without a reason."""
    history = History()
    assert not history.id.may_be_fenced(history.who)
    history.ledger.initializes(history.id)
    assert history.id.may_be_fenced(history.who)


def test_an_offset_that_was_committed_behind_that_of_a_transaction_counts() -> None:
    """A transaction that ends would take a group back to what it has gone beyond."""
    history = History()
    plain, offset = history.ledger.sends_plain_offset("id", PLACE)
    history.ledger.ended(plain, commits=True)
    history.end(commits=True)
    history.ledger.judge_offset(PLACE, offset, stable=True)
    with pytest.raises(ViolationError, match="is committed at 1,"):
        history.ledger.judge_offset(PLACE, history.offset, stable=True)
    # In the next one, behind it.
    later = history.ledger.begins(history.id, 60.0)
    newest = history.ledger.sends_offset(later, PLACE)
    history.ledger.ends(later, commits=True)
    assert history.ledger.possible_offsets(PLACE) == {offset, newest}


def test_a_marker_that_has_yet_to_come_is_waited_for() -> None:
    """A transaction that wrote nothing in a partition would seem to have no marker there."""
    history = History()
    history.id.added[PARTITION] = 1
    assert history.ledger.lacks_markers(PARTITION, [])
    assert not history.ledger.lacks_markers(PARTITION, [marker(1)])
