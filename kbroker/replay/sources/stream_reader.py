"""The streaming reader of `format("kbroker")`: micro-batches between offsets that Spark keeps in its checkpoint.

Spark 4.0 asks a Python source for its latest offset without telling the query's position, so the reader keeps it: the
end of the last range passed to `partitions`.  After a restart Spark first plans an empty range at the last offset of
the checkpoint, so the position is known before the latest offset is asked for.

Beside the offsets of partitions, an offset of the stream contains the query's start (`offset_json`).  A query that died
within its first batch starts there again, even if its start was "latest" and records were written since.  A batch
always reads exactly the range between its two offsets, however often it is planned, so a sink that writes each batch
once gets each record once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kbroker.client.cluster import Cluster
from kbroker.replay.sources.batch_reader import OffsetRangePartition
from kbroker.replay.sources.offset_json import Offsets, from_checkpoint, names, to_checkpoint
from kbroker.replay.sources.offset_ranges import OffsetFinder, Range, rate_limit, split
from kbroker.replay.sources.option_values import OptionError
from kbroker.replay.sources.read_options import ReadOptions
from kbroker.replay.sources.read_range import read_range, report_loss
from kbroker.replay.sources.workers import FromSpark

if TYPE_CHECKING:
    import pyarrow as pa


class RefusedStream(FromSpark, DataSourceStreamReader):
    """In the place of a reader whose options are wrong: says so when Spark first asks it something.

    Spark 4.0 loses an error that is raised while a stream's reader is made: it fails at stopping what is not there.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        raise self._error

    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: object = None
    ) -> dict[str, object]:
        raise self._error

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class StreamReader(FromSpark, DataSourceStreamReader):
    """See the module's text."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._cluster: Cluster | None = None
        self._begin: Offsets | None = None
        self._position: Offsets | None = None
        self._last_batch_at = 0.0

    def __getstate__(self) -> dict[str, object]:
        """For executors: connections and places stay on the driver."""
        return {**self.__dict__, "_cluster": None, "_begin": None, "_position": None}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        begin = self.begin()
        if self._position is None:
            self._position = dict(begin)
        return to_checkpoint(begin, begin)

    def latestOffset(  # noqa: N802
        self, start: dict[str, object] | None = None, limit: object = None
    ) -> dict[str, object]:
        """`start` and `limit` come from Spark 4.2 on; before, the reader has to know where the query is."""
        begin, here = self.begin(), self._position
        if start is not None:
            here, before = from_checkpoint(start)
            begin = before or begin
        latest = self.latest()
        position = dict(begin if here is None else here)
        position.update(self.finder().earliest(latest.keys() - position.keys()))
        return to_checkpoint(self.next_offsets(position, latest, everything=self.takes_all(limit)), begin)

    def latest(self) -> Offsets:
        """Up to where the query may read now."""
        finder = self.finder()
        return finder.latest(finder.partitions())

    def takes_all(self, limit: object) -> bool:
        """Whether the trigger asks for all there is, in spite of the options."""
        return False

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        first, first_begin = from_checkpoint(start)
        last, last_begin = from_checkpoint(end)
        if self._begin is None:
            self._begin = last_begin or first_begin
        self._position = last
        if first == last:
            return []
        return [OffsetRangePartition(piece) for piece in self._plan(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRangePartition):
            return iter(())
        return read_range(partition.piece, self.columns, self.options)

    def commit(self, end: dict[str, object]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint, and the broker keeps no group."""

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def finder(self) -> OffsetFinder:
        """What finds offsets, over one connection for the query."""
        if self._cluster is None:
            self._cluster = Cluster(self.options.bootstrap, self.options.client)
        return OffsetFinder(self._cluster, self.options)

    def begin(self) -> Offsets:
        """Where the query began."""
        if self._begin is None:
            finder = self.finder()
            self._begin = finder.resolve(self.options.starting, finder.partitions())
        return self._begin

    def next_offsets(self, position: Offsets, latest: Offsets, *, everything: bool = False) -> Offsets:
        """Where the next batch ends: the latest offsets, within the limits of a trigger that has some."""
        options = self.options
        here = {at: position[at] for at in latest}
        new = sum(max(latest[at] - here[at], 0) for at in latest)
        if new == 0 or everything:
            return latest
        now = time.monotonic()
        waited_ms = (now - self._last_batch_at) * 1000
        if (
            options.min_offsets_per_trigger is not None
            and new < options.min_offsets_per_trigger
            and self._last_batch_at
            and waited_ms < options.max_trigger_delay_ms
        ):
            return here
        self._last_batch_at = now
        if options.max_offsets_per_trigger is None:
            return latest
        return rate_limit(here, latest, options.max_offsets_per_trigger)

    def _plan(self, first: Offsets, last: Offsets) -> list[Range]:
        options = self.options
        gone = first.keys() - last.keys()
        if gone:
            report_loss(
                options, f"{names(gone)} is gone, read up to {', '.join(str(first[at]) for at in sorted(gone)[:10])}"
            )
        added = self.finder().earliest(last.keys() - first.keys())
        for at, offset in added.items():
            if offset > 0:
                report_loss(options, f"the new partition {at[0]}-{at[1]} starts at {offset} instead of 0")
        start = {**first, **added}
        for at, stop in last.items():
            if stop < start[at]:
                report_loss(
                    options, f"{at[0]}-{at[1]} went back from offset {start[at]} to {stop}: was it created anew?"
                )
        ranges = [Range(*at, start[at], last[at]) for at in sorted(last)]
        return split(ranges, options.min_partitions, options.max_records_per_partition)
