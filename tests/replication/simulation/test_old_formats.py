"""Many histories of a partition with three replicas in old formats and protocols, as `test_simulation` has them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kbroker.replication.fetcher import ReplicaFetcher
from kbroker.replication.partition import Partition
from tests.replication.simulation.history import ViolationError, play
from tests.replication.simulation.mutations import Mutation
from tests.replication.simulation.old_format_history import OldFormatHistory

MOST_FOR_A_MUTATION = 400
HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "60"))
FIRST_SEED = int(os.environ.get("KBROKER_HISTORY_SEED", "1"))


@pytest.mark.parametrize("part", range(2))
def test_what_was_committed_stays_in_old_formats(part: int) -> None:
    """Records that were acknowledged to acks=all would be lost where messages have no leader epochs."""
    committed = acknowledged = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, 2):
        history = play(seed, kind=OldFormatHistory)
        committed += len(history.committed)
        acknowledged += len(history.acknowledged)
    assert committed > 10 * HISTORIES // 2 and acknowledged, "the histories test nothing"


def keep_what_has_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaFetcher, "_has_to_truncate", lambda self, _: not self._settings().protocol.truncates_on_fetch)


def take_an_answer_without_an_epoch_for_none(patch: pytest.MonkeyPatch) -> None:
    original = Partition.end_shared_with

    def end_shared_with(self: Any, leader_epoch: int, end_offset: int) -> tuple[int, bool]:
        if leader_epoch < 0:
            return self.log.high_watermark, True
        return original(self, leader_epoch, end_offset)

    patch.setattr(Partition, "end_shared_with", end_shared_with)


MUTATIONS: dict[Mutation, int] = {keep_what_has_no_epoch: 0, take_an_answer_without_an_epoch_for_none: 0}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_broken_rule_is_found_out(mutation: Mutation, monkeypatch: Any) -> None:
    """The histories could pass whatever the code does."""
    mutation(monkeypatch)
    first = max(0, MUTATIONS[mutation] - 1)
    with pytest.raises(ViolationError):
        for seed in range(first, first + MOST_FOR_A_MUTATION):
            play(seed, kind=OldFormatHistory)
