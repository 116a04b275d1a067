"""A broker of a cluster with ZooKeeper whose disk gets full."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow]

RESERVE = "kbroker.disk.reserve.bytes"


def reserve(cluster: Cluster, node_id: int, value: int) -> None:
    """What has to stay free on a broker's disk: more than there is fills it."""
    entry = ConfigEntry(RESERVE, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = cluster.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)


def is_led_elsewhere(cluster: Cluster, partition: int, full: int) -> bool:
    state = cluster.state("t", partition)
    return state["leader"] not in (full, -1) and full not in state["isr"]


def readiness(node: Kbroker) -> str:
    found = re.search(r"metrics on port (\d+)", node.output())
    assert found is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{found.group(1)}/readyz", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def check_handover(cluster: Cluster, full: int, one: int, other: int) -> None:
    cluster.create("t", [[full, one, other], [full, other, one]])
    cluster.create("alone", [[full]])
    cluster.wait_isr("t", 2, {1, 2, 3})
    cluster.produce("t", ["before"], 0)
    reserve(cluster, full, 1 << 60)
    for partition in range(2):
        wait_for(lambda p=partition: is_led_elsewhere(cluster, p, full), f"another leader of t-{partition}", seconds=60)
    assert cluster.state("alone", 0)["leader"] == full
    cluster.produce("t", ["after", "later"], 0)
    node = cluster.nodes[full]
    assert "are handed over to in-sync replicas that have room" in node.output()
    assert isinstance(node, Kbroker)
    assert "2 partitions of log directory" in readiness(node)
    reserve(cluster, full, 0)
    cluster.wait_isr("t", 2, {1, 2, 3})
    assert sorted(cluster.consume("t", 1, 3)) == ["after", "before", "later"]


METRICS = {"metrics.listener": "http://127.0.0.1:0"}


def test_a_broker_whose_disk_is_full_hands_its_leaders_over(tmp_path: Path) -> None:
    """Nothing could be written to what it leads, though two replicas have room."""
    with running(tmp_path, [Kbroker] * 3, METRICS) as cluster:
        check_handover(cluster, 1, 2, 3)


@pytest.mark.kafka
def test_a_broker_whose_disk_is_full_hands_its_leaders_over_to_kafka(tmp_path: Path) -> None:
    """Kafka's controller would not be told, or not take the broker back when its disk has room again."""
    with running(tmp_path, [Kafka, Kbroker, Kafka], METRICS) as cluster:
        check_handover(cluster, 2, 1, 3)
