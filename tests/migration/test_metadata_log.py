"""The reader of `__cluster_metadata-0`: what Kafka has written, and what damage makes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.metadata.image import ConfigResource
from kbroker.metadata.kafka_metadata import has_all
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.metadata.security_image import ScramKey
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType, encode_control_key
from kbroker.schemas import message
from kbroker.types import uuid_to_text
from tests.migration.kafka_data import META, TOPIC_ID, batch, partition, read, record, topic, unpack, write_log


def test_a_snapshot_and_the_records_behind_it_are_read(tmp_path: Path) -> None:
    """Topics, settings and quotas of a Kafka 4.3 would not come along, or old ones would come back."""
    (directory,) = unpack("4.3.1", tmp_path)
    metadata, log = read(directory, was_closed=True)
    assert (log.end_offset, log.epoch, log.notes) == (616, 2, [])
    names = {each.name: (uuid_to_text(each.topic_id), len(each.partitions)) for each in metadata.topics.values()}
    assert names == {
        "orders": ("KJxQESz-R5CKjNSD21XS3g", 3),
        "compacted": ("V34jwdhsQemppPk0G7cOMw", 2),
        "__transaction_state": ("oxPw70-tT7e8R_KWhXNUvQ", 2),
        "__consumer_offsets": ("ovGDB1lrTiajpw593JJTSQ", 3),
    }
    assert metadata.topic_configs("orders") == {"retention.ms": "86400000", "segment.bytes": "1048576"}
    assert metadata.configs[ConfigResource(4, "")] == {"log.cleaner.threads": "2", "min.insync.replicas": "1"}
    assert metadata.quotas == {
        (("client-id", "c1"),): {"consumer_byte_rate": 2e6, "producer_byte_rate": 1e6},
        (("user", None),): {"request_percentage": 50.0},
    }
    assert metadata.features["metadata.version"] == 30 and metadata.features["group.version"] == 1
    assert metadata.next_producer_id == 1000
    assert list(metadata.security.scram) == [ScramKey("alice", 1)] and not metadata.security.acls
    (first, *_) = (each.partitions[0] for each in metadata.topics.values() if each.name == "orders")
    # Kafka has taken it out of the ISR at its stop, and keeps it as eligible.
    assert (first.replicas, first.isr, first.leader, first.leader_epoch) == ((1,), (), -1, 3) and has_all(first, 1)


def test_a_log_without_a_snapshot_is_read(tmp_path: Path) -> None:
    """A Kafka that was stopped within its first hour has none; a deleted topic must stay away."""
    directory, _second = unpack("3.9.1", tmp_path)
    metadata, log = read(directory, was_closed=True)
    assert {each.name for each in metadata.topics.values()} == {
        "orders",
        "compacted",
        "__transaction_state",
        "__consumer_offsets",
    }
    assert log.voters == (1,) and metadata.features == {"metadata.version": 21}
    assert (len(metadata.security.acls), len(metadata.security.scram)) == (1, 1)
    assert metadata.quotas[("client-id", None), ("user", "alice")] == {"producer_byte_rate": 1e6}


def test_changes_are_applied_in_order(tmp_path: Path) -> None:
    """A removed setting, quota or topic would be back, or an epoch be one that clients know as older."""
    user = message("ClientQuotaRecord").EntityData(entity_type="user", entity_name="u")
    quota = {"entity": [user], "key": "producer_byte_rate", "value": 5.0}
    other = bytes(16)[:15] + b"\x09"

    def limit(**fields: object) -> bytes:
        return record("ClientQuotaRecord", **{**quota, **fields})

    def setting(value: str | None) -> bytes:
        return record("ConfigRecord", resource_type=2, resource_name="gone", name="retention.ms", value=value)

    write_log(
        tmp_path,
        [topic(), partition(), topic("gone", other), partition(topic_id=other), setting("1"), limit()],
        [record("PartitionChangeRecord", partition_id=0, topic_id=TOPIC_ID, leader=-1, isr=[])],
        [record("PartitionChangeRecord", partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2])],
        [limit(remove=True), record("RemoveTopicRecord", topic_id=other)],
    )
    metadata, log = read(tmp_path)
    (found,) = metadata.topics.values()
    assert found.name == "t" and not metadata.configs and not metadata.quotas and log.end_offset == 10
    partition_0 = found.partitions[0]
    assert (partition_0.leader_epoch, partition_0.partition_epoch, partition_0.replicas) == (4, 6, (1, 2))


def test_a_change_counts_as_a_whole(tmp_path: Path) -> None:
    """Half of a change that the controller did not complete would be taken for the cluster's state."""
    begin, end, abort = (record(f"{name}TransactionRecord") for name in ("Begin", "End", "Abort"))
    a, b, c = (topic(name, bytes(15) + name.encode()) for name in "abc")
    write_log(tmp_path, [begin, a, end], [begin, b], [abort], [begin, c])
    metadata, log = read(tmp_path)
    assert [each.name for each in metadata.topics.values()] == ["a"]
    assert log.notes == ["1 records at its end are of a change that was not completed: left out"]


@pytest.mark.parametrize("cut", [1, 11, 40, 70])
def test_a_write_that_a_crash_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    """A Kafka that lost its power could not be taken over, though it would start itself."""
    log = write_log(tmp_path, [topic()], [partition()], [topic("late", bytes(15) + b"x")])
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) - cut])
    metadata, reader = read(tmp_path)
    assert [each.name for each in metadata.topics.values()] == ["t"] and reader.end_offset == 2
    assert "were not completely written: left out" in reader.notes[0]
    with pytest.raises(MetadataLogError, match=r"the batch at byte \d+ is damaged"):
        read(tmp_path, was_closed=True)


