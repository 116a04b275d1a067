"""Groups of all kinds and transactions carried between brokers, with all topics and their ids: describe answers stay.

Towards Kafka its own metadata log is told of the topics that kbroker has, as the controller would: a batch of their
records is appended while it is stopped.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kbroker._fast.records.record_batch import iterate_batches, stamp
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import message
from kbroker.types import random_uuid, uuid_to_text
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.interchange import transact
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.coordinator.consumer.record_answers import Socket, topic_ids
from tests.coordinator.consumer.script import ConsumerScript
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import plain

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
TRANSACTIONS = ("committed", "aborted", "open")
_DATA_DIRECTORY = "directory.id="


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[Socket]:
    """A connection; all coordinators answer."""
    caller = Socket("127.0.0.1", broker.port)
    try:
        for key_type in (0, 1):
            found = partial(caller.call, "FindCoordinator", 4, key_type=key_type, coordinator_keys=["x"])
            wait_for(lambda: not found().coordinators[0].error_code, "a coordinator")  # noqa: B023
        yield caller
    finally:
        caller.close()


def write(broker: BrokerProcess) -> list[Producer]:
    """Groups of all kinds with members, committed offsets, share state, transactions; what keeps one open."""
    with connected(broker) as caller:
        ids = topic_ids(caller)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(30):
            producer.produce("t1", str(number).encode(), partition=number % 3)
        assert producer.flush(30) == 0
        _streams(StreamsScript(caller, ids, lambda: None))
        _consumer(ConsumerScript(caller, ids, lambda: None))
        _classic(ConsumerScript(caller, ids, lambda: None))
        _share(caller)
    transact(broker.bootstrap, "t2", "committed", commit=True)
    transact(broker.bootstrap, "t2", "aborted", commit=False)
    return [transact(broker.bootstrap, "t2", "open", commit=True, end=False)]


def _streams(script: StreamsScript) -> None:
    a = script.join("a joins", "a").member_epoch
    beats = iter(range(1_000))

    def beat() -> Any:
        answer = script.beat(f"beat {next(beats)}", "a", a)
        return answer if answer.active_tasks else None

    wait_for(beat, "tasks", every=0.1)
    script.join("b joins", "b", rack_id="r")


def _consumer(script: ConsumerScript) -> None:
    epoch = script.join("a joins", "a", group_id="k").member_epoch
    script.join("b joins", "b", group_id="k", instance_id="i")
    script.commit("commits", 9, epoch, "a", 0, "k")


def _classic(script: ConsumerScript) -> None:
    member = script._classic_join("asks for an id", "").member_id
    generation = script._classic_join("joins", member).generation_id
    assigned = message("ConsumerProtocolAssignment")
    row = assigned.TopicPartition(topic="t1", partitions=[0, 1, 2])
    data = b"\0\0" + bytes(assigned.program(0).encode(assigned(assigned_partitions=[row])))
    script._classic_sync("syncs", member, generation, data)
    script.commit("commits", 9, generation, member, 1, "m")


def _share(caller: Socket) -> None:
    def beat(group: str, member: str, epoch: int) -> Any:
        names = ["t1"] if epoch == 0 else None
        answer = caller.call(
            "ShareGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        assert not answer.error_code, answer
        return answer

    for group in ("sharing", "shared"):
        member = uuid_to_text(random_uuid())
        first = beat(group, member, 0)

        def is_assigned(group: str = group, member: str = member, epoch: int = first.member_epoch) -> bool:
            (each,) = caller.call("ShareGroupDescribe", 1, group_ids=[group]).groups
            beat(group, member, each.members[0].member_epoch)
            return bool(each.members[0].assignment.topic_partitions)

        wait_for(is_assigned, "an assignment", every=0.2)
        if group == "shared":
            beat(group, member, -1)
    request = message("AlterShareGroupOffsetsRequest")
    partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
    topic = request.AlterShareGroupOffsetsRequestTopic(topic_name="t1", partitions=[partition])
    altered = caller.call("AlterShareGroupOffsets", 0, group_id="shared", topics=[topic])
    assert not altered.error_code, altered


def described(broker: BrokerProcess) -> dict[str, Any]:
    """What the broker says of all of it."""
    with connected(broker) as caller:
        offsets = message("OffsetFetchRequest")
        shares = message("DescribeShareGroupOffsetsRequest")
        questions: dict[str, tuple[str, int, dict[str, Any]]] = {
            "streams": ("StreamsGroupDescribe", 0, {"group_ids": ["g"]}),
            "consumer": ("ConsumerGroupDescribe", 1, {"group_ids": ["k"]}),
            "classic": ("DescribeGroups", 6, {"groups": ["m"]}),
            "share": ("ShareGroupDescribe", 1, {"group_ids": ["sharing", "shared"]}),
            "list": ("ListGroups", 5, {}),
            "offsets": (
                "OffsetFetch",
                9,
                {"groups": [offsets.OffsetFetchRequestGroup(group_id=each, topics=None) for each in ("k", "m")]},
            ),
            "start offsets": (
                "DescribeShareGroupOffsets",
                0,
                {"groups": [shares.DescribeShareGroupOffsetsRequestGroup(group_id="shared", topics=None)]},
            ),
            "transactions": ("DescribeTransactions", 0, {"transactional_ids": list(TRANSACTIONS)}),
        }

        def is_loaded() -> bool:
            groups = caller.call("ListGroups", 5)
            shared = caller.call(*questions["start offsets"][:2], **questions["start offsets"][2]).groups[0]
            states = caller.call("DescribeTransactions", 0, transactional_ids=list(TRANSACTIONS)).transaction_states
            return not (groups.error_code or shared.error_code or any(each.error_code for each in states))

        wait_for(is_loaded, "all coordinators to have loaded", every=0.2)
        answers = {
            label: plain(caller.call(name, version, **rest)) for label, (name, version, rest) in questions.items()
        }
    found: dict[str, Any] = json.loads(json.dumps(answers))
    return found


def append_topics(kafka: KafkaProcess, topics: list[Any]) -> None:
    """Tell the metadata log of a stopped Kafka of topics, all of whose replicas are on this one node."""
    log = kafka.data / "__cluster_metadata-0" / f"{0:020}.log"
    data = log.read_bytes()
    last = list(iterate_batches(data))[-1]
    epoch = struct.unpack_from(">i", data, last.position + 12)[0]
    properties = (kafka.data / "meta.properties").read_text().splitlines()
    (text,) = [line.removeprefix(_DATA_DIRECTORY) for line in properties if line.startswith(_DATA_DIRECTORY)]
    directory = base64.urlsafe_b64decode(text.replace("\\", "") + "==")
    builder = RecordBatchBuilder()
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        record = message("TopicRecord")
        builder.append(None, _framed(record, 0, record(name=topic.name, topic_id=topic_id)), 0)
        record = message("PartitionRecord")
        for partition in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
            value = record(
                partition_id=partition.partition_index,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory],
            )
            builder.append(None, _framed(record, 1, value), 0)
        if topic.name.startswith("__"):
            record = message("ConfigRecord")
            value = record(resource_type=2, resource_name=topic.name, name="cleanup.policy", value="compact")
            builder.append(None, _framed(record, 0, value), 0)
    batch = builder.build()
    stamp(batch, 0, last.last_offset + 1, epoch)
    with log.open("ab") as file:
        file.write(batch)


def _framed(record: Any, version: int, value: Any) -> bytes:
    """Frame version 1, the record's type and version, its fields."""
    return bytes(record.program(version).encode(value, bytes([1, record.api_key, version])))


