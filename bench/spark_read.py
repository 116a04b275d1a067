"""Topics in and out of Spark: this project's data sources beside Spark's own Kafka connector, interleaved rounds.

    python bench/spark_read.py                                         a kbroker of its own, a million records
    python bench/spark_read.py --records 5000000 --codec zstd --partitions 8 --rounds 5
    python bench/spark_read.py --bootstrap 127.0.0.1:9092 --data /var/lib/kafka/data      a broker that runs already

Beside them stands `prepared`: a Python source that reads nothing and, as a sink, drops what it is given.  Its workers
hand Spark one batch of rows, made once, again and again, as many as the topic has; they take the Arrow batches that
Spark makes, and count.  No source or sink in Python can be faster.

Each round scans the topic once with every reader (`noop` sink: every column of every row reaches the JVM) and once for
sums over keys and values, and writes as many records, made by Spark, into a new topic with every writer, each with its
defaults (`acks=all`, idempotent).  Beside rows per second stands rows per second of CPU time (driver, JVM and Python
workers together), which other work on the machine disturbs least, and the largest resident memory of a Python worker.
Before each writing the disk gets what is left to write, and four times the memory of the records is used once: a
virtual machine has given back what the last topic held, and pages that it gets anew cost the broker several times more.
Spark's connector comes by Maven on first use (tests/replay/connector).  Needs the extra `spark` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.limits import settle, touch_memory  # noqa: E402
from tests.broker_process import BrokerProcess  # noqa: E402
from tests.replay.connector import connector_jars  # noqa: E402

READERS = ("kafka", "prepared", "kbroker", "kbroker-log")
BATCH_ROWS = 10_000
WRITERS = ("kafka", "prepared", "kbroker")


def parser_of(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """The options that say what is read and written."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--cores", type=int, default=2, help="of local[N]")
    parser.add_argument("--bootstrap", help="a broker that runs already; its topic is left there")
    parser.add_argument("--data", type=Path, help="that broker's log directory, for kbroker-log")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


def create(bootstrap: str, partitions: int, suffix: str = "") -> str:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    topic = f"spark-read-{time.time_ns()}{suffix}"
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return topic


