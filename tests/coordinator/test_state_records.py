"""Records of `__consumer_offsets`: files that Apache Kafka 4.3.1 wrote are read and, record by record, written again.

The vectors are the four partitions of a real broker after simple commits, a classic group through four generations,
static members, a connect group, deletions, and transactions that were committed, aborted and left open.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import iterate_batches
from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.offsets import CommittedOffset
from kbroker.coordinator.classic.state_records import GroupRecord, OffsetRecord, parse_record
from kbroker.coordinator.modern.kind_records import UnknownRecordError
from kbroker.records.batch import Record, iterate_records
from kbroker.schemas import message
from kbroker.types import ZERO_UUID
from tests.coordinator.harness import MemoryLog, World

VECTORS = Path(__file__).parent / "vectors"
PARTITIONS = range(4)


def kafka_file(partition_index: int) -> bytes:
    return (VECTORS / f"kafka-4.3.1-partition-{partition_index}.log").read_bytes()


def kafka_records() -> list[Record]:
    """All records but the markers of transactions."""
    records: list[Record] = []
    for index in PARTITIONS:
        data = kafka_file(index)
        for info in iterate_batches(data):
            if not info.is_control:
                records += iterate_records(data, info)
    return records


def test_kafkas_records_are_written_byte_for_byte() -> None:
    """Kafka's tools, and Kafka itself after a move back, could not read our offsets."""
    seen: set[tuple[str, int]] = set()
    for record in kafka_records():
        assert record.key is not None
        parsed = parse_record(record.key, record.value)
        if isinstance(parsed, OffsetRecord):
            assert state_records.offset_key(parsed.group_id, parsed.topic, parsed.partition) == record.key
            written = None if parsed.committed is None else state_records.offset_value(parsed.committed)
        else:
            assert state_records.group_key(parsed.group_id) == record.key
            written = None
            if parsed.value is not None:
                group = Group(parsed.group_id, 0, None)
                state_records.restore_group(group, parsed.value)
                written = state_records.group_value(group, group.assignments())
        assert written == record.value
        seen.add((type(parsed).__name__, -1 if record.value is None else record.value[1]))
    assert seen == {("OffsetRecord", v) for v in (-1, 1, 4)} | {("GroupRecord", v) for v in (-1, 3)}


def test_a_directory_of_kafka_is_taken_over() -> None:
    """Consumers would start anew after a move from Kafka."""
    log = MemoryLog(None)
    for index in PARTITIONS:
        log.load_file(index, kafka_file(index))
    world = World(log=log)
    world.loop.advance(1)
    listed = {group.group_id: (group.protocol_type, group.state) for group in world.coordinator.list_groups((), ())}
    assert listed == {
        "conn": ("connect", "Empty"),
        "g": ("consumer", "Empty"),
        "g0": ("consumer", "Empty"),
        "gx": ("", "Empty"),
        "s": ("consumer", "Empty"),
        "simple": ("", "Empty"),
        "txn": ("", "Empty"),
    }
    assert (world.committed("g"), world.committed("g", partition=1)) == (9, 6)
    assert world.committed("simple", partition=2) is None
    assert world.group("g").generation_id == 4


def test_offsets_of_kafkas_transactions_count_as_they_were_decided() -> None:
    """Exactly-once consumers would read records twice, or skip them."""
    log = MemoryLog(None)
    for index in PARTITIONS:
        log.load_file(index, kafka_file(index))
    world = World(log=log)
    table = world.coordinator.offsets_of("txn")
    assert table is not None
    assert [world.committed("txn", partition=index) for index in range(3)] == [30, None, None]
    assert [table.has_pending("t1", index) for index in range(3)] == [False, False, True]


def test_a_stable_group_of_kafka_comes_back_with_its_members() -> None:
    """A restart of the broker would cost every group a rebalance."""
    values = [
        parsed.value
        for parsed in (parse_record(record.key, record.value) for record in kafka_records())
        if isinstance(parsed, GroupRecord) and parsed.group_id == "g" and parsed.value is not None
    ]
    group = Group("g", 0, None)
    state_records.restore_group(group, values[2])
    assert (group.state, group.generation_id, len(group.members)) == (GroupState.STABLE, 2, 2)
    assert group.subscribed_topics == frozenset({"t1"})
    leader = group.members[group.leader_id or ""]
    assert (leader.assignment, leader.client_host, leader.session_timeout_ms) == (b"AAA", "/127.0.0.1", 10_000)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    text,
    st.integers(0, 2**62),
    st.just(-1),
    st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
)


