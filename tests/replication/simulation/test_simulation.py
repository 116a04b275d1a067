"""Many histories of a partition with three replicas; and rules that are broken on purpose, which they must find out.

A history that fails prints its seed and what happened in it: `play(seed)` plays it again.  `KBROKER_HISTORIES` and
`KBROKER_HISTORY_SEED` say how many, from which seed on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.replication import partition as partitions
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.replication.partition import Partition
from tests.replication.simulation.history import ViolationError, play

HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "30"))
FIRST_SEED = int(os.environ.get("KBROKER_HISTORY_SEED", "1"))
MOST_FOR_A_MUTATION = 400


@pytest.mark.parametrize("part", range(2))
def test_what_was_committed_stays_whatever_fails(part: int) -> None:
    """A record that a client was told of could be lost with a machine."""
    committed = acknowledged = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, 2):
        history = play(seed)
        committed += len(history.committed)
        acknowledged += len(history.acknowledged)
    assert committed > 10 * HISTORIES // 2 and acknowledged, "the histories test nothing"


def test_a_history_is_the_same_under_its_seed() -> None:
    """A failure could not be played again."""
    first, again = play(7), play(7)
    assert (first.events, first.committed) == (again.events, again.committed)


def commit_at_append(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_needed", lambda self: (self.node_id,))


def commit_by_the_isr_in_force_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_needed", lambda self: self.isr)


def take_anyone_into_the_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "may_join", lambda *_: True)


def never_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "truncate", lambda *_: None)
    patch.setattr(Partition, "truncate_to", lambda *_: None)


def lead_in_old_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerRequests, "_check", lambda *_: None)

    def take(self: Any, state: Any) -> None:
        self._fetchers.forget((state.topic, state.image.partition))
        known = self._replicas.hosted((state.topic, state.image.partition))
        if known is not None:
            known.leader_epoch = -1
        original(self, state)

    original = ControllerRequests._take
    patch.setattr(ControllerRequests, "_take", take)


def take_an_isr_for_granted(patch: pytest.MonkeyPatch) -> None:
    original = IsrManager.propose

    def propose(self: Any, partition: Any, isr: tuple[int, ...]) -> None:
        original(self, partition, isr)
        partition.isr = isr

    patch.setattr(IsrManager, "propose", propose)


def say_the_end_whatever_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "high_watermark_lags", False)


# Each with a seed that has found it out, not long before which the search begins.
Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[Mutation, int] = {
    commit_at_append: 0,
    commit_by_the_isr_in_force_alone: 10,
    take_anyone_into_the_isr: 49,
    never_truncate: 3,
    lead_in_old_epochs: 0,
    take_an_isr_for_granted: 7,
    say_the_end_whatever_it_is: 3,
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_broken_rule_is_found_out(mutation: Mutation, monkeypatch: Any) -> None:
    """The histories could pass whatever the code does."""
    mutation(monkeypatch)
    first = max(0, MUTATIONS[mutation] - 1)
    with pytest.raises(ViolationError):
        for seed in range(first, first + MOST_FOR_A_MUTATION):
            play(seed)
