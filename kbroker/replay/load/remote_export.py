"""Topics to Parquet on Spark's own file systems: files and manifest as in a shared directory, written by Spark.

    _manifest.<number>.json             the manifest, the highest number counts (`versions`)
    topic=…/partition=…/….parquet       as in a shared directory
    _staging-<token>/                   what Spark writes in a round, before the driver gives files their names

Files of a round are read back for the offsets that they hold, get their names, and are in the next manifest: a run that
is killed at any point leaves only what no manifest names, which the next run removes.  There are no locks: a run begins
with a manifest of its own, after which a run that began before cannot bring in anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from kbroker.client.cluster import Cluster
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.hadoop_folder import HadoopFolder
from kbroker.replay.load.load_request import COLUMNS, LoadReport, LoadRequest, file_name, note_gap
from kbroker.replay.load.manifest import FileEntry, Manifest
from kbroker.replay.load.planning import find_partitions, plan, rounds, rows_between
from kbroker.replay.load.versions import Versions
from kbroker.replay.session import configured
from kbroker.replay.sources.offset_json import Offsets
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_range import HOW_TO_GO_ON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "_manifest"
STAGING = "_staging-"
# As Spark calls what pyarrow calls lz4 and none.
_CODECS = {"lz4": "lz4_raw", "none": "uncompressed"}
_TIMES = "spark.sql.parquet.outputTimestampType"
_WRITE_OPTIONS = {
    # A staging folder is one round's own and thrown away as a whole, so its tasks need no second rename.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_RENAMES_AT_ONCE = 8


def load_remote(
    spark: SparkSession, request: LoadRequest, progress: Callable[[int, int], None] | None = None
) -> LoadReport:
    """As `load_topics`, into a folder of one of Spark's file systems.  Raises LoadError."""
    load = _RemoteLoad(spark, request)
    load.begin()
    while not load.rounds(progress):
        pass
    return load.report


def read_remote(folder: HadoopFolder) -> Manifest:
    """The manifest of a load.  LoadError where there is none."""
    plain = Versions(folder, NAME).latest()
    if plain is None:
        raise LoadError(f"{folder.uri} has no {NAME}: it is not the output of kbroker load to-parquet")
    return Manifest.of(plain, folder.uri)


