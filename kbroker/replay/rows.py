"""Arrow batches as the packer takes them: columns of `key`, `value`, `headers` and `timestamp` as raw buffers.

Text counts as its UTF-8 bytes.  Columns that Arrow keeps in another way (large offsets, dictionaries) are cast first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kbroker._fast.records.record_packer import BatchPacker, RowColumns

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbroker._fast.records.record_packer import BytesParts, HeaderParts

KEY, VALUE, TOPIC, PARTITION, HEADERS, TIMESTAMP = "key", "value", "topic", "partition", "headers", "timestamp"


def row_columns(batch: pa.RecordBatch, *, with_timestamp: bool) -> RowColumns:
    """The columns that a record is made of.  Without `with_timestamp` records get the time at which they are packed."""
    names = batch.schema.names
    return RowColumns(
        batch.num_rows,
        bytes_parts(batch.column(KEY)) if KEY in names else None,
        bytes_parts(batch.column(VALUE)),
        _milliseconds(batch.column(TIMESTAMP)) if with_timestamp and TIMESTAMP in names else None,
        header_parts(batch.column(HEADERS)) if HEADERS in names else None,
    )


def pack_rows(packer: BatchPacker, columns: RowColumns, rows: Buffer, send: Callable[[], None]) -> None:
    """Packs the rows whose numbers (int64) `rows` holds, at the present time; `send` empties a packer that is full."""
    now_ms = time.time_ns() // 1_000_000
    count = memoryview(rows).nbytes // 8
    at = 0
    while (at := packer.append(columns, rows, at, now_ms)) < count:
        send()


def bytes_parts(column: pa.Array) -> BytesParts | None:
    """A column of bytes or text; None for one of no type, which is null throughout."""
    if pa.types.is_null(column.type):
        return None
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.string() if pa.types.is_large_string(column.type) else pa.binary())
    valid, offsets, data = column.buffers()
    return valid, offsets, data, column.offset


def _milliseconds(column: pa.Array) -> pa.Buffer:
    if column.null_count:
        raise ValueError("a row has a null timestamp: leave the column out, or fill it")
    # Cast of times rounds towards zero; those before 1970 keep their millisecond by flooring first.
    whole = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    _, data = whole.buffers()
    return data.slice(whole.offset * 8) if data is not None else pa.py_buffer(b"")


def header_parts(column: pa.Array) -> HeaderParts | None:
    """A column of lists of (key, value); None where no row has any.  ValueError for a null among them."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return None
    wanted = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    if column.type != wanted:
        column = column.cast(wanted)
    valid, offsets = column.buffers()[:2]
    inner = column.values
    if inner.null_count:
        raise ValueError("a row has a null among its headers")
    if not len(inner):
        return None
    keys, values = bytes_parts(inner.field(0)), bytes_parts(inner.field(1))
    assert keys is not None
    assert values is not None
    return valid, offsets, column.offset, len(inner), keys, values
