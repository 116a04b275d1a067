"""What has to be seen of who owns which partition of a consumer group, and what may not be invented."""

from __future__ import annotations

import pytest

from tests.simulation.groups.ownership import Owner, Ownership
from tests.simulation.judge import Judge, ViolationError

A, B = ("t", 0), ("t", 1)


def group() -> tuple[Ownership, Owner, Owner]:
    """Two members; the first has one partition, and was heard of until 10 s."""
    made = Ownership("g", Judge(lambda: 0.0))
    one, two = made.enters("one"), made.enters("two")
    made.has_epoch(one, 3)
    one.certain_until = 10.0
    made.assigned(one, [A], [A, B], 1.0)
    return made, one, two


def test_what_is_right_is_no_violation() -> None:
    """Nobody would look at what the simulation reports."""
    made, one, two = group()
    made.assigned(two, [B], [A, B], 2.0)
    made.assigned(one, [], [A, B], 3.0)
    made.assigned(two, [A, B], [A, B], 4.0)


def test_a_partition_that_another_member_has_is_seen() -> None:
    """Two members would read the same records."""
    made, one, two = group()
    with pytest.raises(ViolationError, match="which one has"):
        made.assigned(two, [A], [A, B], 2.0)
    # From 10 s on it may be taken for dead.
    made.assigned(two, [A], [A, B], 10.0)
    one.ends()


def test_an_epoch_that_goes_back_is_seen() -> None:
    """A member would be taken for an older one of itself."""
    made, one, _ = group()
    with pytest.raises(ViolationError, match="is 2, and was 3"):
        made.has_epoch(one, 2)


def test_partitions_twice_or_of_other_topics_are_seen() -> None:
    """A member would read what it has not subscribed to."""
    made, _, two = group()
    for given in ([B, B], [("u", 0)]):
        with pytest.raises(ViolationError, match="assigns"):
            made.assigned(two, given, [A, B], 2.0)
