"""Loads on Spark's own file systems: to HDFS and S3 and back, each record once, whoever else runs or died.

Also of `kbroker.replay.load.hadoop_folder`, `kbroker.replay.load.job_state`, `kbroker.replay.load.lane_results`,
`kbroker.replay.load.lane_rounds`, `kbroker.replay.load.load_request`, `kbroker.replay.load.remote_export`,
`kbroker.replay.load.remote_restore`, `kbroker.replay.load.restore_request`, `kbroker.replay.load.restore_rows`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kbroker.cli.main import run
from kbroker.replay.load import (
    LoadError,
    LoadRequest,
    RestoreRequest,
    load_topics,
    read_loaded,
    remote_restore,
    restore,
)
from kbroker.replay.load.hadoop_folder import HadoopFolder
from kbroker.replay.load.job_state import CarriedState
from kbroker.replay.load.lanes import CarriedStates
from kbroker.replay.load.remote_export import STAGING
from kbroker.replay.mirror import MirrorRequest, mirror_follow, mirror_once
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.waiting import wait_for
from tests.replay.conftest import SPARK_SETTINGS
from tests.replay.hdfs import hdfs
from tests.replay.moved_topics import (
    COLUMNS,
    Held,
    assert_same,
    assert_spread_by_key,
    delete_before,
    held,
    produce,
)
from tests.replay.odd_topics import produce_odd
from tests.replay.s3 import BUCKET, s3, s3a_jars, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"retention.ms": "-1"}
PARTITIONS = 2


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an HDFS for all tests of the module."""
    with hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def places(spark: SparkSession, directory: str) -> list[tuple[int, int]]:
    rows = read_loaded(spark, directory).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def expected(per_partition: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(per_partition)]


def test_a_topic_is_on_hdfs_as_it_was(spark: SparkSession, kbroker_broker: BrokerProcess, address: str) -> None:
    """Rows in a lake would not be the records: bytes, headers or times changed, or in another order."""
    bootstrap, folder = kbroker_broker.bootstrap, f"{address}/odd"
    topic = Admin(bootstrap).create_topic("remote.odd", PARTITIONS, KEEP)
    produce_odd(bootstrap, topic, "zstd", PARTITIONS, 200)
    report = load_topics(spark, LoadRequest(bootstrap, folder, [topic], max_rows=30))
    assert (report.rows, report.files) == (200, 8)
    assert not [name for name in HadoopFolder(spark, folder).names() if name.startswith(STAGING)]
    frame = read_loaded(spark, folder).toArrow()
    for partition in range(PARTITIONS):
        own = [row for row in frame.to_pylist() if row["partition"] == partition]
        own.sort(key=lambda row: int(row["offset"]))
        assert Held(*([row[name] for row in own] for name in COLUMNS)) == held(bootstrap, topic, partition)
    names = sorted(path.rsplit("/", 1)[1] for path in HadoopFolder(spark, folder).files() if "/partition=0/" in path)
    assert [name[: -len("-00000000.parquet")] for name in names] == [
        f"{topic}-0-{start:020d}-{end - 1:020d}" for start, end in ((0, 30), (30, 60), (60, 80), (80, 100))
    ]
    back = Admin(bootstrap).create_topic("remote.back", PARTITIONS, KEEP)
    request = RestoreRequest(bootstrap, folder, f"{address}/odd-state", back, slice_records=20)
    assert sum(one.written for one in restore(spark, request)) == 200
    assert sum(one.written for one in restore(spark, request)) == 0
    assert_same((bootstrap, topic), (bootstrap, back), PARTITIONS)


