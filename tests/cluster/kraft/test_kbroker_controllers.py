"""Clusters whose controllers are kbrokers, alone or in one quorum with Apache Kafka's: what they decide, and who leads.

Of `kbroker.assembly.quorum_node`, `kbroker.assembly.controller_part` and `kbroker.cluster.raft.own_log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker.schemas import wire
from kbroker.types import CLUSTER_METADATA_TOPIC
from tests.broker_process import BrokerProcess
from tests.cluster.cluster_clients import ClusterClients
from tests.cluster.kraft.asking import ask
from tests.cluster.kraft.combined import combined, start_together
from tests.cluster.kraft.processes import (
    FIRST_CONTROLLER,
    SETTINGS,
    Cluster,
    Kafka,
    Kbroker,
    running,
)
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for
from tests.ports import free_port

VOTERS = [FIRST_CONTROLLER + each for each in range(3)]
SPREAD = [[1, 2], [2, 1]]
with_kafka = pytest.mark.kafka


def active(cluster: Cluster) -> int:
    """The node that leads the quorum, as a broker hears it; -1: none does."""
    request = wire.DescribeQuorumRequest
    row = request.PartitionData(partition_index=0)
    topic = request.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])
    answer = ask(cluster, 1, request(topics=[topic]), 2)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return -1
    return int(answer.topics[0].partitions[0].leader_id)


def wait_active(cluster: Cluster, wanted: set[int]) -> int:
    """Until one of these leads; it."""
    wait_for(lambda: active(cluster) in wanted, f"one of {wanted} to lead the quorum", seconds=90)
    return active(cluster)


def serve(cluster: Cluster, name: str, count: int = 50) -> None:
    """A topic comes, takes records, and gives them."""
    cluster.create(name, SPREAD)
    cluster.wait_isr(name, {1, 2})
    cluster.produce(name, [f"{name}{each}" for each in range(count)])
    assert len(cluster.consume(name, 2, count)) == count


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_lead_passes_when_a_controller_ends(tmp_path: Path) -> None:
    """A cluster without Java would stand still with the first controller that dies."""
    with running(tmp_path, (Kbroker, Kbroker), controllers=3, kbrokers=3) as cluster:
        serve(cluster, "first")
        for number, kill in enumerate((True, False, True, False)):
            leader = wait_active(cluster, set(VOTERS))
            gone = cluster.controllers[leader]
            gone.kill() if kill else gone.stop()
            wait_active(cluster, set(VOTERS) - {leader})
            serve(cluster, f"without-{number}")
            gone.start()
            node = cluster.nodes[1 + number % 2]
            node.kill()
            node.start()
            cluster.wait_isr("first", {1, 2})
        leader = wait_active(cluster, set(VOTERS))
        cluster.controllers[leader].pause()
        wait_active(cluster, set(VOTERS) - {leader})
        serve(cluster, "while-it-hangs")
        cluster.controllers[leader].resume()
        serve(cluster, "after-it-hung")


@with_kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kbrokers", [1, 2])
def test_each_voter_leads_a_mixed_quorum(tmp_path: Path, kbrokers: int) -> None:
    """A cluster could not be moved from Kafka's controllers to kbroker's, one voter after the other, or back."""
    with running(tmp_path, (Kbroker, Kafka), controllers=3, kbrokers=kbrokers) as cluster:
        serve(cluster, "first")
        led: set[int] = set()
        for number in range(20):
            leader = wait_active(cluster, set(VOTERS))
            led.add(leader)
            serve(cluster, f"under-{leader}-{number}", 10)
            if len(led) == len(VOTERS):
                break
            # One that stops names a successor, the first of those that have all; behind one that dies, time decides.
            gone = cluster.controllers[leader]
            gone.stop() if number % 4 == 0 else gone.kill()
            wait_active(cluster, set(VOTERS) - {leader})
            gone.start()
        assert led == set(VOTERS)
        for each in cluster.controllers.values():
            assert "FATAL" not in each.output() and "fault" not in each.output().lower().replace("default", "")


@with_kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_voters_change_from_kafka_to_kbroker_and_back(tmp_path: Path) -> None:
    """A rolling change, the cluster serving all the while; a controller's new directory begins empty."""
    with running(tmp_path, (Kbroker, Kbroker), controllers=3, kbrokers=0) as cluster:
        serve(cluster, "before")
        for is_kbroker in (True, False):
            for node_id in VOTERS:
                port = cluster.controllers[node_id].port
                cluster.controllers[node_id].stop()
                fresh = cluster.controller(node_id, port, is_kbroker=is_kbroker)
                cluster.controllers[node_id] = fresh
                fresh.start()
                wait_active(cluster, set(VOTERS))
                serve(cluster, f"with-{node_id}-{is_kbroker}", 10)
                wait_for(lambda: _has_all(cluster), "the new voter to have the log", seconds=90)
        assert len(cluster.consume("before", 2, 50)) == 50


def _has_all(cluster: Cluster) -> bool:
    request = wire.DescribeQuorumRequest
    row = request.PartitionData(partition_index=0)
    topic = request.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[row])
    answer = ask(cluster, 1, request(topics=[topic]), 2)
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return False
    found = answer.topics[0].partitions[0]
    return all(each.log_end_offset >= found.high_watermark - 2 for each in found.current_voters)


@with_kafka
@pytest.mark.timeout(300)
def test_kafkas_tools_read_what_kbrokers_have_decided(tmp_path: Path) -> None:
    """The log of a quorum of kbrokers would be no log of Kafka's."""
    with running(tmp_path, (Kbroker, Kbroker), controllers=1, kbrokers=1) as cluster:
        serve(cluster, "read")
    (path,) = tmp_path.glob("kbroker-3001/data/__cluster_metadata-0/*.log")
    done = run_java("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
    assert done.returncode == 0, done.stderr
    for kind in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD", "LeaderChange"):
        assert kind in done.stdout
    assert "Found 0 bytes" not in done.stdout and "Could not" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_nodes_are_brokers_and_controllers(tmp_path: Path) -> None:
    """Three machines could not be a cluster; or with one of them gone, it would stand still."""
    nodes = combined(tmp_path, [free_port() for _ in range(3)], SETTINGS)
    try:
        start_together(nodes)
        clients = OfNodes(nodes)
        clients.wait_known({1, 2, 3})
        clients.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        count = 0
        for number, kill in enumerate((False, True, False)):
            clients.produce("t", [f"{number}-{each}" for each in range(100)])
            node = nodes[number]
            node.kill() if kill else node.stop()
            left = OfNodes([each for each in nodes if each is not node])
            left.wait_known({1, 2, 3} - {number + 1})
            left.produce("t", [f"without-{number}-{each}" for each in range(100)])
            left.create(f"made-{number}", [[1 + (number + 1) % 3]])
            count += 200
            node.start()
            clients.wait_known({1, 2, 3})
        assert len(clients.consume("t", 3, count)) == count
    finally:
        for node in nodes:
            if node.running:
                node.kill()


class OfNodes(ClusterClients):
    """Clients of these nodes."""

    def __init__(self, nodes: Sequence[BrokerProcess]) -> None:
        self._nodes = nodes

    def brokers(self) -> Sequence[BrokerProcess]:
        return self._nodes
