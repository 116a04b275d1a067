"""kbroker and Apache Kafka 3.9.1 in one cluster: either is the controller, a leader and a follower of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def serve(cluster: Cluster, topic: str, prefix: str, count: int = 200) -> None:
    cluster.produce(topic, [f"{prefix}{each}" for each in range(count)])


def fail_over(cluster: Cluster, topic: str) -> None:
    """Kill the controller; the others take over and serve, and it comes back."""
    first = cluster.controller()
    cluster.nodes[first].kill()
    cluster.wait_registered(set(cluster.nodes) - {first})
    wait_for(lambda: cluster.controller() not in (-1, first), "another controller", seconds=30)
    cluster.wait_isr(topic, 3, set(cluster.nodes) - {first})
    serve(cluster, topic, f"without-{first}-")
    cluster.nodes[first].start()
    cluster.wait_registered(set(cluster.nodes))
    cluster.wait_isr(topic, 3, set(cluster.nodes))


def test_a_kbroker_controls_brokers_of_kafka(tmp_path: Path) -> None:
    """A cluster could not be moved from Kafka to kbroker one broker after the other."""
    with running(tmp_path, [Kbroker, Kafka, Kafka]) as cluster:
        assert cluster.controller() == 1
        cluster.create("t", SPREAD)
        cluster.wait_isr("t", 3, {1, 2, 3})
        serve(cluster, "t", "a")
        fail_over(cluster, "t")
        assert cluster.controller() in (2, 3)
        serve(cluster, "t", "b")
        assert len(cluster.consume("t", 3, 600)) == 600


def test_a_kbroker_is_a_member_of_kafkas_cluster(tmp_path: Path) -> None:
    """A cluster could not be moved back, or a kbroker not be tried in one of Kafka."""
    with running(tmp_path, [Kafka, Kbroker, Kafka]) as cluster:
        assert cluster.controller() == 1
        cluster.create("t", SPREAD)
        cluster.wait_isr("t", 3, {1, 2, 3})
        serve(cluster, "t", "a")
        fail_over(cluster, "t")
        serve(cluster, "t", "b")
        assert len(cluster.consume("t", 3, 600)) == 600
        cluster.nodes[2].stop()
        cluster.wait_isr("t", 3, {1, 3})
        cluster.nodes[2].start()
        cluster.wait_isr("t", 3, {1, 2, 3})


def test_a_cluster_moves_from_kafka_to_kbroker_and_back_on_its_own_directories(tmp_path: Path) -> None:
    """A migration would copy every byte again, or there would be no way back from it."""
    with running(tmp_path, [Kafka, Kafka]) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        serve(cluster, "t", "a")
        kafkas = dict(cluster.nodes)
        for number in kafkas:
            cluster.nodes[number].stop()
            cluster.wait_isr("t", 2, {1, 2} - {number})
            cluster.nodes[number] = Kbroker(number, tmp_path / f"broker-{number}", cluster.server.address, {})
            cluster.nodes[number].start()
            cluster.wait_isr("t", 2, {1, 2})
            serve(cluster, "t", f"kbroker-{number}-")
        for number, kafka in kafkas.items():
            cluster.nodes[number].stop()
            cluster.wait_isr("t", 2, {1, 2} - {number})
            cluster.nodes[number] = kafka
            kafka.start()
            cluster.wait_isr("t", 2, {1, 2})
            serve(cluster, "t", f"kafka-{number}-")
        assert len(cluster.consume("t", 2, 1000)) == 1000
