"""Record batches as Arrow record batches, in the columns of Spark's Kafka connector.

    key, value: binary      topic: string        partition: int32    offset: int64
    timestamp: timestamp[us, UTC]                timestampType: int32 (0 the producer's time, 1 the append's)
    headers: list<struct<key: string, value: binary>>, null for a record without any

The decoder (`_fast/records/record_columns`) fills buffers in Arrow's layout; here they become arrays without a copy.
Only the columns asked for are filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kbroker._fast.records.record_columns import HEADERS, KEYS, TIMESTAMPS, VALUES, RecordColumns
from kbroker.records.compression import decompress
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker._fast.base.column_buffer import ColumnBuffer
    from kbroker._fast.records.record_columns import Bytes, Headers, Taken

# The largest decompressed size of a batch, which the limits of rows and bytes do not bound.
MAX_DECOMPRESSED_BYTES = 256 << 20
MAX_ROWS = 32768
MAX_BYTES = 8 << 20

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
COLUMNS = tuple(name for name in TYPES if name != "headers")
_WANTS = {"key": KEYS, "value": VALUES, "timestamp": TIMESTAMPS, "timestampType": TIMESTAMPS, "headers": HEADERS}


class ColumnBatches:
    """One partition's records with start <= offset < stop, as Arrow batches.

    `feed(frame)` gives the batches that fill up while the frame is read and keeps the rest for the next; `flush()`
    gives what is left.  A frame may be reused once `feed` is through.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        *,
        columns: Sequence[str] = COLUMNS,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        wants = 0
        for name in columns:
            wants |= _WANTS.get(name, 0)
        self.reader = RecordColumns(start, stop, _decompress, wants=wants, max_rows=max_rows, max_bytes=max_bytes)
        self.schema = pa.schema([pa.field(name, TYPES[name]) for name in columns])
        self._constants = _Constants(topic, partition)

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was read."""
        return self.reader.next_offset

    @property
    def done(self) -> bool:
        """Whether everything below `stop` has been read."""
        return self.reader.done

    def feed(self, frame: Buffer) -> Iterator[pa.RecordBatch]:
        """BatchError for damaged records."""
        self.reader.begin(frame)
        while self.reader.fill():
            yield self._build(self.reader.take())

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The records that do not fill a batch yet, as one, if there are any."""
        if self.reader.count:
            yield self._build(self.reader.take())

    def _build(self, taken: Taken) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._array(name, taken) for name in self.schema.names], schema=self.schema)

    def _array(self, name: str, taken: Taken) -> object:
        count, offset, timestamp, timestamp_type, key, value, headers = taken
        if name == "offset":
            return pa.Array.from_buffers(TYPES[name], count, [None, pa.py_buffer(offset)])
        if name == "topic" or name == "partition":
            return self._constants.column(name, count)
        if name == "key" or name == "value":
            found = key if name == "key" else value
            assert found is not None
            return _binary(TYPES[name], count, found)
        if name == "headers":
            assert headers is not None
            return _headers(count, headers)
        numbers = timestamp if name == "timestamp" else timestamp_type
        assert numbers is not None
        return pa.Array.from_buffers(TYPES[name], count, [None, pa.py_buffer(numbers)])


class _Constants:
    """The columns with one value for all rows of a partition: made once for the largest batch, then sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._values = {"topic": pa.scalar(topic, pa.string()), "partition": pa.scalar(partition, pa.int32())}
        self._made: JsonObject = {}

    def column(self, name: str, count: int) -> object:
        made = self._made.get(name)
        if made is None or len(made) < count:
            made = self._made[name] = pa.repeat(self._values[name], count)
        return made[:count]


def _decompress(codec: int, view: memoryview) -> bytes:
    return decompress(codec, view, MAX_DECOMPRESSED_BYTES)


def _validity(buffer: ColumnBuffer | None) -> object:
    return None if buffer is None else pa.py_buffer(buffer)


def _binary(kind: pa.DataType, count: int, found: Bytes) -> object:
    valid, offsets, data = found
    return pa.Array.from_buffers(kind, count, [_validity(valid), pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(count: int, headers: Headers) -> object:
    valid, offsets, names, contents, beyond_ascii = headers
    total = offsets.size // 4 - 1
    (entries,) = memoryview(offsets)[total * 4 :].cast("i")
    keys = _binary(pa.string(), entries, names)
    if beyond_ascii:
        keys = _readable(keys)
    children = pa.StructArray.from_arrays([keys, _binary(pa.binary(), entries, contents)], fields=list(HEADER_TYPE))
    return pa.Array.from_buffers(
        TYPES["headers"], count, [_validity(valid), pa.py_buffer(offsets)], children=[children]
    )


def _readable(keys: pa.Array) -> pa.Array:
    """Header keys that are no UTF-8 with U+FFFD in place of what is wrong, as Java's client reads them."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.view(pa.binary()).to_pylist()], pa.string())
    return keys
