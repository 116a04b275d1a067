"""What a trace asks for, and its rows as executors take them: by source, in the order of their times, with an id.

A prepared row has `due_us`, microseconds from the trace's start, and is made before the replay starts: sorting, values
and ids cost nothing while records are sent.  Rows of a source are in the order of `sequence`; a row with an earlier
time than the one before it is due at that one's time (`shape.order_time` with `hold` does the same).

The id of a produced record is its header ID_HEADER: `run/checksum/sequence/source`, of which the checksum is Spark's
xxhash64 of key, value and headers, with their lengths, as 16 hexadecimal digits.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kbroker.replay.player.settings import NoRowsError, ReplayError
from kbroker.replay.trace_schema import COMMIT, CONSUME, PRODUCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ID_HEADER = "kbroker-replay-id"
MOST_TOPICS = 10_000
MOST_SPREAD = 20_000
"""Sources that are given their executors one by one."""
PLACE = "kbroker_place"
PREPARED = ("due_us", "source", "sequence", "topic", "partition", "key", "value", "headers", "kind", "group", "id")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trace asks for.  `topics`: the highest partition that rows name, -1 where they name none."""

    records: int
    kinds: dict[str, int]
    sources: int
    first_us: int
    last_us: int
    bytes: int
    topics: dict[str, int]
    subscriptions: dict[str, tuple[str, ...]]

    @property
    def seconds(self) -> float:
        """How long the trace is."""
        return (self.last_us - self.first_us) / 1e6


def make_plan(trace: DataFrame) -> Plan:
    """Reads the trace once (rows in the trace schema).  Raises ReplayError for one that cannot be replayed."""
    rows = trace.groupBy("topic", "kind", "group").agg(
        F.count("*").alias("records"),
        F.min("arrival_time").alias("first"),
        F.max("arrival_time").alias("last"),
        F.sum(F.coalesce("value_size", F.lit(0)) + F.coalesce(F.octet_length("key"), F.lit(0))).alias("bytes"),
        F.max(F.coalesce("partition", F.lit(-1))).alias("partition"),
        F.sum(F.when(F.col("value").isNull() & F.col("value_size").isNotNull(), 1).otherwise(0)).alias("missing"),
    )
    found = rows.limit(MOST_TOPICS + 1).collect()
    if len(found) > MOST_TOPICS:
        raise ReplayError(f"the trace names more than {MOST_TOPICS:,} topics and groups: shape it to fewer")
    kinds = {kind: sum(row["records"] for row in found if row["kind"] == kind) for kind in (PRODUCE, CONSUME, COMMIT)}
    if not sum(kinds.values()):
        raise NoRowsError("the trace has no rows")
    missing = sum(row["missing"] for row in found if row["kind"] == PRODUCE)
    if missing:
        raise ReplayError(f"{missing:,} records have a size but no value: say --synthesise RATIO to make values")
    lonely = sum(row["records"] for row in found if row["kind"] != PRODUCE and row["group"] is None)
    if lonely:
        raise ReplayError(f"{lonely:,} consume or commit rows name no consumer group: give record.group in the mapping")
    topics: dict[str, int] = {}
    for row in found:
        topics[row["topic"]] = max(topics.get(row["topic"], -1), row["partition"])
    groups = {row["group"] for row in found if row["kind"] != PRODUCE}
    subscriptions = {
        group: tuple(sorted({row["topic"] for row in found if row["kind"] != PRODUCE and row["group"] == group}))
        for group in sorted(groups)
    }
    return Plan(
        records=sum(kinds.values()),
        kinds=kinds,
        sources=trace.agg(F.approx_count_distinct("source").alias("n")).collect()[0]["n"],
        first_us=min(row["first"] for row in found),
        last_us=max(row["last"] for row in found),
        bytes=sum(row["bytes"] for row in found if row["kind"] == PRODUCE),
        topics=topics,
        subscriptions=subscriptions,
    )


def checksum(key: Column, value: Column, headers: Column) -> Column:
    """The checksum of a record, 64 bits.  Lengths are part of it, so that null is not empty and bytes cannot move."""
    absent = F.lit(-1)
    return F.xxhash64(
        F.coalesce(F.octet_length(key), absent), key, F.coalesce(F.octet_length(value), absent), value, headers
    )


def checksum_text(key: Column, value: Column, headers: Column) -> Column:
    """The checksum as 16 hexadecimal digits."""
    return F.lower(F.lpad(F.hex(checksum(key, value, headers)), 16, "0"))


def prepare(trace: DataFrame, plan: Plan, run_id: str, executors: int, *, ids: bool) -> DataFrame:
    """The rows as executors take them (columns PREPARED), in `executors` partitions."""
    rows, place = spread_out(trace, executors)
    before = Window.partitionBy(*place).orderBy("sequence").rowsBetween(Window.unboundedPreceding, 0)
    produced = F.col("kind") == PRODUCE
    text = F.concat_ws(
        "/", F.lit(run_id), checksum_text(F.col("key"), F.col("value"), F.col("headers")), "sequence", "source"
    )
    wanted = F.when(produced, text) if ids else F.lit(None).cast("string")
    rows = rows.withColumns(
        {
            "due_us": F.max("arrival_time").over(before) - F.lit(plan.first_us),
            "id": wanted.cast("binary"),
            # Where no row has headers the column is all null, which costs a replay nothing.
            "headers": F.when(F.size("headers") > 0, F.col("headers")),
        }
    )
    return rows.select(*PREPARED).sortWithinPartitions("due_us", "source", "sequence")


def spread_out(trace: DataFrame, executors: int) -> tuple[DataFrame, list[str]]:
    """The rows in `executors` partitions of about the same size, each source in one of them, and the columns that they
    are partitioned by.  Very many sources are partitioned by their hashes."""
    counts = trace.groupBy("source").count().limit(MOST_SPREAD + 1).collect()
    if executors == 1 or len(counts) > MOST_SPREAD:
        return trace.repartition(executors, "source"), ["source"]
    places = places_of({row["source"]: row["count"] for row in counts}, executors)
    # Spark partitions by the hash of a key: for each partition, find a number whose hash selects it.
    hashes = trace.sparkSession.range(64 * executors).select("id", F.pmod(F.hash("id"), F.lit(executors)).alias("at"))
    keys = {row["at"]: row["id"] for row in hashes.collect()}
    if len(keys) < executors:
        return trace.repartition(executors, "source"), ["source"]
    table = [(source, keys[place]) for source, place in places.items()]
    chosen = trace.sparkSession.createDataFrame(table, f"source string, {PLACE} bigint")
    return trace.join(F.broadcast(chosen), "source").repartition(executors, PLACE), [PLACE, "source"]


def places_of(counts: dict[str, int], executors: int) -> dict[str, int]:
    """An executor for each source: the largest sources first, each to the one that has the fewest rows."""
    loads = [(0, place) for place in range(executors)]
    found = {}
    for source, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        load, place = heapq.heappop(loads)
        found[source] = place
        heapq.heappush(loads, (load + count, place))
    return found


def expected(trace: DataFrame) -> DataFrame:
    """What a verification must find: (source, sequence, topic, partition, checksum) of the produced records."""
    digest = checksum_text(F.col("key"), F.col("value"), F.col("headers")).alias("checksum")
    return trace.where(F.col("kind") == PRODUCE).select("source", "sequence", "topic", "partition", digest)
