"""The judge of the group soak sees what it is there to see."""

from __future__ import annotations

from tests.scenarios.soak import history
from tests.scenarios.soak.history import Event


def events(text: str) -> list[Event]:
    """`seconds member word numbers`, one line each."""
    found = []
    for line in text.strip().splitlines():
        seconds, member, word, *numbers = line.split()
        found.append(Event(float(seconds), member, word, tuple(map(int, numbers))))
    return found


def test_a_record_that_no_member_had_is_missing() -> None:
    """A soak would pass although records were skipped."""
    told = events("1 a got 0 0 4\n2 b got 0 6 9\n2 b got 1 0 0")
    assert history.missing(told, {0: 10, 1: 1}) == {0: [5]}
    assert history.missing(told, {0: 11, 1: 1}) == {0: [5, 10]}


def test_records_read_again_after_their_commit_break_the_rule() -> None:
    """A soak would pass although a group's commits were lost, or a new owner began before the last commit."""
    begins = "1 a owns 0\n2 a got 0 0 9\n3 a committed 0 10\n4 a killed\n5 b owns 0\n"
    assert history.went_back(events(begins + "6 b got 0 10 12")) == []
    (wrong,) = history.went_back(events(begins + "6 b got 0 9 12"))
    assert "began partition 0 at 9, 10 was committed" in wrong
    # What was not committed may come again.
    assert history.went_back(events("1 a owns 0\n2 a got 0 0 9\n4 a killed\n5 b owns 0\n6 b got 0 0 9")) == []


def test_a_gap_or_a_repetition_while_a_member_owns_a_partition_breaks_the_rule() -> None:
    """A soak would pass although an owner's fetches skipped or repeated records."""
    assert history.went_back(events("1 a owns 0\n2 a got 0 0 9\n3 a got 0 10 12")) == []
    assert history.went_back(events("1 a owns 0\n2 a got 0 0 9\n3 a got 0 11 12"))
    assert history.went_back(events("1 a owns 0\n2 a got 0 0 9\n3 a got 0 9 12"))
    # It was taken away in between.
    assert history.went_back(events("1 a owns 0\n2 a got 0 0 9\n3 a owns\n4 a owns 0\n5 a got 0 0 12")) == []


def test_the_longest_time_without_an_owner() -> None:
    """A soak would pass although a partition stood still for minutes."""
    told = "1 a owns 0 1\n1 b owns 2\n10 a killed\n12 b owns 0 2\n15 b owns 0 1 2\n"
    assert history.longest_unowned(events(told), 6.0, 20.0) == (5.0, 1, 5.0)
    assert history.longest_unowned(events(told + "16 b owns 2"), 6.0, 40.0)[:2] == (24.0, 1)
    # Another one that dies begins the time anew; the whole is still told.
    assert history.longest_unowned(events(told + "16 b owns 2\n30 c killed"), 6.0, 40.0) == (10.0, 1, 24.0)


def test_a_stopped_member_owns_nothing_but_may_go_on() -> None:
    """A soak would take a member that hangs for an owner, or one that went on in time for none."""
    told = "1 a owns 0\n10 a stopped\n{} a continued\n30 a owns 0"
    assert history.longest_unowned(events(told.format(14)), 6.0, 31.0).seconds == 4.0
    assert history.longest_unowned(events(told.format(17)), 6.0, 31.0).seconds == 20.0


def test_a_record_accepted_twice_breaks_the_rule_of_share_groups() -> None:
    """A soak would pass although two members were both told that a record is theirs."""
    told = "1 a accepted 0 0 4\n{} b stopped\n15 b continued\n16 b accepted 0 4 9\n17 b accepted 1 4 4"
    assert len(history.accepted_twice(events(told.format(14)), 10.0)) == 1
    # It held the record since before it was stopped, and learns nothing of its end.
    assert history.accepted_twice(events(told.format(4)), 10.0) == []


def test_lines_that_a_kill_has_cut_are_left_out() -> None:
    """A soak would fail for the half of a line that a dying member wrote."""
    assert history.read_line("a", "1500000000 got 1 2 3\n") == Event(1.5, "a", "got", (1, 2, 3))
    assert history.read_line("a", "1500000000 got 1 2") is None
    assert history.read_line("a", "1500000000 failed commit: no\n") is None
