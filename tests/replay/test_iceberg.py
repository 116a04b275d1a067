"""Topics as Iceberg tables by Spark: killed and run again, each record once; read back by PyIceberg.

Also of `kbroker.replay.load.iceberg`, `kbroker.replay.load.planning`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
from confluent_kafka import Producer, TopicPartition

from kbroker.cli.spark.load import with_packages
from kbroker.replay.load import LoadError
from kbroker.replay.load.iceberg import GAPS, OFFSETS, settings
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.replay.hdfs import hdfs
from tests.replay.iceberg import iceberg_jars, spark_folder
from tests.replay.moved_topics import COLUMNS, Held, held
from tests.replay.odd_topics import produce_odd, produce_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 2
KEPT = {"retention.ms": "-1"}


def on_spark(test: Callable[..., None]) -> Callable[..., None]:
    """It needs another PySpark than the other tests do, which is 400 MB to fetch."""
    return pytest.mark.slow(pytest.mark.spark(test))  # type: ignore[no-any-return]


class Lake:
    """A warehouse in a directory with its catalog in SQLite, loads into it, and its tables as PyIceberg reads them."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self.folder = folder
        self.bootstrap = broker.bootstrap
        self.database = folder / "catalog.db"
        self.warehouse = f"file://{folder}/warehouse"
        conf = {
            "spark.jars": ",".join(iceberg_jars()),
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self.arguments = ["--master", "local[1]", "--warehouse", self.warehouse]
        for option in ("type=jdbc", f"uri=jdbc:sqlite:{self.database}", "jdbc.schema-version=V1"):
            self.arguments += ["--catalog-option", option]
        for name, value in conf.items():
            self.arguments += ["--conf", f"{name}={value}"]

    def start(self, topic: str, *more: str) -> subprocess.Popen[str]:
        """A load in a process group of its own."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        environ |= {"PYTHONPATH": f"{spark_folder()}{os.pathsep}{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"}
        program = "import sys; from kbroker.cli.main import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "load", "to-iceberg", topic, "-b", self.bootstrap, "--json"]
        return subprocess.Popen(
            [*command, *self.arguments, *more], cwd=self.folder, env=environ, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def load(self, topic: str, *more: str) -> Any:
        """What a load that ends by itself says: one row for each table."""
        with self.start(topic, *more) as process:
            said, wrong = process.communicate(timeout=200)
        assert process.returncode == 0, wrong
        return json.loads(said)

    def fails(self, topic: str, *more: str) -> str:
        """The error of a load that fails."""
        with self.start(topic, *more) as process:
            _, wrong = process.communicate(timeout=200)
        assert process.returncode == 1, wrong
        return wrong

    def table(self, topic: str) -> Any:
        """The table by another engine."""
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("lake", uri=f"sqlite:///{self.database}", warehouse=self.warehouse)
        try:
            return catalog.load_table(("topics", topic))
        finally:
            catalog.engine.dispose()

    def snapshots(self, topic: str) -> int:
        """How many commits there are; 0 while there is no table."""
        from pyiceberg.exceptions import NoSuchTableError
        from sqlalchemy.exc import OperationalError

        try:
            return len(self.table(topic).metadata.snapshots)
        except (NoSuchTableError, OperationalError):
            return 0

    def wait_for_snapshots(self, topic: str, count: int, process: subprocess.Popen[str]) -> None:
        """Until so many commits are there, or the load has ended."""
        wait_for(
            lambda: self.snapshots(topic) >= count or process.poll() is not None,
            f"{count} commits", seconds=200, every=0.3,
        )  # fmt: skip

    def places(self, topic: str) -> list[tuple[int, int]]:
        """Partition and offset of each row, sorted."""
        rows = self.table(topic).scan(selected_fields=("partition", "offset")).to_arrow()
        return sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


@pytest.fixture
def lake(tmp_path: Path, kbroker_broker: BrokerProcess) -> Iterator[Lake]:
    pytest.importorskip("pyiceberg")
    yield Lake(tmp_path, kbroker_broker)


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def every_place(count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(count // PARTITIONS)]


@on_spark
def test_a_topic_is_read_back_by_another_engine(lake: Lake) -> None:
    """Rows of the table would not be the records: bytes, headers or times changed, or what was taken back counted."""
    admin = Admin(lake.bootstrap)
    topic = admin.create_topic("ice.odd", PARTITIONS, KEPT)
    produce_odd(lake.bootstrap, topic, "zstd", PARTITIONS, 200)
    (said,) = lake.load(topic)
    assert (said["rows"], said["commits"]) == (200, 1)
    table = lake.table(topic)
    # PyIceberg gives an empty list for one that is null.
    rows = [{**row, "headers": row["headers"] or None} for row in table.scan().to_arrow().to_pylist()]
    for partition in range(PARTITIONS):
        own = sorted((row for row in rows if row["partition"] == partition), key=lambda row: int(row["offset"]))
        found = Held(*([row[name] for row in own] for name in COLUMNS))
        assert found == held(lake.bootstrap, topic, partition)
    assert {row["topic"] for row in rows} == {topic}
    assert min(row["timestamp"] for row in rows).timestamp() == 1_700_000_000
    assert json.loads(table.current_snapshot().summary[OFFSETS]) == {"0": 100, "1": 100}
    # Nothing new, no commit; something new, a commit.
    assert lake.load(topic)[0]["commits"] == 0
    produce(lake.bootstrap, topic, 0, 30)
    assert lake.load(topic)[0]["rows"] == 30
    assert lake.places(topic) == every_place(230)
    assert "go on with that" in lake.fails(topic, "--isolation", "read_uncommitted")


@on_spark
def test_records_of_aborted_transactions_are_no_rows(lake: Lake) -> None:
    """A table would count what was taken back, or a load begin again at markers, which are no rows."""
    topic = Admin(lake.bootstrap).create_topic("ice-transactions", 1)
    produce_transactions(lake.bootstrap, topic, lambda number: number == 0, 2)
    assert lake.load(topic)[0]["rows"] == 22
    end = Admin(lake.bootstrap).end_offsets(topic, 1)[0]
    assert json.loads(lake.table(topic).current_snapshot().summary[OFFSETS]) == {"0": end}
    assert lake.load(topic)[0]["commits"] == 0


@on_spark
def test_what_others_do_to_a_table_does_not_make_a_load_begin_again(lake: Lake) -> None:
    """A compaction, or old snapshots that expire, would have all records twice."""
    topic = Admin(lake.bootstrap).create_topic("ice-others", PARTITIONS, KEPT)
    produce(lake.bootstrap, topic, 0, 100)
    lake.load(topic)
    lake.table(topic).delete("offset < 10")
    assert lake.table(topic).current_snapshot().summary[OFFSETS] is None
    assert lake.load(topic)[0]["commits"] == 0
    table = lake.table(topic)
    current = table.current_snapshot().snapshot_id
    others = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    produce(lake.bootstrap, topic, 100, 50)
    assert lake.load(topic)[0]["rows"] == 50
    assert lake.places(topic) == [place for place in every_place(150) if place[1] >= 10]


@on_spark
def test_offsets_that_are_gone_are_an_error_or_a_gap(lake: Lake) -> None:
    """Retention that was quicker than the load would leave a hole that nobody is shown."""
    admin = Admin(lake.bootstrap)
    topic = admin.create_topic("ice-gone", PARTITIONS, KEPT)
    produce(lake.bootstrap, topic, 0, 100)
    until = {topic: {"0": 50, "1": 10}}
    assert lake.load(topic, "--until-offsets", json.dumps(until))[0]["rows"] == 60
    client = admin._client
    for future in client.delete_records([TopicPartition(topic, 1, 20)]).values():
        future.result(30)
    assert f"offsets 10 to 19 of {topic}-1 are gone" in lake.fails(topic)
    said = lake.load(topic, "--allow-gaps")[0]
    assert (said["rows"], said["gaps"]) == (30, 1)
    assert json.loads(lake.table(topic).current_snapshot().summary[GAPS]) == [[topic, 1, 10, 20]]
    assert lake.places(topic) == [place for place in every_place(100) if place not in [(1, at) for at in range(10, 20)]]


@on_spark
@pytest.mark.timeout(900)
def test_a_load_killed_at_any_point_and_run_again_has_each_record_once(lake: Lake) -> None:
    """A crash would lose records or have them twice, and nobody would know which."""
    chance = random.Random(5)
    topic = Admin(lake.bootstrap).create_topic("ice-killed", PARTITIONS, KEPT)
    produce(lake.bootstrap, topic, 0, 3000)
    small = ("--max-rows", "60")
    for whole_group in (True, False, True):
        before = lake.snapshots(topic)
        process = lake.start(topic, *small)
        lake.wait_for_snapshots(topic, before + chance.randrange(1, 4), process)
        assert process.poll() is None, process.communicate()
        # The driver with its JVM, or the driver alone, whose JVM may still commit what it had begun.
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
        process.communicate()
    while True:
        with lake.start(topic, *small) as last:
            _, wrong = last.communicate(timeout=300)
        if last.returncode == 0:
            break
        assert "run it again" in wrong
    assert lake.places(topic) == every_place(3000)


@on_spark
def test_rows_that_another_load_has_committed_are_not_committed_again(lake: Lake) -> None:
    """Two loads at a time, or one that was thought dead, would have each record twice."""
    topic = Admin(lake.bootstrap).create_topic("ice-two", PARTITIONS, KEPT)
    produce(lake.bootstrap, topic, 0, 6000)
    both = [lake.start(topic, "--max-rows", "400") for _ in range(2)]
    ends = [(process.communicate(timeout=250)[1], process.returncode) for process in both]
    assert any(code == 0 for _, code in ends), ends
    for wrong, code in ends:
        assert code == 0 or "another load" in wrong, wrong
    lake.load(topic)
    assert lake.places(topic) == every_place(6000)


@on_spark
def test_a_warehouse_may_be_on_hdfs(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """A lake lies in a distributed file system more often than on one machine's disk."""
    topic = Admin(lake.bootstrap).create_topic("ice-hdfs", PARTITIONS, KEPT)
    folder = tmp_path / "hdfs"
    folder.mkdir()
    with hdfs(folder) as address:
        lake.arguments += ["--warehouse", f"{address}/lake", "--catalog-option", "type=hadoop"]
        for turn in range(2):
            produce(lake.bootstrap, topic, turn * 100, 100)
            assert lake.load(topic)[0]["rows"] == 100
        rows = spark.read.parquet(f"{address}/lake/topics/{topic}/data").select("partition", "offset").collect()
    assert sorted((row["partition"], row["offset"]) for row in rows) == every_place(200)


def test_a_spark_that_iceberg_has_no_runtime_for_is_named() -> None:
    """The load would end in a Java class that changed, minutes later."""
    with pytest.raises(LoadError, match=r"no runtime for Spark 4\.9"):
        settings("4.9.1", "lake", {"type": "hadoop"}, {})
    own = settings("4.9.1", "lake", {"type": "rest"}, {"spark.jars": "x.jar"})
    assert "spark.jars.packages" not in own
    assert own["spark.sql.catalog.lake.type"] == "rest"
    assert "runtime-4.1_2.13" in settings("4.1.0", "lake", {}, {})["spark.jars.packages"]


def test_packages_come_to_those_that_there_are() -> None:
    """A connector of an object store would take the place of Iceberg's runtime, or of the user's own packages."""
    own = settings("4.1.0", "lake", {}, {})["spark.jars.packages"]
    given = {"conf": (f"spark.jars.packages={own}", "a=b"), "packages": ("x:y:1", "v:w:2,v:u:3")}
    assert with_packages(given) == {"a": "b", "spark.jars.packages": f"{own},x:y:1,v:w:2,v:u:3"}
    assert with_packages({"conf": (), "packages": ("x:y:1",)}) == {"spark.jars.packages": "x:y:1"}
    assert with_packages({"conf": ("a=b",), "packages": ()}) == {"a": "b"}
