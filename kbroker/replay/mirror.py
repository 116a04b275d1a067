"""One cluster's topics in another: keys, values, headers, timestamps, partitions and order kept, each record once.

Each partition of the source is a lane (`kbroker.replay.load.lanes`): its records go, in order, into the partition of
the same number of the target's topic, which no other producer may write to.  For each lane the state directory holds
the position in the source and a map from the source's offsets to the target's; from it the next run continues after one
that was killed.

`mirror_once` brings the target up to what the source has now.  `mirror_follow` does that and then goes on as a
Structured Streaming query, whose checkpoint is in the state directory, too.  The lanes recognise the records that an
interrupted micro-batch has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.list_offsets import TopicPartition, list_offsets
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.job_state import job_state, note_gap
from kbroker.replay.load.lane_results import RESULT_SCHEMA, as_batch
from kbroker.replay.load.lane_rounds import run_lanes
from kbroker.replay.load.lanes import LaneResult, Target, run_lane
from kbroker.replay.load.restore import make_target
from kbroker.replay.load.targets import ensure_topics, own_configs
from kbroker.replay.registration import register
from kbroker.replay.session import bounded_batches
from kbroker.replay.sources.offset_json import to_plain
from kbroker.replay.sources.offset_ranges import OffsetFinder, Range
from kbroker.replay.sources.read_options import ReadOptions, of_whole_names, parse
from kbroker.replay.sources.read_range import DataLossError, read_range
from kbroker.types import LATEST

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ("key", "value", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class MirrorRequest:
    """What to mirror: `topics`, or a `pattern` for whole names, from `source` to `target` (`host:port[,…]`).

    `rename` makes the target's name of `{topic}`.  `starting_offsets` and `starting_time_ms` count for partitions that
    the state does not have yet.  `state` is a directory of this job's own: one that the driver and all executors see,
    or on one of Spark's file systems.
    """

    source: str
    target: str
    state: str
    topics: Sequence[str] = ()
    pattern: str | None = None
    rename: str = "{topic}"
    starting_offsets: str | None = None
    starting_time_ms: int | None = None
    isolation: str = "read_committed"
    compression: str = "none"
    allow_gaps: bool = False
    slice_records: int = 50_000
    source_options: Mapping[str, str] = field(default_factory=dict)
    target_options: Mapping[str, str] = field(default_factory=dict)

    def choice(self) -> dict[str, str]:
        """Spark's options that say what to read.  Raises LoadError."""
        if bool(self.topics) == (self.pattern is not None):
            raise LoadError("say which topics: names, or a pattern, and not both")
        chosen = (
            {"subscribe": ",".join(self.topics)}
            if self.pattern is None
            else {"subscribePattern": of_whole_names(self.pattern)}
        )
        common = {"kafka.bootstrap.servers": self.source, "kafka.isolation.level": self.isolation}
        return {**self.source_options, **common, **chosen}

    def read_options(self) -> ReadOptions:
        """OptionError, which says what to change."""
        given = self.choice()
        if self.starting_offsets is not None:
            given["startingOffsets"] = self.starting_offsets
        if self.starting_time_ms is not None:
            given["startingTimestamp"] = str(self.starting_time_ms)
            given["startingOffsetsByTimestampStrategy"] = "latest"
        return parse(given, streaming=False)

    def name_of(self, topic: str) -> str:
        """What a topic is called in the target."""
        return self.rename.replace("{topic}", topic)

    def job(self) -> str:
        """The identity of the job: positions in the state of another job do not apply to it."""
        return f"mirror from {self.source} to {self.target} as {self.rename}"


@dataclass(frozen=True, slots=True)
class MirrorLane:
    """A partition of the source, from where to where, and the topic that it goes to."""

    topic: str
    partition: int
    start: int
    stop: int
    target_topic: str


def mirror_once(
    spark: SparkSession, request: MirrorRequest, progress: Callable[[int, int], None] | None = None
) -> list[LaneResult]:
    """Mirrors what the source has when it is called.  `progress(done, all)` counts partitions."""
    job = Mirror(request, spark)
    with job.held():
        return job.catch_up(spark, progress)


