"""Three brokers of kbroker with real ZooKeeper: they elect, make topics, serve, and outlive each other."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kbroker.cli.main import run
from kbroker.client.connection import Connection
from kbroker.errors import ErrorCode
from kbroker.schemas import wire
from tests.broker_process import BrokerError
from tests.cluster.zookeeper.processes import Kbroker, running
from tests.compat.waiting import wait_for
from tests.ports import free_port

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]


def test_three_brokers_elect_make_a_topic_serve_and_outlive_the_controller(tmp_path: Path) -> None:
    """A cluster would not come together, or would not go on without the broker that was its controller."""
    with running(tmp_path, [Kbroker] * 3) as cluster:
        first = cluster.controller()
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], {"retention.ms": "3600000"})
        assert cluster.json("/config/topics/t") == {"version": 1, "config": {"retention.ms": "3600000"}}
        topic = cluster.json("/brokers/topics/t")
        assert topic["partitions"] == {"0": [1, 2, 3], "1": [2, 3, 1], "2": [3, 1, 2]}
        assert topic["version"] == 3
        assert cluster.state("t", 1) == {
            "controller_epoch": 1,
            "leader": 2,
            "version": 1,
            "leader_epoch": 0,
            "isr": [2, 3, 1],
        }
        cluster.produce("t", [f"a{each}" for each in range(300)])
        assert sorted(cluster.consume("t", 3, 300)) == sorted(f"a{each}" for each in range(300))
        cluster.nodes[first].kill()
        cluster.wait_registered({1, 2, 3} - {first})
        wait_for(lambda: cluster.controller() not in (-1, first), "another controller", seconds=30)
        cluster.wait_isr("t", 3, {1, 2, 3} - {first})
        cluster.produce("t", [f"b{each}" for each in range(300)])
        cluster.nodes[first].start()
        cluster.wait_isr("t", 3, {1, 2, 3})
        assert len(cluster.consume("t", 3, 600)) == 600


def test_brokers_serve_without_zookeeper_and_find_it_again(tmp_path: Path) -> None:
    """Every outage of ZooKeeper would be one of the whole cluster, or would need hands to end."""
    with running(tmp_path, [Kbroker] * 2) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.produce("t", [f"a{each}" for each in range(100)])
        cluster.server.stop()
        cluster.produce("t", [f"b{each}" for each in range(100)])
        cluster.server.launch()
        cluster.server.wait()
        cluster.wait_registered({1, 2})
        wait_for(lambda: cluster.controller() > 0, "a controller", seconds=30)

        def made() -> bool:
            try:
                cluster.create("u", [[1, 2]])
            except KafkaException:
                return False
            return True

        wait_for(made, "a topic to be made", seconds=30)
        cluster.produce("u", ["c"])
        assert len(cluster.consume("t", 2, 200)) == 200


def test_a_broker_that_hangs_is_deposed_and_comes_back_as_another_life(tmp_path: Path) -> None:
    """A broker that was frozen would go on as the leader that it is not any more, or stay out for good."""
    with running(tmp_path, [Kbroker] * 3) as cluster:
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        cluster.produce("t", [f"a{each}" for each in range(100)])
        hung = cluster.nodes[cluster.controller()]
        assert isinstance(hung, Kbroker)
        epoch = cluster.zookeeper.exists(f"/brokers/ids/{hung.node_id}").czxid
        hung.pause()
        cluster.wait_isr("t", 3, {1, 2, 3} - {hung.node_id})
        cluster.produce("t", [f"b{each}" for each in range(100)])
        hung.resume()
        cluster.wait_registered({1, 2, 3})
        assert cluster.zookeeper.exists(f"/brokers/ids/{hung.node_id}").czxid > epoch
        cluster.wait_isr("t", 3, {1, 2, 3})
        assert cluster.controller() != hung.node_id
        assert len(cluster.consume("t", 3, 200)) == 200


def test_an_id_that_is_taken_ends_the_start_with_words_that_say_so(tmp_path: Path) -> None:
    """Two brokers would take turns in one place, and an administrator not know why."""
    with running(tmp_path, [Kbroker]) as cluster:
        other = Kbroker(1, tmp_path / "other", cluster.server.address, {"zookeeper.session.timeout.ms": "1000"})
        with pytest.raises(BrokerError, match="broker id 1 is in use by another broker"):
            other.start()
        assert cluster.registered() == {1}
        unnamed = Kbroker(-1, tmp_path / "unnamed", cluster.server.address, {})
        cluster.nodes[1001] = unnamed
        unnamed.start()
        cluster.wait_registered({1, 1001})
        unnamed.stop()
        cluster.wait_registered({1})
        unnamed.start()
        cluster.wait_registered({1, 1001})


def test_what_only_the_controller_does_is_refused_by_others(tmp_path: Path) -> None:
    """A client that asks the wrong broker would wait, or believe that a topic was made."""
    with running(tmp_path, [Kbroker] * 2) as cluster:
        cluster.create("t", [[1, 2]])
        other = next(each for each in cluster.nodes if each != cluster.controller())
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.nodes[other].port}"})
        wait_for(lambda: "t" in client.list_topics(timeout=30).topics, "the other broker to know the topic")
        topic = wire.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        moved = wire.AlterPartitionReassignmentsRequest
        rows = [moved.ReassignableTopic(name="t", partitions=[moved.ReassignablePartition(partition_index=0)])]
        elect = wire.ElectLeadersRequest
        with Connection("127.0.0.1", cluster.nodes[other].port) as connection:
            created = connection.send(wire.CreateTopicsRequest(topics=[topic]))
            deleted = connection.send(
                wire.DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=9000), version=4
            )
            grown = connection.send(
                wire.CreatePartitionsRequest(
                    topics=[wire.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)], timeout_ms=9000
                )
            )
            elected = connection.send(
                elect(topic_partitions=[elect.TopicPartitions(topic="t", partitions=[0])]), version=2
            )
            reassigned = connection.send(moved(topics=rows))
            listed = connection.send(wire.ListPartitionReassignmentsRequest(topics=None))
        codes = [
            created.topics[0].error_code,
            deleted.responses[0].error_code,
            grown.results[0].error_code,
            elected.replica_election_results[0].partition_result[0].error_code,
            reassigned.error_code,
            listed.error_code,
        ]
        assert codes == [ErrorCode.NOT_CONTROLLER] * 6


def test_the_command_shows_a_cluster_and_moves_leaders_and_replicas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An administrator could not see what is wrong, nor take a broker out of the cluster."""
    with running(tmp_path, [Kbroker] * 3) as cluster:
        cluster.create("t", [[1, 2], [2, 1], [1, 2]])

        def ask(*arguments: str) -> tuple[int, str]:
            status = run(["cluster", *arguments, "-b", cluster.bootstrap])
            return status, capsys.readouterr().out

        cluster.wait_isr("t", 3, {1, 2})
        status, text = ask("status", "--json")
        found = json.loads(text)
        assert status == 0
        assert found["controller"] == cluster.controller()
        assert [each["leaders"] for each in found["brokers"]] == [2, 1, 0]
        assert ask("drain", "1", "--dry-run")[0] == 0
        status, text = ask("drain", "1")
        assert status == 0, text
        cluster.wait_isr("t", 3, {2, 3})
        wait_for(lambda: "no replicas are on the move" in ask("reassign")[1], "moves to end", seconds=30)
        assert "broker 1 has no replicas" in ask("drain", "1")[1]
        assert ask("reassign", "t-0", "--replicas", "2,3")[0] == 0
        wait_for(lambda: ask("elect", "t-0")[0] == 0 and cluster.state("t", 0)["leader"] == 2, "2 to lead", seconds=30)
        cluster.nodes[3].kill()
        cluster.wait_registered({1, 2})
        cluster.wait_isr("t", 3, {2})
        status, text = ask("status")
        assert status == 1
        assert "3 under-replicated, 0 offline" in text
        assert "its broker is not registered" in text


def test_readiness_names_znodes_without_sense_and_a_zookeeper_that_is_away(tmp_path: Path) -> None:
    """An operator would learn from clients that a part of the cluster is left out."""
    port = free_port()
    with running(tmp_path, [Kbroker], {"metrics.listener": f"http://127.0.0.1:{port}"}) as cluster:

        def shown() -> str:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                text: str = answer.read().decode()
            return text

        cluster.zookeeper.create("/brokers/topics/odd", b"{}")
        wait_for(lambda: "/brokers/topics/odd in ZooKeeper is left out" in shown(), "the znode to be named")
        cluster.zookeeper.delete("/brokers/topics/odd")
        cluster.server.stop()
        wait_for(lambda: "no connection to ZooKeeper" in shown(), "the outage to be named")
