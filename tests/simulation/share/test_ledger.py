"""What the ledger of a share group has to see, and what it may not invent."""

from __future__ import annotations

import pytest

from tests.simulation.judge import Judge, ViolationError
from tests.simulation.records import ReadBatch, encode_batch, read_batches
from tests.simulation.share.ledger import ACCEPT, REJECT, RELEASE, ShareGroup
from tests.simulation.transactions.ledger import TransactionLedger

PARTITION = ("t", 0)
LOCK = 2.0


def batches() -> list[ReadBatch]:
    return list(read_batches(encode_batch([b"a", b"b"], 0)))


def group(*, committed: bool = False) -> ShareGroup:
    """The first of two records is held by `one`, since 10 s."""
    judge = Judge(lambda: 0.0)
    judge.sends("p", PARTITION, [b"a", b"b"])
    judge.fetched("f", PARTITION, batches(), 0, 2)
    made = ShareGroup("g", "t", LOCK, 5, committed, judge, TransactionLedger(judge, lambda: 0.0))
    give(made, "one", at=10.0)
    return made


def give(made: ShareGroup, who: str, *, at: float, offset: int = 0, count: int = 1, sent: float | None = None) -> None:
    made.acquired(who, PARTITION, offset, offset, count, batches(), (at if sent is None else sent, at), lambda: True)


def say(made: ShareGroup, kind: int, *, at: float, offset: int = 0) -> None:
    made.acknowledges(PARTITION, [offset], kind)
    made.acknowledged("one", PARTITION, [offset], kind, at)


def test_what_is_right_is_no_violation() -> None:
    """Nobody would look at what the simulation reports."""
    made = group()
    say(made, RELEASE, at=10.5)
    give(made, "two", at=11.0, count=2)
    give(made, "one", at=13.5, count=3)
    say(made, ACCEPT, at=13.6)
    give(made, "one", at=13.7, offset=1)
    say(made, REJECT, at=13.8, offset=1)
    assert made.missing(PARTITION) == []


def test_a_record_that_another_member_holds_is_seen() -> None:
    """Two members would process it at once."""
    made = group()
    with pytest.raises(ViolationError, match="one has it until 12"):
        give(made, "two", at=11.9, count=2)
    give(made, "two", at=12.0, count=2)


def test_what_was_let_go_may_be_given() -> None:
    """A member that is gone would be taken for one that holds records."""
    made = group()
    made.lets_go("one")
    give(made, "two", at=10.1)


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_settled_record_that_comes_again_is_seen(kind: int) -> None:
    """It would be processed again."""
    made = group()
    say(made, kind, at=10.5)
    # One that was asked for before may have been on its way.
    give(made, "two", at=11.0, sent=10.4)
    with pytest.raises(ViolationError, match="is settled"):
        give(made, "two", at=30.0)


def test_a_released_record_with_the_same_count_is_seen() -> None:
    """What no member can process would come for ever."""
    made = group()
    say(made, RELEASE, at=10.5)
    with pytest.raises(ViolationError, match="1th time again"):
        give(made, "two", at=11.0)


def test_a_delivery_beyond_the_limit_is_seen() -> None:
    """A record could be delivered for ever."""
    with pytest.raises(ViolationError, match="6th time"):
        give(group(), "one", at=11.0, count=6)


def test_a_record_that_is_not_committed_is_seen() -> None:
    """A group of committed records would process what an application has taken back."""
    made = group(committed=True)
    ledger = made.transactions
    transaction = ledger.begins(ledger.of("id"), 60.0)
    ledger.sends(transaction, PARTITION, [b"a"])
    with pytest.raises(ViolationError, match="not committed"):
        give(made, "one", at=11.0)
    ledger.ended(transaction, commits=True)
    give(made, "one", at=11.0)


def test_a_record_that_never_came_is_missing() -> None:
    """Records could be left out, and nobody would wait for them."""
    made = group()
    assert made.missing(PARTITION) == [0, 1]
    say(made, ACCEPT, at=10.5)
    assert made.missing(PARTITION) == [1]
    give(made, "one", at=11.0, offset=1, count=5)
    assert made.missing(PARTITION) == []
