"""What is known of an offset that several commit."""

from __future__ import annotations

import pytest

from tests.simulation.groups.register import NOTHING, OffsetRegister
from tests.simulation.judge import Judge, ViolationError

PARTITION = ("t", 0)


def look(register: OffsetRegister, offset: int) -> None:
    """Ask, and be told so."""
    register.found("me", PARTITION, offset, register.asks(), begun=register.has_begun(PARTITION))


def test_of_commits_under_way_together_either_may_be_the_last() -> None:
    """The judge would call a coordinator wrong that has taken them in another order than they were sent."""
    register = OffsetRegister("g", Judge(lambda: 0.0))
    look(register, NOTHING)
    first, second = register.sends(PARTITION), register.sends(PARTITION)
    register.acknowledged(second)
    register.acknowledged(first)
    look(register, first)
    look(register, second)


def test_what_others_have_come_behind_is_never_seen_again() -> None:
    """A group would go back to what it has processed."""
    register = OffsetRegister("g", Judge(lambda: 0.0))
    first = register.sends(PARTITION)
    register.acknowledged(first)
    over = register.asks()
    second = register.sends(PARTITION)
    register.acknowledged(second)
    register.found("me", PARTITION, first, over, begun=True)  # It was asked before.
    with pytest.raises(ViolationError, match="is committed at 1"):
        look(register, first)


def test_what_was_refused_or_is_of_another_partition_is_seen() -> None:
    """A late commit of an earlier owner would count."""
    register = OffsetRegister("g", Judge(lambda: 0.0))
    refused, other = register.sends(PARTITION), register.sends(("t", 1))
    register.refused(refused)
    for offset in (refused, other):
        with pytest.raises(ViolationError, match="is committed at"):
            look(register, offset)
    register.acknowledged(register.sends(PARTITION))
    with pytest.raises(ViolationError, match="is committed at -1"):
        look(register, NOTHING)
