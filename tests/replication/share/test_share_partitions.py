"""The share-partitions of a broker over the terms of a leader (`kbroker.replication.share.share_partitions`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import KafkaError, NotLeaderOrFollowerError
from kbroker.metadata.image import MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.replication.share.persister import Loaded, SharePartitionKey
from kbroker.replication.share.share_partition import SharePartition, SharePartitionState
from kbroker.replication.share.share_partitions import SharePartitions
from tests.replication.share.surroundings import KEY, HandClock, HandPersister

IMAGE: Any = None
TOPIC = TopicImage("t", KEY.topic_id, (PartitionImage(0, 1, 5, (1,), (1,), 0),))
CHANGED = MetadataDelta(changed=(TopicChange(TOPIC, TOPIC),))


class Silent(HandPersister):
    """Has yet to answer."""

    def read_state(self, key: SharePartitionKey, leader_epoch: int, loaded: Loaded) -> None:
        """Nothing comes."""


class Broker:
    """One that leads partition 0 of topic `t`."""

    def __init__(self) -> None:
        clock: Any = HandClock()
        replicas: Any = SimpleNamespace(topics={"t": {}}, purgatory=None)
        settings: Any = {}.get  # Of no group: nothing is read here.
        self.replicas = replicas
        self.parts = SharePartitions(replicas, Silent(), clock, clock, settings, 10)
        self.partition: Any = SimpleNamespace(leader_epoch=5, log=SimpleNamespace(high_watermark=10))
        self.leads()

    def leads(self, epoch: int = 5) -> None:
        """It does so in this epoch from now on."""
        self.partition.leader_epoch = epoch
        self.replicas.topics["t"][0] = self.partition

    def get(self) -> SharePartition:
        """What a member reads from now."""
        return self.parts.get(KEY, self.partition)


def test_another_epoch_of_a_leader_begins_with_what_is_stored() -> None:
    """In between another broker led, and gave records to members that this one knows nothing of: it would give them
    again, and take up acknowledgements of what it had given before."""
    broker = Broker()
    first = broker.get()
    assert broker.get() is first
    broker.leads(7)
    second = broker.get()
    assert second is not first and second.leader_epoch == 7
    assert first.state is SharePartitionState.FENCED and second.state is not SharePartitionState.FENCED
    assert broker.get() is second is broker.parts.find(KEY)


@pytest.mark.parametrize("news", [7, None])
def test_what_is_no_longer_led_in_its_epoch_is_given_up_with_the_news(news: int | None) -> None:
    """A member would wait for a broker that leads no more, until another member reads there."""
    broker = Broker()
    known, told = broker.get(), list[KafkaError | None]()
    known.initialize(told.append)
    broker.parts.on_metadata(IMAGE, IMAGE, CHANGED)
    assert broker.parts.find(KEY) is known and not told, "the topic has changed, and its leader has not"
    if news is None:
        del broker.replicas.topics["t"][0]
    else:
        broker.leads(news)
    broker.parts.on_metadata(IMAGE, IMAGE, CHANGED)
    assert broker.parts.find(KEY) is None and known.state is SharePartitionState.FENCED
    assert [type(each) for each in told] == [NotLeaderOrFollowerError]
