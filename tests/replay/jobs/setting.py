"""What a job is given: a session, topics, a place of its own for state, and the name of the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.compat.admin import Admin
from tests.replay.odd_topics import produce_odd, produce_transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = {"retention.ms": "-1"}
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Topics:
    """`odd` has 3 partitions with 100 records each, `other` one with 60; `trimmed` lost its first 20 of 50."""

    odd: str
    other: str
    transactions: str
    trimmed: str
    empty: str

    @classmethod
    def made(cls, bootstrap: str) -> Topics:
        """Makes and fills the topics."""
        admin = Admin(bootstrap)
        found = cls(
            admin.create_topic("job-odd", 3, KEPT),
            admin.create_topic("job-other", 1, KEPT),
            admin.create_topic("job-transactions", 1),
            admin.create_topic("job-trimmed", 1, KEPT),
            admin.create_topic("job-empty", 2),
        )
        produce_odd(bootstrap, found.odd, "zstd", 3, 300)
        produce_odd(bootstrap, found.other, "gzip", 1, 60)
        produce_transactions(bootstrap, found.transactions, lambda number: number % 2 == 0, 4)
        produce_odd(bootstrap, found.trimmed, "none", 1, 50)
        client = admin._client
        for future in client.delete_records([TopicPartition(found.trimmed, 0, 20)]).values():
            future.result(30)
        return found


@dataclass(frozen=True, slots=True)
class Setting:
    """One run of one job with one format."""

    spark: SparkSession
    bootstrap: str
    kind: str
    topics: Topics
    folder: Path

    def read(self, **options: object) -> DataFrame:
        """A batch; `__` in a name is a dot."""
        reader = self.spark.read.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load()

    def stream(self, **options: object) -> DataFrame:
        """A stream."""
        reader = self.spark.readStream.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader.load()

    def write(self, frame: DataFrame, mode: str | None = "append", **options: object) -> None:
        """A batch into a topic."""
        writer = frame.write.format(self.kind).option("kafka.bootstrap.servers", self.bootstrap)
        if mode is not None:
            writer = writer.mode(mode)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), str(value))
        writer.save()

    def new_topic(self, partitions: int = 2) -> str:
        """A topic of this run's own."""
        return Admin(self.bootstrap).create_topic("job-target", partitions, KEPT)

    def written(self, topic: str) -> list[Any]:
        """What the topic holds, by Spark's own connector, without what writers choose."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        return sorted(map(str, frame.select("key", "value", "headers").collect()))

    def produce(self, topic: str, first: int, count: int, partitions: int = 2) -> None:
        """Numbers as values, by turns over the partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(first, first + count):
            producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7), partition=number % partitions)
        assert producer.flush(30) == 0


Job = Callable[[Setting], object]


def rows(frame: DataFrame) -> object:
    """The schema and the rows, in an order of their own."""
    return frame.schema.simpleString(), sorted(str(row.asDict(recursive=True)) for row in frame.collect())


def refused(job: Job) -> Job:
    """A job that neither format may run: the outcome is whether it was refused."""

    def run(setting: Setting) -> object:
        try:
            job(setting)
        except (PySparkException, Py4JJavaError):
            return REFUSED
        return "not refused"

    run.__name__ = job.__name__
    return run