class _RemoteLoad:
    """One run of a load."""

    def __init__(self, spark: SparkSession, request: LoadRequest) -> None:
        self._spark = spark
        self._request = request
        self._read = request.read_options()
        self._folder = HadoopFolder(spark, request.directory)
        self._versions = Versions(self._folder, NAME)
        self.report = LoadReport()

    def begin(self) -> None:
        """The manifest is this run's from here on; what others left is removed behind that."""
        self._manifest = Manifest.of(self._versions.latest(), self._folder.uri)
        self._manifest.go_on_with(self._request.isolation)
        self._versions.publish(self._manifest.plain())
        there = self._folder.files()
        self._manifest.check_files(there.__contains__)
        named = self._manifest.named()
        left = {
            path.partition("/")[0] if path.startswith(STAGING) else path
            for path in there
            if path.startswith(STAGING) or (_is_ours(path) and path not in named)
        }
        for path in sorted(left):
            self._folder.delete(path)
        self.report.leftovers = len(left)

    def rounds(self, progress: Callable[[int, int], None] | None) -> bool:
        """Loads what is new.  False where offsets went meanwhile, which is allowed: what is left has to be planned
        again."""
        gaps = len(self.report.gaps)
        noted = partial(note_gap, self._request.allow_gaps, self._manifest, self.report)
        with Cluster(self._read.bootstrap, self._read.client) as cluster:
            ranges = plan(cluster, self._read, find_partitions(cluster, self._read), self._manifest, noted)
        if len(self.report.gaps) > gaps:
            self._versions.publish(self._manifest.plain())
        total, done = sum(max(one.size, 0) for one in ranges), 0
        for start, stop in rounds(self._spark, self._request.max_rows, ranges):
            try:
                self._round(start, stop)
            except Exception as error:
                # Each turn has fewer offsets left to lose.
                if self._request.allow_gaps and HOW_TO_GO_ON in str(error) and self._are_gone(start):
                    return False
                raise
            done += sum(stop[at] - start[at] for at in start)
            if progress is not None:
                progress(done, total)
        return True

    def _are_gone(self, start: Offsets) -> bool:
        """Whether logs begin behind these offsets by now."""
        from kbroker.replay.sources.offset_ranges import OffsetFinder

        with Cluster(self._read.bootstrap, self._read.client) as cluster:
            earliest = OffsetFinder(cluster, self._read).earliest(list(start))
        return any(earliest[at] > start[at] for at in start)

    def _round(self, start: Offsets, stop: Offsets) -> None:
        staging = f"{STAGING}{uuid.uuid4().hex}"
        self._write(self._folder.at(staging), start, stop)
        prefix = f"{staging}/"
        there = {path: size for path, size in self._folder.files_in(staging).items() if path.endswith(".parquet")}
        spans = self._spans(list(there))
        entries, moves = entries_of(prefix, there, spans, start, stop)
        with ThreadPoolExecutor(_RENAMES_AT_ONCE) as threads:
            list(threads.map(lambda move: self._folder.rename(*move), moves.items()))
        self._manifest.files += entries
        self._versions.publish(self._manifest.plain())
        self._folder.delete(staging)
        self.report.files += len(moves)
        self.report.rows += sum(entry.rows for entry in entries)
        self.report.bytes += sum(entry.bytes for entry in entries)

    def _write(self, uri: str, start: Offsets, stop: Offsets) -> None:
        rows = rows_between(self._spark, self._request.bootstrap, self._request, start, stop)
        # Spark sorts by the folders' columns anyway, and would not keep the order within them.
        ordered = rows.select(*COLUMNS, "topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        codec = _CODECS.get(self._request.compression, self._request.compression)
        writer = ordered.write.partitionBy("topic", "partition").options(compression=codec, **_WRITE_OPTIONS)
        with configured(self._spark, _TIMES, "TIMESTAMP_MICROS"):
            writer.parquet(uri)

    def _spans(self, paths: list[str]) -> dict[str, tuple[int, int, int]]:
        """First offset, last offset and rows of each file, as they lie there."""
        from pyspark.sql import functions as f

        if not paths:
            return {}
        names = {self._folder.encoded(path): path for path in paths}
        files = self._spark.read.schema("offset bigint").parquet(*(self._folder.at(path) for path in paths))
        found = files.groupBy(f.col("_metadata.file_path").alias("path")).agg(
            f.min("offset").alias("first"), f.max("offset").alias("last"), f.count("offset").alias("rows")
        )
        return {names[row.path]: (row.first, row.last, row.rows) for row in found.collect()}


def _is_ours(path: str) -> bool:
    """Whether a load makes files with such names."""
    parts = path.split("/")
    return (
        len(parts) == 3
        and parts[0].startswith("topic=")
        and parts[1].startswith("partition=")
        and parts[2].endswith(".parquet")
    )


def entries_of(
    prefix: str, sizes: Mapping[str, int], spans: Mapping[str, tuple[int, int, int]], start: Offsets, stop: Offsets
) -> tuple[list[FileEntry], dict[str, str]]:
    """What a round brings to the manifest, and the files' names to be, by those in the staging folder `prefix`.

    A file's range goes up to the first offset of the next: ranges have no holes.  LoadError where files overlap.
    """
    by_partition: dict[tuple[str, int], list[str]] = {}
    for path in spans:
        topic, partition = (part.partition("=")[2] for part in path.removeprefix(prefix).split("/")[:2])
        by_partition.setdefault((topic, int(partition)), []).append(path)
    entries, moves = [], {}
    for at in sorted(start):
        paths = sorted(by_partition.get(at, []), key=lambda path: spans[path][0])
        reached = start[at]
        if not paths:
            entries.append(FileEntry(*at, reached, stop[at], 0, 0, None))
        for path, following in zip(paths, [*paths[1:], None], strict=True):
            end = stop[at] if following is None else spans[following][0]
            first, last, rows = spans[path]
            if first < reached or last >= end:
                raise LoadError(
                    f"{path} holds offsets {first} to {last} instead of {reached} to {end - 1}: run it again"
                )
            named = path.removeprefix(prefix).rsplit("/", 1)[0] + "/"
            named += file_name(Range(*at, reached, end), uuid.uuid4().hex[:8])
            entries.append(FileEntry(*at, reached, end, rows, sizes[path], named))
            moves[path] = named
            reached = end
    return entries, moves
