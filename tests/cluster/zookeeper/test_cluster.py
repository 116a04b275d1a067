"""Three brokers of kbroker with real ZooKeeper: they elect, make topics, serve, and outlive each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.broker_process import BrokerError
from tests.cluster.zookeeper.processes import Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow]


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
