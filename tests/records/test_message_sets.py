"""Whole sets of messages turned into batches and back: nothing is lost, and nothing that is damaged passes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.records.message_conversion import messages_of_records, records_of_messages, rewrite_messages
from kbroker._fast.records.message_set import walk_messages
from kbroker._fast.records.record_batch import BatchError, read_header, validate
from kbroker.config import LogConfig
from kbroker.errors import KafkaError
from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records
from kbroker.records.compression import Codec
from kbroker.records.control import ControlType, build_end_transaction
from kbroker.records.down_conversion import PIECE_BYTES, NoOlderCodecError, down_convert
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.log.message_set_validator import LOOP_LIMIT_BYTES, LongRecordsError, validate_records
from tests.records.stored import encode_messages, stored_batches

NOW_MS = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FIELD = st.none() | st.binary(max_size=300)
ROWS = st.lists(st.tuples(st.integers(0, NOW_MS), FIELD, FIELD), min_size=1, max_size=20)
Rows = list[tuple[int, bytes | None, bytes | None]]


def records(rows: Rows, magic: int) -> list[Record]:
    return [Record(at, time if magic else -1, key, value) for at, (time, key, value) in enumerate(rows)]


@given(ROWS, st.sampled_from([0, 1]), st.sampled_from(CODECS))
def test_message_sets_become_batches_of_the_same_records(rows: Rows, magic: int, codec: int) -> None:
    """Records of old producers would be stored with other keys, values, times or in another order."""
    data = bytearray(encode_messages(records(rows, magic), magic, codec))
    analyzed = validate_records(data, LogConfig(), NOW_MS, produce_version=2)
    assert analyzed is not None
    batch = bytes(analyzed.stamp(0, 7))
    info = validate(batch)
    assert (info.compression, info.records_count) == (codec, len(rows))
    assert list(iterate_records(batch)) == records(rows, magic)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_event_loop_leaves_sets_that_hold_much_to_a_thread(magic: int, codec: int) -> None:
    """A few kilobytes that hold megabytes would keep everybody else waiting, or small ones would take a thread each."""
    for value_bytes, is_long in ((100, False), (LOOP_LIMIT_BYTES, True), (20 * LOOP_LIMIT_BYTES, True)):
        rows = [Record(0, NOW_MS, b"k", bytes(value_bytes)), Record(1, NOW_MS, b"k", b"v")]
        data = bytearray(encode_messages(rows, magic, codec))
        config = LogConfig(max_message_bytes=1 << 25)
        try:
            validate_records(data, config, NOW_MS, produce_version=2, on_loop=True)
            assert not is_long
        except LongRecordsError:
            assert is_long
        assert validate_records(data, config, NOW_MS, produce_version=2) is not None


@given(ROWS, st.sampled_from([0, 1]), st.sampled_from([0, 1]), st.sampled_from(CODECS), st.integers(0, 1 << 40))
def test_message_sets_are_stored_in_another_format(rows: Rows, magic: int, to: int, codec: int, base: int) -> None:
    """A topic kept in an old format would hold other records than were sent, or at wrong offsets."""
    data = bytearray(encode_messages(records(rows, magic), magic, codec))
    config = LogConfig(message_format_version="0.10.2" if to else "0.9.0")
    analyzed = validate_records(data, config, NOW_MS, produce_version=2, log_end_offset=5)
    assert analyzed is not None
    stored = bytes(analyzed.stamp(base, 7))
    assert len(stored) == analyzed.size_in_bytes
    found = [record for batch, _ in stored_batches(stored) for record in iterate_stored_records(batch)]
    expected = [each._replace(offset=base + each.offset) for each in records(rows, min(magic, to))]
    assert found == expected


@given(ROWS, st.sampled_from([0, 1]), st.sampled_from(CODECS), st.integers(0, 1 << 40))
def test_batches_are_read_by_consumers_of_old_formats(rows: Rows, magic: int, codec: int, base: int) -> None:
    """An old consumer would read other records than were written."""
    builder = RecordBatchBuilder(base, codec)
    for time, key, value in rows:
        builder.append(key, value, time)
    batch = memoryview(bytes(builder.build()))
    messages, count = down_convert(batch, read_header(batch), magic, 0)
    found = [record for each, _ in stored_batches(bytes(messages)) for record in iterate_stored_records(each)]
    assert count == len(rows)
    assert found == [each._replace(offset=base + each.offset) for each in records(rows, magic)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_large_batches_are_converted_piece_by_piece(magic: int, codec: int) -> None:
    """A record at the border of two pieces would be lost, or the offsets behind it be others."""
    sizes = [100, 700_000, 700_000, 1, 3 * PIECE_BYTES, 0, *[90_000] * 30, PIECE_BYTES - 40, 5]
    builder = RecordBatchBuilder(70, codec)
    for at, size in enumerate(sizes):
        builder.append(b"%d" % at, bytes([at]) * size, NOW_MS + at % 7)
    batch = memoryview(bytes(builder.build()))
    messages, count = down_convert(batch, read_header(batch), magic, 0)
    ((wrapper, info),) = stored_batches(bytes(messages))
    assert count == len(sizes)
    assert info.last_offset == 70 + len(sizes) - 1
    assert info.max_timestamp == (NOW_MS + 6 if magic else -1)
    found = [(each.offset, each.key, each.value, each.timestamp) for each in iterate_stored_records(wrapper)]
    assert found == [
        (70 + at, b"%d" % at, bytes([at]) * size, NOW_MS + at % 7 if magic else -1) for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_holds_much_takes_little_memory_to_convert(codec: int) -> None:
    """A fetch of a few kilobytes that hold many megabytes would take these many times over."""
    builder = RecordBatchBuilder(0, codec)
    for _ in range(320):
        builder.append(None, bytes(100_000), NOW_MS)
    batch = memoryview(bytes(builder.build()))
    tracemalloc.start()
    try:
        _, count = down_convert(batch, read_header(batch), 1, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 320
    assert peak < 10 * PIECE_BYTES


@given(ROWS)
def test_conversion_up_and_down_again_gives_the_same_bytes(rows: Rows) -> None:
    """What passes through a newer broker would come out as something else."""
    data = encode_messages(records(rows, 1), 1, 0)
    builder = RecordBatchBuilder(0)
    for time, key, value in rows:
        builder.append(key, value, time)
    batch = bytes(builder.build())
    assert records_of_messages(data) == batch[61:]
    assert messages_of_records(batch[61:], read_header(batch), 1)[0] == data
    assert rewrite_messages(data, 0) == encode_messages(records(rows, 0), 0, 0)
    assert walk_messages(data, 1).count == len(rows)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_damaged_message_sets_are_refused_or_mean_the_same(magic: int, codec: int) -> None:
    """A flipped bit would be stored as good records, with a checksum that says so, or crash a thread."""
    rows = [Record(0, NOW_MS, b"k", b"v" * 20), Record(1, NOW_MS, None, b"w")]
    sound = encode_messages(rows, magic, codec)
    expected = [each if magic else each._replace(timestamp=-1) for each in rows]
    for at in range(len(sound) * 8):
        bad = bytearray(sound)
        bad[at // 8] ^= 1 << at % 8
        try:
            analyzed = validate_records(bad, LogConfig(), NOW_MS, produce_version=2)
        except KafkaError:
            continue
        found = [] if analyzed is None else list(iterate_records(bytes(analyzed.view)))
        # Offsets are not the producer's to say, and a size beyond the end is a part of a message.
        assert found == expected[: len(found)]


def test_what_old_consumers_cannot_be_given_is_left_out_or_refused() -> None:
    """They would take markers of transactions for records, or be given bytes in a codec that they do not know."""
    marker = memoryview(bytes(build_end_transaction(ControlType.COMMIT, 0, 1, 0, NOW_MS)))
    assert down_convert(marker, read_header(marker), 1, 0) == (b"", 0)
    builder = RecordBatchBuilder(0, Codec.ZSTD)
    builder.append(b"k", b"v", NOW_MS)
    batch = memoryview(bytes(builder.build()))
    with pytest.raises(NoOlderCodecError):
        down_convert(batch, read_header(batch), 1, 0)
    damaged = bytearray(batch)
    damaged[21:23] = b"\0\0"
    with pytest.raises(BatchError):
        down_convert(memoryview(damaged), read_header(damaged), 1, 0)
