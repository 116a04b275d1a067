"""Topics to Parquet: ranges of offsets to files in executors, rounds of files into the manifest on the driver.

A task writes a hidden file.  When all tasks of a round are done the driver gives the files their names and replaces the
manifest: a run that is killed at any point leaves only files that are hidden or not in the manifest, which the next run
removes, so nothing is read twice.  A load that is killed loses at most its current round.

That is so in a directory that the driver and the executors share.  `remote_export` has Spark write to its own file
systems.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.client.cluster import Cluster
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import local_path, locked, sync_directory
from kbroker.replay.load.hadoop_folder import HadoopFolder, is_remote
from kbroker.replay.load.load_request import COLUMNS, COMPRESSIONS, LoadReport, LoadRequest, file_name, note_gap
from kbroker.replay.load.manifest import FileEntry, Manifest
from kbroker.replay.load.planning import find_partitions, gone_text, plan
from kbroker.replay.load.remote_export import load_remote, read_remote
from kbroker.replay.sources.offset_ranges import OffsetFinder, Range, split
from kbroker.replay.sources.read_options import ReadOptions
from kbroker.replay.sources.read_range import DataLossError, read_range
from kbroker.types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOCK = "_lock"
ROW_GROUP_BYTES = 64 << 20
# Files per round for each concurrent task: with more, the manifest is written less often, and a crash loses more work.
_FILES_PER_TASK = 2


@dataclass(frozen=True, slots=True)
class _Task:
    """All that an executor needs."""

    directory: str
    read: ReadOptions
    compression: str
    allow_gaps: bool


def load_topics(
    spark: SparkSession, request: LoadRequest, progress: Callable[[int, int], None] | None = None
) -> LoadReport:
    """Loads what is new since the manifest.  `progress(done, all)` counts offsets after each round.

    Raises LoadError."""
    if request.compression not in COMPRESSIONS:
        raise LoadError(f"compression is one of {', '.join(COMPRESSIONS)}, not {request.compression!r}")
    if is_remote(request.directory):
        return load_remote(spark, request, progress)
    read = request.read_options()
    directory = local_path(request.directory)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / LOCK, 0.0, f"another load is writing to {directory}: wait for it, or end it"):
        manifest = Manifest.read(directory)
        manifest.go_on_with(request.isolation)
        report = LoadReport()
        for path in manifest.leftovers():
            path.unlink(missing_ok=True)
            report.leftovers += 1
        pieces = _plan(request, read, manifest, report)
        task = _Task(str(directory), replace(read, fail_on_data_loss=True), request.compression, request.allow_gaps)
        _run(spark, task, manifest, pieces, report, progress)
        manifest.write()
    return report


def read_loaded(spark: SparkSession, directory: str, topic: str | None = None) -> DataFrame:
    """The records that the manifest names, with the columns of `format("kbroker")` and headers; never a leftover."""
    from pyspark.sql.types import StructType

    from kbroker.replay.columns import TYPES
    from kbroker.replay.sources.spark_schema import schema_of

    manifest = existing_manifest(spark, directory)
    root = manifest.where
    paths = [f"{root}/{row.path}" for row in manifest.files if row.path and topic in (None, row.topic)]
    schema = schema_of(True)
    if not paths:
        return spark.createDataFrame([], schema)
    ordered = StructType([field for name in (*COLUMNS, "topic", "partition") for field in schema if field.name == name])
    frame = spark.read.schema(ordered).option("basePath", root).parquet(*paths)
    return frame.select(*TYPES)


def existing_manifest(spark: SparkSession, directory: str) -> Manifest:
    """The manifest of a load, wherever it is.  LoadError where there is none."""
    if not is_remote(directory):
        return Manifest.existing(local_path(directory))
    return read_remote(HadoopFolder(spark, directory))


def _plan(request: LoadRequest, read: ReadOptions, manifest: Manifest, report: LoadReport) -> list[Range]:
    """The ranges to load.  Offsets that are gone are an error, or gaps in the manifest."""
    with Cluster(read.bootstrap, read.client) as cluster:
        partitions = find_partitions(cluster, read)
        ranges = plan(cluster, read, partitions, manifest, partial(note_gap, request.allow_gaps, manifest, report))
    return split(ranges, None, request.max_rows)


def _run(
    spark: SparkSession,
    task: _Task,
    manifest: Manifest,
    pieces: Sequence[Range],
    report: LoadReport,
    progress: Callable[[int, int], None] | None,
) -> None:
    context = spark.sparkContext
    size = max(context.defaultParallelism, 1) * _FILES_PER_TASK
    total, done = sum(piece.size for piece in pieces), 0
    for at in range(0, len(pieces), size):
        chosen = pieces[at : at + size]
        found = context.parallelize(chosen, len(chosen)).map(partial(write_piece, task)).collect()
        _publish(manifest, found, report)
        done += sum(piece.size for piece in chosen)
        if progress is not None:
            progress(done, total)


def _publish(manifest: Manifest, found: Sequence[JsonObject], report: LoadReport) -> None:
    """Gives the files of a round their names and names them in the manifest, in this order."""
    folders = set()
    for row in found:
        for entry in row["files"]:
            if entry["path"] is not None:
                path = manifest.directory / entry["path"]
                hidden(path).replace(path)
                folders.add(path.parent)
                report.files += 1
            manifest.files.append(FileEntry(**entry))
            report.rows += entry["rows"]
            report.bytes += entry["bytes"]
        for gap in row["gaps"]:
            note_gap(True, manifest, report, gap)
    for folder in folders:
        sync_directory(folder)
    manifest.write()


def hidden(path: Path) -> Path:
    """The name of a file that is being written: Spark does not read names that begin with a dot."""
    return path.with_name(f".{path.name}.tmp")


def write_piece(task: _Task, piece: Range) -> JsonObject:
    """Writes a range of offsets; its files (more than one around a gap) and gaps.  An executor's.  Raises LoadError."""
    gaps: list[Range] = []
    files = []
    start = piece.start
    while start < piece.stop:
        entry, reached, lost = _write_file(task, piece._replace(start=start))
        if entry is not None:
            files.append(entry)
        start = reached
        if lost is not None:
            first = _log_start(task.read, piece)
            gone = piece._replace(start=start, stop=min(first, piece.stop))
            if gone.size <= 0:
                raise LoadError(str(lost))
            if not task.allow_gaps:
                raise LoadError(gone_text(gone))
            gaps.append(gone)
            start = gone.stop
    return {"files": files, "gaps": gaps}


