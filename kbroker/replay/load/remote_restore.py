"""Parquet on Spark's own file systems back into topics: Spark reads the files, shuffles rows to lanes, and sorts them.

A row's position is the number of rows in the files before its own plus its number in the file (`_metadata.row_index`),
as it is where executors open files themselves (`restore_rows`).  So the order of a lane is the same whatever Spark
does, and a run that was killed finds its place.  Rounds of whole files bound what a shuffle holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kbroker.client.list_offsets import TopicPartition
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.hadoop_folder import HadoopFolder
from kbroker.replay.load.job_state import JobState, added
from kbroker.replay.load.lane_results import RESULT_SCHEMA, as_batch
from kbroker.replay.load.lane_rounds import run_lanes
from kbroker.replay.load.lanes import POSITION, LaneResult, Target, run_lane
from kbroker.replay.load.manifest import Manifest
from kbroker.replay.load.remote_export import NAME
from kbroker.replay.load.restore_request import RestoreRequest, check_columns, of_manifest
from kbroker.replay.load.restore_rows import InputFile, RestoreLane, columns_of, partitions_of, shaped, total_of
from kbroker.replay.load.versions import Versions
from kbroker.replay.session import bounded_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROUND_ROWS = 500_000
"""About as many for each task that runs at a time are in a round."""
ROUND = "round"
_LOOKS_AT_ONCE = 8
_PATH, _ROW, _TOPIC, _LANE = "__path", "__row", "__topic", "__lane"


@dataclass(frozen=True, slots=True)
class _FilePlace:
    """Where a file's rows go: its first row's position in its lane, or with `select` in all lanes of its topic."""

    first: int
    topic: str
    partition: int | None
    count: int
    select: str | None


def find_remote(folder: HadoopFolder, request: RestoreRequest) -> list[InputFile]:
    """The input in order.  LoadError for a folder without Parquet."""
    plain = Versions(folder, NAME).latest()
    if plain is not None:
        return of_manifest(Manifest.of(plain, folder.uri), request)
    sizes = folder.files()
    if not sizes:
        raise LoadError(f"{folder.uri} does not exist, or is empty")
    paths = sorted(path for path in sizes if not path or (path.endswith(".parquet") and not _is_hidden(path)))
    if not paths:
        raise LoadError(f"{folder.uri} holds no .parquet files")
    if request.topic is None:
        raise LoadError(f"{folder.uri} has no {NAME}, so nothing says to which topic it goes: give --topic")
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as threads:
        about = list(threads.map(folder.parquet, paths))
    found = []
    for path, (names, rows) in zip(paths, about, strict=True):
        check_columns(folder.at(path), names, request)
        found.append(InputFile(folder.at(path), rows, sizes[path]))
    return found


def _is_hidden(path: str) -> bool:
    return any(part[0] in "._" for part in path.split("/"))


def restore_remote(
    spark: SparkSession,
    request: RestoreRequest,
    state: JobState,
    target: Target,
    job: str,
    lanes: list[RestoreLane],
    progress: Callable[[int, int], None] | None = None,
) -> list[LaneResult]:
    """Writes what is not in the target yet; results for all lanes.  `progress(done, all)` counts partitions."""
    results: dict[TopicPartition, LaneResult] = {}
    totals = {lane.at: total_of(lane) for lane in lanes}
    size = ROUND_ROWS * max(spark.sparkContext.defaultParallelism, 1)
    for ends in rounds_of(lanes, size, _under_way(state)):
        left = {at: end for at, end in ends.items() if _position(state, at) < end}
        if left:
            # What a run that dies in this round has written is looked for in the same rows again.
            state.write(ROUND, {"ends": [[*at, end] for at, end in sorted(left.items())]})
            chosen = [lane for lane in lanes if lane.at in left]
            for one in _round(spark, request, state, target, job, chosen, left):
                results[one.at] = added(results.get(one.at), one)
        if progress is not None:
            progress(sum(_position(state, at) >= totals[at] for at in totals), len(totals))
    for at in totals:
        results.setdefault(at, LaneResult(*at, 0, 0, _position(state, at)))
    return [results[at] for at in totals]


def _under_way(state: JobState) -> dict[TopicPartition, int]:
    """Where the lanes of the last round were to end, which an earlier run may not have seen through."""
    found = state.read(ROUND) or {"ends": []}
    return {(topic, partition): end for topic, partition, end in found["ends"]}


def _position(state: JobState, at: TopicPartition) -> int:
    found = state.lane(*at)
    return 0 if found is None else found.position


def rounds_of(
    lanes: list[RestoreLane], most: int, first: Mapping[TopicPartition, int]
) -> Iterator[dict[TopicPartition, int]]:
    """Where lanes end in each round: at first as given, then behind whole files with about `most` rows together."""
    if first:
        yield dict(first)
    share = max(most // max(len({lane.files for lane in lanes}), 1), 1)
    ends = {lane.at: [0] for lane in lanes}
    for lane in lanes:
        at, last = 0, 0
        for file in lane.files:
            at += file.rows
            if at >= last + share:
                ends[lane.at].append(at)
                last = at
        if at > last:
            ends[lane.at].append(at)
    for number in range(1, max((len(each) for each in ends.values()), default=0)):
        yield {at: each[number] for at, each in ends.items() if number < len(each)}


def _round(
    spark: SparkSession,
    request: RestoreRequest,
    state: JobState,
    target: Target,
    job: str,
    lanes: list[RestoreLane],
    ends: Mapping[TopicPartition, int],
) -> list[LaneResult]:
    from pyspark.sql import functions as f

    begins = {at: _position(state, at) for at in ends}
    places, paths = _places(spark, request, lanes, begins, ends)
    target = replace(target, states=state.states())
    found: list[LaneResult] = []
    if paths:
        frame = spark.read.option("mergeSchema", "true").parquet(*paths)
        names = columns_of(set(frame.columns), timestamps=request.timestamps, headers=request.headers)
        rows = frame.select(*names, f.col("_metadata.file_path").alias(_PATH), f.col("_metadata.row_index").alias(_ROW))
        placing = partial(place_rows, places, begins, ends, request.timestamps)
        schema = f"{_TOPIC} string, {_LANE} int, {POSITION} long, " + ", ".join(
            f"{name} {_SQL[name]}" for name in names if name != "partition"
        )
        with bounded_batches(spark):
            placed = rows.mapInArrow(placing, schema).repartition(len(ends), _TOPIC, _LANE)
            ordered = placed.sortWithinPartitions(_TOPIC, _LANE, POSITION)
            written = ordered.mapInArrow(partial(write_lanes, target, job, ends), RESULT_SCHEMA).collect()
        found = [LaneResult(**row.asDict()) for row in written]
        state.took(found)
    through = {one.at for one in found}
    rest = [((at, end), end) for at, end in ends.items() if at not in through]
    return found + run_lanes(spark, state, target, rest, partial(pass_lane, job), None)


_SQL = {
    "key": "binary",
    "value": "binary",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}


def _places(
    spark: SparkSession,
    request: RestoreRequest,
    lanes: list[RestoreLane],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> tuple[dict[str, _FilePlace], list[str]]:
    """Where the rows of each file go, by its name as Spark has it, and the files to read."""
    folder = HadoopFolder(spark, request.directory)
    found, paths = {}, []
    for lane in lanes:
        at, first = lane.at, 0
        for file in lane.files:
            start, first = first, first + file.rows
            if first <= begins[at] or start >= ends[at] or not file.rows:
                continue
            name = folder.encoded(file.path.removeprefix(folder.uri).removeprefix("/"))
            if name not in found:
                paths.append(file.path)
            own = None if lane.select is not None else lane.partition
            found[name] = _FilePlace(start, lane.topic, own, lane.count, lane.select)
    return found, paths


def place_rows(
    places: Mapping[str, _FilePlace],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timestamps: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Rows with the lane and the position that they have there; those that their lane has already are left out."""
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        paths = batch.column(_PATH).to_pylist()
        edges = [number for number in range(len(paths)) if number == 0 or paths[number] != paths[number - 1]]
        for edge, following in zip(edges, [*edges[1:], len(paths)], strict=True):
            place = places[paths[edge]]
            part = batch.slice(edge, following - edge)
            positions = np.asarray(part.column(_ROW)) + place.first
            rows = shaped(part.drop_columns([_PATH, _ROW]), positions, timestamps=timestamps)
            if place.select is None:
                assert place.partition is not None
                chosen = np.full(rows.num_rows, place.partition, np.int32)
            else:
                chosen = partitions_of(rows, place.select, place.topic, place.count)
            first = np.array([begins.get((place.topic, number), 1 << 62) for number in range(place.count)])
            last = np.array([ends.get((place.topic, number), 0) for number in range(place.count)])
            is_new = (positions >= first[chosen]) & (positions < last[chosen])
            columns: dict[str, object] = {
                _TOPIC: pa.repeat(pa.scalar(place.topic, pa.string()), rows.num_rows),
                _LANE: pa.array(chosen),
            }
            columns |= {name: rows.column(name) for name in rows.schema.names if name != "partition"}
            yield pa.RecordBatch.from_pydict(columns).filter(pa.array(is_new))


