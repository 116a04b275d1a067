"""Histories of three whole brokers under controllers of the product, and bugs of these that the histories find.

Of `kbroker.assembly.quorum_node`, and of what it drives in `kbroker.cluster.raft` and `kbroker.cluster.controller`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kbroker.cluster.controller import registrations
from kbroker.cluster.controller.active import ActiveController
from kbroker.cluster.controller.directories import marked
from kbroker.cluster.controller.log_writer import LogWriter
from kbroker.cluster.raft.replica import RaftReplica
from tests.simulation.runner import kind_of, play_each, play_seed
from tests.simulation.voters.cluster import QuorumCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbroker.metadata.metadata_record import MetadataRecord

SEEDS = (4, 7, 8, 9, 10)
MANY = range(100, 160)

# Processes end where they are.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.timeout(300)
def test_brokers_under_controllers_of_kbroker_keep_what_they_acknowledge() -> None:
    """Controllers would take back what they have said, or decide something else after each other, over crashes, losses
    of power, pauses and cuts."""
    answers = 0
    for result in play_each(SEEDS, only="quorum"):
        assert result.story is None, result.story
        assert result.outcome is not None
        answers += result.outcome.answers
    assert answers > 1000, "nothing happens in these histories"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_histories_under_controllers_of_kbroker() -> None:
    """The same, for what happens rarely."""
    stories = [result.story for result in play_each(MANY, only="quorum") if result.story is not None]
    assert not stories, stories[0]


def test_a_history_under_controllers_of_kbroker_is_the_same_each_time() -> None:
    """A failure could not be looked into."""
    assert str(play_seed(8, only="quorum")) == str(play_seed(8, only="quorum"))


def test_no_seed_draws_controllers_of_kbroker_by_itself() -> None:
    """The histories of all seeds would be others than those that earlier findings name."""
    assert all(kind_of(seed)[0] is not QuorumCluster for seed in range(2000))


def _first_story(seeds: Iterable[int]) -> str:
    stories = (each.story for each in play_each(seeds, only="quorum") if each.story is not None)
    return next(stories, "")


def test_an_answer_before_its_records_are_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client was told would be lost with the lead, and no history would tell."""

    async def at_once(_writer: LogWriter) -> None:
        pass

    monkeypatch.setattr(LogWriter, "committed", at_once)
    assert "which is not committed" in _first_story((1,))


def test_a_leader_that_decides_before_it_has_applied_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would decide by what the leader before it has changed, or by nothing at all."""
    assert not _first_story((18,)), "it is found without the bug"
    begin_lead = RaftReplica._begin_lead

    def at_once(replica: RaftReplica, epoch: int, granting: Sequence[int]) -> None:
        begin_lead(replica, epoch, granting)
        if replica.leading is not None:
            replica.leading.is_active = True
            for begun in replica._on_lead:
                begun(replica.leading)

    async def lead(self: ActiveController, log: Any, bootstrap: Iterable[MetadataRecord] = ()) -> None:
        self._elected = log
        async with self._changing:
            image = await marked(self._committed.recorded, self._slices.pace())
            self._metadata.begin(log, image, self._committed.next_producer_id)
            await self._activate(bootstrap)

    monkeypatch.setattr(RaftReplica, "_begin_lead", at_once)
    monkeypatch.setattr(ActiveController, "lead", lead)
    assert _first_story((18,)), "what was acknowledged is there all the same"


def test_a_broker_epoch_that_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a broker's former life has sent would count for the next one."""
    made = registrations.registration_record

    def with_former_epoch(image: Any, request: Any, epoch: int, known: Any) -> Any:
        before = image.brokers.get(request.broker_id)
        return made(image, request, epoch if before is None else before.epoch, known)

    monkeypatch.setattr("kbroker.cluster.controller.brokers.registration_record", with_former_epoch)
    assert "has epoch" in _first_story((2,))