class Mirror:
    """A mirror job: what both ways of running it share."""

    def __init__(self, request: MirrorRequest, spark: SparkSession | None = None) -> None:
        """A session is needed where the state is on one of Spark's file systems."""
        self.request = request
        self.read = request.read_options()
        self.state = job_state(spark, request.state)
        self.target: Target = make_target(
            request.target, self.state.states(), request.target_options, compression=request.compression,
            slice_records=request.slice_records, timestamps=True,
        )  # fmt: skip
        if "{topic}" not in request.rename and (request.pattern is not None or len(request.topics) > 1):
            raise LoadError(f"--rename {request.rename} would put several topics into one: write {{topic}} in it")
        self.known: set[TopicPartition] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps a second run of the job out, or ends it."""
        with self.state.held():
            yield

    def catch_up(self, spark: SparkSession, progress: Callable[[int, int], None] | None = None) -> list[LaneResult]:
        """Copy all that the source has now; one result for each lane that had something to copy."""
        lanes = [(lane, lane.stop) for lane in self.plan() if lane.stop > lane.start]
        run = partial(mirror_lane, replace(self.read, fail_on_data_loss=True), self.request.job())
        return run_lanes(spark, self.state, self.target, lanes, run, progress)

    def current_target(self) -> Target:
        """With the lanes' states as they are now."""
        return replace(self.target, states=self.state.states())

    def plan(self) -> list[MirrorLane]:
        """Topics made where they are missing, gaps noted, and for each partition where it goes on.

        Raises LoadError."""
        request = self.request
        with Cluster(request.source, self.read.client) as cluster:
            finder = OffsetFinder(cluster, self.read)
            partitions = finder.partitions()
            if not partitions:
                raise LoadError(f"no topic at {request.source} matches {request.pattern!r}")
            topics = {name: cluster.topic(name) for name in sorted({topic for topic, _ in partitions})}
            self._prepare_topics(topics)
            begin, stop = finder.resolve(self.read.starting, partitions), finder.latest(partitions)
            earliest = finder.earliest(partitions)
        self.known = set(partitions)
        lanes = [self._lane(at, begin[at], earliest[at], stop[at]) for at in partitions]
        starts = {(lane.target_topic, lane.partition): lane.start for lane in lanes}
        self.state.begin(self.target, request.job(), starts)
        return lanes

    def _lane(self, at: TopicPartition, begin: int, earliest: int, stop: int) -> MirrorLane:
        name = self.request.name_of(at[0])
        state = self.state.lane(name, at[1])
        start = begin if state is None else state.position
        if start > stop:
            raise LoadError(
                f"{at[0]}-{at[1]} at {self.request.source} ends at offset {stop}, and the mirror is at {start}: the "
                "topic was truncated or created anew; mirror it to another topic with a new state directory"
            )
        if start < earliest:
            self._note_gap(at, start, earliest, None if state is None else state.target_next)
            start = earliest
        return MirrorLane(*at, start, stop, name)

    def _note_gap(self, at: TopicPartition, start: int, first: int, target_next: int | None) -> None:
        name, (topic, partition) = self.request.name_of(at[0]), at
        if not self.request.allow_gaps:
            raise LoadError(
                f"offsets {start} to {first - 1} of {topic}-{partition} at {self.request.source} are gone: retention "
                "was quicker than the mirror; say --allow-gaps to go on, which notes the gap in the state"
            )
        with Cluster(self.request.target, self.target.client) as cluster:
            end = list_offsets(cluster, {(name, partition): LATEST})[name, partition].offset
        if target_next not in (None, end):
            raise LoadError(
                f"what the last run wrote to {name}-{partition} from offset {target_next} on cannot be compared, as "
                f"the source has lost those records: mirror {topic} to another topic with a new state directory"
            )
        note_gap(self.state, name, partition, self.request.job(), (start, first), end)

    def _prepare_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        """Makes what is missing; checks that source and target are the topics of the last run."""
        request = self.request
        names = {topic: request.name_of(topic) for topic in topics}
        with Cluster(request.source, self.read.client) as source, Cluster(request.target, self.target.client) as target:
            same = source.cluster_id() is not None and source.cluster_id() == target.cluster_id()
            configs = own_configs(source, topics)
        for topic, name in names.items():
            if same and name in topics:
                raise LoadError(
                    f"source and target are one cluster, and {topic} would be mirrored into {name}: --rename"
                )
        counts = {names[topic]: len(info.partitions) for topic, info in topics.items()}
        ensure_topics(request.target, self.target.client, counts, {names[topic]: own for topic, own in configs.items()})
        with Cluster(request.target, self.target.client) as cluster:
            made = cluster.describe(sorted(names.values()))
        before = self.state.read("topics") or {"job": request.job(), "topics": {}}
        if before["job"] != request.job():
            raise LoadError(
                f"{self.state.where} is the state of {before['job']}: give each job a state directory of its own"
            )
        for topic, name in names.items():
            now = [bytes(topics[topic].topic_id).hex(), bytes(made[name].topic_id).hex()]
            if before["topics"].setdefault(topic, now) != now:
                raise LoadError(
                    f"{topic} at {request.source} or {name} at {request.target} was created anew since the last run: "
                    "offsets mean other records now; mirror to another topic with a new state directory"
                )
        self.state.write("topics", before)