def delete(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(30)


def count(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records the topic has."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "spark-read"})
    try:
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, number), 30) for number in range(partitions))
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def fill(bootstrap: str, arguments: argparse.Namespace) -> str:
    from confluent_kafka import Producer

    topic = create(bootstrap, arguments.partitions)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": arguments.codec, "linger.ms": 50, "batch.size": 262_144}
    )
    filler = b"abcdefghij" * (arguments.size // 10 + 1)
    for number in range(arguments.records):
        value = (b"%d " % number + filler)[: arguments.size]
        while True:
            try:
                producer.produce(
                    topic, key=b"key-%d" % (number % 1000), value=value, partition=number % arguments.partitions
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not take all records")
    return topic


def records_gigabytes(arguments: argparse.Namespace) -> float:
    return float(arguments.records * (arguments.size + 20)) / (1 << 30)


def processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def cpu_seconds() -> float:
    total = 0.0
    for process in processes():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def peak_worker_bytes() -> int:
    """The largest VmHWM of the Python workers that are still there."""
    peak = 0
    for process in processes()[1:]:
        try:
            if "python" in process.name():
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peak = max(peak, *(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
        except (psutil.NoSuchProcess, OSError):
            continue
    return peak


def measure(work: Callable[[], int]) -> tuple[float, float, int]:
    cpu, began = cpu_seconds(), time.perf_counter()
    rows = work()
    return time.perf_counter() - began, cpu_seconds() - cpu, rows


def register_prepared(spark: Any, arguments: argparse.Namespace) -> None:
    """The source and sink `prepared`; its rows look like the topic's."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        InputPartition,
        WriterCommitMessage,
    )

    from kbroker.replay.sources.spark_schema import schema_of

    columns = schema_of(False)
    rows, size, partitions = arguments.records, arguments.size, arguments.partitions

    class Prepared(DataSource):
        @classmethod
        def name(cls) -> str:
            return "prepared"

        def schema(self) -> Any:
            return columns

        def reader(self, schema: Any) -> DataSourceReader:
            return PreparedReader()

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return PreparedWriter()

    class Taken(WriterCommitMessage):
        def __init__(self, rows: int) -> None:
            self.rows = rows

    class PreparedWriter(DataSourceArrowWriter):
        def write(self, iterator: Any) -> WriterCommitMessage:
            return Taken(sum(batch.num_rows for batch in iterator))

        def commit(self, messages: Any) -> None:
            if (taken := sum(message.rows for message in messages)) != rows:
                raise ValueError(f"{taken} rows came instead of {rows}")

    class PreparedReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(partitions)]

        def read(self, partition: InputPartition) -> Any:
            from datetime import UTC, datetime

            import pyarrow as pa
            from pyspark.sql.pandas.types import to_arrow_schema

            count = min(BATCH_ROWS, rows)
            now = datetime.now(UTC)
            made = {
                "key": [b"key-%d" % (number % 1000) for number in range(count)],
                "value": [b"x" * size] * count,
                "topic": ["spark-read-topic-of-a-name"] * count,
                "partition": [partition.value] * count,
                "offset": list(range(count)),
                "timestamp": [now] * count,
                "timestampType": [0] * count,
            }
            batch = pa.RecordBatch.from_pydict(made, schema=to_arrow_schema(columns))
            left = rows // partitions
            while left > 0:
                yield batch.slice(0, min(left, count))
                left -= count

    spark.dataSource.register(Prepared)


def open_session(cores: int, jars: bool) -> Any:
    """A session with this project's sources, and with `jars` Spark's own connector."""
    from pyspark.sql import SparkSession

    from kbroker.replay import register

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    if jars:
        settings["spark.jars"] = ",".join(connector_jars())
    builder = SparkSession.builder.master(f"local[{cores}]").appName("spark-read")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def frame_of(spark: Any, reader: str, bootstrap: str, topic: str, data: Path | None) -> Any:
    if reader == "prepared":
        return spark.read.format(reader).load()
    if reader == "kbroker-log":
        return spark.read.format(reader).option("topics", topic).load(str(data))
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format(reader).options(**options).load()


def scan_all(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def write_rows(spark: Any, writer: str, arguments: argparse.Namespace, cores: int, options: dict[str, str]) -> None:
    """As many rows as the topic has, made by Spark."""
    made = spark.range(0, arguments.records, 1, cores).selectExpr(
        "cast(concat('key-', id % 1000) as binary) key",
        f"cast(rpad(concat(id, ' '), {arguments.size}, 'abcdefghij') as binary) value",
    )
    made.write.format(writer).options(**options).mode("append").save()


def run(arguments: argparse.Namespace, bootstrap: str, data: Path | None) -> dict[str, Any]:
    from pyspark.sql import functions as f

    from kbroker.replay.spark_python import workers_python

    os.environ["PYSPARK_PYTHON"] = workers_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = open_session(arguments.cores, jars=True)
    register_prepared(spark, arguments)
    topic = fill(bootstrap, arguments)

    def frame(reader: str) -> Any:
        return frame_of(spark, reader, bootstrap, topic, data)

    def scan(reader: str) -> int:
        scan_all(frame(reader))
        return arguments.records

    def add_up(reader: str) -> int:
        sums = frame(reader).agg(f.count("*"), f.sum(f.length("key")), f.sum(f.length("value"))).collect()[0]
        if sums[0] != arguments.records or sums[2] != arguments.records * arguments.size:
            raise SystemExit(f"{reader} read {sums[0]} rows with {sums[2]} bytes of values")
        return arguments.records

    def write(writer: str) -> int:
        options = {} if writer == "prepared" else {"kafka.bootstrap.servers": bootstrap, "topic": written}
        write_rows(spark, writer, arguments, arguments.cores, options)
        return arguments.records

    readers = READERS if data is not None else READERS[:-1]
    figures: dict[str, dict[str, list[float]]] = {}

    def note(number: int, which: str, name: str, work: Callable[[str], int]) -> None:
        wall, cpu, rows = measure(lambda: work(which))
        if number == 0:
            # The first round warms the JVM, the workers and the page cache.
            return
        row = figures.setdefault(f"{which} {name}", {"rows_per_s": [], "rows_per_cpu_s": []})
        row["rows_per_s"].append(rows / wall)
        row["rows_per_cpu_s"].append(rows / cpu)
        print(f"round {number}  {which:12} {name:5}  {rows / wall:12,.0f} rows/s  {rows / cpu:12,.0f} rows/CPU s")

    for number in range(arguments.rounds + 1):
        for reader in readers if number % 2 else reversed(readers):
            note(number, reader, "scan", scan)
            note(number, reader, "sums", add_up)
        for writer in WRITERS if number % 2 else reversed(WRITERS):
            written = create(bootstrap, arguments.partitions, "-write")
            settle()
            touch_memory(records_gigabytes(arguments) * 4)
            note(number, writer, "write", write)
            found = count(bootstrap, written, arguments.partitions)
            if found != (0 if writer == "prepared" else arguments.records):
                raise SystemExit(f"{writer} wrote {found} records instead of {arguments.records}")
            delete(bootstrap, written)
    peak = peak_worker_bytes()
    spark.stop()
    medians = {name: {key: statistics.median(values) for key, values in row.items()} for name, row in figures.items()}
    return {"settings": vars(arguments), "medians": medians, "rounds": figures, "peak_worker_bytes": peak}


def report(document: dict[str, Any]) -> None:
    medians = document["medians"]
    print(f"\n{'reader':20}{'rows/s':>14}{'of kafka':>10}{'rows/CPU s':>14}{'of kafka':>10}")
    for name, row in medians.items():
        base = medians[f"kafka {name.split()[1]}"]
        cells = "".join(f"{row[key]:14,.0f}{row[key] / base[key]:9.1f}x" for key in ("rows_per_s", "rows_per_cpu_s"))
        print(f"{name:20}{cells}")
    print(f"largest Python worker: {document['peak_worker_bytes'] / 1e6:.0f} MB resident")


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="spark-read-") as folder:
        broker = None
        bootstrap, data = arguments.bootstrap, arguments.data
        if bootstrap is None:
            broker = BrokerProcess(Path(folder))
            broker.start()
            bootstrap, data = broker.bootstrap, broker.data_dir
        try:
            document = run(arguments, bootstrap, data)
        finally:
            if broker is not None:
                broker.stop()
    report(document)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
