"""When a worker that says nothing is taken for dead: never for time in which its supervisor did not look."""

from __future__ import annotations

import pytest

from kbroker.supervision.silence import LOOKS, Silence


def looks_until_dead(silence: Silence, patience: float = 0.0) -> int:
    """How many looks a worker that says nothing survives."""
    silence.heard(1)
    for count in range(1000):
        if silence.look(1, patience):
            return count
    raise AssertionError("never")


@pytest.mark.parametrize("session", [0.1, 0.7, 9.0, 18.0, 3600.0])
def test_a_silent_worker_has_its_session(session: float) -> None:
    """It would be killed while it is late, or keep its partitions for longer than was set."""
    silence = Silence(session)
    assert looks_until_dead(silence) == LOOKS
    assert silence.every * LOOKS == pytest.approx(session)


def test_one_that_speaks_in_time_lives() -> None:
    """A session is no bound of a worker's life."""
    silence = Silence(9.0)
    for _ in range(100):
        silence.heard(1)
        assert not any(silence.look(1) for _ in range(LOOKS))


def test_each_is_judged_by_itself() -> None:
    """One that hangs would take the others along, or be saved by them."""
    silence = Silence(9.0)
    dead = set()
    for _ in range(LOOKS + 1):
        silence.heard(2)
        dead |= {number for number in (1, 2) if silence.look(number)}
    assert dead == {1}


def test_a_start_has_the_patience_that_it_asks_for() -> None:
    """A worker whose loop does not turn yet would be killed again and again."""
    silence = Silence(9.0)
    assert looks_until_dead(silence, 60.0) == pytest.approx(60 / silence.every, abs=1)
    assert looks_until_dead(Silence(120.0), 60.0) == LOOKS
