"""What the ledger of a classic group has to see, and what it may not invent."""

from __future__ import annotations

import pytest

from tests.simulation.groups.ledger import Assignment, ClassicGroup
from tests.simulation.judge import Judge, ViolationError

PARTITION = ("t", 0)
UUID = "-00000000-0000-0000-0000-000000000000"
ONE, TWO = f"one{UUID}", f"two{UUID}"


def group(*, fails: bool = False) -> ClassicGroup:
    """Two members in generation 1, which the first leads."""
    made = ClassicGroup("g", "t", Judge(lambda: 0.0), fails=fails)
    for name, member_id in (("one", ONE), ("two", TWO)):
        made.sends_metadata(name, "", f"{name}/0".encode())
        made.is_known_as(member_id, name)
    made.joined("one", made.top, 1, ONE, "a", [(ONE, b"one/0"), (TWO, b"two/0")])
    made.joined("two", made.top, 1, ONE, "a", ())
    return made


def test_what_is_right_is_no_violation() -> None:
    """Nobody would look at what the simulation reports."""
    made = group()
    assert made.synced("two", TWO, 1, Assignment(1, ONE, TWO, (0,)).encoded()).partitions == (0,)
    offset = made.sends_offset(PARTITION)
    made.committed("two", PARTITION, offset, 1, made.top)
    made.found("two", PARTITION, offset, offset)


def test_a_second_leader_or_protocol_of_a_generation_is_seen() -> None:
    """Two leaders would assign the same partitions to different members."""
    with pytest.raises(ViolationError, match="leads generation 1"):
        group().joined("two", 1, 1, TWO, "a", ())
    with pytest.raises(ViolationError, match="has b, and a before"):
        group().joined("two", 1, 1, ONE, "b", ())


def test_a_generation_that_was_not_handed_out_is_formed_anew_by_another_coordinator() -> None:
    """A fault of the broker would be reported that Kafka has as well; once it was handed out it is one."""
    made = group(fails=True)
    made.joined("two", made.top, 1, TWO, "b", ())
    made.synced("two", TWO, 1, Assignment(1, TWO, TWO, (0,)).encoded())
    with pytest.raises(ViolationError, match="leads generation 1"):
        made.joined("one", made.top, 1, ONE, "b", ())


def test_a_generation_that_goes_back_is_seen() -> None:
    """Members would be let in that were sent away."""
    made = group()
    made.joined("one", 1, 2, ONE, "a", ())
    with pytest.raises(ViolationError, match="was at 2"):
        made.joined("two", 2, 1, ONE, "a", ())


def test_a_static_member_leads_under_each_of_its_ids() -> None:
    """It comes back under another id without a new generation."""
    made = group()
    made.static.add("one")
    made.joined("two", 1, 1, "one-11111111-0000-0000-0000-000000000000", "a", ())


@pytest.mark.parametrize(
    "data", [b"nonsense", Assignment(2, ONE, TWO, ()).encoded(), Assignment(1, ONE, ONE, ()).encoded()]
)
def test_an_assignment_that_is_not_the_members_own_is_seen(data: bytes) -> None:
    """Two members would read the same partitions."""
    with pytest.raises(ViolationError, match="assign"):
        group().synced("two", TWO, 1, data)


def test_metadata_that_a_member_did_not_send_are_seen() -> None:
    """A leader would assign topics that nobody subscribed to."""
    with pytest.raises(ViolationError, match="said to have sent"):
        group().joined("one", 1, 1, ONE, "a", [(TWO, b"one/0")])


def test_a_commit_of_an_older_generation_is_seen() -> None:
    """A member that was sent away would overwrite how far its successor is."""
    made = group()
    offset = made.sends_offset(PARTITION)
    made.joined("one", 1, 2, ONE, "a", ())
    with pytest.raises(ViolationError, match="commits after 2"):
        made.committed("two", PARTITION, offset, 1, made.top)


def test_offsets_that_go_back_or_were_never_sent_are_seen() -> None:
    """Records would be processed again, or left out."""
    made = group()
    first, second = made.sends_offset(PARTITION), made.sends_offset(PARTITION)
    with pytest.raises(ViolationError, match="and was at"):
        made.found("one", PARTITION, first, second)
    with pytest.raises(ViolationError, match="nobody sent"):
        made.found("one", PARTITION, second + 1, first)
    made.lost_offset(PARTITION, first)
    made.found("one", PARTITION, first, second)
