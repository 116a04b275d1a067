"""Histories of an observer of the controllers' quorum: deaths, losses of power, elections, snapshots."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.quorum import play

SEEDS = range(1, 41)

# Some die before their first step.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def test_what_an_observer_has_is_what_is_committed() -> None:
    """A broker would act on records that the controllers take back, or forget some over a crash."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            counts.update(play(seed))
        except BaseException as error:
            error.add_note(f"in the history of seed {seed}")
            raise
    assert counts["kills"] > 20 and counts["cuts"] > 20 and counts["images"] > 500, counts
    assert counts["snapshots"] >= 5 and counts["taken back"] > 5, "nothing happens in these histories"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_histories() -> None:
    """The same, for what happens rarely."""
    for seed in range(1000, 2500):
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"in the history of seed {seed}")
            raise


def test_a_seed_is_the_same_history() -> None:
    """A failure could not be looked into."""
    assert play(7) == play(7)
