"""What an elected controller does when brokers go and come back, over the model of ZooKeeper."""

from __future__ import annotations

from kbroker.cluster.requests import ElectionType
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.office import Cluster, brief, in_cluster, take_isr

T0 = TopicPartition("t", 0)


def test_a_crash_moves_leaders_and_shrinks_isrs_in_new_epochs() -> None:
    """Partitions would stay without a leader, or followers keep what a deposed leader said."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [3, 1, 2]])
        await cluster.create("one", [[3]])
        cluster.go(3)
        await cluster.settled()
        assert brief(cluster.state("t", 0)) == (1, 1, [1, 2])
        assert brief(cluster.state("t", 1)) == (1, 1, [1, 2])
        assert brief(cluster.state("one")) == (-1, 1, [3])
        assert cluster.brokers[1].live == [1, 2]
        assert cluster.brokers[2].metadata[T0].offline_replicas == [3]
        await cluster.come(3)
        await cluster.settled()
        assert brief(cluster.state("one")) == (3, 2, [3])
        assert brief(cluster.state("t", 1)) == (1, 1, [1, 2])
        assert cluster.brokers[3].live == [1, 2, 3]
        assert not cluster.brokers[3].states[T0].is_new
        assert cluster.brokers[1].metadata[T0].offline_replicas == []
        assert await take_isr(cluster, TopicPartition("t", 1), [1, 2, 3]) == 0
        assert brief(cluster.state("t", 1)) == (1, 1, [1, 2, 3])

    in_cluster(body)


def test_a_broker_that_goes_and_comes_back_between_two_looks_has_failed() -> None:
    """After a power cut it would lead on with less than the others have, and they would cut their logs."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2, 3], [3, 1, 2]])
        await cluster.create("one", [[3]])
        cluster.go(3)
        await cluster.come(3)
        await cluster.settled()
        assert brief(cluster.state("t", 0)) == (1, 1, [1, 2])
        assert brief(cluster.state("t", 1)) == (1, 1, [1, 2])
        assert brief(cluster.state("one")) == (3, 2, [3])
        assert cluster.brokers[1].live == [1, 2, 3]
        assert cluster.brokers[3].states[TopicPartition("t", 1)].leader == 1

    in_cluster(body)


def test_a_returning_replica_outside_the_isr_is_elected_only_uncleanly() -> None:
    """Committed records would be lost without the administrator's word."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2]])
        cluster.go(2)
        await cluster.settled()
        cluster.go(1)
        await cluster.settled()
        await cluster.come(2)
        await cluster.settled()
        assert brief(cluster.state("t")) == (-1, 2, [1])
        (outcome,) = await cluster.office.administration.elect_leaders(ElectionType.UNCLEAN, [T0])
        assert outcome.error is None
        assert brief(cluster.state("t")) == (2, 3, [2])
        assert cluster.state("t")["leader_recovery_state"] == 1
        assert cluster.brokers[2].states[T0].leader_recovery_state == 1
        await cluster.come(1)
        await cluster.settled()
        assert await take_isr(cluster, T0, [2, 1]) == 0
        assert "leader_recovery_state" not in cluster.state("t")

    in_cluster(body)


def test_an_unclean_election_follows_the_setting_at_once() -> None:
    """An administrator who allows it would wait for the next broker to come or go."""

    async def body(cluster: Cluster) -> None:
        await cluster.create("t", [[1, 2]])
        for node_id in (2, 1):
            cluster.go(node_id)
            await cluster.settled()
        await cluster.come(2)
        await cluster.settled()
        assert cluster.office.term is not None
        cluster.office.term.topic_configs_changed({"t": {"unclean.leader.election.enable": "true"}})
        await cluster.settled()
        assert brief(cluster.state("t")) == (2, 3, [2])

    in_cluster(body)
