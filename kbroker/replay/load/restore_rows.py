"""Rows of Parquet files as records of a lane: with positions, in the types that a topic has, each in one partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.lanes import POSITION

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kbroker.client.list_offsets import TopicPartition

KEEP, BY_KEY = "keep", "key"
_ROWS_AT_ONCE = 32_768


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file: `topic` and `partition` of a load, else None."""

    path: str
    rows: int
    bytes: int
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreLane:
    """What goes to one partition: whole files, or with a filter the rows that belong there."""

    topic: str
    partition: int
    count: int
    files: tuple[InputFile, ...]
    select: str | None

    @property
    def at(self) -> TopicPartition:
        """The target's partition."""
        return self.topic, self.partition


def rows_of(lane: RestoreLane, position: int, *, timestamps: bool, headers: bool) -> Iterator[pa.RecordBatch]:
    """The lane's rows from a position on, as the columns of a topic."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = 0
    for file in lane.files:
        at, first = first, first + file.rows
        if first <= position:
            continue
        with pq.ParquetFile(file.path) as opened:
            wanted = columns_of(set(opened.schema_arrow.names), timestamps=timestamps, headers=headers)
            for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                start, at = at, at + batch.num_rows
                if at <= position:
                    continue
                skipped = max(position - start, 0)
                positions = np.arange(start + skipped, at, dtype=np.int64)
                found = shaped(batch.slice(skipped), positions, timestamps=timestamps)
                if lane.select is not None:
                    chosen = partitions_of(found, lane.select, lane.topic, lane.count)
                    found = found.filter(pa.array(chosen == lane.partition))
                if found.num_rows:
                    yield found


def total_of(lane: RestoreLane) -> int:
    """The position behind a lane's last row."""
    return sum(file.rows for file in lane.files)


def columns_of(names: set[str], *, timestamps: bool, headers: bool) -> list[str]:
    """Those of a file's columns that a record is made of."""
    wanted: list[str] = [name for name in ("key", "value", "partition") if name in names]
    wanted += ["timestamp"] if timestamps and "timestamp" in names else []
    return wanted + (["headers"] if headers and "headers" in names else [])


def shaped(batch: pa.RecordBatch, positions: npt.NDArray[np.int64], *, timestamps: bool) -> pa.RecordBatch:
    """With positions (int64), and types that a topic has.  LoadError without times that are to be kept."""
    import pyarrow as pa

    from kbroker.replay.columns import TYPES

    columns: dict[str, object] = {POSITION: pa.array(positions)}
    for name in batch.schema.names:
        column = batch.column(name)
        if name == "timestamp" and pa.types.is_timestamp(column.type):
            columns[name] = column.cast(pa.timestamp("us", tz=column.type.tz or "UTC"), safe=False)
        elif name == "timestamp" and pa.types.is_integer(column.type):
            columns[name] = column.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(TYPES["timestamp"])
        else:
            columns[name] = column.cast(TYPES[name])
    if timestamps and "timestamp" not in columns:
        raise LoadError(
            "there is no column timestamp to keep: say --no-timestamps, and records get the time of writing"
        )
    return pa.RecordBatch.from_pydict(columns)


def partitions_of(rows: pa.RecordBatch, select: str, topic: str, count: int) -> npt.NDArray[np.int32]:
    """The partition of each row (int32): by its key, or the one that it names.  LoadError for one that is not there."""
    import numpy as np

    from kbroker.replay.rows import row_columns

    if select == BY_KEY:
        positions = np.asarray(rows.column(POSITION))
        chosen = np.full(rows.num_rows, -1, np.int32)
        row_columns(rows, with_timestamp=False).fill_partitions(chosen.data, count)
        return np.where(chosen < 0, (positions % count).astype(np.int32), chosen)
    chosen = np.asarray(rows.column("partition").fill_null(-1)).astype(np.int32)
    if ((chosen < 0) | (chosen >= count)).any():
        raise LoadError(f"a row's partition is not one of topic {topic}, which has 0 to {count - 1}")
    return chosen
