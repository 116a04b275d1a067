"""Many histories of a partition in a cluster with ZooKeeper, under the project's own controllers; and rules that are
broken on purpose, which they must find out.

A history that fails prints its seed and what happened in it: `play(seed, kind=ZooKeeperHistory)` plays it again.
`KBROKER_HISTORIES` and `KBROKER_HISTORY_SEED` say how many, from which seed on.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from kbroker.cluster.zookeeper.election import Election
from kbroker.cluster.zookeeper.writer import FencedWriter
from tests.replication.simulation.history import ViolationError, play
from tests.replication.simulation.mutations import Mutation, commit_at_append, never_truncate, take_anyone_into_the_isr
from tests.replication.simulation.zookeeper_history import ZooKeeperHistory

HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "240"))
FIRST_SEED = int(os.environ.get("KBROKER_HISTORY_SEED", "1"))
PARTS = 4
MOST_FOR_A_MUTATION = 150


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_committed_stays_whoever_is_the_controller(part: int) -> None:
    """A record that a client was told of could be lost with a session."""
    committed = acknowledged = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, PARTS):
        history = play(seed, kind=ZooKeeperHistory)
        committed += len(history.committed)
        acknowledged += len(history.acknowledged)
    assert committed > 10 * HISTORIES // PARTS and acknowledged, "the histories test nothing"


def test_a_history_is_the_same_under_its_seed() -> None:
    """A failure could not be played again."""
    first, again = play(7, kind=ZooKeeperHistory), play(7, kind=ZooKeeperHistory)
    assert (first.events, first.committed) == (again.events, again.committed)


def test_an_isr_grows_under_a_controller_whose_own_metadata_are_behind() -> None:
    """A leader that is told that there is no such topic waits for the controller's next word, which never comes: its
    ISR would stay as it is for good."""
    play(500597, kind=ZooKeeperHistory)


def stay_the_controller_and_write_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """Either by itself is harmless: who knows that it is deposed writes nothing, and a fence stops the rest."""

    async def together(self: Any, operations: Any) -> Any:
        return await self._zookeeper.multi(operations)

    patch.setattr(FencedWriter, "_together", together)
    patch.setattr(Election, "_step_down", lambda _self: None)


# Each with a seed that has found it out, not long before which the search begins.
MUTATIONS: dict[Mutation, int] = {
    commit_at_append: 1,
    take_anyone_into_the_isr: 20,
    never_truncate: 4,
    stay_the_controller_and_write_without_a_fence: 8,
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_broken_rule_is_found_out(mutation: Mutation, monkeypatch: Any) -> None:
    """The histories could pass whatever the code does."""
    mutation(monkeypatch)
    first = max(0, MUTATIONS[mutation] - 1)
    with pytest.raises(ViolationError):
        for seed in range(first, first + MOST_FOR_A_MUTATION):
            play(seed, kind=ZooKeeperHistory)
