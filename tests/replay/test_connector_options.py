"""Each option of reading gives the same rows with Spark's own Kafka connector and with this source."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kbroker.replay.sources.option_table import Effect
from kbroker.replay.sources.read_table import BATCH_ONLY, CHOICES, READING, STREAM_ONLY
from tests.compat.admin import Admin
from tests.replay.connector import connector_jars
from tests.replay.odd_topics import produce_odd, produce_transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.spark

FORMATS = ("kafka", "kbroker")
PER_PARTITION = 300
# Records have times from 1700000000000 on, over 5 s.
MIDDLE_MS = "1700000002500"


@dataclass(frozen=True)
class Topics:
    """One of 3 partitions with 300 records each, one whose name Java's syntax alone finds, one of transactions."""

    bootstrap: str
    plain: str
    other: str
    transactional: str


@dataclass(frozen=True)
class Case:
    """Options to compare by; `rows`: how many there are, or None for those that depend on times."""

    options: dict[str, str]
    rows: int | None = 3 * PER_PARTITION
    topic: str = "plain"


@pytest.fixture(name="topics", scope="module")
def _topics(kbroker_broker: BrokerProcess) -> Topics:
    admin = Admin(kbroker_broker.bootstrap)
    kept = {"retention.ms": "-1"}
    made = Topics(
        kbroker_broker.bootstrap,
        admin.create_topic("optional-ac", 3, kept),
        admin.create_topic("optional-ab", 1, kept),
        admin.create_topic("optional-tx", 1),
    )
    produce_odd(made.bootstrap, made.plain, "lz4", 3, 3 * PER_PARTITION)
    produce_odd(made.bootstrap, made.other, "none", 1, 10)
    produce_transactions(made.bootstrap, made.transactional, lambda number: number % 3 != 1)
    return made


