"""Histories of an observer of the controllers' quorum: deaths, losses of power, elections, snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from kbroker.cluster.kraft import cluster_metadata
from kbroker.cluster.kraft.batches import MetadataBatch
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.segments import Segments
from kbroker.metadata.metadata_record import MetadataRecord, MetadataTransactions
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


def above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    commit = Quorum._commit
    patch.setattr(Quorum, "_commit", lambda self, _told: commit(self, self.end_offset))


def half_a_transaction(patch: pytest.MonkeyPatch) -> None:
    class AtOnce(MetadataTransactions):
        is_open = False

        def completed(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
            return (each for each in records if "Transaction" not in each.name)

    patch.setattr(cluster_metadata, "MetadataTransactions", AtOnce)


def epochs_in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataDirectory, "elected", lambda _self, _state: None)


def appended_in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    def note(self: Segments, batches: Iterable[MetadataBatch]) -> None:
        self.end_offset = [*batches][-1].end_offset

    patch.setattr(Segments, "append", note)


def truncated_in_memory_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataDirectory, "truncate", lambda _self, _end: None)


def an_older_epoch_is_believed(patch: pytest.MonkeyPatch) -> None:
    take = Quorum._take_leader

    def believe(self: Quorum, named: object, endpoints: object, asked: object) -> object:
        if 0 <= named.leader_epoch < self.epoch:  # type: ignore[attr-defined]
            self.epoch = 0
        return take(self, named, endpoints, asked)  # type: ignore[arg-type]

    patch.setattr(Quorum, "_take_leader", believe)


FAULTS = (
    above_the_high_watermark,
    half_a_transaction,
    epochs_in_memory_alone,
    appended_in_memory_alone,
    truncated_in_memory_alone,
    an_older_epoch_is_believed,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_are_found(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories would be blind for what they are there to find."""
    fault(monkeypatch)
    for seed in SEEDS:
        try:
            play(seed)
        except Exception:
            return
    pytest.fail("no history finds it")


def test_a_seed_is_the_same_history() -> None:
    """A failure could not be looked into."""
    assert play(7) == play(7)
