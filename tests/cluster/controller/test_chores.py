"""What the active controller does by itself, and after it stood still.

Of `kbroker.cluster.controller.chores`, `kbroker.cluster.controller.elections`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.controller import chores as chores_module
from kbroker.cluster.controller import elections
from kbroker.cluster.controller.chores import Chores
from kbroker.errors import PolicyViolationError
from kbroker.metadata.security_image import DelegationToken, SecurityDelta, SecurityImage
from tests.cluster.controller.led import Led, setting
from tests.unbroken import finished

NO_OP: tuple[str, int, dict[str, object]] = ("NoOpRecord", 0, {})
QUIET = {
    "metadata.max.idle.interval.ms": 0,
    "leader.imbalance.check.interval.seconds": 1000,
    "unclean.leader.election.interval.ms": 1000_000,
}


class Clock:
    """The time of a controller under test."""

    def __init__(self, led: Led) -> None:
        self._led = led
        self.ms = 1_000_000

    def monotonic(self) -> float:
        return self._led.now

    def now_ms(self) -> int:
        return self.ms


def begun(**settings: object) -> tuple[Led, Chores, Clock]:
    led = Led({**QUIET, **{name.replace("_", "."): value for name, value in settings.items()}})
    led.lead()
    led.serve(1, 2, 3)
    clock = Clock(led)
    chores = Chores(led.controller, led.config, clock)
    finished(chores.tick())
    return led, chores, clock


def passed(led: Led, chores: Chores, seconds: float) -> list[Any]:
    """What is written while so much time passes, in which the chores are called when they are due."""
    until = led.now + seconds
    while True:
        wait = finished(chores.tick())
        if led.now + wait > until:
            led.now = until
            return led.records()
        led.now += max(wait, 1e-6)


def test_a_record_that_says_nothing_is_written_all_the_time() -> None:
    """Brokers could not tell a controller that has nothing to say from one that is gone."""
    led, chores, _ = begun(metadata_max_idle_interval_ms=500)
    for _ in range(8):
        for node in (1, 2, 3):
            led.beat(node)
        assert passed(led, chores, 1.0) == [NO_OP] * 2


def test_silent_brokers_are_fenced_soon() -> None:
    """Clients would wait for a dead leader."""
    led, chores, _ = begun()
    led.create("t", [1, 2, 3])
    for _ in range(8):
        passed(led, chores, 1.0)
        led.beat(2)
    fenced = [fields["broker_id"] for kind, _, fields in passed(led, chores, 2.2) if kind.startswith("Broker")]
    assert sorted(fenced) == [1, 3]
    assert led.partition("t").leader == 2


def test_after_a_standstill_nobody_is_fenced_before_the_lead_is_known() -> None:
    """A controller that was frozen would fence all brokers that another one has heard of, or that wrote meanwhile."""
    led, chores, _ = begun()
    led.now += 20
    led.log.holds = led.log.end_offset

    async def run() -> None:
        tick = asyncio.create_task(chores.tick())
        for _ in range(10):
            await asyncio.sleep(0)
        assert led.records() == [NO_OP]
        assert not tick.done()
        await led.log.release()
        await tick

    asyncio.run(run())
    assert led.records() == []
    # What they have sent meanwhile is heard first.
    for node in (1, 2):
        led.beat(node)
    fenced = [fields["broker_id"] for kind, _, fields in passed(led, chores, 2.0) if kind.startswith("Broker")]
    assert fenced == [3]


def test_after_a_standstill_a_lost_lead_fences_nobody() -> None:
    """Two controllers would fence each other's brokers."""
    led, chores, _ = begun()
    led.now += 20
    led.log.lose()
    finished(chores.tick())
    assert led.records() == []
    assert not any(each.is_fenced for each in led.controller.image().brokers.values())
    led.controller.resign()
    assert finished(chores.tick()) > 0
    led.lead()
    assert finished(chores.tick()) > 0
    assert led.records() == []


