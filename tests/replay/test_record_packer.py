"""Rows of Arrow packed into records, against the reference that reads them, and keys placed as Kafka's clients do."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kbroker._fast.records.record_batch import seal  # noqa: E402
from kbroker._fast.records.record_packer import BatchPacker, RowColumns  # noqa: E402
from kbroker.records.batch import HEADER, iterate_records  # noqa: E402
from kbroker.replay.rows import row_columns  # noqa: E402

NOW_MS = 1_700_000_000_000
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ]
)
HEADERS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.none() | st.binary(max_size=8)}), max_size=3
)
ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=300),
        "value": st.none() | st.binary(max_size=300),
        "timestamp": st.integers(-(10**15), 4 * 10**15),
        "headers": st.none() | HEADERS,
    }
)


def batch_of(rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def unpack(packer: BatchPacker) -> list[tuple[Any, ...]]:
    """What the reference reads out of the batch that the packer has."""
    count, base, most = packer.count, packer.base_timestamp, packer.max_timestamp
    batch = bytearray(HEADER.pack(0, 0, -1, 2, 0, 0, count - 1, base, most, -1, -1, -1, count)) + packer.take()
    seal(batch, 0)
    return [(record.timestamp, record.key, record.value, record.headers) for record in iterate_records(batch)]


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=40), st.integers(0, 10), st.integers(100, 4000))
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]], skip: int, limit: int) -> None:
    """A DataFrame that was written would be read with other values, times or headers."""
    rows = rows if skip < len(rows) else [*rows, *rows[:1] * skip]
    batch = batch_of(rows).slice(skip)
    columns = row_columns(batch, with_timestamp=True)
    order = np.arange(batch.num_rows, dtype=np.int64)[::-1].copy()
    packer, at, found = BatchPacker(limit), 0, []
    while at < len(order):
        following = packer.append(columns, order, at, NOW_MS)
        assert following > at
        assert packer.count == 1 or packer.size_bytes <= limit
        at = following
        found += unpack(packer)
    expected = [
        (
            row["timestamp"] // 1000,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in reversed(rows[skip:])
    ]
    assert found == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 40))
def test_keys_go_where_kafka_s_clients_put_them(keys: list[bytes | None], partitions: int) -> None:
    """Records of one key would lie in two partitions, once other producers write to the topic as well."""
    from kafka.partitioner.default import murmur2

    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array([b""] * len(keys))})
    found = np.full(len(keys), -1, np.int32)
    row_columns(batch, with_timestamp=False).fill_partitions(found, partitions)
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert found.tolist() == expected


def test_text_and_absent_columns() -> None:
    """A DataFrame of strings, or one without keys, could not be written."""
    batch = pa.record_batch({"value": pa.array(["a", None, "ü"], pa.large_string())})
    packer = BatchPacker(1 << 20)
    assert packer.append(row_columns(batch, with_timestamp=True), np.arange(3, dtype=np.int64), 0, NOW_MS) == 3
    assert unpack(packer) == [(NOW_MS, None, value, ()) for value in (b"a", None, "ü".encode())]


def test_columns_that_lie_are_refused() -> None:
    """A damaged column would be read outside of its memory."""
    offsets = np.array([0, 4, 2, 9], np.int32).tobytes()
    rows = np.arange(3, dtype=np.int64)
    lying = RowColumns(3, None, (None, offsets, b"12345678", 0))
    packer = BatchPacker(1 << 20)
    assert packer.append(lying, rows[:1], 0, NOW_MS) == 1
    for row in (1, 2):
        with pytest.raises(ValueError, match=f"row {row} lies outside"):
            packer.append(lying, rows[row : row + 1], 0, NOW_MS)
    with pytest.raises(IndexError):
        packer.append(lying, np.array([3], np.int64), 0, NOW_MS)
    with pytest.raises(ValueError, match="are needed"):
        RowColumns(4, None, (None, offsets, b"12345678", 0))
    with pytest.raises(ValueError, match="null among its headers"):
        row_columns(
            pa.record_batch({"value": pa.array([b"1"]), "headers": pa.array([[None]], SCHEMA.field("headers").type)}),
            with_timestamp=False,
        )
