"""Topics to Iceberg tables, one table for each topic, by Spark: what is new since the last load, each record once.

A snapshot that a load commits names in its summary the offsets up to which the table holds the topic (`OFFSETS`), so
rows and offsets are there together or not at all, wherever a run dies.  A commit replaces "the rows of these partitions
from these offsets on", of which there are none, as a serializable change since the snapshot that the load was planned
from: if a run that was thought dead, or another one, has committed any of them meanwhile, Iceberg refuses this commit.

Snapshots of others (compaction, deletes) are passed over when the offsets are looked for.  Where all that name offsets
have expired, the rows themselves tell how far the table is.
"""

from __future__ import annotations

import functools
import json
import operator
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbroker.client.cluster import Cluster
from kbroker.client.list_offsets import TopicPartition
from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.planning import (
    Selection,
    find_partitions,
    gone_text,
    plan,
    rounds,
    rows_between,
    selected,
)
from kbroker.replay.sources.offset_json import Offsets, names
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_options import Limit, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

OFFSETS, TOPIC_ID, ISOLATION, GAPS = "kbroker.offsets", "kbroker.topic-id", "kbroker.isolation", "kbroker.gaps"
# By which a commit finds its own snapshot again.
COMMIT = "kbroker.commit"
_SNAPSHOT_PROPERTY = "snapshot-property."
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
# Iceberg's runtime is made for one release of Spark.
RUNTIMES = {
    version: f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13:{release}"
    for version, release in (("4.0", "1.10.2"), ("4.1", "1.12.0"))
}


@dataclass(frozen=True, slots=True)
class IcebergRequest(Selection):
    """What to load, from which brokers, into which namespace of which of Spark's catalogs.  A task reads `max_rows`
    offsets at most."""

    bootstrap: str
    catalog: str
    namespace: str
    topics: Sequence[str] = ()

    def table(self, topic: str) -> str:
        """The topic's table, as SQL has it."""
        return ".".join(quoted(part) for part in (self.catalog, *self.namespace.split("."), topic))


@dataclass(slots=True)
class TableReport:
    """What a load did to one table; `snapshot` is the current one afterwards."""

    table: str
    rows: int = 0
    commits: int = 0
    snapshot: int | None = None
    gaps: list[Range] = field(default_factory=list)


@dataclass(slots=True)
class TableState:
    """What a table holds: `snapshot` is its current one."""

    topic: str
    snapshot: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    isolation: str | None = None

    def ends(self) -> Offsets:
        """Where the load goes on."""
        return {(self.topic, partition): offset for partition, offset in self.offsets.items()}


def quoted(name: str) -> str:
    """A name within SQL, quoted."""
    return "`" + name.replace("`", "``") + "`"


