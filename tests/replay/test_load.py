"""Topics to Parquet and back: each offset once, whatever ended the runs before.

Also of `kbroker.cli.spark.load`, `kbroker.replay.load.export`, `kbroker.replay.load.files`,
`kbroker.replay.load.manifest`, `kbroker.replay.load.targets`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kbroker.cli.main import run
from kbroker.replay.load import LoadError, LoadRequest, Manifest, RestoreRequest, load_topics, read_loaded, restore
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.replay.moved_topics import assert_same, assert_spread_by_key, delete_before, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"retention.ms": "-1"}


@pytest.fixture
def topic(kbroker_broker: BrokerProcess) -> str:
    """Two partitions with 500 records."""
    name = Admin(kbroker_broker.bootstrap).create_topic("loaded", 2, KEEP)
    produce(kbroker_broker.bootstrap, name, 2, 0, 500)
    return name


def offsets_of(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    rows = read_loaded(spark, str(directory)).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def expected(per_partition: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(2) for offset in range(per_partition)]


def test_a_topic_comes_back_as_it_was(
    spark: SparkSession, kbroker_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """An archive of a topic would not hold what the topic held: keys, nulls, headers, times, partitions, order."""
    bootstrap = kbroker_broker.bootstrap
    report = load_topics(spark, LoadRequest(bootstrap, str(tmp_path / "out"), [topic], max_rows=100))
    assert (report.rows, report.files, report.gaps) == (500, 6, [])
    manifest = Manifest.existing(tmp_path / "out")
    for row in manifest.files:
        assert row.path is not None
        start, last = row.path.rsplit("/", 1)[1].removeprefix(f"{topic}-{row.partition}-").split("-")[:2]
        assert (int(start), int(last) + 1, row.rows) == (row.start, row.end, row.end - row.start)
    request = RestoreRequest(
        bootstrap, str(tmp_path / "out"), str(tmp_path / "state"), f"back-{topic}", create=2, slice_records=60
    )
    assert sum(one.written for one in restore(spark, request)) == 500
    assert sum(one.written for one in restore(spark, request)) == 0
    assert_same((bootstrap, topic), (bootstrap, f"back-{topic}"), 2)


def test_a_second_load_takes_only_what_is_new(
    spark: SparkSession, kbroker_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """A nightly load would read everything again, or skip what came in between; leftovers would count as data."""
    bootstrap = kbroker_broker.bootstrap
    until = json.dumps({topic: {"0": 100, "1": 150}})
    first = LoadRequest(bootstrap, str(tmp_path), [topic], ending_offsets=until)
    assert load_topics(spark, first).rows == 250
    leftover = tmp_path / f"topic={topic}" / "partition=0" / f"{topic}-0-00000000000000000100-left.parquet"
    leftover.write_bytes(b"PAR1 of a run that was killed")
    assert offsets_of(spark, tmp_path) == [(0, n) for n in range(100)] + [(1, n) for n in range(150)]
    produce(bootstrap, topic, 2, 500, 100)
    report = load_topics(spark, LoadRequest(bootstrap, str(tmp_path), [topic]))
    assert (report.rows, report.leftovers) == (350, 1)
    assert not leftover.exists()
    assert load_topics(spark, LoadRequest(bootstrap, str(tmp_path), [topic])).rows == 0
    assert offsets_of(spark, tmp_path) == expected(300)


def test_offsets_that_are_gone_are_an_error_or_a_gap(
    spark: SparkSession, kbroker_broker: BrokerProcess, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records that retention took before the load came would be missing without a word."""
    bootstrap = kbroker_broker.bootstrap
    load_topics(spark, LoadRequest(bootstrap, str(tmp_path), [topic]))
    produce(bootstrap, topic, 2, 500, 100)
    delete_before(bootstrap, topic, 1, 270)
    words = ["load", "to-parquet", topic, "-b", bootstrap, "-o", str(tmp_path)]
    assert run(words) == 1
    assert f"offsets 250 to 269 of {topic}-1 are gone" in capfd.readouterr().err
    assert run([*words, "--allow-gaps", "--json"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["gaps"] == [[topic, 1, 250, 270]]
    assert offsets_of(spark, tmp_path) == [at for at in expected(300) if at[0] == 0 or not 250 <= at[1] < 270]
    assert run(["load", "show", str(tmp_path), "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert [(row["end"], row["rows"], row["gaps"]) for row in shown] == [(300, 300, 0), (300, 280, 1)]


def test_a_topic_that_was_made_anew_is_not_mixed_with_the_old(
    spark: SparkSession, kbroker_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Offsets of two different topics would lie in one directory as if they were one."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    bootstrap = kbroker_broker.bootstrap
    load_topics(spark, LoadRequest(bootstrap, str(tmp_path), [topic]))
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(30)
    client.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)
    with pytest.raises(LoadError, match="created anew since the last load"):
        load_topics(spark, LoadRequest(bootstrap, str(tmp_path), [topic]))


def test_any_parquet_goes_to_partitions_by_key(
    spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of another tool could not be brought into a topic, or a key's records would be spread over partitions."""
    from kbroker.client.cluster import Cluster

    bootstrap = kbroker_broker.bootstrap
    spark.range(1000).selectExpr(
        "concat('k', id % 37) key", "cast(id as string) value", "id source_number"
    ).repartition(3).write.parquet(str(tmp_path / "in"))
    name = f"plain-{os.getpid()}"
    words = ["load", "to-topic", str(tmp_path / "in"), "-b", bootstrap, "--state", str(tmp_path / "state")]
    assert run([*words, "--topic", name]) == 1
    assert "say --partitions key" in capfd.readouterr().err
    words += ["--topic", name, "--partitions", "key", "--no-timestamps", "--create", "3", "--json"]
    assert run(words) == 0
    assert sum(row["written"] for row in json.loads(capfd.readouterr().out)) == 1000
    assert run(words) == 0
    assert sum(row["written"] for row in json.loads(capfd.readouterr().out)) == 0
    with Cluster(bootstrap) as cluster:
        assert len(cluster.describe([name])[name].partitions) == 3
    assert_spread_by_key(bootstrap, name, 3, 1000)


def loaded_from(directory: Path) -> int:
    """How many rows a load has brought."""
    return sum(row.rows for row in Manifest.read(directory).files)


class LoadProcess:
    """A driver of a load that can be killed with all that it started."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.out = folder / "out"
        self.log = folder / "log"
        environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environ["PYTHONPATH"] = str(ROOT)
        words = [sys.executable, "-m", "tests.replay.load_process", bootstrap, topic, str(self.out), str(folder)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True
            )

    def loaded(self) -> int:
        return loaded_from(self.out) if self.out.exists() else 0

    def reached(self, goal: int) -> bool:
        return self.process.poll() is not None or self.loaded() >= goal

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@pytest.fixture
def started() -> Iterator[list[LoadProcess]]:
    """Loads that are ended whatever the test does."""
    found: list[LoadProcess] = []
    yield found
    for process in found:
        process.kill()


@pytest.mark.timeout(600)
def test_a_load_killed_and_run_again_has_each_offset_once(
    spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path, started: list[LoadProcess]
) -> None:
    """Each crash of a load would lose offsets, or load them twice, and nobody would know which."""
    chance = random.Random(5)
    topic = Admin(kbroker_broker.bootstrap).create_topic("killed-load", 2, KEEP)
    total, kills_in_the_middle = 0, 0
    (tmp_path / "out").mkdir()
    for _ in range(6):
        if not total or loaded_from(tmp_path / "out") == total:
            # What was loaded until now was through before it could be killed.
            produce(kbroker_broker.bootstrap, topic, 2, total, 6000)
            total += 6000
        load = LoadProcess(kbroker_broker.bootstrap, topic, tmp_path)
        started.append(load)
        goal = load.loaded() + chance.randrange(60, 1500)
        wait_for(partial(load.reached, goal), f"{goal} rows", seconds=200)
        assert load.process.poll() in (None, 0), load.log.read_text()[-3000:]
        load.kill()
        kills_in_the_middle += load.loaded() < total
        if kills_in_the_middle == 2:
            break
    assert kills_in_the_middle == 2
    load_topics(spark, LoadRequest(kbroker_broker.bootstrap, str(tmp_path / "out"), [topic], max_rows=5000))
    assert offsets_of(spark, tmp_path / "out") == expected(total // 2)
    assert not list(Manifest.existing(tmp_path / "out").leftovers())
