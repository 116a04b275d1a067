"""When a worker that has died is started again, and when not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.supervision.worker_life import BACKOFF, CALM, WorkerLife, WorkerState


def ready(life: WorkerLife, now: float) -> WorkerLife:
    """The same, once it serves."""
    life.ready(now)
    return life


def test_a_worker_that_was_ready_is_started_again_at_once() -> None:
    """Its partitions would be away for longer than need be."""
    life = ready(WorkerLife(), 0.0)
    assert life.died(1.0) == 0.0
    life.restarted()
    assert (life.state, life.restart_count) == (WorkerState.STARTING, 1)


def test_a_worker_that_never_was_ready_ends_the_start() -> None:
    """A port that is taken would be tried for ever, and the service manager would wait."""
    life = WorkerLife()
    assert life.died(1.0) is None
    assert life.state is WorkerState.FAILED


def test_one_that_dies_again_before_it_is_ready_is_tried_on() -> None:
    """The host would go down with one worker whose disk is slow to come back."""
    life = ready(WorkerLife(), 0.0)
    life.died(1.0)
    life.restarted()
    assert life.died(2.0) == pytest.approx(0.2)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, CALM - 1)), min_size=1, max_size=40))
def test_pauses_double_up_to_a_bound(deaths: list[tuple[bool, float]]) -> None:
    """A worker that dies at once would keep the processors busy with starts for ever."""
    life, now, pauses = ready(WorkerLife(), 0.0), 0.0, []
    for is_ready, lived in deaths:
        if is_ready:
            life.ready(now)
        now += lived
        pause = life.died(now)
        assert pause is not None
        pauses.append(pause)
        life.restarted()
    assert pauses == [0.0, *(min(BACKOFF.longest, 0.2 * 2**number) for number in range(len(pauses) - 1))]


def test_a_calm_time_makes_up_for_deaths() -> None:
    """A worker that dies once a week would wait longer from week to week."""
    life = ready(WorkerLife(), 0.0)
    for now in (1.0, 2.0, 3.0):
        life.died(now)
        life.restarted()
        life.ready(now)
    assert life.died(3.0 + CALM) == 0.0


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_worker_that_is_stopped_is_not_started_again(is_ready: bool) -> None:
    """A stop of the host would never come to its end."""
    life = WorkerLife()
    if is_ready:
        life.ready(0.0)
    assert life.stop()
    assert life.died(1.0) is None
    assert life.state is WorkerState.GONE


@pytest.mark.parametrize("is_ready", [True, False])
def test_one_that_hangs_is_started_again_once_it_has_ended(is_ready: bool) -> None:
    """A second process would find the directories of the first locked, and give up."""
    life = ready(WorkerLife(), 0.0)
    life.died(1.0)
    life.restarted()
    if is_ready:
        life.ready(2.0)
    life.silent()
    assert life.state is WorkerState.SILENT
    life.ready(3.0)
    assert life.state is WorkerState.SILENT
    assert life.died(4.0) == pytest.approx(0.2)


def test_one_that_hangs_in_its_first_start_ends_that() -> None:
    """The host would be tried for ever, as with one that ends."""
    life = WorkerLife()
    life.silent()
    assert life.died(61.0) is None
    assert life.state is WorkerState.FAILED


def test_a_calm_time_that_ends_in_silence_makes_up_for_deaths() -> None:
    """A worker that hangs once a week would wait longer from week to week."""
    life = ready(WorkerLife(), 0.0)
    for now in (1.0, 2.0):
        life.died(now)
        life.restarted()
        life.ready(now)
    life.silent()
    assert life.died(2.0 + CALM) == 0.0


def test_one_that_hangs_while_the_host_stops_is_not_started_again() -> None:
    """The stop would never come to its end."""
    life = ready(WorkerLife(), 0.0)
    assert life.stop()
    life.silent()
    assert life.died(1.0) is None
    assert life.state is WorkerState.GONE


def test_a_stop_finds_a_worker_between_two_lives() -> None:
    """It would be started while the host ends, and be left over."""
    life = ready(WorkerLife(), 0.0)
    life.died(1.0)
    assert not life.stop()
    assert life.state is WorkerState.GONE
    with pytest.raises(ValueError, match="GONE does not become STARTING"):
        life.restarted()
