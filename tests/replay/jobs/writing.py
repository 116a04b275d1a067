"""Writes; what was written is read by Spark's own connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.compat.admin import unique
from tests.replay.jobs.setting import Job, Setting, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXT = ("cast(id % 5 as string) key", "concat('value-', id) value")


def frame(setting: Setting, *columns: str, count: int = 60) -> DataFrame:
    return setting.spark.range(count).selectExpr(*(columns or TEXT))


def _options(*columns: str, **options: Any) -> Job:
    """Writes with these columns and options to a topic of the run's own."""

    def job(setting: Setting) -> object:
        topic = setting.new_topic()
        setting.write(frame(setting, *columns), topic=topic, **options)
        return setting.written(topic)

    return job


def _mode(mode: str | None) -> Job:
    def job(setting: Setting) -> object:
        topic = setting.new_topic()
        setting.write(frame(setting), mode, topic=topic)
        return setting.written(topic)

    return job


def _topics_of_rows(setting: Setting) -> object:
    topics = [setting.new_topic(), setting.new_topic()]
    setting.write(frame(setting, f"if(id % 3 = 0, '{topics[0]}', '{topics[1]}') topic", *TEXT))
    return [setting.written(topic) for topic in topics]


def _topic_before_the_column(setting: Setting) -> object:
    topic = setting.new_topic()
    setting.write(frame(setting, "'nobody-made-this-either' topic", *TEXT), topic=f" {topic} ")
    return setting.written(topic)


def _partitions_of_rows(setting: Setting) -> object:
    topic = setting.new_topic(3)
    setting.write(frame(setting, "cast(id % 3 as int) partition", "cast(id as string) value"), topic=topic)
    found = setting.spark.read.format("kafka").option("kafka.bootstrap.servers", setting.bootstrap)
    return sorted(map(str, found.option("subscribe", topic).load().select("partition", "value").collect()))


def _made_topic(setting: Setting) -> object:
    topic = unique(f"job-made-{setting.kind}")
    setting.write(frame(setting), topic=topic)
    return setting.written(topic)


def _made_topics_of_rows(setting: Setting) -> object:
    topics = [unique(f"job-made-{setting.kind}") for _ in range(2)]
    setting.write(frame(setting, f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') topic", *TEXT))
    return [setting.written(topic) for topic in topics]


def _stream(setting: Setting, source: DataFrame, mode: str, turns: int = 1) -> object:
    """A stream into a topic; between turns more comes to the source."""
    topic = setting.new_topic()
    query = (
        source.writeStream.format(setting.kind).outputMode(mode).option("kafka.bootstrap.servers", setting.bootstrap)
        .option("topic", topic).option("checkpointLocation", str(setting.folder / "state"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    error = query.exception()
    assert error is None, error
    return setting.written(topic)


def _appended(setting: Setting) -> object:
    source = setting.stream(subscribe=setting.topics.other, startingOffsets="earliest", includeHeaders="true")
    return _stream(setting, source.select("key", "value", "headers"), "append")


def _counted(mode: str) -> Job:
    def job(setting: Setting) -> object:
        source = setting.stream(subscribe=setting.topics.odd, startingOffsets="earliest", maxOffsetsPerTrigger=120)
        counted = source.groupBy("partition").count()
        return _stream(
            setting, counted.selectExpr("cast(partition as string) key", "cast(count as string) value"), mode
        )

    return job


def _for_each_batch(setting: Setting) -> object:
    topic = setting.new_topic()
    source = setting.stream(subscribe=setting.topics.other, startingOffsets="earliest", maxOffsetsPerTrigger=25)

    def put(batch: DataFrame, _number: int) -> None:
        setting.write(batch.select("key", "value"), topic=topic)

    query = source.writeStream.foreachBatch(put).option("checkpointLocation", str(setting.folder / "state"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    return setting.written(topic)


BYTES = "cast(cast(id as string) as binary)"
HEADERS = f"array(named_struct('key', 'a', 'value', {BYTES}), named_struct('key', 'b', 'value', null)) headers"
SETTINGS: dict[str, Any] = {
    "kafka__acks": "1", "kafka__linger__ms": 5, "kafka__batch__size": 400, "kafka__retries": 3,
    "kafka__max__request__size": 2000, "kafka__buffer__memory": 40000, "kafka__delivery__timeout__ms": 40000,
    "kafka__max__block__ms": 20000, "kafka__client__id": "job", "kafka__enable__idempotence": "false",
}  # fmt: skip

JOBS: dict[str, Job] = {
    "text": _options(),
    "bytes": _options("cast(cast(id as string) as binary) key", "cast(cast(id as string) as binary) value"),
    "values alone": _options("cast(id as string) value"),
    "null keys and values": _options(
        "if(id % 2 = 0, cast(id as string), null) key", "if(id % 3 = 0, null, cast(id as string)) value"
    ),
    "columns that a topic has not": _options("id", "now() timestamp", *TEXT),
    "headers": _options(HEADERS, *TEXT),
    "null headers": _options(
        "if(id % 2 = 0, array(named_struct('key', 'a', 'value', cast(cast(id as string) as binary))), null) headers",
        *TEXT,
    ),
    "topics of rows": _topics_of_rows,
    "an option before the column": _topic_before_the_column,
    "partitions of rows": _partitions_of_rows,
    "a topic that is made": _made_topic,
    "topics of rows that are made": _made_topics_of_rows,
    "settings of producers": _options(**SETTINGS),
    "gzip": _options(kafka__compression__type="gzip", kafka__compression__gzip__level=9),
    "snappy": _options(kafka__compression__type="snappy"),
    "lz4": _options(kafka__compression__type="lz4", kafka__compression__lz4__level=5),
    "zstd": _options(kafka__compression__type="zstd", kafka__compression__zstd__level=7),
    "keys that choose no partition": _options(kafka__partitioner__ignore__keys="true"),
    "mode append": _mode("append"),
    "a stream": _appended,
    "a stream of whole results": _counted("complete"),
    "batches of a stream": _for_each_batch,
    "no mode overwrite": refused(_mode("overwrite")),
    "no mode ignore": refused(_mode("ignore")),
    "no value": refused(_options("'a' key")),
    "no topic": refused(lambda setting: setting.write(frame(setting))),
    "no null topic": refused(lambda setting: setting.write(frame(setting, "cast(null as string) topic", *TEXT))),
    "no other type of value": refused(_options("id value")),
    "no other type of key": refused(_options("id key", "'a' value")),
    "no other type of partition": refused(_options("id partition", "'a' value")),
    "no partition that is not there": refused(_options("9 partition", "'a' value", kafka__max__block__ms=3000)),
    "no other type of headers": refused(_options("map('a', 'b') headers", *TEXT)),
    "no serializers": refused(_options(kafka__key__serializer="x.Y")),
    "no level beyond the codec's": refused(
        _options(kafka__compression__type="gzip", kafka__compression__gzip__level=10)
    ),
}
# Spark allows these to its own connector alone, whatever a Python source says: see docs/spark.md.
ONLY_SPARKS: dict[str, Job] = {"mode errorifexists": _mode("errorifexists"), "no mode": _mode(None),
                               "a stream of updates": _counted("update")}  # fmt: skip
