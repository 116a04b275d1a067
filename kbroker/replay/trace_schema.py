"""The one schema of a trace: a row is one operation of one source.  Readers, shaping and replay speak only this.

    arrival_time  long, not null    microseconds since the Unix epoch; a trace whose clock starts with it counts from 0.
                                    Only differences matter to a replay.  Finer sources (100 ns) are rounded to the
                                    nearest microsecond, half upwards
    source        string, not null  who did it: a client address, a host, a partition.  A replay keeps one source in one
                                    executor, and its rows in order
    sequence      long, not null    the place within the source: unique there and rising in the order in which the trace
                                    had the rows.  Gaps are allowed
    topic         string, not null
    partition     int               null: the partitioner of the replay chooses
    key           binary            null: a record without a key
    value         binary            null: a value of `value_size` bytes is synthesised (`shape.synthesise_values`), or,
                                    where `value_size` is null as well, the record has none: a tombstone
    value_size    int               bytes; equal to the length of `value` where there is one
    headers       array<struct<key: string, value: binary>>, not null, in order, names may repeat
    kind          string, not null  produce, consume or commit
    group         string            the consumer group of a consume or a commit

The order of a trace is (arrival_time, source, sequence).  Within a source the sequence decides, whatever the clock
says: a clock that goes back is reported by `inspect` and settled by `shape.order_time`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
COMMIT: Final = "commit"
KINDS: Final = (PRODUCE, CONSUME, COMMIT)

MICROSECONDS: Final = 1_000_000
"""Units of `arrival_time` in a second."""

HEADER: Final = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), True)])

TRACE_SCHEMA: Final = StructType(
    [
        StructField("arrival_time", LongType(), False),
        StructField("source", StringType(), False),
        StructField("sequence", LongType(), False),
        StructField("topic", StringType(), False),
        StructField("partition", IntegerType(), True),
        StructField("key", BinaryType(), True),
        StructField("value", BinaryType(), True),
        StructField("value_size", IntegerType(), True),
        StructField("headers", ArrayType(HEADER, False), False),
        StructField("kind", StringType(), False),
        StructField("group", StringType(), True),
    ]
)

MALFORMED_SCHEMA: Final = StructType(
    [
        StructField("file", StringType(), True),
        StructField("position", LongType(), True),
        StructField("reason", StringType(), False),
        StructField("detail", StringType(), True),
        StructField("raw", StringType(), True),
    ]
)
"""Rows that a reader could not take: the file, the byte or row that they start at where it is known, one of a few
fixed reasons to count by, what is particular to this row, and the row itself (cut to `RAW_LIMIT` characters)."""

RAW_LIMIT: Final = 4096
