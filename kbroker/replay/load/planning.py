"""A load reads what `plan` says: from where it ended before, or from where the request has it begin, up to an end.
Loads that write by Spark (`rows_between`) do so in `rounds`.

Loads to Parquet and to Iceberg share this; each says by `Held` what it holds already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kbroker.client.cluster import NO_TOPIC_ID, Cluster
from kbroker.client.list_offsets import TopicPartition
from kbroker.replay.load.errors import LoadError
from kbroker.replay.registration import register
from kbroker.replay.sources.offset_json import Offsets, names, to_plain
from kbroker.replay.sources.offset_ranges import OffsetFinder, Range, rate_limit
from kbroker.replay.sources.read_options import ReadOptions, of_whole_names, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Tasks per round for each that runs at a time: with more, commits are fewer, and a run that dies loses more work.
_TASKS_AT_ONCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a request that says what to load: a `pattern` for whole names where there are no topics; from and
    until offsets (as Spark's options have them) or times in milliseconds.  `starting_*` count for partitions that are
    new to the load, `max_rows` is the largest number of offsets in a file, `options` are further ones of the source."""

    pattern: str | None = None
    starting_offsets: str | None = None
    starting_time_ms: int | None = None
    ending_offsets: str | None = None
    ending_time_ms: int | None = None
    max_rows: int = 1_000_000
    isolation: str = "read_committed"
    allow_gaps: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


class Held(Protocol):
    """What a load has: ids of topics in hex, which `plan` adds to, and where partitions end."""

    topics: dict[str, str]

    def ends(self) -> Mapping[TopicPartition, int]:
        """Where the load goes on, for partitions that it has."""


def selected(bootstrap: str, topics: Sequence[str], request: Selection) -> ReadOptions:
    """OptionError, which says what to change; LoadError without a choice of topics."""
    if bool(topics) == (request.pattern is not None):
        raise LoadError("say which topics: names, or a pattern, and not both")
    given: dict[str, object | None] = {
        **request.options,
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": request.isolation,
        "subscribe": ",".join(topics) or None,
        "subscribePattern": None if request.pattern is None else of_whole_names(request.pattern),
        "startingOffsets": request.starting_offsets,
        "startingTimestamp": request.starting_time_ms,
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": request.ending_offsets,
        "endingTimestamp": request.ending_time_ms,
    }
    return parse({name: str(value) for name, value in given.items() if value is not None}, streaming=False)


def find_partitions(cluster: Cluster, read: ReadOptions) -> list[TopicPartition]:
    """The partitions as they are now.  LoadError for none."""
    partitions = OffsetFinder(cluster, read).partitions()
    if not partitions:
        raise LoadError(f"no topic at {read.bootstrap} fits the choice {read.subscribe_pattern!r}")
    return partitions


def plan(
    cluster: Cluster,
    read: ReadOptions,
    partitions: Sequence[TopicPartition],
    held: Held,
    gap: Callable[[Range], None],
) -> list[Range]:
    """Gives one range for each partition, which may be empty.  `gap` gets offsets that are gone, and may raise.

    LoadError where a topic is not the one that was loaded before, or the end lies behind its last offset.
    """
    finder = OffsetFinder(cluster, read)
    _check_topics(cluster, held, partitions)
    earliest, latest = finder.earliest(partitions), finder.latest(partitions)
    begin = finder.resolve(read.starting, partitions)
    stop = finder.resolve(read.ending, partitions)
    beyond = {at: offset for at, offset in stop.items() if offset > latest[at]}
    if beyond:
        raise LoadError(f"the end lies beyond the last offset of {names(beyond)}: give an earlier one, or none")
    ends = held.ends()
    ranges = []
    for at in partitions:
        start = ends.get(at, begin[at])
        if start > latest[at]:
            raise LoadError(
                f"{at[0]}-{at[1]} ends at offset {latest[at]}, and the load begins at {start}: the topic was "
                "truncated or created anew; load it into a new place"
            )
        if start < earliest[at] and start < stop[at]:
            gone = min(earliest[at], stop[at])
            gap(Range(*at, start, gone))
            start = gone
        ranges.append(Range(*at, start, stop[at]))
    return ranges


def rounds(spark: SparkSession, max_rows: int, ranges: Sequence[Range]) -> list[tuple[Offsets, Offsets]]:
    """From where to where each round goes, over all partitions that have something left; a task reads `max_rows`."""
    here = {(one.topic, one.partition): one.start for one in ranges if one.size > 0}
    stop = {(one.topic, one.partition): one.stop for one in ranges if one.size > 0}
    most = max_rows * max(spark.sparkContext.defaultParallelism, 1) * _TASKS_AT_ONCE
    found = []
    while here != stop:
        following = rate_limit(here, stop, most)
        moved = [at for at in here if following[at] > here[at]]
        found.append(({at: here[at] for at in moved}, {at: following[at] for at in moved}))
        here = following
    return found


def rows_between(spark: SparkSession, bootstrap: str, request: Selection, start: Offsets, stop: Offsets) -> DataFrame:
    """The records of a round; each of Spark's partitions is a range of one partition's offsets, in order."""
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(start):
        assigned.setdefault(topic, []).append(partition)
    options = {
        **request.options,
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": request.isolation,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_plain(start)),
        "endingOffsets": json.dumps(to_plain(stop)),
        "maxRecordsPerPartition": str(request.max_rows),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    register(spark)  # A session of the user's own may not have the source yet.
    return spark.read.format("kbroker").options(**options).load()


def gone_text(gone: Range) -> str:
    """What to say of offsets that are gone."""
    return (
        f"offsets {gone.start} to {gone.stop - 1} of {gone.topic}-{gone.partition} are gone: retention was quicker "
        "than the load; say --allow-gaps to go on, which notes the gap, and load more often"
    )


def _check_topics(cluster: Cluster, held: Held, partitions: Sequence[TopicPartition]) -> None:
    for name in sorted({topic for topic, _ in partitions}):
        topic_id = cluster.topic(name).topic_id
        if topic_id == NO_TOPIC_ID:
            continue
        if held.topics.setdefault(name, bytes(topic_id).hex()) != bytes(topic_id).hex():
            raise LoadError(
                f"topic {name} was deleted and created anew since the last load: its offsets mean other records now; "
                "load it into a new place"
            )
