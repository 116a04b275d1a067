"""Records of consumer groups are Apache Kafka 4.3.1's: its log is read, and the same requests write the same.

The logs are those that Kafka wrote while it was asked the script's questions.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

from kbroker.coordinator.consumer import records
from kbroker.coordinator.runtime.partitioner import partition_for
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.schemas import message
from tests.coordinator.consumer.record_answers import ANSWERS, TOPIC_IDS, VECTORS
from tests.coordinator.consumer.script import ConsumerScript
from tests.coordinator.harness import STATE_ID, World, create_topics, delete_topic, topic_image
from tests.coordinator.wire import Client, plain

PARTITIONS = (1, 2, 3)
KAFKA_IDS = {name: bytes.fromhex(text) for name, text in json.loads(TOPIC_IDS.read_text()).items()}
_TIME = re.compile(r"'(assignment_timestamp|timestamp|version)': \d+")


def kafka_log(partition: int) -> bytes:
    return (VECTORS / f"kafka-4.3.1-consumer-groups-partition-{partition}.log").read_bytes()


def world_of_kafka() -> World:
    """A broker with Kafka's topics; the state topic is made last, as making it loads what the log holds."""
    world = World({"group.consumer.assignment.interval.ms": 0}, with_topic=False)
    for name, count in (("t1", 3), ("t2", 1)):
        delete_topic(world.cache, name)
        create_topics(world.cache, topic_image(name, KAFKA_IDS[name], count))
    return world


def facts(chunks: Iterable[bytes]) -> dict[str, list[str]]:
    """The records of consumer groups, by group, without times."""
    found: dict[str, list[str]] = defaultdict(list)
    for chunk in chunks:
        for info in iterate_stored_batches(chunk):
            for record in iterate_stored_records(chunk, info):
                key = record.key or b""
                if int.from_bytes(key[:2], "big") in records.RECORD_TYPES:
                    value = None if record.value is None else bytes(record.value)
                    read = records.parse(bytes(key), value)
                    line = str((records.RECORD_TYPES[read.record_type], plain(read.key), plain(read.value)))
                    found[read.group_id].append(_TIME.sub(r"'\1': 0", line))
    return found


def test_a_log_of_kafka_is_loaded_as_kafka_left_it() -> None:
    """A broker that takes over Kafka's directory would lose consumer groups, or have their members rejoin."""
    world = world_of_kafka()
    for partition in PARTITIONS:
        world.log.load_file(partition, kafka_log(partition))
    create_topics(world.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(world.log.partitions)))
    script = ConsumerScript(Client(world), KAFKA_IDS, lambda: None)
    script.ask("k: describe", "ConsumerGroupDescribe", 1, group_ids=["k"])
    answers = json.loads(ANSWERS.read_text())
    assert script.plain()["k: describe"] == answers["k: describe"]
    group = world.group("k")
    committed = group.offsets.get("t1", 0)
    assert committed is not None and committed.offset == 7
    assert group.kind is not None and group.kind.state_name == "Reconciling"
    # Nothing has changed meanwhile: the hash of the topics is Kafka's, so the epoch stays.
    epoch = answers["k: describe"]["groups"][0]["group_epoch"]
    answer = script.beat("beat", "b", world.consumer_groups.describe("k")[0].members["b"].member_epoch, group_id="k")
    assert answer.error_code == 0
    assert world.consumer_groups.describe("k")[0].epoch == epoch


def test_the_same_requests_write_kafkas_records() -> None:
    """Kafka could not read what this broker writes, or would find a group in another state than its members know."""
    world = world_of_kafka()
    create_topics(world.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(world.log.partitions)))
    ConsumerScript(Client(world), KAFKA_IDS, lambda: world.loop.advance(1.0)).run()
    kafka = facts(map(kafka_log, PARTITIONS))
    ours = facts(batch for partition in world.log.partitions for _, batch in partition)
    assert ours.keys() == kafka.keys() == {"g", "r", "m", "k"}
    assert {partition_for(group_id, 4) for group_id in kafka} == set(PARTITIONS)
    for group_id in kafka:
        assert comparable(ours[group_id]) == comparable(kafka[group_id])


def test_what_is_read_of_kafka_is_encoded_to_the_same_bytes() -> None:
    """Records could have the same fields here and be other bytes, which Kafka cannot read."""
    count = 0
    for partition in PARTITIONS:
        chunk = kafka_log(partition)
        for info in iterate_stored_batches(chunk):
            for record in iterate_stored_records(chunk, info):
                key, value = bytes(record.key or b""), record.value
                record_type = int.from_bytes(key[:2], "big")
                if record_type not in records.RECORD_TYPES or value is None:
                    continue
                read = records.parse(key, bytes(value))
                name = records.RECORD_TYPES[record_type]
                assert message(f"{name}Key").program(0).encode(read.key, key[:2]) == key
                assert message(f"{name}Value").program(0).encode(read.value, b"\0\0") == bytes(value)
                count += 1
    assert count > 50


def comparable(lines: list[str]) -> list[str]:
    """Members within one batch come in the order of Java's hash table."""
    return [line for _, run in groupby(lines, lambda line: line.partition(",")[0]) for line in sorted(run)]
