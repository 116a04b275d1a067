"""Replicas of a topic in an old message format, whose records have no leader epochs, while its leaders fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, Node, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow]

SETTINGS = {
    "inter.broker.protocol.version": "2.7",
    "log.message.format.version": "0.10.2",
    "zookeeper.session.timeout.ms": "12000",
    "replica.lag.time.max.ms": "30000",
}
VALUES = [f"{each}" for each in range(5)]


def produce_unreplicated(cluster: Cluster) -> None:
    """With acks=1: only the leader has them."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{cluster.nodes[1].port}", "acks": "1"})
    for value in VALUES:
        producer.produce("t", f"lost-{value}", partition=0)
    assert producer.flush(30) == 0


def leads(cluster: Cluster, node_id: int) -> bool:
    return bool(cluster.state("t", 0)["leader"] == node_id)


@pytest.mark.parametrize(
    "kinds", [[Kbroker] * 2, pytest.param([Kafka] * 2, marks=pytest.mark.kafka)], ids=["kbroker", "kafka"]
)
def test_a_former_leader_gives_up_what_the_next_one_does_not_have(kinds: list[type[Node]], tmp_path: Path) -> None:
    """It would join the ISR with records of its own in the place of acknowledged ones, and lead with them later."""
    with running(tmp_path, kinds, SETTINGS) as cluster:
        cluster.create("t", [[1, 2]], {"message.format.version": "0.10.2"})
        cluster.wait_isr("t", 1, {1, 2})
        cluster.produce("t", [f"first-{each}" for each in VALUES], 0)
        # One after the other before either session ends, so that both stay in the ISR.
        cluster.nodes[2].kill()
        produce_unreplicated(cluster)
        cluster.nodes[1].kill()
        assert cluster.state("t", 0)["isr"] == [1, 2]
        cluster.wait_registered(set())
        cluster.nodes[2].start()
        wait_for(lambda: leads(cluster, 2), "broker 2 to lead", seconds=60)
        cluster.produce("t", [f"kept-{each}" for each in VALUES], 0)
        cluster.nodes[1].start()
        cluster.wait_isr("t", 1, {1, 2})
        cluster.nodes[2].kill()
        wait_for(lambda: leads(cluster, 1), "broker 1 to lead", seconds=60)
        found = cluster.consume("t", 1, 10)
        assert found == [f"{kind}-{each}" for kind in ("first", "kept") for each in VALUES]
