"""Parquet back into a topic: the output of a load, or any files with a column `value`.

The rows of a lane come in a fixed order: the files as the state's document `files` lists them, and each file's
rows as they lie in it.  A row's position is its number in that order, so a run that was killed finds its place (see
`lanes`).  Files may be added between runs; those that are listed must stay as they are.

With `partitions="keep"` a row goes to the partition that it came from, which a load or a column `partition` tells.
With `"key"` it goes to the partition that Kafka's clients choose for its key; rows without a key go to all partitions
in turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.producer import ProducerSettings
from kbroker.records.compression import codec_of
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.files import local_path
from kbroker.replay.load.hadoop_folder import HadoopFolder, is_remote
from kbroker.replay.load.job_state import JobState, job_state
from kbroker.replay.load.lane_rounds import run_lanes
from kbroker.replay.load.lanes import LaneResult, LaneStates, Target, patient, run_lane
from kbroker.replay.load.manifest import MANIFEST, Manifest
from kbroker.replay.load.remote_restore import find_remote, restore_remote
from kbroker.replay.load.restore_request import RestoreRequest, check_columns, of_manifest
from kbroker.replay.load.restore_rows import BY_KEY, KEEP, InputFile, RestoreLane, rows_of, total_of
from kbroker.replay.load.targets import ensure_topics
from kbroker.replay.sources.read_options import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = "files"


def make_target(
    bootstrap: str,
    states: LaneStates,
    options: Mapping[str, str],
    *,
    compression: str,
    slice_records: int,
    timestamps: bool,
) -> Target:
    """OptionError for options that are wrong."""
    read = parse({**options, "kafka.bootstrap.servers": bootstrap, "subscribe": "any"}, streaming=False)
    return Target(
        bootstrap=bootstrap,
        client=patient(read.client),
        read=read,
        states=states,
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
    state = job_state(spark, request.state)
    with state.held():
        target = make_target(
            request.bootstrap, state.states(), request.options, compression=request.compression,
            slice_records=request.slice_records, timestamps=request.timestamps,
        )  # fmt: skip
        files = _listed(state, request, find_files(spark, request))
        lanes = _lanes(request, target.client, files)
        job = _job(request)
        state.begin(target, job, {lane.at: 0 for lane in lanes})
        if is_remote(request.directory):
            return restore_remote(spark, request, state, target, job, lanes, progress)
        run = partial(restore_lane, job, request.timestamps, request.headers)
        return run_lanes(spark, state, target, [(lane, total_of(lane)) for lane in lanes], run, progress)


def find_files(spark: SparkSession, request: RestoreRequest) -> list[InputFile]:
    """The input in order.  LoadError for a directory without Parquet."""
    if is_remote(request.directory):
        return find_remote(HadoopFolder(spark, request.directory), request)
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = local_path(request.directory)
    if (root / MANIFEST).is_file():
        return of_manifest(Manifest.existing(root), request)
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
        check_columns(str(path), about.schema_arrow.names, request)
        found.append(InputFile(str(path), about.metadata.num_rows, path.stat().st_size))
    return found


def _listed(state: JobState, request: RestoreRequest, found: list[InputFile]) -> list[InputFile]:
    """The files in the order of the first run, new ones behind.  LoadError when one has changed since."""
    now = {file.path: file for file in found}
    plain = state.read(FILES) or {"job": _job(request), "files": []}
    if plain["job"] != _job(request):
        raise LoadError(f"{state.where} is the state of {plain['job']}: give each job a state directory of its own")
    listed = [InputFile(**row) for row in plain["files"]]
    for file in listed:
        if now.get(file.path) != file:
            raise LoadError(f"{file.path} was changed or removed since the restore began: bring it back as it was")
    before = {file.path for file in listed}
    listed += [file for file in found if file.path not in before]
    rows = [{name: getattr(file, name) for name in file.__slots__} for file in listed]
    state.write(FILES, {"job": _job(request), "files": rows})
    return listed


def _job(request: RestoreRequest) -> str:
    """The identity of the job, by input, target and placing: positions of another job do not apply to it."""
    place = request.directory.rstrip("/") if is_remote(request.directory) else str(local_path(request.directory))
    identity = [place, request.bootstrap, request.topic, request.only, request.partitions]
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


def restore_lane(
    job: str, timestamps: bool, headers: bool, target: Target, work: tuple[RestoreLane, int]
) -> LaneResult:
    """One lane's rows into its partition.  An executor's."""
    lane, total = work
    source = partial(rows_of, lane, timestamps=timestamps, headers=headers)
    return run_lane(target, lane.topic, lane.partition, job, 0, source, total, target.states.most)
