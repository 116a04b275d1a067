"""`kbroker import` on recorded directories of Apache Kafka: what comes along, what is said, what stays as it was.

Also of `kbroker.cli.storage.import_kafka`, `kbroker.migration.copying`, `kbroker.migration.import_plan`,
`kbroker.migration.kafka_directories`, `kbroker.migration.settings`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker.cli.main import run
from kbroker.metadata.image import ConfigResource
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.migration.importing import ImportRefusedError, run_import
from kbroker.startup.metadata_at_start import check_metadata_is_there
from kbroker.storage.directories.log_dirs import LogDirError, LogDirLockedError, open_directories
from kbroker.types import uuid_to_text
from tests.broker_process import BrokerProcess
from tests.migration.imported import Crash, CrashingFiles, options
from tests.migration.kafka_data import (
    CLUSTER_ID,
    FILES,
    TOPIC_ID,
    batch,
    log_sums,
    partition,
    record,
    sums,
    topic,
    unpack,
    write_log,
)
from tests.storage.batches import UnsyncedFiles


def stored(directory: Path) -> dict[str, Any]:
    """What the metadata store in a directory holds."""
    store = LocalStore.open(directory / FILE_NAME)
    try:
        return {
            "cluster": store.cluster_id,
            "topics": {each.name: each for each in store.topics()},
            "configs": store.configs(),
            "quotas": store.client_quotas(),
            "security": store.security(),
            "features": dict(store.features().chosen),
            "producer_id": store.allocate_producer_id_block().first_id,
        }
    finally:
        store.close()


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What the command prints; its exit status must be 0."""
    assert run(["import", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_a_directory_is_taken_over_where_it_is(tmp_path: Path, kbroker_process: Any) -> None:
    """Who moves from Kafka would copy all data first, or lose topic ids, settings, quotas, or where groups were."""
    (directory,) = unpack("4.3.1", tmp_path / "kafka")
    before, logs = sums([directory]), log_sums([directory])
    report = run_import(FILES, options(directory))
    after = sums([directory])
    added = {path for path in after if path not in before}
    assert {path: value for path, value in after.items() if path not in added} == before
    assert {Path(path).name for path in added} == {FILE_NAME, "kbroker-imported"}
    found = stored(directory)
    assert found["cluster"] == CLUSTER_ID
    orders = found["topics"]["orders"]
    assert uuid_to_text(orders.topic_id) == "KJxQESz-R5CKjNSD21XS3g"
    assert orders.configs == {"retention.ms": "86400000", "segment.bytes": "1048576"}
    assert [(each.leader, each.leader_epoch, each.isr) for each in orders.partitions] == [(1, 4, (1,))] * 3
    assert found["topics"]["__consumer_offsets"].is_internal
    assert found["configs"][ConfigResource(4, "")]["log.cleaner.threads"] == "2"
    assert found["quotas"][(("user", None),)] == {"request_percentage": 50.0}
    assert found["features"]["metadata.version"] == 30 and found["producer_id"] == 1000
    assert report.names.groups == {"readers": "classic"} and report.names.transactional_ids == ("tx-a",)
    assert report.plan.left == ()
    assert list(found["security"].scram) == [("alice", 1)]
    broker: BrokerProcess = kbroker_process({"log.dirs": str(directory), "node.id": "1"})
    assert broker.offsets("orders") == {0: (0, 102), 1: (0, 100), 2: (0, 100)}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
    consumer.close()
    assert committed.offset == 100
    broker.stop()
    assert log_sums([directory]) == logs


def test_a_kafka_that_ran_since_the_import_is_noticed(tmp_path: Path) -> None:
    """Topics that Kafka has made meanwhile would be set aside as strays, as the store does not know of them."""
    (directory,) = unpack("4.3.1", tmp_path)
    run_import(FILES, options(directory))
    opened = open_directories(FILES, [str(directory)])
    try:
        check_metadata_is_there(FILES, opened)
        (log,) = (directory / "__cluster_metadata-0").glob("*.log")
        log.write_bytes(log.read_bytes() + batch([topic()], 616, 3))
        with pytest.raises(LogDirError, match=r"Apache Kafka has run on .* since it was imported"):
            check_metadata_is_there(FILES, opened)
    finally:
        opened[0].release()
    for path in directory.glob(f"{FILE_NAME}*"):
        path.unlink()
    report = run_import(FILES, options(directory))
    assert "t" in report.plan.left[0]


def test_a_copy_leaves_the_original_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who only tries kbroker would change the data of a Kafka that goes on, or try it with other bytes."""
    sources = unpack("3.9.1", tmp_path / "kafka")
    before = sums(sources)
    targets = [tmp_path / "new" / "a", tmp_path / "new" / "b"]
    out = json.loads(said(capsys, *sources, "--to", targets[0], "--to", targets[1], "--json"))
    assert sums(sources) == before
    assert log_sums(targets) == log_sums(sources)
    assert out["metadata_store"] == str(targets[0] / FILE_NAME) and out["log_dirs"] == list(map(str, targets))
    assert out["groups"] == {"readers": "classic"} and out["closed_in_order"]
    assert out["does_not_come_along"] == [] and (out["acls"], out["users"]) == (1, ["alice"])
    assert out["start"] == f"kbroker start --override log.dirs={targets[0]},{targets[1]} --override node.id=1"
    found = stored(targets[0])
    assert found["features"]["metadata.version"] == 21 and found["features"]["group.version"] == 0
    assert found["configs"][ConfigResource(4, "1")] == {"log.retention.ms": "99000000"}
    assert found["configs"][ConfigResource(16, "cm")] == {"interval.ms": "1000", "metrics": "x"}
    for target in targets:
        assert (target / ".kafka_cleanshutdown").exists() and not (target / "kbroker-copy-under-way").exists()
        assert (target / "meta.properties").read_bytes() in {
            (each / "meta.properties").read_bytes() for each in sources
        }


def test_directories_become_one(tmp_path: Path) -> None:
    """Rows of checkpoints of the second directory would replace those of the first: offsets would be lost."""
    sources = unpack("3.9.1", tmp_path / "kafka")
    target = tmp_path / "one"
    run_import(FILES, options(*sources, targets=[target]))
    assert log_sums([target]) == log_sums(sources)

    def rows(path: Path) -> set[str]:
        lines = (path / "replication-offset-checkpoint").read_text().splitlines()[2:]
        return {line for line in lines if not line.startswith("gone ")}

    assert rows(target) == rows(sources[0]) | rows(sources[1])


def test_finished_segments_are_linked(tmp_path: Path) -> None:
    """A copy of terabytes would take hours, or a file that is still written would change under the other's hands."""
    source = tmp_path / "kafka"
    write_log(source, [topic(), partition()])
    folder = source / "t-0"
    folder.mkdir()
    for base in (0, 5, 9):
        (folder / f"{base:020}.log").write_bytes(b"%d" % base * 100)
    (source / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 8\n")
    target = tmp_path / "new"
    report = run_import(FILES, options(source, targets=[target], link=True))
    same = [(target / "t-0" / path.name).samefile(path) for path in sorted(folder.iterdir())]
    assert same == [True, False, False]
    assert report.copied is not None and (report.copied.linked_files, report.copied.linked_bytes) == (1, 100)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who only looks would have made a step that cannot be taken back."""
    sources = unpack("3.9.1", tmp_path)
    before = sums([tmp_path])
    out = said(capsys, *sources, "--dry-run")
    assert sums([tmp_path]) == before and not list(tmp_path.rglob(".lock"))
    for text in (
        "orders",
        "1 groups: readers",
        "1 transactional ids: tx-a",
        "1 principals with ACLs",
        "nothing was written",
    ):
        assert text in out


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A directory whose lock another process holds, as Java does."""
    (directory,) = unpack("4.3.1", tmp_path)
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, directory / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    holder.stdout.readline()
    try:
        yield directory
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


@pytest.mark.parametrize("how", ["in place", "copy", "dry run"])
def test_directories_that_are_in_use_are_refused(held: Path, how: str, tmp_path: Path) -> None:
    """Two brokers would write into the same segments, or a copy be of different moments."""
    given: dict[str, dict[str, Any]] = {
        "in place": {},
        "copy": {"targets": [tmp_path / "new"]},
        "dry run": {"dry_run": True},
    }
    with pytest.raises(LogDirLockedError, match=r"process \d+ holds"):
        run_import(FILES, options(held, **given[how]))


def test_what_kbroker_holds_is_held_for_kafka(tmp_path: Path) -> None:
    """A Kafka started by mistake would write into the segments of a running broker."""
    with (tmp_path / ".lock").open("w") as file:
        assert FILES.lock(file.fileno())
        code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / ".lock"], capture_output=True, text=True, check=False
        )
    assert "BlockingIOError" in done.stderr
    with (tmp_path / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_replicas_that_are_elsewhere_are_told_and_decided(tmp_path: Path) -> None:
    """Partitions would be empty, or lack their last records, without a word."""
    source = tmp_path / "kafka"
    other, third = bytes(15) + b"x", bytes(15) + b"y"
    settings = [
        record("ConfigRecord", resource_type=2, resource_name="t", name="remote.storage.enable", value="true"),
        record("ConfigRecord", resource_type=2, resource_name="t", name="from.the.future", value="1"),
        record("ConfigRecord", resource_type=4, resource_name="2", name="log.retention.ms", value="5"),
        record("ConfigRecord", resource_type=4, resource_name="", name="num.io.threads", value="32"),
        record("ConfigRecord", resource_type=4, resource_name="", name="ssl.keystore.password", value="x"),
        record("ConfigRecord", resource_type=4, resource_name="", name="nonsense.setting", value="x"),
    ]
    topics = [
        topic(),
        partition(0, replicas=[1, 2]),
        partition(1, replicas=[2, 3]),
        partition(2, replicas=[2, 1], isr=[2]),
        topic("elsewhere", other),
        partition(0, other, replicas=[2]),
        topic("older", third),
        partition(0, third),
    ]
    write_log(source, topics, settings)
    for name in ("t-0", "t-2", "older-0", "stray-0"):
        (source / name).mkdir()
    (source / "older-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}\n")
    report = run_import(FILES, options(source, dry_run=True))
    assert report.plan.blockers == (
        "t-1: not in these directories (replicas on broker 2, 3). With --add-missing they are made anew, empty",
    )
    left = "\n".join(report.plan.left)
    for text in (
        "topics of which no partition is in these directories: elsewhere, older",
        "this replica was not in sync when Kafka stopped: t-2",
        "segments in remote storage, and their topics' remote.storage.enable: t",
        "replicas on other brokers: here each partition of these topics has one: t",
        "a setting of topic t: from.the.future=1: Unknown topic config name",
        "settings of broker 2, which is another one: log.retention.ms",
        "a setting of all brokers: nonsense.setting=x:",
    ):
        assert text in left
    assert report.plan.contents.configs == {
        ConfigResource(4, ""): {"num.io.threads": "32", "ssl.keystore.password": "x"}
    }
    assert report.left_aside == (f"{source}/older-0", f"{source}/stray-0")
    assert "Kafka did not end in order" in report.notes[0]
    with pytest.raises(ImportRefusedError, match="--add-missing"):
        run_import(FILES, options(source))
    assert not (source / FILE_NAME).exists()
    run_import(FILES, options(source, add_missing=True))
    found = stored(source)["topics"]
    assert list(found) == ["t"] and len(found["t"].partitions) == 3


def test_directories_of_zookeepers_time_are_taken_over(tmp_path: Path) -> None:
    """Who still has a Kafka 2 or 3 with ZooKeeper would have no way, or retention would delete at the first start."""
    source = tmp_path / "kafka"
    (source / "t-0").mkdir(parents=True)
    (source / "meta.properties").write_text(f"#\nversion=0\nbroker.id=3\ncluster.id={CLUSTER_ID}\n")
    (source / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}\n")
    report = run_import(FILES, options(source))
    assert report.source.node_id == 3 and "--zookeeper" in report.plan.left[0]
    found = stored(source)
    assert found["cluster"] == CLUSTER_ID and found["topics"]["t"].topic_id == TOPIC_ID
    assert found["topics"]["t"].configs["retention.ms"] == "-1" and found["topics"]["t"].partitions[0].leader == 3


def test_an_imported_directory_without_a_cluster_id_keeps_its_node(tmp_path: Path, kbroker_process: Any) -> None:
    """A start with another node's id would renumber it, and all partitions be without a leader and without an error."""
    source = tmp_path / "kafka"
    (source / "t-0").mkdir(parents=True)
    meta = source / "meta.properties"
    meta.write_text("#\nversion=0\nbroker.id=0\n")
    run_import(FILES, options(source))
    before = meta.read_bytes()
    broker: BrokerProcess = kbroker_process({"log.dirs": str(source)}, wait=False)
    broker.spawn()
    assert broker.wait() == 1
    assert "node 0, but this node is 1" in broker.output()
    assert meta.read_bytes() == before
    broker.overrides["node.id"] = "0"
    broker.start()
    assert broker.offsets("t") == {0: (0, 0)}


def test_an_imported_directory_without_any_id_is_served_without_one(tmp_path: Path, kbroker_process: Any) -> None:
    """The import and the start would each take another number for the node, and no partition have a leader."""
    source = tmp_path / "kafka"
    (source / "t-0").mkdir(parents=True)
    (source / "meta.properties").write_text("#\nversion=0\n")
    run_import(FILES, options(source))
    broker: BrokerProcess = kbroker_process({"log.dirs": str(source)})
    assert broker.offsets("t") == {0: (0, 0)}


def test_a_crash_leaves_the_source_as_it_was_and_no_half_of_a_copy(tmp_path: Path) -> None:
    """Half of an import would be served as if it were all of it, or could not be begun again."""
    sources = unpack("3.9.1", tmp_path / "kafka")
    before = sums(sources)
    target = tmp_path / "new"
    calls = 0
    while True:
        try:
            run_import(CrashingFiles(calls), options(*sources, targets=[target]))
            break
        except Crash:
            calls += 1 if calls < 3 else 19
        assert sums(sources) == before
        if not (target / FILE_NAME).exists():
            assert (target / "kbroker-copy-under-way").exists() or not list(target.glob("*-0"))
        else:
            assert log_sums([target]) == log_sums(sources)
            break
    assert calls > 20 and sums(sources) == before
    calls = 0
    while True:
        try:
            run_import(CrashingFiles(calls), options(*sources))
            break
        except Crash:
            calls += 1
        assert not (sources[0] / FILE_NAME).exists()
        after = sums(sources)
        assert {path: after.get(path) for path in before} == before


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        ("no meta", LogDirError, "is no log directory of a Kafka"),
        ("no log", LogDirError, "--metadata-dir"),
        ("other node", LogDirError, "not of one node"),
        ("damaged", MetadataLogError, "the batch at byte 0 is damaged"),
        ("no partitions", ImportRefusedError, "there is no partition of this cluster"),
        ("into itself", LogDirError, "into itself"),
        ("not empty", LogDirError, "is not empty"),
    ],
)
def test_what_cannot_be_imported_is_said(tmp_path: Path, damage: str, error: type[Exception], text: str) -> None:
    """A mistake in the directories would make a cluster of a part of them."""
    source, second = tmp_path / "a", tmp_path / "b"
    log = write_log(source, [topic(), partition()])
    (source / "t-0").mkdir()
    given: dict[str, Any] = {}
    paths = [source]
    match damage:
        case "no meta":
            (source / "meta.properties").unlink()
        case "no log":
            log.unlink()
            log.parent.rmdir()
        case "other node":
            second.mkdir()
            (second / "meta.properties").write_text((source / "meta.properties").read_text().replace("=1\nd", "=2\nd"))
            paths.append(second)
        case "damaged":
            log.write_bytes(b"x" * 100 + log.read_bytes())
        case "no partitions":
            (source / "t-0").rmdir()
        case "into itself":
            given = {"targets": [source]}
        case "not empty":
            (second / "x").mkdir(parents=True)
            given = {"targets": [second]}
    with pytest.raises(error, match=text):
        run_import(FILES, options(*paths, **given))
    assert not list(tmp_path.rglob(f"{FILE_NAME}*"))


def test_a_directory_that_cannot_be_written_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of a file system that is mounted read-only could not be tried."""
    (source,) = unpack("4.3.1", tmp_path / "kafka")
    (source / ".lock").touch()

    class ReadOnly(UnsyncedFiles):
        __slots__ = ()

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if path.startswith(str(source)) and flags & 3:
                raise OSError(errno.EROFS, "Read-only file system", path)
            return super().open(path, flags, mode)

    run_import(ReadOnly(), options(source, targets=[tmp_path / "new"]))
    assert log_sums([tmp_path / "new"]) == log_sums([source])
