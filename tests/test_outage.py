"""What the log says of what fails again and again: its beginning, that it lasts, its end.  Of `kbroker.outage`.

The table at the end has what runs by a timer, each with a condition that lasts.
"""

from __future__ import annotations

import logging
import sys

import pytest

from kbroker.log_output import PlaceLimit
from kbroker.outage import CLOSE_SECONDS, MOST_KEYS, REMIND_SECONDS, Outage, Outages

HOUR = 3600
LOGGER = logging.getLogger("kbroker.cluster")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def played(seconds: float, outage: Outage, clock: Clock) -> None:
    """Four requests a second fail for so long."""
    for _ in range(int(seconds * 4)):
        outage.failed("%s does not answer", "c")
        clock.now += 0.25


def test_an_outage_of_an_hour_is_named_at_once_then_now_and_then_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log would be full of it, or not say that it is over."""
    caplog.set_level(logging.INFO, "kbroker")
    clock = Clock()
    outage = Outage(LOGGER, now=clock)
    outage.over("they answer again")
    assert not caplog.messages
    played(1, outage, clock)
    assert caplog.messages == ["c does not answer"]
    played(HOUR - 1, outage, clock)
    outage.over("they answer again")
    outage.over("they answer again")
    reminders = [f"c does not answer (for {at} s by now)" for at in range(300, HOUR, int(REMIND_SECONDS))]
    assert caplog.messages == ["c does not answer", *reminders, f"they answer again, after {HOUR} s"]
    assert [each.levelname for each in caplog.records] == ["WARNING"] * (1 + len(reminders)) + ["INFO"]


def test_outages_that_follow_each_other_closely_have_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A controller that takes every other request would be in the log twice for each of them."""
    caplog.set_level(logging.INFO, "kbroker")
    clock = Clock()
    outage = Outage(LOGGER, now=clock)
    for _ in range(60):
        played(0.5, outage, clock)
        outage.over("they answer again")
        clock.now += 0.5
    assert len(caplog.messages) <= 2 * (60 / CLOSE_SECONDS + 1)
    # One that begins in silence, and lasts, has a line all the same.
    caplog.clear()
    played(2 * CLOSE_SECONDS, outage, clock)
    assert caplog.messages == ["c does not answer"]


def test_each_line_has_the_callers_place_in_the_code(caplog: pytest.LogCaptureFixture) -> None:
    """`PlaceLimit` would take all that fails for one thing, and leave out the first line of another."""
    caplog.set_level(logging.INFO, "kbroker")
    clock = Clock()
    outage, outages = Outage(LOGGER, now=clock), Outages(LOGGER, now=clock)
    outage.failed("one")
    outage.over("one is over")
    outages.failed("key", "two")
    outages.over("key", "two is over")
    assert [each.message for each in caplog.records] == [
        "one",
        "one is over, after 0 s",
        "two",
        "two is over, after 0 s",
    ]
    assert {each.pathname for each in caplog.records} == {__file__}
    limit = PlaceLimit(burst=1, monotonic=clock)
    assert all(limit.filter(each) for each in caplog.records)


def test_a_defect_has_its_traceback_at_each_line_and_not_at_each_turn(caplog: pytest.LogCaptureFixture) -> None:
    """What fails with each turn of a second would write a page each."""
    clock = Clock()
    outage = Outage(LOGGER, logging.ERROR, clock)
    for _ in range(int(REMIND_SECONDS) + 1):
        try:
            raise KeyError("a defect")
        except KeyError as error:
            outage.failed("the task failed", error=error)
        clock.now += 1
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.exc_info is not None for each in told] == [True, True]
    assert not sys.exc_info()[0]


def test_outages_of_many_keys_are_told_apart_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    """One partition's trouble would hide another's; or each of 100,000 would be remembered for ever."""
    caplog.set_level(logging.INFO, "kbroker")
    clock = Clock()
    outages = Outages(LOGGER, now=clock)
    for turn in range(3):
        for key in range(2 * MOST_KEYS):
            outages.failed(key, "%d cannot be written", key)
        # All beyond the bound are one.
        assert len(caplog.messages) == MOST_KEYS + 1, turn
        clock.now += 5
    outages.over(7, "%d is written again", 7)
    outages.over(2 * MOST_KEYS - 1, "%d is written again", 2 * MOST_KEYS - 1)
    assert caplog.messages[MOST_KEYS + 1 :] == ["7 is written again, after 15 s"]
    # A key that is over, or is gone, leaves its place to another one.
    outages.failed("new", "%s cannot be written", "new")
    outages.keep({"new"})
    outages.failed("newer", "%s cannot be written", "newer")
    assert caplog.messages[-2:] == ["new cannot be written", "newer cannot be written"]
