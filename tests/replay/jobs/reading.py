"""Batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.replay.jobs.setting import Job, Setting, refused, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Times of `produce_odd` lie within five seconds of this.
FIRST_MS = 1_700_000_000_000


def _whole(**options: Any) -> Job:
    """A job that reads the topic `odd` with these options; a callable makes an option's text of the setting."""

    def run(setting: Setting) -> object:
        found = {name: value(setting) if callable(value) else value for name, value in options.items()}
        choice = {} if found.keys() & {"assign", "subscribe", "subscribePattern"} else {"subscribe": setting.topics.odd}
        return rows(setting.read(**choice, **found))

    return run


def _places(*numbers: int) -> Any:
    return lambda setting: json.dumps({setting.topics.odd: {str(at): number for at, number in enumerate(numbers)}})


def _tasks(**options: Any) -> Job:
    """Rows, and over how many tasks they come."""

    def run(setting: Setting) -> object:
        frame = setting.read(subscribe=f"{setting.topics.odd},{setting.topics.other}", **options)
        return frame.rdd.getNumPartitions(), rows(frame)

    return run


def _query(setting: Setting) -> object:
    setting.read(subscribe=setting.topics.odd).createOrReplaceTempView("odd")
    return rows(setting.spark.sql(
        "select partition, count(*) n, sum(length(value)) bytes, max(offset) last, min(timestamp) first from odd "
        "where offset % 2 = 0 and key is not null group by partition having n > 3"
    ))  # fmt: skip


def _view(setting: Setting) -> object:
    setting.spark.sql(
        f"create or replace temporary view by_sql using {setting.kind} options "
        f"(`kafka.bootstrap.servers` '{setting.bootstrap}', subscribe '{setting.topics.odd}')"
    )
    return rows(setting.spark.sql("select offset, value from by_sql where partition = 1"))


def _join(setting: Setting) -> object:
    one, other = setting.read(subscribe=setting.topics.odd), setting.read(subscribe=setting.topics.other)
    joined = one.alias("a").join(other.alias("b"), "offset").where("a.partition = 0")
    return rows(joined.selectExpr("offset", "a.value as first", "b.value as second"))


def _text(setting: Setting) -> object:
    frame = setting.read(subscribe=setting.topics.odd)
    return rows(frame.selectExpr("cast(key as string) key", "hex(value) value", "unix_millis(timestamp) ms"))


def _headers(setting: Setting) -> object:
    frame: DataFrame = setting.read(subscribe=setting.topics.odd, includeHeaders="TRUE")
    return rows(
        frame.selectExpr("offset", "explode(headers) header").selectExpr("offset", "header.key", "header.value")
    )


