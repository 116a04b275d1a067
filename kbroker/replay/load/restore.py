"""Parquet back into a topic: the output of a load, or any files with a column `value`.

The rows of a lane come in a fixed order: the files as `files.json` in the state directory lists them, and each file's
rows as they lie in it.  A row's position is its number in that order, so a run that was killed finds its place (see
`lanes`).  Files may be added between runs; those that are listed must stay as they are.

With `partitions="keep"` a row goes to the partition that it came from, which a load or a column `partition` tells.
With `"key"` it goes to the partition that Kafka's clients choose for its key; rows without a key go to all partitions
in turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.records.compression import codec_of
from kbroker.replay.client.cluster import ClientSettings, Cluster
from kbroker.replay.client.producer import ProducerSettings
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import local_path, locked, read_json, write_json
from kbroker.replay.load.lanes import POSITION, LaneResult, Target, patient, run_lane
from kbroker.replay.load.manifest import MANIFEST, Manifest
from kbroker.replay.load.targets import ensure_topics
from kbroker.replay.sources.read_options import parse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

KEEP, BY_KEY = "keep", "key"
_ROWS_AT_ONCE = 32_768


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What goes where.  `topic` may be None for a load: each record to the topic it came from.  `state` is a directory
    of this job's own that the driver and all executors see.  `create` makes a missing topic with so many partitions."""

    bootstrap: str
    directory: str
    state: str
    topic: str | None = None
    only: str | None = None
    partitions: str = KEEP
    timestamps: bool = True
    headers: bool = True
    compression: str = "none"
    create: int | None = None
    slice_records: int = 50_000
    options: Mapping[str, str] = field(default_factory=dict)


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


def make_target(
    bootstrap: str, state: str, options: Mapping[str, str], *, compression: str, slice_records: int, timestamps: bool
) -> Target:
    """OptionError for options that are wrong."""
    read = parse({**options, "kafka.bootstrap.servers": bootstrap, "subscribe": "any"}, streaming=False)
    return Target(
        bootstrap=bootstrap,
        client=patient(read.client),
        read=read,
        directory=state,
        producer=ProducerSettings(codec=codec_of(compression)),
        slice_records=slice_records,
        keep_timestamps=timestamps,
    )


def restore(
    spark: SparkSession, request: RestoreRequest, progress: Callable[[int, int], None] | None = None
) -> list[LaneResult]:
    """Writes what is not in the target yet.  `progress(done, all)` counts partitions.  Raises LoadError."""
    if request.partitions not in (KEEP, BY_KEY):
        raise LoadError(f"partitions are {KEEP} or {BY_KEY}, not {request.partitions!r}")
    state = local_path(request.state)
    target = make_target(
        request.bootstrap, str(state), request.options, compression=request.compression,
        slice_records=request.slice_records, timestamps=request.timestamps,
    )  # fmt: skip
    state.mkdir(parents=True, exist_ok=True)
    with locked(state / "job.lock", 0.0, f"another run uses the state {state}: wait for it, or end it"):
        files = _listed(state, request, find_files(request))
        lanes = _lanes(request, target.client, files)
        job = _job(request)
        run = partial(restore_lane, target, job, request.timestamps, request.headers)
        return run_lanes(spark, lanes, run, progress)


def run_lanes(
    spark: SparkSession, lanes: list[Any], run: Callable[[Any], LaneResult], progress: Callable[[int, int], None] | None
) -> list[LaneResult]:
    """Each lane a task; rounds of as many as run at a time, so that the driver can tell how far it is."""
    context = spark.sparkContext
    size = max(context.defaultParallelism, 1) * 2
    results: list[LaneResult] = []
    for at in range(0, len(lanes), size):
        chosen = lanes[at : at + size]
        results += context.parallelize(chosen, len(chosen)).map(run).collect()
        if progress is not None:
            progress(len(results), len(lanes))
    return results


