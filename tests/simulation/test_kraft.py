"""Histories of three whole brokers under a model of a KRaft cluster's controllers.

Of `kbroker.assembly.membership.kraft`, and of what it drives in `kbroker.cluster.kraft`."""

from __future__ import annotations

import pytest

from tests.simulation.kraft.cluster import KRaftCluster
from tests.simulation.kraft.state import MetadataState, seen_of
from tests.simulation.runner import KINDS, kind_of, play_each, play_seed

SEEDS = range(1, 9)
MANY = range(100, 160)

# Processes end where they are.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.mark.timeout(300)
def test_brokers_of_a_kraft_cluster_keep_what_they_acknowledge() -> None:
    """Brokers would act on what controllers take back, lead in another epoch than the log's, or lose what they
    acknowledged over crashes, losses of power and changes of controllers."""
    answers = 0
    for result in play_each(SEEDS, only="kraft"):
        assert result.story is None, result.story
        assert result.outcome is not None
        answers += result.outcome.answers
    assert answers > 1000, "nothing happens in these histories"


def test_a_broker_that_follows_the_metadata_log_no_longer_serves_nothing() -> None:
    """While its leaders were moved, one whose log's disk was full said that a producer was fenced, which was not."""
    play_seed(417, only="kraft")


def test_a_topic_made_again_has_no_record_of_the_one_before() -> None:
    """A power cut took the file that says which topic a log is of, and a broker served it for the next one's."""
    play_seed(3228, only="kraft")


def test_a_broker_answers_nothing_until_its_metadata_are_the_clusters() -> None:
    """One that had been away served fetches by the topics of its last life while it registered: it knew none."""
    play_seed(61385, only="kraft")


def test_a_coordinator_that_is_cut_off_fences_nobody() -> None:
    """A broker of which the controllers heard nothing called a producer fenced that had begun at its successor."""
    play_seed(62203, only="kraft")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_histories_of_kraft_clusters() -> None:
    """The same, for what happens rarely."""
    stories = [result.story for result in play_each(MANY, only="kraft") if result.story is not None]
    assert not stories, stories[0]


def test_a_history_of_a_kraft_cluster_is_the_same_each_time() -> None:
    """A failure could not be looked into."""
    assert str(play_seed(5, only="kraft")) == str(play_seed(5, only="kraft"))


def test_no_seed_draws_a_kraft_cluster_by_itself() -> None:
    """The histories of all seeds would be others than those that earlier findings name."""
    assert all(kind_of(seed)[0] is not KRaftCluster for seed in range(2000))
    assert kind_of(1, "kraft") == KINDS["kraft"]


def test_the_model_and_a_broker_read_the_same_of_a_snapshot() -> None:
    """The judge would call right what is not, or the other way round."""
    from kbroker.cluster.kraft.cluster_metadata import empty_image
    from kbroker.metadata.image import PartitionImage
    from kbroker.metadata.record_deltas import delta_of
    from kbroker.schemas import wire
    from tests.simulation.kraft.state import partition_record, record_of

    state, topic_id = MetadataState(), bytes(range(16))
    made = PartitionImage(0, 1, 3, (1, 2), (1,), 7, elr=(2,), directories=(bytes(16), bytes(16)))
    values = [
        wire.RegisterBrokerRecord(broker_id=1, broker_epoch=4, rack=None, fenced=False, log_dirs=[topic_id]),
        wire.TopicRecord(name="t", topic_id=topic_id),
        wire.ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2"),
        partition_record(topic_id, made),
        wire.ClearElrRecord(topic_name="t"),
    ]
    for offset, each in enumerate(values):
        state.apply(record_of(each), offset)
    image = empty_image("cluster")
    direct = image.apply(delta_of(image, [record_of(each) for each in values]))
    kept = image.apply(delta_of(image, state.records()))
    assert seen_of(direct) == seen_of(kept) == state.seen()
    assert direct.topics["t"].partitions[0].partition_epoch == 8
