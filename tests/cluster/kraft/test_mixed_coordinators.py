"""Transactions and share groups whose coordinators and leaders are kbroker and Apache Kafka, in every combination."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kbroker.protocol.frames import decode_response, encode_request
from kbroker.schemas import response_message, wire
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for
from tests.share.java_member import JavaMember

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

BOTH = [[1, 2], [2, 1]]
EVERYBODY = {1, 2}
RECORDS = 20
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Either broker leads a partition of each topic, internal ones included."""
    with running(tmp_path_factory.mktemp("cluster"), (Kbroker, Kafka)) as cluster:
        for topic, policy in (
            (GROUP_METADATA_TOPIC, "compact"),
            (TRANSACTION_STATE_TOPIC, "compact"),
            (SHARE_GROUP_STATE_TOPIC, "delete"),
        ):
            cluster.create(topic, BOTH, {"cleanup.policy": policy})
            cluster.wait_isr(topic, EVERYBODY)
        yield cluster


def ask(cluster: Cluster, number: int, request: Any, version: int) -> Any:
    with socket.create_connection(("127.0.0.1", cluster.nodes[number].port), timeout=30) as client:
        client.sendall(encode_request(request.api_key, version, 5, "c", request))
        data = client.makefile("rb")
        (size,) = struct.unpack(">i", data.read(4))
        _, answer = decode_response(response_message(request.api_key), version, data.read(size))
    return answer


def coordinated(cluster: Cluster, number: int) -> set[str]:
    """The transactional ids that a broker coordinates."""
    states = ask(cluster, number, wire.ListTransactionsRequest(), 0).transaction_states
    return {each.transactional_id for each in states}


def committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """All that a consumer of committed records reads, which must be `count`, with the end of each partition reached."""
    settings = {**cluster.client(), "group.id": f"of-{topic}", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(len(BOTH))])
    found: list[bytes] = []
    ended: set[int] = set()

    def all_read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            ended.add(message.partition())
        elif message is not None:
            found.append(message.value())
        return len(ended) == len(BOTH) and len(found) >= count

    wait_for(all_read, f"{count} committed records of {topic}", seconds=60)
    consumer.close()
    return found


def test_transactions_of_older_clients_end_everywhere(cluster: Cluster) -> None:
    """Producers that name their partitions beforehand (librdkafka) could not write, or their markers would not come,
    where leader and coordinator are not of one kind."""
    cluster.create("older", BOTH)
    cluster.wait_isr("older", EVERYBODY)
    names = [f"older-{number}" for number in range(8)]
    for name in names:
        producer = Producer({**cluster.client(), "transactional.id": name, "transaction.timeout.ms": 30000})
        producer.init_transactions(60)
        for is_kept in (True, False, True):
            producer.begin_transaction()
            for number in range(RECORDS):
                value = f"{name}-{number}" if is_kept else "aborted"
                producer.produce("older", value, partition=number % len(BOTH))
            if is_kept:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
    found = committed(cluster, "older", 2 * RECORDS * len(names))
    assert len(found) == 2 * RECORDS * len(names)
    assert b"aborted" not in found
    assert all(coordinated(cluster, number) & set(names) for number in EVERYBODY)


def test_transactions_with_an_epoch_for_each_end_everywhere(cluster: Cluster) -> None:
    """Producers of transaction.version 2 (Java) could not write: the leader asks the coordinator for them."""
    cluster.create("newer", BOTH)
    cluster.wait_isr("newer", EVERYBODY)
    names = [f"newer-{number}" for number in range(4)]
    for name in names:
        done = run_java(
            PERFORMANCE,
            *("--topic", "newer", "--num-records", "60", "--record-size", "10", "--throughput", "100"),
            *("--transactional-id", name, "--transaction-duration-ms", "100"),
            *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all"),
            seconds=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(committed(cluster, "newer", 60 * len(names))) == 60 * len(names)
    assert all(coordinated(cluster, number) & set(names) for number in EVERYBODY)


def ends(cluster: Cluster, topic: str) -> list[int]:
    consumer = Consumer({**cluster.client(), "group.id": "ends"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=20)[1] for each in range(len(BOTH))]
    consumer.close()
    return found


def polled(cluster: Cluster, group: str, count: int) -> list[str]:
    """What a new member of a share group is given, and acknowledges, until it has `count` records."""
    member = JavaMember(cluster.bootstrap, group, "shared").started()
    found: list[str] = []

    def all_there() -> bool:
        found.extend(each.value for each in member.poll(500))
        return len(found) >= count

    wait_for(all_there, f"{count} records for {group}", seconds=60)
    member.tell("commit")
    member.close()
    return sorted(found)


def test_share_groups_keep_their_state_with_either_broker(cluster: Cluster) -> None:
    """What a consumer has acknowledged would come again, or never, where leader, group's and state's coordinator are
    not of one kind."""
    cluster.create("shared", BOTH)
    cluster.wait_isr("shared", EVERYBODY)
    values = [str(number) for number in range(40)]
    for index in range(len(BOTH)):
        cluster.produce("shared", values[index :: len(BOTH)], index)
    groups = [f"sharing-{number}" for number in range(3)]
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    admin = cluster.admin()
    for group in groups:
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
    for group in groups:
        assert polled(cluster, group, len(values)) == sorted(values)
        new = [f"{group}-{number}" for number in range(4)]
        for index in range(len(BOTH)):
            cluster.produce("shared", new[index :: len(BOTH)], index)
        assert polled(cluster, group, len(new)) == sorted(new)
        values += new
    assert all(ends(cluster, SHARE_GROUP_STATE_TOPIC)), "either broker keeps some of the states"
