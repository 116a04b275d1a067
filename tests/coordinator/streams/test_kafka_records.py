"""Records of streams groups are Apache Kafka 4.3.1's: its log is read, and the same requests write the same.

The logs are those that Kafka wrote while it was asked the script's questions.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.modern.kind_records import UnknownRecordError
from kbroker.coordinator.streams import records
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.schemas import message
from tests.coordinator.harness import STATE_ID, World, create_topics, delete_topic, topic_image
from tests.coordinator.streams.kafka_settings import SETTINGS
from tests.coordinator.streams.record_answers import ANSWERS, TOPIC_IDS, VECTORS
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import Client, plain

PARTITIONS = (0, 1, 3)
KAFKA_IDS = {name: bytes.fromhex(text) for name, text in json.loads(TOPIC_IDS.read_text()).items()}
COUNTS = {"t1": 3, "t2": 1}
_UNSURE = re.compile(r"'(assignment_timestamp|metadata_hash)': -?\d+")


def kafka_log(partition: int) -> bytes:
    return (VECTORS / f"kafka-4.3.1-streams-groups-partition-{partition}.log").read_bytes()


def kafka_records() -> Iterator[tuple[bytes, bytes | None]]:
    """The records of streams groups in Kafka's log."""
    for partition in PARTITIONS:
        chunk = kafka_log(partition)
        for info in iterate_stored_batches(chunk):
            for record in iterate_stored_records(chunk, info):
                key = bytes(record.key or b"")
                if int.from_bytes(key[:2], "big") in records.RECORD_TYPES:
                    yield key, None if record.value is None else bytes(record.value)


def world_of_kafka(names: Iterable[str]) -> World:
    """A broker with Kafka's topics; the state topic is made last, as making it loads what the log holds."""
    world = World(SETTINGS, with_topic=False)
    for name in ("t1", "t2"):
        delete_topic(world.cache, name)
    for name in names:
        create_topics(world.cache, topic_image(name, KAFKA_IDS[name], COUNTS.get(name, 3)))
    return world


def facts(chunks: Iterable[bytes]) -> dict[str, list[str]]:
    """The records of streams groups, by group, without times, and without the hash of topics whose ids differ."""
    found: dict[str, list[str]] = defaultdict(list)
    for chunk in chunks:
        for info in iterate_stored_batches(chunk):
            for record in iterate_stored_records(chunk, info):
                key = record.key or b""
                if int.from_bytes(key[:2], "big") in records.RECORD_TYPES:
                    value = None if record.value is None else bytes(record.value)
                    read = records.parse(bytes(key), value)
                    line = str((records.RECORD_TYPES[read.record_type], plain(read.key), plain(read.value)))
                    found[read.group_id].append(_UNSURE.sub(r"'\1': 0", line))
    return found


def test_a_log_of_kafka_is_loaded_as_kafka_left_it() -> None:
    """A broker that takes over Kafka's directory would lose streams groups, or have their members rejoin."""
    world = world_of_kafka(KAFKA_IDS)
    for partition in PARTITIONS:
        world.log.load_file(partition, kafka_log(partition))
    create_topics(world.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(world.log.partitions)))
    script = StreamsScript(Client(world), KAFKA_IDS, lambda: None)
    group = world.streams_groups.described("k")
    assert group.state_name == "Reconciling"
    epoch = group.epoch
    # Nothing has changed meanwhile: the hash of the topics is Kafka's, so the epoch stays.
    answer = script.beat("beat", "b", group.members["b"].member_epoch, group_id="k")
    assert (answer.error_code, answer.status) == (0, [])
    assert world.streams_groups.described("k").epoch == epoch
    script.describe("k: describe", "k")
    assert script.plain()["k: describe"] == json.loads(ANSWERS.read_text())["k: describe"]


def test_the_same_requests_write_kafkas_records() -> None:
    """Kafka could not read what this broker writes, or would find a group in another state than its members know."""
    world = world_of_kafka(COUNTS)
    create_topics(world.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(world.log.partitions)))
    StreamsScript(Client(world), KAFKA_IDS, lambda: world.loop.advance(1.0)).run()
    kafka = facts(map(kafka_log, PARTITIONS))
    ours = facts(batch for partition in world.log.partitions for _, batch in partition)
    assert ours.keys() == kafka.keys() == {"g", "x", "m", "k"}
    for group_id in kafka:
        assert comparable(ours[group_id]) == comparable(kafka[group_id])


def test_what_is_read_of_kafka_is_encoded_to_the_same_bytes() -> None:
    """Records could have the same fields here and be other bytes, which Kafka cannot read."""
    seen = set()
    for key, value in kafka_records():
        read = records.parse(key, value)
        name = records.RECORD_TYPES[read.record_type]
        assert message(f"{name}Key").program(0).encode(read.key, key[:2]) == key
        if value is not None:
            assert message(f"{name}Value").program(0).encode(read.value, b"\0\0") == value
            seen.add(read.record_type)
    assert seen == records.RECORD_TYPES.keys()


@given(st.data())
def test_a_damaged_record_is_refused_whole(data: st.DataObject) -> None:
    """A damaged record would end the loading of a partition, or half of it would count."""
    key, value = data.draw(st.sampled_from([each for each in kafka_records() if each[1] is not None]))
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(UnknownRecordError):
        records.parse(key, value[:cut])


def comparable(lines: list[str]) -> list[str]:
    """Members within one batch come in the order of Java's hash table."""
    return [line for _, run in groupby(lines, lambda line: line.partition(",")[0]) for line in sorted(run)]