def _write_file(task: _Task, piece: Range) -> tuple[dict[str, object] | None, int, DataLossError | None]:
    """The file's entry, the offset up to which it goes, and why it goes no further."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kbroker.replay.columns import TYPES

    schema = pa.schema([pa.field(name, TYPES[name]) for name in COLUMNS])
    folder = Path(task.directory, f"topic={piece.topic}", f"partition={piece.partition}")
    folder.mkdir(parents=True, exist_ok=True)
    working = folder / f".{uuid.uuid4().hex}.tmp"
    reached, rows, lost = piece.start, 0, None
    with working.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression=task.compression) as writer:
            try:
                for table in _groups(read_range(piece, COLUMNS, task.read)):
                    writer.write_table(table, row_group_size=table.num_rows)
                    rows += table.num_rows
                    reached = table.column("offset")[-1].as_py() + 1
            except DataLossError as error:
                lost = error
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    reached = piece.stop if lost is None else reached
    if reached == piece.start:
        working.unlink()
        return None, reached, lost
    token = uuid.uuid4().hex[:8]
    path = folder / file_name(piece._replace(stop=reached), token)
    if rows:
        working.replace(hidden(path))
    else:
        working.unlink()
    entry = FileEntry(
        piece.topic, piece.partition, piece.start, reached, rows, size if rows else 0,
        str(path.relative_to(task.directory)) if rows else None,
    )  # fmt: skip
    return {name: getattr(entry, name) for name in entry.__slots__}, reached, lost


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together to row groups.  What was read before an error is given before it is raised."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            held.append(batch)
            if sum(each.nbytes for each in held) >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(held)
                held = []
    except DataLossError:
        if held:
            yield pa.Table.from_batches(held)
        raise
    if held:
        yield pa.Table.from_batches(held)


def _log_start(read: ReadOptions, piece: Range) -> int:
    with Cluster(read.bootstrap, read.client) as cluster:
        at = (piece.topic, piece.partition)
        return OffsetFinder(cluster, read).earliest([at])[at]