def find_files(request: RestoreRequest) -> list[InputFile]:
    """The input in order.  LoadError for a directory without Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = local_path(request.directory)
    if (root / MANIFEST).is_file():
        entries = sorted(Manifest.existing(root).files, key=lambda row: (row.topic, row.partition, row.start))
        return [
            InputFile(str(root / row.path), row.rows, row.bytes, row.topic, row.partition)
            for row in entries
            if row.path is not None and request.only in (None, row.topic)
        ]
    if not root.exists():
        raise LoadError(f"{root} does not exist")
    paths = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
    paths = [path for path in paths if not any(part[0] in "._" for part in path.relative_to(root).parts)]
    if not paths:
        raise LoadError(f"{root} holds no .parquet files")
    if request.topic is None:
        raise LoadError(f"{root} has no {MANIFEST}, so nothing says to which topic it goes: give --topic")
    found = []
    for path in paths:
        try:
            about = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise LoadError(f"{path} cannot be read as Parquet: {error}") from None
        names = about.schema_arrow.names
        if "value" not in names:
            raise LoadError(f"{path} has no column value: it has {', '.join(names)}")
        if request.partitions == KEEP and "partition" not in names:
            raise LoadError(f"{path} has no column partition to keep: say --partitions key")
        found.append(InputFile(str(path), about.metadata.num_rows, path.stat().st_size))
    return found


def _listed(state: Path, request: RestoreRequest, found: list[InputFile]) -> list[InputFile]:
    """The files in the order of the first run, new ones behind.  LoadError when one has changed since."""
    path = state / "files.json"
    now = {file.path: file for file in found}
    plain = read_json(path) or {"job": _job(request), "files": []}
    if plain["job"] != _job(request):
        raise LoadError(f"{state} is the state of {plain['job']}: give each job a state directory of its own")
    listed = [InputFile(**row) for row in plain["files"]]
    for file in listed:
        if now.get(file.path) != file:
            raise LoadError(f"{file.path} was changed or removed since the restore began: bring it back as it was")
    before = {file.path for file in listed}
    listed += [file for file in found if file.path not in before]
    rows = [{name: getattr(file, name) for name in file.__slots__} for file in listed]
    write_json(path, {"job": _job(request), "files": rows})
    return listed


def _job(request: RestoreRequest) -> str:
    """The identity of the job, by input, target and placing: positions of another job do not apply to it."""
    identity = [str(local_path(request.directory)), request.bootstrap, request.topic, request.only, request.partitions]
    return (
        "restore "
        + hashlib.sha256(json.dumps([*identity, request.timestamps, request.headers]).encode()).hexdigest()[:16]
    )


def _lanes(request: RestoreRequest, client: ClientSettings, files: list[InputFile]) -> list[RestoreLane]:
    """Target partitions and the files that have rows for them; makes topics where the request says so."""
    by_topic: dict[str, list[InputFile]] = {}
    for file in files:
        name = request.topic or file.topic
        assert name is not None
        by_topic.setdefault(name, []).append(file)
    sources = {file.topic for file in files}
    if request.topic is not None and request.partitions == KEEP and len(sources) > 1:
        raise LoadError(
            f"partitions of {len(sources)} topics cannot be kept in one: name one with --only, or place by key"
        )
    if request.create is not None:
        ensure_topics(request.bootstrap, client, dict.fromkeys(by_topic, request.create))
    with Cluster(request.bootstrap, client) as cluster:
        counts = {name: len(info.partitions) for name, info in cluster.describe(sorted(by_topic)).items()}
    lanes = []
    for name, chosen in sorted(by_topic.items()):
        highest = max((file.partition for file in chosen if file.partition is not None), default=0)
        if request.partitions == KEEP and highest >= counts[name]:
            raise LoadError(
                f"partition {highest} cannot be kept: topic {name} has {counts[name]} partitions; add some "
                "(kbroker topics alter), or say --partitions key"
            )
        for number in range(counts[name]):
            own = request.partitions == KEEP and chosen[0].partition is not None
            mine = tuple(file for file in chosen if not own or file.partition == number)
            select = None if own else request.partitions
            if mine:
                lanes.append(RestoreLane(name, number, counts[name], mine, select))
    return lanes


def restore_lane(target: Target, job: str, timestamps: bool, headers: bool, lane: RestoreLane) -> LaneResult:
    """One lane's rows into its partition.  An executor's."""
    source = partial(rows_of, lane, timestamps=timestamps, headers=headers)
    total = sum(file.rows for file in lane.files)
    return run_lane(target, lane.topic, lane.partition, job, 0, source, total)


def rows_of(lane: RestoreLane, position: int, *, timestamps: bool, headers: bool) -> Iterator[pa.RecordBatch]:
    """The lane's rows from a position on, as the columns of a topic."""
    import pyarrow.parquet as pq

    first = 0
    for file in lane.files:
        at, first = first, first + file.rows
        if first <= position:
            continue
        with pq.ParquetFile(file.path) as opened:
            names = set(opened.schema_arrow.names)
            wanted = [name for name in ("key", "value", "partition") if name in names]
            wanted += ["timestamp"] if timestamps and "timestamp" in names else []
            wanted += ["headers"] if headers and "headers" in names else []
            for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=wanted):
                start, at = at, at + batch.num_rows
                if at <= position:
                    continue
                skipped = max(position - start, 0)
                found = _shaped(lane, batch.slice(skipped), start + skipped, timestamps)
                if found.num_rows:
                    yield found


def _shaped(lane: RestoreLane, batch: pa.RecordBatch, first: int, timestamps: bool) -> pa.RecordBatch:
    """With positions, types that a topic has, and only the rows of the lane's partition."""
    import numpy as np
    import pyarrow as pa

    from kbroker.replay.columns import TYPES
    from kbroker.replay.rows import row_columns

    positions = np.arange(first, first + batch.num_rows, dtype=np.int64)
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
    whole = pa.RecordBatch.from_pydict(columns)
    if lane.select is None:
        return whole
    chosen = np.full(whole.num_rows, -1, np.int32)
    if lane.select == BY_KEY:
        row_columns(whole, with_timestamp=False).fill_partitions(chosen.data, lane.count)
        chosen = np.where(chosen < 0, (positions % lane.count).astype(np.int32), chosen)
    else:
        chosen = np.asarray(whole.column("partition").fill_null(-1)).astype(np.int32)
        if ((chosen < 0) | (chosen >= lane.count)).any():
            raise LoadError(f"a row's partition is not one of topic {lane.topic}, which has 0 to {lane.count - 1}")
    return whole.filter(pa.array(chosen == lane.partition))