JOBS: dict[str, Job] = {
    "all of a topic": _whole(),
    "several topics": _whole(subscribe=lambda setting: f" {setting.topics.odd}, {setting.topics.other},"),
    "assigned partitions": _whole(assign=lambda setting: json.dumps({setting.topics.odd: [0, 2]})),
    "a pattern": _whole(subscribePattern="job-o(dd|ther)"),
    "a pattern that matches a part": _whole(subscribePattern="ob-od"),
    "a pattern that matches nothing": _whole(subscribePattern="nothing-is-so-called"),
    "an empty topic": _whole(subscribe=lambda setting: setting.topics.empty),
    "headers": _headers,
    "headers with all columns": _whole(includeHeaders="true"),
    "offsets to start at": _whole(startingOffsets=_places(17, -2, 99)),
    "offsets to end at": _whole(endingOffsets=_places(17, -1, 0)),
    "offsets on both sides": _whole(startingOffsets=_places(1, 2, 3), endingOffsets=_places(7, 2, 50)),
    "the names of places": _whole(startingOffsets="Earliest", endingOffsets="LATEST"),
    "a time to start at": _whole(startingTimestamp=FIRST_MS + 2000),
    "times to start at": _whole(startingOffsetsByTimestamp=_places(FIRST_MS, FIRST_MS + 1, FIRST_MS + 4000)),
    "a time to end at": _whole(endingTimestamp=FIRST_MS + 2500),
    "a time to end at that is too late": _whole(endingTimestamp=FIRST_MS + 9_000_000),
    "times to end at": _whole(endingOffsetsByTimestamp=_places(FIRST_MS + 4000, FIRST_MS + 9000, FIRST_MS + 1000)),
    "a late start at the end": _whole(
        startingTimestamp=FIRST_MS + 9_000_000, startingOffsetsByTimestampStrategy="latest"
    ),
    "a time before offsets": _whole(
        startingTimestamp=FIRST_MS + 3000, startingOffsetsByTimestamp=_places(0, 0, 0), startingOffsets=_places(5, 5, 5)
    ),
    "more tasks": _tasks(minPartitions=7),
    "small tasks": _whole(maxRecordsPerPartition=40),
    "more and small tasks": _tasks(minPartitions=9, maxRecordsPerPartition=45),
    "committed transactions": _whole(
        subscribe=lambda setting: setting.topics.transactions, kafka__isolation__level="read_committed"
    ),
    "all transactions": _whole(subscribe=lambda setting: setting.topics.transactions),
    "a trimmed topic": _whole(subscribe=lambda setting: setting.topics.trimmed),
    "records that are gone": _whole(
        subscribe=lambda setting: setting.topics.trimmed, failOnDataLoss="false",
        startingOffsets=lambda setting: json.dumps({setting.topics.trimmed: {"0": 5}}),
    ),
    "a group's options": _whole(
        kafka__group__id="mine", groupIdPrefix="mine-too", kafka__session__timeout__ms=20000,
        kafka__max__poll__records=7,
    ),
    "a stream's limits in a batch": _whole(
        maxOffsetsPerTrigger=10, minOffsetsPerTrigger=5, maxTriggerDelay="1s", startingOffsets="earliest"
    ),
    "patience and fetches": _whole(
        kafkaConsumer__pollTimeoutMs=20000, fetchOffset__numRetries=1, fetchOffset__retryIntervalMs=5,
        kafka__fetch__max__bytes=5000, kafka__max__partition__fetch__bytes=1000, kafka__fetch__min__bytes=1,
        kafka__fetch__max__wait__ms=10, kafka__request__timeout__ms=20000, kafka__client__id="job",
    ),
    "a query": _query,
    "a view by SQL": _view,
    "a join": _join,
    "text of keys and times": _text,
    "no partition may be missing in offsets": refused(_whole(startingOffsets=_places(1, 2))),
    "no batch starts at the end": refused(_whole(startingOffsets="latest")),
    "no batch ends at the start": refused(_whole(endingOffsets="earliest")),
    "no start without a record": refused(_whole(startingTimestamp=FIRST_MS + 9_000_000)),
    "no start behind the end": refused(_whole(startingOffsets=_places(9, 9, 9), endingOffsets=_places(9, 8, 9))),
    "no time to start at behind the one to end at": refused(
        _whole(startingTimestamp=FIRST_MS + 3000, endingTimestamp=FIRST_MS + 2000)
    ),
    "no start behind the last record": refused(_whole(startingOffsets=_places(0, 0, 101))),
    "no time of start behind the end's": refused(
        _whole(
            startingOffsetsByTimestamp=_places(FIRST_MS, FIRST_MS + 900, FIRST_MS),
            endingOffsetsByTimestamp=_places(FIRST_MS, FIRST_MS + 800, FIRST_MS + 900),
        )
    ),
    "no topic that is not there": refused(_whole(subscribe="nobody-made-this")),
    "no records that are gone": refused(
        _whole(
            subscribe=lambda setting: setting.topics.trimmed,
            startingOffsets=lambda setting: json.dumps({setting.topics.trimmed: {"0": 5}}),
        )
    ),
    "no two choices": refused(_whole(subscribe="job-odd", subscribePattern="job")),
    "no place of clients": refused(_whole(kafka__auto__offset__reset="earliest")),
    "no deserializers": refused(_whole(kafka__value__deserializer="x.Y")),
    "no commits of clients": refused(_whole(kafka__enable__auto__commit="true")),
}  # fmt: skip