def test_space_that_was_allocated_ahead_is_the_end(tmp_path: Path) -> None:
    """A file system that has grown the file before its bytes came would be called damaged."""
    log = write_log(tmp_path, [topic(), partition()])
    log.write_bytes(log.read_bytes() + bytes(1000))
    metadata, reader = read(tmp_path, was_closed=True)
    assert len(metadata.topics) == 1 and reader.notes == []


@pytest.mark.parametrize("at", [8, 17, 30, 70])
def test_damage_in_the_middle_is_an_error(tmp_path: Path, at: int) -> None:
    """All that was changed behind the damage would be forgotten without a word."""
    log = write_log(tmp_path, [topic(), partition()], [topic("behind", bytes(15) + b"x")])
    data = bytearray(log.read_bytes())
    data[at] ^= 0x41
    log.write_bytes(data)
    with pytest.raises(MetadataLogError, match=r"the batch at byte 0 is damaged.*metadata rebuild"):
        read(tmp_path)


def test_missing_records_are_an_error(tmp_path: Path) -> None:
    """A lost segment or snapshot would make an older cluster of it."""
    log = write_log(tmp_path, [topic()])
    log.write_bytes(log.read_bytes() + batch([partition()], 7))
    with pytest.raises(MetadataLogError, match="records 1 to 6 are missing"):
        read(tmp_path)
    log.rename(log.with_name(f"{5:020}.log"))
    log.with_name(f"{5:020}.log").write_bytes(batch([topic()], 5))
    with pytest.raises(MetadataLogError, match="records 0 to 4 are missing"):
        read(tmp_path)


def test_a_snapshot_without_its_end_is_an_error(tmp_path: Path) -> None:
    """Half of a cluster's topics would be taken for all of them."""
    (directory,) = unpack("4.3.1", tmp_path)
    newest = max((directory / "__cluster_metadata-0").glob("*.checkpoint"))
    data = newest.read_bytes()
    footer = RecordBatchBuilder(is_control=True)
    footer.append(encode_control_key(ControlType.SNAPSHOT_FOOTER), b"\0\0\0", 0)
    newest.write_bytes(data[: len(data) - len(footer.build())])
    with pytest.raises(MetadataLogError, match="is not complete: it has no header or no footer"):
        read(directory)
    newest.write_bytes(data[:100] + b"?" + data[101:])
    with pytest.raises(MetadataLogError, match=r"the batch at byte \d+ is damaged"):
        read(directory)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (bytes([1, 2, 9]) + topic()[3:], r"type 2 \(TopicRecord\), version 9, which this kbroker does not know"),
        (bytes([1, 99, 0]), "type 99, version 0, which this kbroker does not know"),
        (bytes([2, 2, 0]) + topic()[3:], "frame version 2, known is 1"),
        (topic()[:-3], "more bytes needed"),
        (topic() + b"??", "has 2 bytes too many"),
        (b"", "record 0"),
        (b"\xff" * 12, "record 0"),
        (partition(), "which no record before it has made"),
        (record("RemoveTopicRecord", topic_id=TOPIC_ID), "which no record before it has made"),
    ],
)
def test_records_that_are_not_understood_are_an_error(tmp_path: Path, value: bytes, said: str) -> None:
    """What a newer Kafka, or a damaged one, has changed would be forgotten without a word."""
    write_log(tmp_path, [value])
    with pytest.raises(MetadataLogError, match=said):
        read(tmp_path)


_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=25)
@given(st.dictionaries(_NAMES, st.lists(st.tuples(_NAMES, st.none() | _NAMES)), max_size=6), st.randoms())
def test_settings_are_those_that_were_written_last(
    tmp_path_factory: pytest.TempPathFactory, resources: dict[str, list[tuple[str, str | None]]], order: random.Random
) -> None:
    """A setting would come along with an older value, or one that was removed."""
    edits = [(resource, *edit) for resource, values in resources.items() for edit in values]
    order.shuffle(edits)
    expected: dict[ConfigResource, dict[str, str]] = {}
    batches: list[list[bytes]] = [[]]
    for resource, name, value in edits:
        settings = expected.setdefault(ConfigResource(32, resource), {})
        settings.pop(name, None)
        if value is not None:
            settings[name] = value
        batches[-1].append(record("ConfigRecord", resource_type=32, resource_name=resource, name=name, value=value))
        if order.random() < 0.3:
            batches.append([])
    directory = tmp_path_factory.mktemp("log")
    write_log(directory, *(each for each in batches if each))
    assert read(directory)[0].configs == {resource: values for resource, values in expected.items() if values}


@settings(max_examples=25)
@given(st.data())
def test_damage_anywhere_gives_an_error_or_what_was_there_before_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A damaged file would end the command with a stack trace, or make topics that never were."""
    directory = tmp_path_factory.mktemp("log")
    log = write_log(directory, [topic()], [partition(), partition(1)], [topic("u", bytes(15) + b"x")])
    content = bytearray(log.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    log.write_bytes(content[: data.draw(st.integers(at, len(content)))])
    (directory / "meta.properties").write_text(META)
    try:
        metadata, _ = read(directory)
    except MetadataLogError:
        return
    assert [each.name for each in metadata.topics.values()] in ([], ["t"], ["t", "u"])
