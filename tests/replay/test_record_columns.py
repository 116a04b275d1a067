"""The decoder of columns against the plain Python reader of batches, on good bytes and on damaged ones.

Also of `kbroker._fast.base.column_buffer`, `kbroker._fast.records.record_columns`.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from kbroker._fast.records.batch_span import batch_span  # noqa: E402
from kbroker._fast.records.record_batch import BatchError, iterate_batches, seal, stamp  # noqa: E402
from kbroker.records.batch import RecordBatchBuilder, iterate_records  # noqa: E402
from kbroker.records.compression import Codec  # noqa: E402
from kbroker.records.control import ControlType, build_end_transaction  # noqa: E402
from kbroker.replay.columns import TYPES, ColumnBatches  # noqa: E402

ALL = tuple(TYPES)

content = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
records = st.lists(
    st.tuples(content, content, st.integers(0, 4_000_000_000_000), st.just([]) | headers), min_size=1, max_size=30
)
batches = st.lists(st.tuples(st.sampled_from(list(Codec)), records), min_size=1, max_size=5)


def build(plan: list[tuple[int, list[Any]]], base: int = 100) -> bytearray:
    """Batches one after the other, their offsets without a gap."""
    frame = bytearray()
    for codec, rows in plan:
        builder = RecordBatchBuilder(base, codec)
        for key, value, timestamp, extra in rows:
            builder.append(key, value, timestamp, extra)
        frame += builder.build()
        base += len(rows)
    return frame


def reference(frame: bytes | bytearray) -> list[dict[str, Any]]:
    """What the plain reader finds, as rows of the data source."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "tøpic",
            "partition": 7,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": info.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for info in iterate_batches(frame)
        for record in iterate_records(frame, info)
    ]


def plain(batch: Any) -> list[dict[str, Any]]:
    """An Arrow batch as rows, its timestamps as the microseconds that they are."""
    assert batch.schema.types == list(TYPES.values())
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64())).to_pylist()
    return rows


def decode(frames: list[bytes | bytearray], start: int = 0, stop: int = 1 << 62, **limits: int) -> list[dict[str, Any]]:
    columns = ColumnBatches("tøpic", 7, start, stop, columns=ALL, **limits)
    rows = [row for frame in frames for batch in columns.feed(frame) for row in plain(batch)]
    return rows + [row for batch in columns.flush() for row in plain(batch)]


