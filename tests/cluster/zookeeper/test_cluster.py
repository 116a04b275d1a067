"""Three brokers of kbroker with real ZooKeeper: they elect, make topics, serve, and outlive each other."""

from __future__ import annotations

from pathlib import Path

import pytest

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
