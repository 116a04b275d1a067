"""kbroker and Apache Kafka 3.9.1 in one cluster under load: topics change with either as controller, brokers are killed
in turn, or replaced one by one.  What was acknowledged stays, and replicas have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kbroker.client.connection import Connection
from kbroker.schemas import wire
from tests.cluster.zookeeper.load import AcknowledgedProducer, GroupReader, read_partition
from tests.cluster.zookeeper.processes import Cluster, Kafka, Kbroker, Node, running
from tests.cluster.zookeeper.replica_logs import check_same
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]

PARTITIONS = 3
SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
TOPIC = "t"
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    # On a busy machine a Java process may be silent for seconds.
    "zookeeper.session.timeout.ms": "15000",
    "replica.lag.time.max.ms": "15000",
}


def make_controller(cluster: Cluster, kind: type[Node]) -> int:
    """Hold elections until a broker of that kind has won."""

    def won() -> bool:
        controller = cluster.controller()
        if controller < 0:
            return False
        if isinstance(cluster.nodes[controller], kind):
            return True
        version = cluster.zookeeper.exists("/controller").version
        cluster.zookeeper.delete("/controller", version=version)
        return False

    wait_for(won, f"a {kind.kind} to be the controller", seconds=60, every=0.3)
    controller = cluster.controller()

    def known() -> bool:
        clients = [AdminClient({"bootstrap.servers": f"127.0.0.1:{each.port}"}) for each in cluster.nodes.values()]
        return all(each.list_topics(timeout=30).controller_id == controller for each in clients)

    wait_for(known, f"all brokers to know the controller {controller}", seconds=60)
    return controller


def reassign(cluster: Cluster, topic: str, targets: Sequence[list[int]]) -> None:
    """Move replicas, by a request to the controller, and wait for the end of it."""
    request = wire.AlterPartitionReassignmentsRequest
    rows = [
        request.ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in enumerate(targets)
    ]
    with Connection("127.0.0.1", cluster.nodes[cluster.controller()].port) as connection:
        answer = connection.send(
            request(topics=[request.ReassignableTopic(name=topic, partitions=rows)], timeout_ms=30_000), version=0
        )
    assert (answer.error_code, [each.error_code for each in answer.responses[0].partitions]) == (0, [0] * len(targets))

    def moved() -> bool:
        found = cluster.json(f"/brokers/topics/{topic}")
        return [found["partitions"][str(index)] for index in range(len(targets))] == list(targets) and not (
            found["adding_replicas"] or found["removing_replicas"]
        )

    wait_for(moved, f"{topic} to be moved", seconds=60)


def change_topics(cluster: Cluster, name: str) -> None:
    """Make a topic, extend, move and delete it, with records in it at each step."""
    cluster.wait_registered({1, 2, 3})
    cluster.create(name, [[1, 2], [2, 3]])
    cluster.wait_isr(name, 1, {1, 2})
    cluster.produce(name, [f"a{each}" for each in range(100)])
    admin = cluster.admin()
    admin.create_partitions([NewPartitions(name, 3, replica_assignment=[[3, 1]])])[name].result(30)
    wait_for(lambda: cluster.zookeeper.exists(f"/brokers/topics/{name}/partitions/2/state"), "the third partition")
    cluster.produce(name, [f"b{each}" for each in range(100)])
    reassign(cluster, name, [[3, 1], [1, 2], [2, 3]])
    cluster.produce(name, [f"c{each}" for each in range(100)])
    assert len(cluster.consume(name, 3, 300)) == 300
    admin.delete_topics([name])[name].result(30)
    wait_for(lambda: not cluster.zookeeper.exists(f"/brokers/topics/{name}"), f"{name} to be deleted", seconds=60)

    def gone() -> bool:
        return not [path for node in cluster.nodes.values() for path in node.log.glob(f"**/{name}-[0-9]")]

    wait_for(gone, f"the logs of {name} to go", seconds=90)


def more_acknowledged(producer: AcknowledgedProducer, count: int = 300) -> None:
    wanted = producer.count + count
    wait_for(lambda: producer.count >= wanted, f"{count} more acknowledged records", seconds=90)


def settle(cluster: Cluster, producer: AcknowledgedProducer, reader: GroupReader) -> str:
    """Stop the load, check that nothing is lost and nothing twice, stop the brokers and compare their logs."""
    producer.stop()
    assert producer.failed == []
    written = {number for numbers in producer.acknowledged.values() for number in numbers}
    wait_for(lambda: reader.found >= written, "the group to read all", seconds=90)
    reader.stop()
    found = [read_partition(cluster.bootstrap, TOPIC, index) for index in range(PARTITIONS)]
    assert found == [producer.acknowledged[index] for index in range(PARTITIONS)]
    ends = [len(each) for each in found]
    wait_for(lambda: reader.committed(TOPIC, PARTITIONS) == ends, f"the group to have committed {ends}", seconds=60)
    reader.close()
    cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3})
    # With the load over, followers have all there is when the last of them has asked once more; a stop in order waits.
    for node in cluster.nodes.values():
        node.stop()
    sums = check_same(cluster, TOPIC, PARTITIONS, 3)
    assert sums["records"] == len(written)
    return f"{len(written)} acknowledged, longest pause {producer.longest_pause:.1f} s, {reader.rows} read, {sums}"


@pytest.mark.parametrize(
    "kinds", [[Kbroker, Kafka, Kafka], [Kafka, Kbroker, Kbroker]], ids=["one kbroker", "two kbrokers"]
)
def test_topics_change_and_brokers_die_on_either_side_and_nothing_is_lost(
    tmp_path: Path, kinds: list[type[Node]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster of both would lose acknowledged records, or its replicas differ, when a broker dies."""
    with running(tmp_path, kinds, SETTINGS) as cluster, ExitStack() as ended:
        cluster.create(TOPIC, SPREAD)
        cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3})
        producer = AcknowledgedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
        ended.callback(producer.stop)
        reader = GroupReader(cluster.bootstrap, TOPIC, "g")
        ended.callback(reader.stop)
        more_acknowledged(producer)
        for kind in (Kbroker, Kafka):
            make_controller(cluster, kind)
            change_topics(cluster, f"u-{kind.kind}")
            for number, node in cluster.nodes.items():
                node.kill()
                cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3} - {number})
                more_acknowledged(producer)
                cluster.wait_registered({1, 2, 3} - {number})
                node.start()
                cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3})
                more_acknowledged(producer)
        report = settle(cluster, producer, reader)
    with capsys.disabled():
        print(f"\n  {report}")


def test_a_rolling_migration_and_the_way_back_under_load_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster could not be moved to kbroker, or back, while it is in use."""
    with running(tmp_path, [Kafka] * 3, SETTINGS) as cluster, ExitStack() as ended:
        cluster.create(TOPIC, SPREAD)
        cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3})
        # Ports stay, as addresses do in a migration.
        kafkas = dict(cluster.nodes)
        kbrokers: dict[int, Node] = {
            number: Kbroker(number, tmp_path / f"broker-{number}", cluster.connect, SETTINGS, port=node.port)
            for number, node in kafkas.items()
        }
        producer = AcknowledgedProducer(cluster.bootstrap, TOPIC, PARTITIONS)
        ended.callback(producer.stop)
        reader = GroupReader(cluster.bootstrap, TOPIC, "g")
        ended.callback(reader.stop)
        more_acknowledged(producer)
        for others in (kbrokers, kafkas):
            for number, other in others.items():
                cluster.nodes[number].stop()
                cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3} - {number})
                cluster.nodes[number] = other
                other.start()
                cluster.wait_isr(TOPIC, PARTITIONS, {1, 2, 3})
                more_acknowledged(producer)
        report = settle(cluster, producer, reader)
    with capsys.disabled():
        print(f"\n  {report}")
