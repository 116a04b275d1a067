"""The batch reader of `format("kbroker")`: plans by offsets on the driver, reads in executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kbroker.client.cluster import Cluster
from kbroker.replay.sources.offset_ranges import OffsetFinder, OffsetsError, Range, split
from kbroker.replay.sources.read_options import ReadOptions
from kbroker.replay.sources.read_range import read_range
from kbroker.replay.sources.workers import FromSpark

if TYPE_CHECKING:
    import pyarrow as pa


class OffsetRangePartition(InputPartition):
    """One Spark partition: a range of one Kafka partition's offsets."""

    def __init__(self, piece: Range) -> None:
        super().__init__(tuple(piece))
        self.piece = piece


class BatchReader(FromSpark, DataSourceReader):
    """Reads what lies between two limits when the query is planned."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with Cluster(options.bootstrap, options.client) as cluster:
            finder = OffsetFinder(cluster, options)
            partitions = finder.partitions()
            start = finder.resolve(options.starting, partitions)
            stop = finder.resolve(options.ending, partitions)
        ranges = [Range(*at, start[at], stop[at]) for at in partitions]
        behind = [piece for piece in ranges if piece.size < 0]
        if behind:
            raise OffsetsError(
                f"{options.starting.option} lies behind {options.ending.option}: {behind[0].topic}-"
                f"{behind[0].partition} would begin at {behind[0].start} and end at {behind[0].stop}"
            )
        pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [OffsetRangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark gives None where there was nothing to plan.
        if not isinstance(partition, OffsetRangePartition):
            return iter(())
        return read_range(partition.piece, self.columns, self.options)
