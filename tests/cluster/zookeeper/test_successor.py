"""What a controller does that takes over from one that is gone."""

from __future__ import annotations

from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import Cluster, in_cluster


def test_a_successor_tells_replicas_once_of_what_the_dead_controller_led_or_followed() -> None:
    """With thousands of partitions replicas would be busy with what is untrue in the next moment."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        await cluster.create("u", [[2, 3], [3, 2]])
        first, second = cluster.offices
        cluster.brokers[3].asked.clear()
        cluster.go(1)
        first.session.drop()
        await cluster.settled()
        assert cluster.office is second
        assert cluster.brokers[3].asked == [
            [TopicPartition("u", 0), TopicPartition("u", 1)],
            [TopicPartition("t", 0), TopicPartition("t", 1)],
        ]
        assert cluster.state("t")["isr"] == [2, 3]
        for told in (cluster.brokers[3].states, cluster.brokers[3].metadata):
            assert (told[TopicPartition("t", 0)].leader, told[TopicPartition("t", 0)].leader_epoch) == (2, 1)

    in_cluster(body, offices=2)