@pytest.mark.timeout(300)
def test_kafka_opens_the_state_that_is_written_here(tmp_path: Path) -> None:
    """Who goes back to Kafka would lose groups, committed offsets, share state or transactions."""
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    broker.start()
    try:
        kept = write(broker)
        # The topology of a streams group over its topics is not stored; both sides have just loaded.
        broker.restart()
        with connected(broker) as caller:
            topics = caller.call("Metadata", 12, topics=None).topics
        before = described(broker)
    finally:
        broker.stop()
    del kept
    kafka.start()
    kafka.stop()
    append_topics(kafka, topics)
    for partition in broker.data.iterdir():
        if partition.is_dir() and (partition / "partition.metadata").exists():
            shutil.copytree(partition, kafka.data / partition.name)
    kafka.start()
    try:
        assert described(kafka) == before
    finally:
        kafka.stop()


@pytest.mark.timeout(300)
def test_the_state_that_kafka_has_written_opens_here(tmp_path: Path) -> None:
    """Who moves from Kafka would lose groups, committed offsets, share state or transactions."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kafka.start()
    try:
        kept = write(kafka)
        kafka.restart()
        before = described(kafka)
    finally:
        kafka.stop()
    del kept
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    shutil.copytree(kafka.data, broker.data)
    rebuild = ["metadata", "rebuild", "--override", f"log.dirs={broker.data}"]
    subprocess.run([sys.executable, "-m", "kbroker.cli", *rebuild], capture_output=True, timeout=60, check=True)
    broker.start()
    try:
        assert described(broker) == before
    finally:
        broker.stop()