def test_leaders_go_back_where_they_belong() -> None:
    """After a round of restarts one broker would lead all."""
    led, chores, _ = begun(leader_imbalance_check_interval_seconds=5)
    led.create("t", [1, 2], [2, 1])
    led.beat(1, want_fence=True)
    led.beat(1)
    assert led.partition("t").leader == 2
    led.isr("t", 2, 1)
    led.records()
    written = passed(led, chores, 6.0)
    assert [fields.get("leader") for _, _, fields in written] == [1]
    assert passed(led, chores, 0.5) == []


def test_nobody_balances_where_that_is_off() -> None:
    """An administrator that moves leaders would find them moved back."""
    led, chores, _ = begun(leader_imbalance_check_interval_seconds=5, auto_leader_rebalance_enable="false")
    led.create("t", [1, 2])
    led.beat(1, want_fence=True)
    led.beat(1)
    led.isr("t", 2, 1)
    led.records()
    assert passed(led, chores, 6.0) == []


def test_topics_that_allow_it_get_a_leader() -> None:
    """An administrator that allows it later would have to elect each by hand."""
    led, chores, _ = begun(unclean_leader_election_interval_ms=4000)
    led.create("t", [1, 2])
    led.create("u", [1, 2])
    for topic in ("t", "u"):
        led.isr(topic, 1)
    led.beat(1, want_fence=True)
    led.configure(2, "u", setting("unclean.leader.election.enable", "true"))
    led.records()
    passed(led, chores, 4.5)
    assert [led.partition(topic).leader for topic in ("t", "u")] == [-1, 2]
    assert led.partition("u").leader_recovery_state == 1


def test_a_round_has_so_many_elections_and_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a hundred thousand partitions would stand still for all of them."""
    monkeypatch.setattr(elections, "MOST_ELECTIONS", 2)
    monkeypatch.setattr("kbroker.cluster.controller.active.MOST_ELECTIONS", 2)
    led, chores, _ = begun(leader_imbalance_check_interval_seconds=5)
    led.create("t", *[[1, 2]] * 5)
    led.beat(1, want_fence=True)
    led.beat(1)
    for number in range(5):
        led.isr("t", 2, 1, number=number)
    led.records()
    before = len(led.log.batches)
    passed(led, chores, 5.2)
    assert [len(records) for _, records in led.log.batches[before:]] == [2, 2, 1]


def test_expired_tokens_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would stay in the metadata for ever."""
    monkeypatch.setattr(chores_module, "TOKENS_SECONDS", 5.0)
    led, chores, clock = begun()

    class Add:
        def plan(self, image: SecurityImage) -> tuple[SecurityDelta, None]:
            tokens = {
                name: DelegationToken(name, "User:o", "User:o", (), 0, 9_000_000, ends)
                for name, ends in (("old", 1_000_001), ("new", 8_000_000))
            }
            return SecurityDelta(tokens=tokens), None

    finished(led.controller.alter_security(Add()))
    led.records()
    clock.ms += 1000
    assert passed(led, chores, 4.9) == []
    assert passed(led, chores, 0.2) == [("RemoveDelegationTokenRecord", 0, {"token_id": "old"})]


@pytest.mark.parametrize("error", [RuntimeError("broken"), PolicyViolationError("too much")])
def test_what_fails_is_tried_again_later(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It would fail a hundred times a second, or never again."""
    led, chores, _ = begun()
    tried: list[float] = []

    async def fail() -> bool:
        tried.append(led.now)
        raise error

    chores._fencing.run = fail
    passed(led, chores, 2.0)
    assert len(tried) == 1
    assert "stale brokers has failed" in caplog.text
    led.now = tried[0] + 299
    chores._ticked = led.now
    passed(led, chores, 2.0)
    assert len(tried) == 2


def test_a_standby_has_no_chores() -> None:
    """It would write to a log that it does not lead."""
    led = Led(QUIET)
    chores = Chores(led.controller, led.config, Clock(led))
    assert finished(chores.tick()) == pytest.approx(1.0)