@given(batches, st.integers(1, 7), st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_columns_hold_what_the_plain_reader_finds(plan: list[Any], max_rows: int, max_bytes: int) -> None:
    """A table in Spark would differ from the topic: a key lost, a header shifted, a null turned into an empty value."""
    frame = build(plan)
    assert decode([frame]) == reference(frame)
    assert decode([frame], max_rows=max_rows) == reference(frame)
    assert decode([frame], max_bytes=max_bytes) == reference(frame)


@given(batches, st.integers(90, 260), st.integers(90, 260))
@settings(max_examples=100, deadline=None)
def test_a_range_of_offsets_is_cut_out_exactly(plan: list[Any], start: int, stop: int) -> None:
    """Two Spark tasks would both give the record at their border, or neither would."""
    frame = build(plan)
    assert decode([frame], start, stop) == [row for row in reference(frame) if start <= row["offset"] < stop]


@given(batches, st.data())
@settings(max_examples=100, deadline=None)
def test_a_frame_that_is_cut_off_is_read_up_to_its_last_whole_batch(plan: list[Any], data: st.DataObject) -> None:
    """A fetch that ends within a batch, as most do, would lose records or give half a record."""
    frame = build(plan)
    cut = data.draw(st.integers(0, len(frame)))
    end, count, following = batch_span(frame[:cut])
    assert decode([frame[:cut]]) == reference(frame[:end])
    assert count == len(list(iterate_batches(frame[:end])))
    assert following == (-1 if count == 0 else list(iterate_batches(frame[:end]))[-1].last_offset + 1)
    assert decode([frame[:cut], frame[end:]]) == reference(frame)


@given(batches, st.data())
@settings(max_examples=200, deadline=None)
def test_a_flipped_bit_is_an_error_or_changes_nothing(plan: list[Any], data: st.DataObject) -> None:
    """A damaged disk would give rows that nobody ever wrote, or end the executor."""
    frame = build(plan)
    whole = decode([frame])
    place = data.draw(st.integers(0, len(frame) * 8 - 1))
    begins = [info.position for info in iterate_batches(frame) if info.position <= place // 8]
    # The checksum does not cover base offsets: the broker writes them.
    assume(place // 8 - begins[-1] >= 8)
    frame[place // 8] ^= 1 << place % 8
    try:
        found = decode([frame])
    except BatchError:
        return
    # A length that has grown past the frame's end looks like a batch that is cut off.
    assert found == whole[: len(found)]


def test_hostile_records_under_a_good_checksum_are_refused() -> None:
    """A client that writes nonsense could make every reader of the topic crash, or read its neighbour's memory."""
    rows = [(b"key", b"value" * 3, 1_000, [("name", b"content")]) for _ in range(20)]
    good = build([(Codec.NONE, rows)])
    whole = decode([good])
    chance = random.Random(7)
    refused = 0
    for _ in range(4000):
        frame = bytearray(good)
        for _ in range(chance.choice((1, 1, 3))):
            frame[chance.randrange(21, len(frame))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            seal(frame, frame[22] & 7)
            found = decode([frame])
        except (BatchError, ValueError):
            refused += 1
        else:
            assert len(found) <= len(whole)
    assert refused > 1000


def transactional(base: int, producer_id: int, values: list[bytes]) -> bytearray:
    builder = RecordBatchBuilder(
        base, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for value in values:
        builder.append(None, value, 5)
    return builder.build()


def marker(offset: int, kind: ControlType, producer_id: int) -> bytearray:
    batch = build_end_transaction(kind, 0, producer_id, 0, 5)
    stamp(batch, 0, offset, 0)
    return batch


def test_aborted_transactions_and_markers_make_no_rows() -> None:
    """A reader with read_committed would see what its producer took back."""
    frame = transactional(0, 1, [b"a0", b"a1"])
    frame += transactional(2, 2, [b"b0"])
    frame += marker(3, ControlType.ABORT, 1)
    frame += transactional(4, 1, [b"c0"])
    frame += marker(5, ControlType.COMMIT, 2)
    frame += marker(6, ControlType.COMMIT, 1)
    columns = ColumnBatches("t", 0, 0, 100)
    columns.reader.set_aborted([(1, 0)])
    assert not list(columns.feed(frame))
    (batch,) = columns.flush()
    assert batch["value"].to_pylist() == [b"b0", b"c0"]
    assert columns.next_offset == 7
    assert [row["value"] for row in decode([frame])] == [b"a0", b"a1", b"b0", b"c0"]


def test_header_keys_that_are_no_text_are_made_readable() -> None:
    """One producer's broken header would make the whole batch unreadable for Python."""
    frame = build([(Codec.NONE, [(None, b"v", 1, [("x\x01y", b"1"), ("ü", None)])])])
    broken = bytearray(bytes(frame).replace(b"x\x01y", b"x\xffy"))
    seal(broken, 0)
    (row,) = decode([broken])
    assert row["headers"] == [{"key": "x�y", "value": b"1"}, {"key": "ü", "value": None}]


def test_only_the_columns_asked_for_are_made() -> None:
    """Counting a topic would cost as much as reading it."""
    frame = build([(Codec.ZSTD, [(b"k", b"v", 1, [])])])
    columns = ColumnBatches("t", 3, 0, 1000, columns=("offset", "partition"))
    assert not list(columns.feed(frame))
    (batch,) = columns.flush()
    assert batch.to_pylist() == [{"offset": 100, "partition": 3}]


@pytest.mark.parametrize(
    ("timestamp", "columns", "error"),
    [(1 << 61, ALL, "no timestamp column can hold"), (1 << 61, ("value",), None)],
)
def test_a_time_beyond_the_calendar_says_which_record_and_what_to_do(
    timestamp: int, columns: tuple[str, ...], error: str | None
) -> None:
    """One record with nanoseconds for milliseconds would make a topic unreadable for good."""
    frame = build([(Codec.NONE, [(b"k", b"v", timestamp, [])])])
    batches = ColumnBatches("t", 3, 0, 1000, columns=columns)
    if error is None:
        assert not list(batches.feed(frame))
        assert batches.reader.count == 1
    else:
        with pytest.raises(BatchError, match=f"offset 100.*{error}"):
            list(batches.feed(frame))


def test_messages_of_old_formats_are_named() -> None:
    """The user would see "corrupt" where the topic is merely from before Kafka 0.11."""
    frame = build([(Codec.NONE, [(b"k", b"v", 1, [])])])
    frame[16] = 1
    with pytest.raises(BatchError, match="format 1"):
        decode([frame])
