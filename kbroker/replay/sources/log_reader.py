"""What an executor does with a piece of a segment: read, decode, give Arrow batches.  Memory: one buffer, as large as
the largest batch needs, beside what the decoder holds.

The last batch of a partition may be incomplete after a crash, or in a copy of a directory that a broker is writing.
Reading stops there, where a broker would truncate the log, and a warning in the log has the number of skipped bytes.
Damage anywhere else is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kbroker._fast.records.batch_info import BatchError, CorruptBatchError, TruncatedBatchError
from kbroker._fast.records.record_batch import read_header
from kbroker.replay.columns import ColumnBatches
from kbroker.replay.sources.log_files import Segment, SegmentReader
from kbroker.replay.sources.log_options import LogOptions, parse
from kbroker.replay.sources.log_plan import Piece, plan
from kbroker.replay.sources.option_values import OptionValues
from kbroker.replay.sources.read_range import CorruptRecordsError, DataLossError
from kbroker.replay.sources.spark_schema import columns_of, schema_of
from kbroker.replay.sources.workers import FromSpark

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

BUFFER_BYTES = 4 << 20


class PieceReader:
    """Reads one piece; `left_bytes` at its end belong to no whole batch."""

    def __init__(self, piece: Piece, columns: tuple[str, ...]) -> None:
        self.piece = piece
        self.found = ColumnBatches(piece.topic, piece.partition, piece.start, piece.stop, columns=columns)
        self.position = piece.position
        self._buffer = bytearray(min(BUFFER_BYTES, piece.end - piece.position))

    @property
    def left_bytes(self) -> int:
        """How many bytes of the file are still to read."""
        return 0 if self.found.done else self.piece.end - self.position

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records of the piece, as Arrow."""
        piece = self.piece
        segment = Segment(piece.path, 0, piece.stop, piece.end, piece.is_tail)
        with SegmentReader(segment) as reader:
            while self.position < piece.end and not self.found.done:
                target = memoryview(self._buffer)[: min(len(self._buffer), piece.end - self.position)]
                size = reader.read_into(target, self.position)
                try:
                    yield from self.found.feed(target[:size])
                except CorruptBatchError as error:
                    if not self._is_torn(target[:size], error):
                        raise
                    self.position += self.found.reader.position
                    break
                used = self.found.reader.position
                self.position += used
                if used == 0 and not self._enlarge(target[:size]):
                    break
        yield from self.found.flush()

    def _enlarge(self, view: memoryview) -> bool:
        """A batch that is larger than the buffer: takes a larger one.  False when the file has not got all of it."""
        if len(view) < 12:
            return False
        wanted = int.from_bytes(view[8:12], "big", signed=True) + 12
        if wanted <= len(self._buffer) or wanted > self.piece.end - self.position:
            return False
        self._buffer = bytearray(wanted)
        return True

    def _is_torn(self, view: memoryview, error: CorruptBatchError) -> bool:
        """Whether the damage is what a crash leaves at a log's end: zeros, or a last batch that was not all written."""
        begin = self.found.reader.position
        if not self.piece.is_tail:
            return False
        if isinstance(error, TruncatedBatchError) or not any(view[begin:]):
            return True
        try:
            size = read_header(view, begin).size_in_bytes
        except BatchError:
            return False
        return bool(self.position + begin + size == self.piece.end)


def read_piece(piece: Piece, columns: tuple[str, ...], options: LogOptions) -> Iterator[pa.RecordBatch]:
    """The piece's records, in order, as Arrow batches with these columns.

    Raises CorruptRecordsError, DataLossError."""
    reader = PieceReader(piece, columns)
    name = f"{piece.topic}-{piece.partition}"
    try:
        yield from reader.batches()
    except BatchError as error:
        raise CorruptRecordsError(f"reading {name}, {piece.path}, from byte {reader.position}: {error}") from error
    except FileNotFoundError as error:
        text = f"{piece.path} was deleted while it was read, perhaps by retention: read a copy of the directory"
        if options.fail_on_data_loss:
            raise DataLossError(f"{text}, or set the option failOnDataLoss to false") from error
        logger.warning("%s; failOnDataLoss is false, so reading goes on without it", text)
        return
    if reader.left_bytes and not piece.is_tail:
        raise CorruptRecordsError(
            f"reading {name}, {piece.path}: no batch at byte {reader.position}, but others follow"
        )
    if reader.left_bytes:
        logger.warning(
            "%s ends at offset %d: the last %d bytes of %s are no whole batch, as a crash or a copy leaves them",
            name,
            reader.found.next_offset,
            reader.left_bytes,
            piece.path,
        )


class PiecePartition(InputPartition):
    """One Spark partition: a segment, or a piece of one."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(tuple(piece))
        self.piece = piece


class LogReader(FromSpark, DataSourceReader):
    """Reads what lies in the directories when the query is planned."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [PiecePartition(piece) for piece in plan(self.options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark gives None where there was nothing to plan.
        if not isinstance(partition, PiecePartition):
            return iter(())
        return read_piece(partition.piece, self.columns, self.options)


class KbrokerLogSource(FromSpark, DataSource):
    """`format("kbroker-log")`: a broker's log directories as DataFrames, without a broker."""

    @classmethod
    def name(cls) -> str:
        return "kbroker-log"

    def schema(self) -> StructType:
        return schema_of(OptionValues(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(parse(self.options), columns_of(schema))
