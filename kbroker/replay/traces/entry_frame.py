"""Text files as a DataFrame: an entry in a row, with its place, its bytes and the named groups of an expression.

Each task reads its splits in turn and hands batches of some megabytes to Spark, so that a file of any size needs no
more memory than one entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kbroker.replay.traces.entries import Entry, EntryRule, read_entries
from kbroker.replay.traces.errors import TraceError
from kbroker.replay.traces.files import FilePlan, Split, open_split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRY_SCHEMA = StructType(
    [
        StructField("_file", StringType(), False),
        StructField("_position", LongType(), False),
        StructField("_sequence", LongType(), False),
        StructField("_raw", BinaryType(), False),
        StructField("_problem", StringType(), True),
    ]
)
"""`_sequence` rises through all files in their order; `_problem` is set for entries that are not to be parsed."""

NO_MATCH = "not in the format"
BATCH_BYTES = 4 << 20
BATCH_ROWS = 16_384


def entry_frame(
    spark: SparkSession, plan: FilePlan, rule: EntryRule, *, fields: str | None = None, header: bool = False
) -> DataFrame:
    """Entries of all files; `fields` adds a text column for each named group, `header` leaves out first entries.

    Entries without anything but white space are no rows.  A file that cannot be read fails the query with a TraceError.
    """
    names = tuple(re.compile(fields).groupindex) if fields is not None else ()
    schema = StructType([*ENTRY_SCHEMA.fields, *(StructField(name, StringType(), True) for name in names)])
    # Small files share tasks: a task costs more than reading a few of them.
    whole = -(-sum(file.size for file in plan.files) // plan.split_bytes)
    tasks = max(1, min(plan.count, max(whole, spark.sparkContext.defaultParallelism)))
    splits = spark.range(0, plan.count, 1, tasks)
    return splits.mapInArrow(_reader(plan, rule, fields, header), schema)


def _reader(
    plan: FilePlan, rule: EntryRule, fields: str | None, header: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pattern = re.compile(fields) if fields is not None else None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split = plan.split(number)
                yield from _batches(split, _entries(split, rule, header), pattern)

    return read


def _entries(split: Split, rule: EntryRule, header: bool) -> Iterator[Entry]:
    with open_split(split) as stream:
        entries = read_entries(stream, split.start, split.end, rule)
        try:
            if header and split.start == 0:
                next(entries, None)
            for entry in entries:
                if entry.data and not entry.data.isspace():
                    yield entry
        except OSError as error:
            raise TraceError(f"{split.file.path} cannot be read: {error}") from None


def _batches(split: Split, entries: Iterator[Entry], pattern: re.Pattern[str] | None) -> Iterator[pa.RecordBatch]:
    rows: list[Entry] = []
    size = 0
    for entry in entries:
        rows.append(entry)
        size += len(entry.data)
        if size >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
            yield _batch(split, rows, pattern)
            rows, size = [], 0
    if rows:
        yield _batch(split, rows, pattern)


def _batch(split: Split, rows: list[Entry], pattern: re.Pattern[str] | None) -> pa.RecordBatch:
    count = len(rows)
    problems = [row.problem for row in rows]
    columns: list[object] = []
    names: list[str] = []
    if pattern is not None:
        names = list(pattern.groupindex)
        nothing = (None,) * len(names)
        groups = []
        for index, row in enumerate(rows):
            found = pattern.match(row.data.decode("utf-8", "replace")) if row.problem is None else None
            if found is None:
                problems[index] = row.problem or NO_MATCH
            groups.append(nothing if found is None else tuple(found[name] for name in names))
        columns = [pa.array(column, pa.string()) for column in zip(*groups, strict=True)]
    positions = [row.position for row in rows]
    arrays = [
        pa.array([split.file.path] * count, pa.string()),
        pa.array(positions, pa.int64()),
        pa.array([split.file.base + position for position in positions], pa.int64()),
        pa.array([row.data for row in rows], pa.binary()),
        pa.array(problems, pa.string()),
        *columns,
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*ENTRY_SCHEMA.names, *names])
