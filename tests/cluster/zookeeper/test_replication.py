"""Replication in a cluster with real ZooKeeper: racks, throttles, lost directories, beside Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker.replication.replica_selector import RACK_AWARE
from tests.broker.failing_disk import FailingDisk, failing_disk
from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, running
from tests.compat.tooling import ROOT, old_java_command
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.slow]

RACKS = {"broker.rack": "rack-{id}", "replica.selector.class": RACK_AWARE}
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def read_from(cluster: Cluster, topic: str, partition: int, rack: str, count: int) -> tuple[int, list[str]]:
    """(the broker that a consumer of `rack` ends up with, what it read)."""
    seen: list[int] = []

    def note(text: str) -> None:
        found = json.loads(text)["topics"].get(topic, {}).get("partitions", {}).get(str(partition))
        if found is not None:
            seen.append(found["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "racks",
            "client.rack": rack,
            "statistics.interval.ms": 200,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "stats_cb": note,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
        return len(values) >= count and len(seen) > 0 and seen[-1] == int(rack[-1])

    try:
        wait_for(enough, f"{len(values)} of {count} records from a replica in {rack}", seconds=60)
    finally:
        consumer.close()
    return seen[-1], values


def check_racks(cluster: Cluster) -> None:
    cluster.create("t", [[1, 2], [2, 1]])
    cluster.wait_isr("t", 2, {1, 2})
    for partition in range(2):
        values = [f"{partition}-{each}" for each in range(300)]
        cluster.produce("t", values, partition)
        for rack in ("rack-1", "rack-2"):
            assert read_from(cluster, "t", partition, rack, 300) == (int(rack[-1]), values)


def test_consumers_read_from_the_replica_in_their_rack(tmp_path: Path) -> None:
    """client.rack would save no traffic between racks, or a consumer would go back and forth and read nothing."""
    with running(tmp_path, [Kbroker] * 2, RACKS) as cluster:
        check_racks(cluster)


@pytest.mark.kafka
def test_consumers_read_from_the_replica_in_their_rack_beside_kafka(tmp_path: Path) -> None:
    """A leader of one kind would send consumers to a follower of the other that does not serve them."""
    with running(tmp_path, [Kbroker, Kafka], RACKS) as cluster:
        check_racks(cluster)


def reassign(cluster: Cluster, plan: Path, *arguments: str) -> str:
    command = old_java_command(REASSIGN, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_throttle(cluster: Cluster, folder: Path) -> None:
    cluster.create("t", [[1]])
    cluster.produce("t", ["v" * 10_000] * 400, 0)
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}))
    began = time.monotonic()
    reassign(cluster, plan, "--execute", "--throttle", "500000")
    names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    for node in (1, 2):
        assert cluster.json(f"/config/brokers/{node}")["config"] == dict.fromkeys(names, "500000")
    replicas = cluster.json("/config/topics/t")["config"]
    assert replicas == {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    cluster.wait_isr("t", 1, {1, 2})
    # 4 MB at 500 KB/s, of which two windows and an answer may go at once.
    assert time.monotonic() - began > 3

    def is_done() -> bool:
        return "is completed" in reassign(cluster, plan, "--verify")

    wait_for(is_done, "the tool to see the end", seconds=60)
    for node in (1, 2):
        assert cluster.json(f"/config/brokers/{node}")["config"] == {}
    assert cluster.json("/config/topics/t")["config"] == {}


WINDOWS = {"replication.quota.window.num": "2", "replica.fetch.max.bytes": "200000"}


def test_a_reassignment_with_a_throttle_takes_its_time_and_leaves_no_trace(tmp_path: Path) -> None:
    """Moving replicas would take the network from clients, or the throttle would slow down replication for good."""
    with running(tmp_path, [Kbroker] * 2, WINDOWS) as cluster:
        check_throttle(cluster, tmp_path)


@pytest.mark.kafka
def test_a_throttled_reassignment_from_kafka(tmp_path: Path) -> None:
    """In a mixed cluster only one side of a move would be held back."""
    with running(tmp_path, [Kafka, Kbroker], WINDOWS) as cluster:
        check_throttle(cluster, tmp_path)


def lose_a_disk(cluster: Cluster, disk: FailingDisk) -> None:
    """Broker 2 has two directories, and one of them fails."""
    cluster.create("t", [[2, 1], [2, 1], [2, 1], [2, 1]])
    cluster.wait_isr("t", 4, {1, 2})
    lost = sorted(int(path.name.rpartition("-")[2]) for path in disk.path.glob("t-*"))
    assert 0 < len(lost) < 4, "both directories have some"
    disk.fail()
    for partition in range(4):
        cluster.produce("t", [f"{partition}-{each}" for each in range(100)], partition)
    for partition in range(4):
        state = cluster.state("t", partition)
        assert (state["leader"], 2 in state["isr"]) == ((1, False) if partition in lost else (2, True))
    assert 2 in cluster.registered()
    wait_for(
        lambda: not cluster.zookeeper.get_children("/log_dir_event_notification"), "the controller to have read it"
    )
    assert len(cluster.consume("t", 4, 400)) == 400
    # A start without the disk must not make them anew, and empty.
    cluster.nodes[2].stop()
    cluster.wait_isr("t", 4, {1})
    cluster.nodes[2].start()
    kept = [each for each in range(4) if each not in lost]
    wait_for(lambda: all(2 in cluster.state("t", each)["isr"] for each in kept), "2 to be back in the other ISRs")
    assert not any(2 in cluster.state("t", each)["isr"] for each in lost)
    assert len(cluster.consume("t", 4, 400)) == 400


@pytest.mark.parametrize("names", [("a", "disk"), ("disk", "a")], ids=["not the first", "the first"])
@pytest.mark.parametrize("controller", [Kbroker, pytest.param(Kafka, marks=pytest.mark.kafka)])
def test_a_disk_that_fails_costs_its_replicas_alone(
    tmp_path: Path, controller: type[Kbroker | Kafka], names: tuple[str, str]
) -> None:
    """A broker with a failed disk would go on as the leader of what it lost, or leave with all that it still has.  The
    first of its directories has nothing that the others have not."""
    folder = tmp_path / "broker-2"
    folder.mkdir()
    dirs = {
        "log.dirs": ",".join(f"{tmp_path}/broker-{{id}}/{name}" for name in names),
        "min.insync.replicas": "1",
    }
    with failing_disk(folder) as disk, running(tmp_path, [controller, Kbroker], dirs) as cluster:
        lose_a_disk(cluster, disk)


def test_the_last_broker_stops_without_waiting_for_others(tmp_path: Path) -> None:
    """Stopping a whole cluster in order would end with three attempts to move leaders to brokers that are gone."""
    with running(tmp_path, [Kbroker] * 2) as cluster:
        cluster.create("t", [[1, 2], [2, 1]])
        cluster.wait_isr("t", 2, {1, 2})
        cluster.nodes[2].stop()
        cluster.wait_isr("t", 2, {1})
        cluster.nodes[1].stop()
        said = cluster.nodes[1].output()
    assert "no other broker of the cluster is there" in said
    assert "are still led by this broker" not in said