def write_lanes(
    target: Target, job: str, ends: Mapping[TopicPartition, int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The lanes of one of Spark's partitions, one behind the other, each up to its end.  An executor's."""
    pieces = _by_lane(batches)
    piece = next(pieces, None)
    while piece is not None:
        at, first = piece
        lane = _OneLane(at, first, pieces)
        result = run_lane(target, *at, job, 0, lane.rows, ends[at])
        yield as_batch(result)
        piece = lane.following()


class _OneLane:
    """The pieces of a lane, up to the first of another."""

    def __init__(
        self, at: TopicPartition, first: pa.RecordBatch, pieces: Iterator[tuple[TopicPartition, pa.RecordBatch]]
    ) -> None:
        self._at = at
        self._first = first
        self._pieces = pieces
        self._next: tuple[TopicPartition, pa.RecordBatch] | None = None

    def rows(self, position: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        piece: tuple[TopicPartition, pa.RecordBatch] | None = (self._at, self._first)
        while piece is not None and piece[0] == self._at:
            new = piece[1].filter(pc.greater_equal(piece[1].column(POSITION), position))
            if new.num_rows:
                yield new
            piece = next(self._pieces, None)
        self._next = piece

    def following(self) -> tuple[TopicPartition, pa.RecordBatch] | None:
        return self._next


def _by_lane(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    for batch in batches:
        lanes = list(zip(batch.column(_TOPIC).to_pylist(), batch.column(_LANE).to_pylist(), strict=True))
        edges = [number for number in range(len(lanes)) if number == 0 or lanes[number] != lanes[number - 1]]
        for edge, following in zip(edges, [*edges[1:], len(lanes)], strict=True):
            yield lanes[edge], batch.slice(edge, following - edge).drop_columns([_TOPIC, _LANE])


def pass_lane(job: str, target: Target, work: tuple[tuple[TopicPartition, int], int]) -> LaneResult:
    """A lane for which a round has no rows.  An executor's."""
    (at, end), _ = work
    return run_lane(target, *at, job, 0, lambda position: iter(()), end)