@given(text, text, st.integers(0, 2**31 - 1), offsets)
def test_offsets_survive_being_written(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
    """An offset would come back changed after a restart."""
    key = state_records.offset_key(group_id, topic, partition)
    record = parse_record(key, state_records.offset_value(committed))
    assert record == OffsetRecord(group_id, topic, partition, committed)
    assert parse_record(key, None) == OffsetRecord(group_id, topic, partition, None)


@given(st.lists(st.tuples(text, st.integers(0, 2**31 - 1), offsets, st.booleans()), max_size=8))
def test_offsets_that_are_encoded_together_are_those_that_are_encoded_alone(
    commits: list[tuple[str, int, CommittedOffset, bool]],
) -> None:
    """A commit of many partitions would be stored with the text, the time or the topic of its neighbour."""
    encoder = state_records.OffsetEncoder("g")
    last: tuple[str, CommittedOffset] | None = None
    for each, partition, other, repeats in commits:
        topic, committed = each, other
        if repeats and last is not None:
            topic, committed = last[0], last[1]._replace(offset=other.offset)
        if partition % 3 == 0:
            committed = committed._replace(expire_timestamp=7)
        last = topic, committed
        alone = state_records.offset_key("g", topic, partition), state_records.offset_value(committed)
        assert encoder.record(topic, partition, committed) == alone


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    """Groups that an old Kafka wrote would be lost."""
    value_class = message("GroupMetadataValue")
    member = value_class.MemberMetadata(member_id="m", session_timeout=9, subscription=b"", assignment=b"a")
    value = value_class(protocol_type="x", generation=3, protocol="p", leader="m", members=[member])
    data = version.to_bytes(2, "big") + value_class.program(version).encode(value)
    record = parse_record(state_records.group_key("g"), data)
    assert isinstance(record, GroupRecord)
    group = Group("g", 0, None)
    state_records.restore_group(group, record.value)
    assert (group.generation_id, group.members["m"].rebalance_timeout_ms, group.state_timestamp) == (3, 9, None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_is_read(version: int) -> None:
    """Offsets that an old Kafka wrote would be lost."""
    value_class = message("OffsetCommitValue")
    data = version.to_bytes(2, "big") + value_class.program(version).encode(value_class(offset=7, metadata="m"))
    for record_type in (0, 1):
        key = record_type.to_bytes(2, "big") + state_records.offset_key("g", "t", 1)[2:]
        record = parse_record(key, data)
        assert isinstance(record, OffsetRecord) and record.committed is not None
        assert (record.committed.offset, record.committed.metadata) == (7, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (b"\0\x63anything", b"\0\0"),
        (b"\0\x01\0\x05ab", b"\0\0"),
        (state_records.group_key("g"), b"\0"),
        (state_records.group_key("g"), b"\x7f\x7f"),
        (state_records.group_key("g"), b"\0\x03\0\x10trunc"),
        (state_records.offset_key("g", "t", 0), b"\xff\xff\0"),
    ],
)
def test_what_cannot_be_read_is_named_and_skipped(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One record of a newer broker would keep all groups of its partition from being served."""
    with pytest.raises(UnknownRecordError):
        parse_record(key, value)
    world = World()
    world.commit("g", 1)
    world.coordinator.registry.append_to(world.group().partition_index, [(key or b"", value)])
    again = world.restarted()
    assert again.committed("g") == 1
    assert "record skipped" in caplog.text


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_values_never_crash_the_reader(position: int, flip: int) -> None:
    """A bit flip in one record would stop the broker from starting."""
    for record in kafka_records():
        if record.value:
            damaged = bytearray(record.value)
            damaged[position % len(damaged)] ^= flip
            try:
                parse_record(record.key, bytes(damaged))
            except UnknownRecordError:
                pass
