"""The builder and the reader of whole batches, and control records.

Also of `kbroker._fast.records.batch_builder`.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, BatchError, InvalidRecordsError, read_header, validate
from kbroker._fast.records.record_codec import append_record, decode_records
from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records
from kbroker.records.compression import Codec, iter_decompress
from kbroker.records.control import ControlType, parse_control_key, parse_end_transaction, read_end_transaction
from tests.records import reference
from tests.records.strategies import damaged_payloads

FIELD = st.none() | st.binary(max_size=100)
ROW = st.tuples(
    FIELD,
    FIELD,
    st.integers(0, 2**45),
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
)


@given(st.lists(ROW, min_size=1, max_size=10), st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_round_trip(rows: list[tuple], codec: Codec, base_offset: int) -> None:  # type: ignore[type-arg]
    """Committed offsets and group metadata would not survive a restart."""
    builder = RecordBatchBuilder(base_offset, codec)
    for row in rows:
        builder.append(*row)
    batch = builder.build()
    info = validate(batch)
    assert info.records_count == builder.count == len(rows)
    assert info.max_timestamp == max(row[2] for row in rows)
    expected = [Record(base_offset + index, row[2], row[0], row[1], row[3]) for index, row in enumerate(rows)]
    assert list(iterate_records(batch)) == expected
    payload = b"".join(map(bytes, iter_decompress(codec, batch[61:])))
    for record, row in zip(reference.walk(payload, len(rows)), rows, strict=True):
        assert (record.key, record.value) == row[:2]
        assert record.headers == tuple((name.encode(), value) for name, value in row[3])


@given(
    st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=30)), min_size=1, max_size=12),
    st.integers(0, 200),
)
def test_records_that_are_added_together_make_the_batches_of_those_that_are_added_alone(
    records: list[tuple[bytes, bytes | None]], room: int
) -> None:
    """A group's record would be lost, or written twice, where a batch is full."""
    begin = 0
    while begin < len(records):
        together, alone = RecordBatchBuilder(), RecordBatchBuilder()
        end = together.extend(records, begin, 77, BATCH_OVERHEAD + room)
        for key, value in records[begin:end]:
            assert alone.size_bytes < BATCH_OVERHEAD + room or not alone.count
            alone.append(key, value, 77)
        assert end == len(records) or alone.size_bytes >= BATCH_OVERHEAD + room
        assert (together.count, together.build()) == (alone.count, alone.build())
        begin = end


def test_producer_fields() -> None:
    """Sequences and transactions of what the broker itself writes would be lost."""
    builder = RecordBatchBuilder(7, producer_id=5, producer_epoch=2, base_sequence=9, is_transactional=True)
    builder.append(b"k", b"v", 1)
    info = read_header(builder.build())
    assert (info.base_offset, info.producer_id, info.producer_epoch, info.base_sequence) == (7, 5, 2, 9)
    assert info.is_transactional
    assert not info.is_control


def test_an_empty_batch_is_not_built() -> None:
    """A batch without records would give out offset -1."""
    with pytest.raises(ValueError, match="at least one"):
        RecordBatchBuilder().build()


def test_append_time_is_every_records_time() -> None:
    """Consumers of a LogAppendTime topic and our own tools would disagree on the time."""
    batch = reference.encode_batch(
        reference.simple_records([b"a", b"b"]), 2, attributes=8, base_timestamp=1, max_timestamp=99
    )
    assert [record.timestamp for record in iterate_records(batch)] == [99, 99]


def test_a_batch_behind_others() -> None:
    """Reload would read the first batch over and over."""
    one = reference.encode_batch(reference.simple_records([b"a"]), 1)
    two = reference.encode_batch(reference.simple_records([b"b"]), 1, base_offset=1)
    both = bytes(one + two)
    assert [record.value for record in iterate_records(both, read_header(both, len(one)))] == [b"b"]


@given(damaged_payloads())
def test_damage_is_an_error_and_nothing_else(damaged: tuple[bytes, int]) -> None:
    """A damaged internal topic would crash the broker instead of being reported."""
    payload, count = damaged
    batch = reference.encode_batch(payload, count)
    try:
        records = list(iterate_records(batch))
    except BatchError:
        return
    # What the strict walk takes, this one must read alike.
    try:
        expected = reference.walk(payload, count)
    except reference.MalformedError:
        return
    assert [(record.key, record.value) for record in records] == [(record.key, record.value) for record in expected]


def test_in_portions() -> None:
    """Reading a large batch would need it in memory as objects at once."""
    payload = reference.simple_records([b"a", b"b", b"c"])
    info = read_header(reference.encode_batch(payload, 3))
    first, position = decode_records(payload, info, Record, 0, 2)
    rest, end = decode_records(payload, info, Record, position, 2)
    assert [record.value for record in first + rest] == [b"a", b"b", b"c"]
    assert end == len(payload)


def test_what_is_no_bytes_leaves_the_buffer_alone() -> None:
    """A caller's mistake would leave half a record in the batch."""
    out = bytearray(b"before")
    with pytest.raises(TypeError):
        append_record(out, 0, 0, b"key", "text")  # type: ignore[arg-type]
    assert out == b"before"


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", struct.pack(">hh", -1, 0)])
def test_keys_that_are_no_control_keys(key: bytes | None) -> None:
    """A damaged marker would end the wrong transaction."""
    with pytest.raises(InvalidRecordsError):
        parse_control_key(key)


def test_control_records_of_other_kinds() -> None:
    """A marker of a later version would stop recovery."""
    assert parse_control_key(struct.pack(">hh", 0, 2)) is ControlType.LEADER_CHANGE
    assert parse_control_key(struct.pack(">hh", 3, 77) + b"more") is ControlType.UNKNOWN
    builder = RecordBatchBuilder(is_control=True)
    builder.append(struct.pack(">hh", 0, 2), b"", 1)
    assert read_end_transaction(builder.build()) is None
    with pytest.raises(InvalidRecordsError, match="does not end"):
        parse_end_transaction(Record(0, 0, struct.pack(">hh", 0, 2), b""))
    with pytest.raises(InvalidRecordsError, match="needs 6 bytes"):
        parse_end_transaction(Record(0, 0, struct.pack(">hh", 0, 1), b"\x00\x00"))
