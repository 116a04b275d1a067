"""Streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.compat.admin import Admin
from tests.replay.jobs.setting import KEPT, Job, Setting, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches = list[list[str]]


def run(setting: Setting, frame: DataFrame, name: str = "state", **trigger: Any) -> Batches:
    """The rows of each batch that has some, of a query that ends by itself."""
    batches: Batches = []

    def take(batch: DataFrame, _number: int) -> None:
        found = sorted(str(row.asDict(recursive=True)) for row in batch.collect())
        if found:
            batches.append(found)

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(setting.folder / name))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    assert query.awaitTermination(120)
    error = query.exception()
    assert error is None, error
    return batches


def _all(**options: Any) -> Job:
    def job(setting: Setting) -> object:
        found = {name: value(setting) if callable(value) else value for name, value in options.items()}
        topics = {} if "subscribePattern" in found else {"subscribe": setting.topics.odd}
        frame = setting.stream(**({"startingOffsets": "earliest"} | topics | found))
        return frame.schema.simpleString(), run(setting, frame)

    return job


def _once(setting: Setting) -> object:
    return run(
        setting, setting.stream(subscribe=setting.topics.odd, startingOffsets="earliest", maxOffsetsPerTrigger=50),
        once=True,
    )  # fmt: skip


def _restarts(setting: Setting) -> object:
    topic = setting.new_topic()
    found = []
    for turn in range(3):
        setting.produce(topic, turn * 100, 100)
        stream = setting.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
        found.append(run(setting, stream.select("value", "partition", "offset")))
    return found


def _from_the_end(setting: Setting) -> object:
    topic = setting.new_topic()
    setting.produce(topic, 0, 10)
    found = [run(setting, setting.stream(subscribe=topic).select("value"))]
    setting.produce(topic, 10, 10)
    found.append(run(setting, setting.stream(subscribe=topic).select("value")))
    return found


def _new_topics(setting: Setting) -> object:
    """A topic that comes between two runs is read from its start."""
    prefix = setting.new_topic()
    found = []
    for turn in range(2):
        topic = Admin(setting.bootstrap).create_topic(f"{prefix}-more", 1, KEPT)
        setting.produce(topic, turn * 10, 10, 1)
        frame = setting.stream(subscribePattern=f"{prefix}-more", startingOffsets="earliest")
        found.append(run(setting, frame.select("value", "partition", "offset")))
    return found


def _windows(setting: Setting) -> object:
    frame = setting.stream(subscribe=setting.topics.odd, startingOffsets="earliest").withWatermark("timestamp", "1 day")
    counted = frame.groupBy("partition").count()
    query = (
        counted.writeStream.outputMode("complete").format("memory").queryName(f"windows_{setting.kind}")
        .option("checkpointLocation", str(setting.folder / "state")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    return sorted(map(str, setting.spark.table(f"windows_{setting.kind}").collect()))


JOBS: dict[str, Job] = {
    "all there is": _all(),
    "in several batches": _all(maxOffsetsPerTrigger=70),
    "in batches smaller than there are partitions": _all(
        maxOffsetsPerTrigger=2,
        startingOffsets=lambda setting: json.dumps({setting.topics.odd: {"0": 96, "1": 97, "2": 98}}),
    ),
    "a least number": _all(minOffsetsPerTrigger=100),
    "a least and a largest number": _all(minOffsetsPerTrigger=120, maxOffsetsPerTrigger=130),
    "with headers": _all(includeHeaders="true"),
    "from offsets": _all(startingOffsets=lambda setting: json.dumps({setting.topics.odd: {"0": 90, "1": -1, "2": -2}})),
    "from a time": _all(startingTimestamp=1_700_000_002_000),
    "by a pattern": _all(subscribePattern="job-o"),
    "in more tasks": _all(minPartitions=8),
    "committed alone": _all(subscribePattern="job-trans", kafka__isolation__level="read_committed"),
    "one batch": _once,
    "restarted": _restarts,
    "from the end": _from_the_end,
    "topics that come later": _new_topics,
    "counted": _windows,
    "no end": refused(_all(endingOffsets="latest")),
    "no end by time": refused(_all(endingOffsetsByTimestamp="{}")),
    "no least above the largest": refused(_all(minOffsetsPerTrigger=9, maxOffsetsPerTrigger=8)),
}  # fmt: skip