def mirror_lane(read: ReadOptions, job: str, target: Target, work: tuple[MirrorLane, int]) -> LaneResult:
    """One partition's records into the target's.  An executor's."""
    lane, stop = work

    def source(position: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_range(Range(lane.topic, lane.partition, position, stop), COLUMNS, read)
        except DataLossError as error:
            raise LoadError(
                f"{error}".split(" Some data may", 1)[0] + " Run the mirror again with --allow-gaps"
            ) from None

    return run_lane(target, lane.target_topic, lane.partition, job, lane.start, source, stop, target.states.most)


@contextmanager
def mirror_follow(
    spark: SparkSession,
    request: MirrorRequest,
    *,
    trigger_s: float = 1.0,
    on_batch: Callable[[list[LaneResult]], None] | None = None,
) -> Iterator[StreamingQuery]:
    """Catches up, then gives a running query, which ends with the block."""
    job = Mirror(request, spark)
    with job.held():
        caught_up = job.catch_up(spark)
        if on_batch is not None:
            on_batch(caught_up)
        begin = {(lane.topic, lane.partition): lane.start for lane in job.plan()}
        register(spark)
        rows = (
            spark.readStream.format("kbroker")
            .options(**request.choice())
            .option("startingOffsets", json.dumps(to_plain(begin)))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", str(not request.allow_gaps).lower())
            .load()
        )
        # The query keeps the settings that it was started with.
        with bounded_batches(spark):
            query = (
                rows.select(*COLUMNS, "topic", "partition")
                .writeStream.foreachBatch(partial(_write_batch, job, on_batch))
                .option("checkpointLocation", f"{job.state.where}/checkpoint")
                .trigger(processingTime=f"{trigger_s} seconds")
                .start()
            )
        try:
            yield query
        finally:
            query.stop()


def _write_batch(
    job: Mirror, on_batch: Callable[[list[LaneResult]], None] | None, rows: DataFrame, number: int
) -> None:
    """One micro-batch; on the driver."""
    del number  # The lanes know what they have.
    with Cluster(job.request.source, job.read.client) as cluster:
        new = set(OffsetFinder(cluster, job.read).partitions()) - job.known
    if new:
        job.plan()
    write = partial(follow_partition, job.current_target(), job.request.job(), job.request.rename)
    found = [LaneResult(**row.asDict()) for row in rows.mapInArrow(write, RESULT_SCHEMA).collect()]
    job.state.took(found)
    if on_batch is not None:
        on_batch(found)


def follow_partition(
    target: Target, job: str, rename: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One Spark partition, which is a range of one partition's offsets, into its lane.  An executor's."""
    import pyarrow.compute as pc

    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    topic, partition = first.column("topic")[0].as_py(), first.column("partition")[0].as_py()

    def source(position: int) -> Iterator[pa.RecordBatch]:
        for batch in _all(first, batches):
            new = batch.filter(pc.greater_equal(batch.column("offset"), position))
            if new.num_rows:
                yield new

    name = rename.replace("{topic}", topic)
    result = run_lane(target, name, partition, job, first.column("offset")[0].as_py(), source)
    yield as_batch(result)


def _all(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