def test_a_second_load_takes_only_what_is_new(
    spark: SparkSession, kbroker_broker: BrokerProcess, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A nightly load would read everything again, or what a killed one left behind would count as data."""
    bootstrap, folder = kbroker_broker.bootstrap, f"{address}/again"
    topic = Admin(bootstrap).create_topic("remote-again", PARTITIONS, KEEP)
    produce(bootstrap, topic, PARTITIONS, 0, 300)
    until = json.dumps({topic: {"0": 100, "1": 150}})
    assert load_topics(spark, LoadRequest(bootstrap, folder, [topic], ending_offsets=until)).rows == 250
    place = HadoopFolder(spark, folder)
    place.create(f"topic={topic}/partition=0/{topic}-0-00000000000000000100-left.parquet", "of a run that was killed")
    place.create(f"{STAGING}dead/part-0.parquet", "of another")
    place.create("_manifest.0000000099.json", '{"format": "kbro')
    assert places(spark, folder) == [(0, n) for n in range(100)] + [(1, n) for n in range(150)]
    delete_before(bootstrap, topic, 0, 120)
    words = ["load", "to-parquet", topic, "-b", bootstrap, "-o", folder, "--json"]
    assert run(words) == 1
    assert f"offsets 100 to 119 of {topic}-0 are gone" in capfd.readouterr().err
    assert run([*words, "--allow-gaps"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["rows"], said["gaps"], said["leftovers_removed"]) == (30, [[topic, 0, 100, 120]], 0)
    assert not [path for path in place.files() if "left" in path or STAGING in path]
    assert run(["load", "show", folder, "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert [(row["end"], row["rows"], row["gaps"]) for row in shown] == [(150, 130, 1), (150, 150, 0)]
    assert len([name for name in place.names() if name.startswith("_manifest")]) == 2


def test_of_two_loads_the_later_goes_on_and_nothing_is_there_twice(
    spark: SparkSession, kbroker_broker: BrokerProcess, address: str
) -> None:
    """A run that was thought dead would bring in what the next has loaded, or name files that it has removed."""
    bootstrap, folder = kbroker_broker.bootstrap, f"{address}/two"
    topic = Admin(bootstrap).create_topic("remote-two", PARTITIONS, KEEP)
    produce(bootstrap, topic, PARTITIONS, 0, 800)
    request = LoadRequest(bootstrap, folder, [topic], max_rows=50)
    rounds = []

    def overtaken(done: int, total: int) -> None:
        rounds.append((done, total))
        if len(rounds) == 2:
            load_topics(spark, LoadRequest(bootstrap, folder, [topic], max_rows=100, ending_offsets=until))

    until = json.dumps({topic: {"0": 300, "1": 300}})
    with pytest.raises(LoadError, match="another run has begun"):
        load_topics(spark, request, overtaken)
    assert places(spark, folder) == expected(300)
    assert load_topics(spark, request).rows == 200
    assert places(spark, folder) == expected(400)


def test_a_restore_that_died_behind_its_last_state_writes_each_row_once(
    spark: SparkSession, kbroker_broker: BrokerProcess, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tasks wrote before the driver had noted it would be written twice."""
    bootstrap, folder, state = kbroker_broker.bootstrap, f"{address}/dying", f"{address}/dying-state"
    topic = Admin(bootstrap).create_topic("remote-dying", PARTITIONS, KEEP)
    produce(bootstrap, topic, PARTITIONS, 0, 600)
    load_topics(spark, LoadRequest(bootstrap, folder, [topic], max_rows=40))
    monkeypatch.setattr(remote_restore, "ROUND_ROWS", 50)
    back = Admin(bootstrap).create_topic("remote-back", PARTITIONS, KEEP)
    request = RestoreRequest(bootstrap, folder, state, back, slice_records=30)
    took, rounds = CarriedState.took, []

    def dies(self: CarriedState, results: Any) -> None:
        rounds.append(results)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        took(self, results)

    monkeypatch.setattr(CarriedState, "took", dies)
    with pytest.raises(KeyboardInterrupt):
        restore(spark, request)
    monkeypatch.setattr(CarriedState, "took", took)
    # With other rounds than the run that died.
    monkeypatch.setattr(remote_restore, "ROUND_ROWS", 20)
    results = restore(spark, request)
    assert sum(one.found for one in results) > 0
    assert sum(one.found + one.written for one in results) < 600
    assert_same((bootstrap, topic), (bootstrap, back), PARTITIONS)


def test_any_parquet_goes_to_partitions_by_key(
    spark: SparkSession, kbroker_broker: BrokerProcess, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of another tool could not be brought into a topic, or a key's records would be spread over partitions."""
    bootstrap, folder = kbroker_broker.bootstrap, f"{address}/plain files"
    spark.range(1000).selectExpr(
        "concat('k', id % 37) key", "cast(id as string) value", "id source_number"
    ).repartition(3).write.parquet(folder)
    name = f"remote-plain-{os.getpid()}"
    words = ["load", "to-topic", folder, "-b", bootstrap, "--state", f"{address}/plain-state", "--topic", name]
    assert run(words) == 1
    assert "say --partitions key" in capfd.readouterr().err
    words += ["--partitions", "key", "--no-timestamps", "--create", "3", "--json"]
    for expected_rows in (1000, 0):
        assert run(words) == 0
        assert sum(row["written"] for row in json.loads(capfd.readouterr().out)) == expected_rows
    assert_spread_by_key(bootstrap, name, 3, 1000)


def test_a_mirror_keeps_its_state_there(
    spark: SparkSession, kbroker_broker: BrokerProcess, target: BrokerProcess, address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A mirror whose machine is lost would begin anew, and have everything twice."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("remote-mirrored", PARTITIONS, KEEP)
    produce(kbroker_broker.bootstrap, topic, PARTITIONS, 0, 400)
    monkeypatch.setattr(CarriedStates.__init__, "__defaults__", (70,))
    request = MirrorRequest(kbroker_broker.bootstrap, target.bootstrap, f"{address}/mirror", [topic], slice_records=30)
    assert [one.written for one in mirror_once(spark, request)] == [200, 200]
    produce(kbroker_broker.bootstrap, topic, PARTITIONS, 400, 100)
    brought: list[int] = []
    with mirror_follow(
        spark, request, trigger_s=0.3, on_batch=lambda results: brought.append(sum(one.written for one in results))
    ) as query:
        assert brought == [100]
        produce(kbroker_broker.bootstrap, topic, PARTITIONS, 500, 60)
        query.processAllAvailable()
    assert sum(brought) == 160
    assert mirror_once(spark, request) == []
    assert_same((kbroker_broker.bootstrap, topic), (target.bootstrap, topic), PARTITIONS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_topic_goes_to_an_object_store_and_back(kbroker_broker: BrokerProcess, tmp_path: Path) -> None:
    """S3 renames by copies and has no exclusive create of old: loads would lose files, or not begin."""
    bootstrap = kbroker_broker.bootstrap
    topic = Admin(bootstrap).create_topic("remote-s3", PARTITIONS, KEEP)
    produce(bootstrap, topic, PARTITIONS, 0, 300)
    with s3(tmp_path) as port:
        conf = {**SPARK_SETTINGS, **settings_of(port, tmp_path), "spark.jars": ",".join(s3a_jars())}
        del conf["spark.app.name"]

        def command(*words: str) -> Any:
            environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
            given = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
            line = [sys.executable, "-m", "kbroker.cli", "load", *words, *given, "--json"]
            done = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        folder = f"s3a://{BUCKET}/loads/{topic}"
        assert command("to-parquet", topic, "-b", bootstrap, "-o", folder, "--max-rows", "60")["rows"] == 300
        produce(bootstrap, topic, PARTITIONS, 300, 100)
        assert command("to-parquet", topic, "-b", bootstrap, "-o", folder)["rows"] == 100
        assert [row["rows"] for row in command("show", folder)] == [200, 200]
        back = Admin(bootstrap).create_topic("remote-s3-back", PARTITIONS, KEEP)
        restoring = ["to-topic", folder, "-b", bootstrap, "--state", f"s3a://{BUCKET}/state", "--topic", back]
        for written in (400, 0):
            assert sum(row["written"] for row in command(*restoring)) == written
    assert_same((bootstrap, topic), (bootstrap, back), PARTITIONS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_load_killed_and_run_again_has_each_offset_once(
    spark: SparkSession, kbroker_broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    """Each crash of a load would lose offsets, or load them twice, and nobody would know which."""
    bootstrap, folder, total = kbroker_broker.bootstrap, f"{address}/killed", 6000
    topic = Admin(bootstrap).create_topic("remote-killed", PARTITIONS, KEEP)
    produce(bootstrap, topic, PARTITIONS, 0, total)
    place = HadoopFolder(spark, folder)
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    words = [sys.executable, "-m", "tests.replay.load_process", bootstrap, topic, folder, str(tmp_path)]
    kinds = ("manifest", "staging", "staging")
    for turn, kind in enumerate(kinds):
        before = set(place.files())
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(words, cwd=ROOT, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(partial(is_reached, process, place, before, kind, turn + 3), kind, seconds=250, every=0.05)
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        finally:
            # The driver and its JVM, or the driver alone, whose JVM may still write what it had begun.
            if process.poll() is None:
                (os.kill if turn == 1 else os.killpg)(process.pid, signal.SIGKILL)
            process.wait(30)
        loaded = places(spark, folder)
        assert 0 < len(loaded) < total
        assert len(set(loaded)) == len(loaded)
    report = load_topics(spark, LoadRequest(bootstrap, folder, [topic], max_rows=5000))
    assert report.leftovers > 0
    assert places(spark, folder) == expected(total // PARTITIONS)


def is_reached(process: subprocess.Popen[bytes], place: HadoopFolder, before: set[str], kind: str, count: int) -> bool:
    """Whether a load has published a manifest of that number, or is writing a round behind its first files, or has
    ended."""
    try:
        new = set(place.files()) - before
    except LoadError:
        return False  # A folder went while it was listed.
    numbers = [int(path.split(".")[1]) for path in new if path.startswith("_manifest.")]
    if kind == "staging":
        is_there = any(path.startswith(STAGING) for path in new) and len(numbers) > 1
    else:
        is_there = any(number >= count for number in numbers)
    return is_there or process.poll() is not None


def test_a_file_system_that_spark_lacks_is_named(spark: SparkSession) -> None:
    """A user would get the name of a Java class."""
    with pytest.raises(LoadError, match="name its connector with --packages"):
        HadoopFolder(spark, "s3a://lake/loads")
