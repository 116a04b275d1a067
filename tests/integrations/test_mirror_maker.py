"""MirrorMaker 2 in a process of its own, both ways between two brokers, exactly once."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.conftest import StartBroker
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import java_program, properties
from tests.integrations.topics import Reader, Writer, numbered

# Internal REST and `exactly.once.source.support` go together: KIP-618, KIP-710.
SETTINGS = {
    "clusters": "a, b",
    "a->b.enabled": "true",
    "b->a.enabled": "true",
    "topics": "orders",
    "groups": "readers",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "a.exactly.once.source.support": "enabled",
    "b.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.topics.interval.seconds": "5",
    "refresh.groups.interval.seconds": "5",
    "offset.lag.max": "0",
}


def commit(broker: BrokerProcess, offset: int) -> None:
    """Have group `readers` read `orders` up to an offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: BrokerProcess, topic: str) -> int:
    """Where group `readers` is in a topic's only partition; negative where it has no offset."""
    asked = ConsumerGroupTopicPartitions("readers", [TopicPartition(topic, 0)])
    (found,) = broker.admin.list_consumer_group_offsets([asked])["readers"].result().topic_partitions
    return int(found.offset)


def test_records_are_mirrored_once_both_ways_though_brokers_and_mirror_die(
    kbroker_process: StartBroker, program: StartProgram, tmp_path: Path
) -> None:
    """A restart of either broker or of the mirror would lose records or double them, or stop a direction."""
    brokers = {name: kbroker_process(name=name) for name in "ab"}
    for broker in brokers.values():
        broker.create_topic("orders")
    clusters = {f"{name}.bootstrap.servers": broker.bootstrap for name, broker in brokers.items()}
    path = properties(tmp_path / "mm2.properties", {**clusters, **SETTINGS})
    mirror = program("mirror", java_program("connect", "org.apache.kafka.connect.mirror.MirrorMaker", path))
    writers = {name: Writer(broker.bootstrap, "orders") for name, broker in brokers.items()}
    wanted = {name: numbered(name, 0, 5000) for name in "ab"}

    def write(first: int, end: int) -> None:
        for name, writer in writers.items():
            writer.write(wanted[name][first:end])

    write(0, 1000)
    with Reader(brokers["b"].bootstrap, "a.orders") as in_b, Reader(brokers["a"].bootstrap, "b.orders") as in_a:
        for reader in (in_a, in_b):
            reader.wait_for(500)
        write(1000, 2000)
        brokers["a"].restart()
        write(2000, 3000)
        for reader in (in_a, in_b):
            reader.wait_for(2500)
        write(3000, 4000)
        brokers["b"].restart(kill=True)
        for reader in (in_a, in_b):
            reader.wait_for(3500)
        write(4000, 4500)
        mirror.kill()
        write(4500, 5000)
        mirror.start()
        for writer in writers.values():
            writer.finish()
        in_b.assert_exactly(wanted["a"])
        in_a.assert_exactly(wanted["b"])
    commit(brokers["a"], 5000)
    last = brokers["b"].offsets("a.orders")[0][1]
    # Behind its last record the mirrored topic has the marker of the transaction.
    wait_for(lambda: committed(brokers["b"], "a.orders") >= last - 1, "the group's offset", seconds=240, every=0.5)
    assert mirror.stop() in (0, 143)