def cases(topics: Topics) -> dict[str, list[Case]]:
    """The cases of each option that is taken."""
    plain = topics.plain
    every = f'{{"{plain}":{{"0":17,"1":-2,"2":250}}}}'
    times = f'{{"{plain}":{{"0":{MIDDLE_MS},"1":0,"2":{MIDDLE_MS}}}}}'
    late = "1800000000000"
    waits = {name: [Case({name: value})] for name, value in WAITS.items()}
    return waits | {
        "kafka.bootstrap.servers": [Case({})],
        "kafka.client.id": [Case({"kafka.client.id": "options"})],
        "assign": [
            Case({"assign": f'{{"{plain}":[0,2]}}'}, 2 * PER_PARTITION),
            Case({"assign": f'{{"{plain}":[0]}}'}, PER_PARTITION),
        ],
        "subscribe": [Case({"subscribe": f"{plain},{topics.other}"}, 3 * PER_PARTITION + 10)],
        "subscribePattern": [
            Case({"subscribePattern": f"^{plain}$"}),
            Case({"subscribePattern": "ptional-a[a-z&&[^b]]"}),
            Case({"subscribePattern": r"(?i)OPTIONAL-A\p{Alpha}"}, 3 * PER_PARTITION + 10),
            Case({"subscribePattern": r"^optional-a[b]++\Q-\E"}, 10),
            Case({"subscribePattern": "optional-a(?!c)"}, 10),
        ],
        "startingOffsets": [
            Case({"startingOffsets": "earliest"}),
            Case({"startingOffsets": every}, 283 + 300 + 50),
        ],
        "startingTimestamp": [Case({"startingTimestamp": MIDDLE_MS}, None)],
        "startingOffsetsByTimestamp": [Case({"startingOffsetsByTimestamp": times}, None)],
        "startingOffsetsByTimestampStrategy": [
            Case({"startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}, 0)
        ],
        "endingOffsets": [
            Case({"endingOffsets": "latest"}),
            Case({"endingOffsets": f'{{"{plain}":{{"0":17,"1":-1,"2":0}}}}'}, 317),
        ],
        "endingTimestamp": [Case({"endingTimestamp": MIDDLE_MS}, None), Case({"endingTimestamp": late})],
        "endingOffsetsByTimestamp": [Case({"endingOffsetsByTimestamp": times}, None)],
        "failOnDataLoss": [Case({"failOnDataLoss": "false"})],
        "minPartitions": [Case({"minPartitions": "7"})],
        "maxRecordsPerPartition": [Case({"maxRecordsPerPartition": "100"})],
        "maxOffsetsPerTrigger": [Case({"maxOffsetsPerTrigger": "120"})],
        "minOffsetsPerTrigger": [Case({"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1s"})],
        "maxTriggerDelay": [Case({"minOffsetsPerTrigger": "10000", "maxTriggerDelay": "1s"})],
        "includeHeaders": [Case({"includeHeaders": "true"}), Case({"includeHeaders": "false"})],
        "kafka.isolation.level": [
            Case({"kafka.isolation.level": "read_committed"}, 5 * 20 + 8, "transactional"),
            Case({"kafka.isolation.level": "read_uncommitted"}, 8 * 21, "transactional"),
        ],
        "fetchOffset.numRetries": [Case({"fetchOffset.numRetries": "1"})],
        "fetchOffset.retryIntervalMs": [Case({"fetchOffset.retryIntervalMs": "5"})],
        "kafka.max.partition.fetch.bytes": [Case({"kafka.max.partition.fetch.bytes": "2000"})],
        "kafka.fetch.max.bytes": [Case({"kafka.fetch.max.bytes": "2000"})],
        "kafka.fetch.max.wait.ms": [Case({"kafka.fetch.max.wait.ms": "50"})],
        "kafka.fetch.min.bytes": [Case({"kafka.fetch.min.bytes": "5000"})],
        "kafka.receive.buffer.bytes": [Case({"kafka.receive.buffer.bytes": "65536"})],
    }


WAITS = {
    "kafka.request.timeout.ms": "20000",
    "kafka.default.api.timeout.ms": "40000",
    "kafka.socket.connection.setup.timeout.ms": "20000",
    "kafka.retry.backoff.ms": "200",
    "kafka.retry.backoff.max.ms": "2000",
    "kafkaConsumer.pollTimeoutMs": "60000",
}


def given(topics: Topics, case: Case) -> dict[str, str]:
    """All options of a case: a topic is subscribed to where the case has no choice."""
    choice = {} if any(name in case.options for name in CHOICES) else {"subscribe": getattr(topics, case.topic)}
    starts = any(name.startswith("starting") for name in case.options)
    return {"kafka.bootstrap.servers": topics.bootstrap, **choice, **({} if starts else EARLIEST), **case.options}


EARLIEST = {"startingOffsets": "earliest"}


def ordered(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows, by place."""
    rows = (row.asDict(recursive=True) for row in frame.collect())
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_each_option_has_a_case(topics: Topics) -> None:
    """An option would have another meaning than with the connector, and no test would tell."""
    assert set(cases(topics)) == {option.name for option in READING.options if option.effect is Effect.TAKEN}


def test_batches_have_the_connectors_rows(spark: SparkSession, topics: Topics) -> None:
    """A job that moves from Spark's connector would read other rows."""
    connector_jars()
    wrong = []
    for case in every_case(topics):
        options = given(topics, case)
        theirs, ours = (ordered(spark.read.format(kind).options(**options).load()) for kind in FORMATS)
        if theirs != ours or (case.rows is not None and len(ours) != case.rows):
            wrong.append((case.options, len(theirs), len(ours), case.rows))
    assert not wrong


def test_streams_have_the_connectors_rows(spark: SparkSession, topics: Topics) -> None:
    """A query that moves from Spark's connector would read other rows."""
    connector_jars()
    wrong = []
    for name in (*STREAM_ONLY, "subscribePattern", "minPartitions", "includeHeaders"):
        for case in cases(topics)[name]:
            options = given(topics, case)
            theirs, ours = (streamed(spark, kind, options) for kind in FORMATS)
            if theirs != ours or len(ours) != case.rows:
                wrong.append((case.options, len(theirs), len(ours)))
    assert not wrong


def every_case(topics: Topics) -> Iterator[Case]:
    """Those of all options; what is for streams alone changes no batch."""
    for some in cases(topics).values():
        yield from some


def streamed(spark: SparkSession, kind: str, options: dict[str, str]) -> list[dict[str, Any]]:
    """All rows that are there, by a streaming query."""
    table = f"t{uuid.uuid4().hex}"
    reader = spark.readStream.format(kind).options(**{k: v for k, v in options.items() if k not in BATCH_ONLY})
    query = reader.load().writeStream.format("memory").queryName(table).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return ordered(spark.table(table))


def test_a_partition_that_is_not_there_and_the_number_of_tasks_differ_as_documented(
    spark: SparkSession, topics: Topics
) -> None:
    """docs/spark.md says what the connector does otherwise: a release of Spark that changes it would make it wrong."""
    from pyspark.errors import AnalysisException

    connector_jars()
    ghost = given(topics, Case({"assign": f'{{"{topics.plain}":[0,7]}}'}))
    theirs, ours = (spark.read.format(kind).options(**ghost).load() for kind in FORMATS)
    assert len(ordered(theirs)) == PER_PARTITION
    with pytest.raises(AnalysisException, match=r"option assign: .*-7 does not exist"):
        ours.collect()
    many = given(topics, Case({"maxRecordsPerPartition": "100"}))
    tasks = [spark.read.format(kind).options(**many).load().rdd.getNumPartitions() for kind in FORMATS]
    assert tasks == [3, 9]
