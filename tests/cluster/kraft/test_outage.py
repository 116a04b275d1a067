"""What the log says of an outage of the controllers.  Of `kbroker.cluster.kraft.outage`."""

from __future__ import annotations

import logging

import pytest

from kbroker.cluster.kraft.outage import CLOSE_SECONDS, REMIND_SECONDS, Outage

HOUR = 3600


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
    outage = Outage(clock)
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
    outage = Outage(clock)
    for _ in range(60):
        played(0.5, outage, clock)
        outage.over("they answer again")
        clock.now += 0.5
    assert len(caplog.messages) <= 2 * (60 / CLOSE_SECONDS + 1)
    # One that begins in silence, and lasts, has a line all the same.
    caplog.clear()
    played(2 * CLOSE_SECONDS, outage, clock)
    assert caplog.messages == ["c does not answer"]