def settings(version: str, catalog: str, properties: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a catalog of Iceberg's with these properties (`type`, `warehouse`, `uri` …).

    `given` are the user's own, which go first.  LoadError where Iceberg has no runtime for this version of Spark and
    the user names none.
    """
    prefix = f"spark.sql.catalog.{catalog}"
    found = {prefix: _CATALOG_CLASS, **{f"{prefix}.{name}": value for name, value in properties.items()}}
    if not any(name in given for name in ("spark.jars", "spark.jars.packages")):
        release = ".".join(version.split(".")[:2])
        if release not in RUNTIMES:
            raise LoadError(
                f"Iceberg has no runtime for Spark {release} that is known here, only for {', '.join(RUNTIMES)}: "
                f"install pyspark {max(RUNTIMES)}, or name a runtime with --conf spark.jars.packages=…"
            )
        found["spark.jars.packages"] = RUNTIMES[release]
    return found | dict(given)


def load_iceberg(
    spark: SparkSession, request: IcebergRequest, progress: Callable[[int, int], None] | None = None
) -> list[TableReport]:
    """Loads what is new since each table's last load.  `progress(done, all)` counts offsets after each commit.

    Raises LoadError."""
    read = selected(request.bootstrap, request.topics, request)
    planned = []
    with Cluster(read.bootstrap, read.client) as cluster:
        partitions = find_partitions(cluster, read)
        _check_named(read, partitions)
        for topic in sorted({name for name, _ in partitions}):
            state = _ready_table(spark, request, topic)
            report = TableReport(request.table(topic), snapshot=state.snapshot)
            own = [at for at in partitions if at[0] == topic]
            gap = functools.partial(_gap, request.allow_gaps, report)
            planned.append((report, state, plan(cluster, _only(read, own), own, state, gap)))
    total, done = sum(max(one.size, 0) for _, _, ranges in planned for one in ranges), 0
    for report, state, ranges in planned:
        for start, stop in rounds(spark, request.max_rows, ranges):
            commit(spark, request, state, start, stop, report)
            done += sum(stop[at] - start[at] for at in start)
            if progress is not None:
                progress(done, total)
    return [report for report, _, _ in planned]


def _check_named(read: ReadOptions, partitions: Sequence[TopicPartition]) -> None:
    """LoadError where limits name partitions that are not loaded."""
    for limit in (read.starting, read.ending):
        unknown = (limit.offsets or limit.times or {}).keys() - set(partitions)
        if unknown:
            raise LoadError(f"{limit.option} names partitions that are not loaded: {names(unknown)}")


def _only(read: ReadOptions, partitions: Sequence[TopicPartition]) -> ReadOptions:
    """The limits that are about these partitions: offsets in options are for all topics of the load."""

    def limited(limit: Limit) -> Limit:
        def own(places: Offsets | None) -> Offsets | None:
            return None if places is None else {at: place for at, place in places.items() if at in partitions}

        return replace(limit, offsets=own(limit.offsets), times=own(limit.times))

    return replace(read, starting=limited(read.starting), ending=limited(read.ending))


def _gap(allowed: bool, report: TableReport, gone: Range) -> None:
    if not allowed:
        raise LoadError(gone_text(gone))
    report.gaps.append(gone)


def _ready_table(spark: SparkSession, request: IcebergRequest, topic: str) -> TableState:
    """The topic's table, made where it is missing.  LoadError for one that was loaded with another isolation."""
    spark.sql(f"create namespace if not exists {request.table(topic).removesuffix('.' + quoted(topic))}")
    spark.sql(
        f"create table if not exists {request.table(topic)} ({_COLUMNS}) using iceberg partitioned by (partition)"
    )
    state = read_state(spark, request, topic)
    if state.isolation not in (None, request.isolation):
        raise LoadError(f"{request.table(topic)} was loaded with isolation {state.isolation}: go on with that")
    return state


def read_state(spark: SparkSession, request: IcebergRequest, topic: str) -> TableState:
    """What the table's snapshots tell of loads, the newest first; else its rows."""
    table = request.table(topic)
    known = {row.snapshot_id: row for row in spark.sql(f"select * from {table}.snapshots").collect()}
    current = [row.snapshot_id for row in spark.sql(f"select * from {table}.refs where name = 'main'").collect()]
    state = TableState(topic, current[0] if current else None)
    at = state.snapshot
    while at in known:
        summary = known[at].summary
        if OFFSETS in summary:
            state.offsets = {int(number): offset for number, offset in json.loads(summary[OFFSETS]).items()}
            state.isolation = summary.get(ISOLATION)
            if TOPIC_ID in summary:
                state.topics[topic] = summary[TOPIC_ID]
            return state
        at = known[at].parent_id
    if state.snapshot is not None:
        rows = spark.sql(f"select partition, max(offset) + 1 stop from {table} group by partition").collect()
        state.offsets = {row.partition: row.stop for row in rows}
    return state


def commit(
    spark: SparkSession, request: IcebergRequest, state: TableState, start: Offsets, stop: Offsets, report: TableReport
) -> None:
    """One round: rows and offsets in one snapshot.  LoadError where others have committed rows from `start` on."""
    table = request.table(state.topic)
    reached = state.offsets | {partition: offset for (_, partition), offset in stop.items()}
    token = uuid.uuid4().hex
    noted = {
        COMMIT: token,
        OFFSETS: json.dumps({str(partition): offset for partition, offset in sorted(reached.items())}),
        ISOLATION: request.isolation,
        **({TOPIC_ID: state.topics[state.topic]} if state.topic in state.topics else {}),
        **({GAPS: json.dumps([list(gap) for gap in report.gaps])} if report.gaps else {}),
    }
    writer = (
        rows_between(spark, request.bootstrap, request, start, stop)
        .writeTo(table)
        .option("isolation-level", "serializable")
    )
    # Each task reads one partition, so there is nothing to shuffle.
    writer = writer.option("distribution-mode", "none").option("use-table-distribution-and-ordering", "false")
    for name, value in noted.items():
        writer = writer.option(_SNAPSHOT_PROPERTY + name, value)
    if state.snapshot is not None:
        writer = writer.option("validate-from-snapshot-id", str(state.snapshot))
    try:
        writer.overwrite(_from(start))
    except Exception as error:
        if "ValidationException" in str(error):
            raise LoadError(
                f"{table} was written to by another load, or by one that was thought dead, since this one began: "
                "nothing of this round was committed; run it again"
            ) from None
        raise
    # Not the current one: the next round has to see what others commit behind this one.
    after = spark.sql(
        f"select snapshot_id, summary from {table}.snapshots where summary['{COMMIT}'] = '{token}'"
    ).collect()[0]
    state.offsets, state.snapshot = reached, after.snapshot_id
    report.snapshot, report.commits = after.snapshot_id, report.commits + 1
    report.rows += int(after.summary.get("added-records", 0))


def _from(start: Offsets) -> Column:
    """The rows of these partitions from these offsets on."""
    from pyspark.sql import functions as f

    each = [(f.col("partition") == number) & (f.col("offset") >= offset) for (_, number), offset in start.items()]
    return functools.reduce(operator.or_, each)
