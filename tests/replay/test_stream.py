"""Streaming queries: killed at any point and restarted, each record comes once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kbroker.replay.sources.read_options import parse
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
# maxOffsetsPerTrigger of the query.
BATCH = 700


class StreamProcess:
    """A driver of a streaming query that can be killed, and goes on from its checkpoint."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.command = [sys.executable, "-m", "tests.replay.stream_query", bootstrap, topic, str(folder)]
        self.folder = folder
        folder.mkdir()

    def start(self) -> None:
        environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environ["PYTHONPATH"] = str(ROOT)
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environ, stdout=output, stderr=output, start_new_session=True
            )

    def batches(self, kind: str) -> int:
        """How many batches the checkpoint knows: `offsets` are begun, `commits` are done."""
        log = self.folder / "checkpoint" / kind
        return sum(name.name.isdigit() for name in log.iterdir()) if log.is_dir() else 0

    def wait_for_batches(self, kind: str, count: int) -> None:
        wait_for(lambda: self.batches(kind) >= count or not self.is_alive(), f"{count} {kind}", seconds=250)
        assert self.is_alive(), (self.folder / "output").read_text()[-3000:]

    def kill(self) -> None:
        """Python's driver, its JVM and their workers, all at once: they are one process group."""
        if self.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def is_alive(self) -> bool:
        return self.process.poll() is None


def run_and_kill(spark: SparkSession, broker: BrokerProcess, folder: Path, kills: int, seed: int) -> None:
    from confluent_kafka import Producer

    chance = random.Random(seed)
    topic = Admin(broker.bootstrap).create_topic("killed", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    written = 0

    def produce(count: int) -> None:
        nonlocal written
        for _ in range(count):
            producer.produce(topic, value=b"%d" % written, partition=written % PARTITIONS)
            written += 1
        assert producer.flush(60) == 0

    stream = StreamProcess(broker.bootstrap, topic, folder / "stream")
    produce(5000)
    try:
        for _ in range(kills):
            stream.start()
            # Some kills come between an offset's entry and its commit, others just after a commit.
            kind = chance.choice(("offsets", "offsets", "commits"))
            stream.wait_for_batches(kind, stream.batches(kind) + chance.randrange(1, 4))
            stream.kill()
            # Enough for three more batches, which the next kill may wait for.
            produce(chance.randrange(2200, 4000))
        stream.start()
        stream.wait_for_batches("commits", -(-written // BATCH))
        rows = spark.read.parquet(str(stream.folder / "rows"))
        wait_for(lambda: rows.count() >= written or not stream.is_alive(), f"{written} rows", seconds=200, every=1.0)
    finally:
        stream.kill()
    found = spark.read.parquet(str(stream.folder / "rows")).selectExpr("cast(value as int) value").toPandas()["value"]
    assert len(found) == written, "records were lost or read twice"
    assert sorted(found) == list(range(written))


@pytest.mark.timeout(900)
def test_a_query_killed_and_restarted_gives_each_record_once(
    spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path
) -> None:
    """Every crash of a driver would lose records, or count them twice, and nobody would know which."""
    run_and_kill(spark, kbroker_broker, tmp_path, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_query_killed_and_restarted_twenty_times_gives_each_record_once(
    spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path
) -> None:
    """As above, at twenty points."""
    run_and_kill(spark, kbroker_broker, tmp_path, kills=20, seed=2)


def test_a_wrong_option_of_a_stream_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """The query would end with an error of Spark's own code, which says nothing of the option."""
    rows = (
        spark.readStream.format("kbroker")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "t")
        .option("startingOfsets", "earliest")
        .load()
    )
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        query.awaitTermination()


def test_available_now_reads_all_there_is_in_batches_of_the_limit(
    spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path
) -> None:
    """A scheduled job would end with a part of the topic, as if that were all; or take in one batch what is limited."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark before 4.2 gives Python sources no trigger")
    topic = Admin(kbroker_broker.bootstrap).create_topic("available", PARTITIONS)
    written = _write(kbroker_broker.bootstrap, topic, 0, 1000)

    def run() -> tuple[int, int]:
        counts: list[int] = []
        rows = (
            spark.readStream.format("kbroker")
            .option("kafka.bootstrap.servers", kbroker_broker.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "300")
            .load()
        )
        query = (
            rows.writeStream.foreachBatch(lambda batch, _number: counts.append(batch.count()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return sum(counts), sum(count > 0 for count in counts)

    assert run() == (written, 4)
    more = _write(kbroker_broker.bootstrap, topic, 1000, 100)
    assert run() == (more, 1)


def test_a_least_number_alone_is_a_limit() -> None:
    """Spark 4.2 would take a reader without a largest number for one that wants all there is, at every trigger."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark before 4.2 gives Python sources no limits")
    from kbroker.replay.sources.admission import AdmittingStreamReader

    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "minOffsetsPerTrigger": "10"}
    reader = AdmittingStreamReader(parse(given, streaming=True), ("value",))
    assert not reader.takes_all(reader.getDefaultReadLimit())
    at = ("t", 0)
    # The first batch does not wait.
    assert reader.next_offsets({at: 0}, {at: 3}) == {at: 3}
    assert reader.next_offsets({at: 3}, {at: 12}) == {at: 3}
    assert reader.next_offsets({at: 3}, {at: 13}) == {at: 13}


def _write(bootstrap: str, topic: str, first: int, count: int) -> int:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return count
