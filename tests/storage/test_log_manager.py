"""Log directories and the logs in them: start, stop, checkpoints, deletion, and who may use a directory.

Also of `kbroker.storage.manager.log_flusher`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import InconsistentTopicIdError
from kbroker.storage.directories.log_dirs import (
    LogDir,
    LogDirError,
    LogDirLockedError,
    PartitionDirectory,
    decode_meta_properties,
    marked_directory,
    parse_partition_directory,
)
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.compat.waiting import wait_for
from tests.storage.batches import UNSYNCED_FILES, VECTORS, HandClock, append, batch, read_all
from tests.storage.faulty_files import Fault, FaultyFiles

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Managers:
    """Makes managers over the same directories, one at a time, and lets go of all at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = HandClock()
        self.made: list[LogManager] = []

    def make(
        self,
        *names: str,
        files: FileSystem = UNSYNCED_FILES,
        node_id: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> LogManager:
        dirs = ",".join(str(self.root / name) for name in names or ("data",))
        values = {"log.dirs": dirs, "node.id": str(node_id), **(settings or {})}
        manager = LogManager(BrokerConfig.from_mapping(values), self.clock, files)
        self.made.append(manager)
        return manager

    def start(
        self, *names: str, files: FileSystem = UNSYNCED_FILES, settings: Mapping[str, str] | None = None
    ) -> LogManager:
        manager = self.make(*names, files=files, settings=settings)
        manager.start(CLUSTER)
        return manager


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    made = Managers(tmp_path)
    yield made
    for manager in made.made:
        manager.release()


def test_logs_survive_a_clean_stop(managers: Managers, tmp_path: Path) -> None:
    """A restart would lose topics, offsets or high watermarks."""
    first = managers.start()
    for tp, count in ((A0, 5), (A1, 0), (B0, 2)):
        log = first.get_or_create_log(tp, TOPIC_ID, LogConfig())
        for _ in range(count):
            append(log, batch())
    first.logs[A0].delete_records_before(3)
    first.shutdown()
    data = tmp_path / "data"
    assert (data / ".kafka_cleanshutdown").exists()
    assert (data / "recovery-point-offset-checkpoint").read_text().splitlines()[2:] == ["a 0 5", "a 1 0", "b 0 2"]
    assert (data / "log-start-offset-checkpoint").read_text().splitlines() == ["0", "1", "a 0 3"]
    second = managers.start()
    assert not (data / ".kafka_cleanshutdown").exists()
    found = {tp: (log.log_start_offset, log.high_watermark, log.log_end_offset) for tp, log in second.logs.items()}
    assert found == {A0: (3, 5, 5), A1: (0, 0, 0), B0: (0, 2, 2)}
    assert second.logs[A0].topic_id == TOPIC_ID


def test_logs_survive_a_kill(managers: Managers) -> None:
    """kill -9 would lose acknowledged records that the system still has."""
    first = managers.start()
    log = first.get_or_create_log(A0, TOPIC_ID, LogConfig())
    for _ in range(5):
        append(log, batch())
    first.checkpoints.write_all()
    first.release()
    second = managers.start()
    assert second.logs[A0].log_end_offset == 5
    assert len(read_all(second.logs[A0])) == 5


def test_second_broker_is_refused_in_clear_words(managers: Managers, tmp_path: Path) -> None:
    """Two brokers on one directory would destroy each other's data."""
    managers.start()
    code = (
        "import sys; from kbroker.config import BrokerConfig; from kbroker.clock import SYSTEM_CLOCK\n"
        "from kbroker.storage.manager.log_manager import LogManager\n"
        "try: LogManager(BrokerConfig.from_mapping({'log.dirs': sys.argv[1]}), SYSTEM_CLOCK).open_dirs()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("LogDirLockedError")
    assert f"is in use by another broker (process {os.getpid()} holds {tmp_path / 'data'}/.lock)" in done.stdout
    assert int((tmp_path / "data" / ".lock").read_text()) == os.getpid()
    with pytest.raises(LogDirLockedError):
        managers.make().open_dirs()


def test_directory_of_another_cluster_or_node_is_refused(managers: Managers) -> None:
    """A broker started with the wrong settings would serve another cluster's data."""
    managers.start().shutdown()
    other = managers.make()
    assert other.open_dirs().cluster_id == CLUSTER
    with pytest.raises(LogDirError, match="belongs to cluster"):
        other.claim("another")
    other.release()
    third = managers.make(node_id=2)
    with pytest.raises(LogDirError, match="belongs to node 1, but this node is 2"):
        third.open_dirs()
    third.open_dirs(first_has_metadata=False)
    with pytest.raises(LogDirError, match="belongs to node 1, but this node is 2"):
        third.claim(CLUSTER)


def test_failed_open_gives_the_other_directories_back(managers: Managers, tmp_path: Path) -> None:
    """After a mistake in log.dirs a corrected start would be refused by its own lock."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogDirError, match="cannot use log directory"):
        managers.make("one", "file").open_dirs()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    with pytest.raises(LogDirError, match="twice"):
        managers.make("one", "link").open_dirs()
    managers.start("one")


def test_partitions_spread_over_directories(managers: Managers, tmp_path: Path) -> None:
    """One disk would fill up while the other stays empty."""
    manager = managers.start("one", "two")
    for i in range(6):
        manager.get_or_create_log(TopicPartition("a", i), TOPIC_ID, LogConfig())
    names = [len([path for path in (tmp_path / name).iterdir() if path.is_dir()]) for name in ("one", "two")]
    assert names == [3, 3]
    manager.shutdown()
    assert len(managers.start("one", "two").logs) == 6


def test_deleted_partition_leaves_at_once_and_its_files_later(managers: Managers, tmp_path: Path) -> None:
    """A topic made anew at once would see the old one's records; or disk space would never come back."""
    manager = managers.start()
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig(file_delete_delay_ms=500))
    append(log, batch())
    manager.delete_log(A0)
    assert manager.get_log(A0) is None
    left = [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert len(left) == 1 and parse_partition_directory(left[0]) == PartitionDirectory("a", 0, "delete")
    again = manager.get_or_create_log(A0, random_uuid(), LogConfig())
    assert again.log_end_offset == 0
    manager.run_due()
    assert (tmp_path / "data" / left[0]).exists()
    managers.clock.now += 500
    manager.run_due()
    wait_for(lambda: not (tmp_path / "data" / left[0]).exists(), "the files to go")
    manager.delete_log(A0)
    manager.shutdown()
    restarted = managers.start()
    assert restarted.logs == {}
    restarted.run_due()
    wait_for(lambda: not [path for path in (tmp_path / "data").iterdir() if path.is_dir()], "the directory to go")


def test_log_of_another_topic_id_is_not_served(managers: Managers) -> None:
    """Records of a deleted topic would appear under a new one of the same name."""
    manager = managers.start()
    manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    with pytest.raises(InconsistentTopicIdError):
        manager.get_or_create_log(A0, random_uuid(), LogConfig())
    manager.shutdown()
    second = managers.make()
    second.open_dirs()
    second.load_all({"a": KnownTopic(random_uuid(), LogConfig())})
    assert second.logs == {}
    assert second.get_or_create_log(A0, random_uuid(), LogConfig()).log_end_offset == 0


def test_partition_that_its_topic_does_not_have_is_set_aside(
    managers: Managers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that a restored backup left would be loaded for ever, unseen, or its records would be gone."""
    manager = managers.start()
    for tp in (A0, A1):
        append(manager.get_or_create_log(tp, TOPIC_ID, LogConfig()), batch())
    manager.shutdown()
    left = {path.name: path.read_bytes() for path in (tmp_path / "data" / str(A1)).iterdir()}
    second = managers.make()
    second.open_dirs()
    second.load_all({"a": KnownTopic(TOPIC_ID, LogConfig(), 1)})
    assert list(second.logs) == [A0]
    (stray,) = (tmp_path / "data").glob("*-stray")
    assert re.fullmatch(r"a-1\.[0-9a-f]{32}-stray", stray.name)
    assert {path.name: path.read_bytes() for path in stray.iterdir()} == left
    second.shutdown()
    caplog.clear()
    third = managers.make()
    third.open_dirs()
    third.load_all({"a": KnownTopic(TOPIC_ID, LogConfig(), 2)})
    assert list(third.logs) == [A0]
    assert stray.exists()
    # Each start says so, or the space would be gone for good.
    assert f"{tmp_path / 'data'} holds 1 partition(s) that were set aside" in caplog.text
    assert stray.name in caplog.text


def test_a_clean_start_without_snapshots_writes_one_at_the_log_end(managers: Managers, tmp_path: Path) -> None:
    """Each start, after a kill too, would read the whole log again for the state of its producers."""
    first = managers.start()
    log = first.get_or_create_log(A0, TOPIC_ID, LogConfig())
    for sequence in range(5):
        append(log, batch(producer_id=7, epoch=0, sequence=sequence))
    first.shutdown()
    (snapshot,) = (tmp_path / "data" / "a-0").glob("*.snapshot")
    known = snapshot.read_bytes()
    snapshot.unlink()
    second = managers.start()
    assert second.logs[A0].producer_state.producers[7].last_sequence == 4
    assert snapshot.read_bytes() == known
    assert second.logs[A0].producer_state.snapshots == {5: len(known)}


def test_the_five_tasks_of_kafka_begin_after_the_initial_delay(managers: Managers) -> None:
    """Background work would come on top of a start (log.initial.task.delay.ms)."""
    delayed = {
        "flush logs",
        "checkpoint recovery points",
        "checkpoint log start offsets",
        "delete files",
        "retention",
    }
    tasks = managers.start().periodic_tasks()
    assert {task.name: task.initial_delay_ms for task in tasks if task.initial_delay_ms is not None} == dict.fromkeys(
        delayed, 30_000
    )


def test_flushes_by_kbroker_fsync_do_not_wait_for_the_initial_delay(tmp_path: Path) -> None:
    """kbroker.fsync=interval promises its interval from the first record on."""
    values = {"log.dirs": str(tmp_path), "kbroker.fsync": "interval", "kbroker.fsync.interval.ms": "700"}
    manager = LogManager(BrokerConfig.from_mapping(values), HandClock(), UNSYNCED_FILES)
    (task,) = [task for task in manager.periodic_tasks() if task.name == "flush logs"]
    assert callable(task.interval_ms)
    assert (task.interval_ms(), task.initial_delay_ms) == (700, 700)
    manager.release()


def test_flush_ms_flushes_what_has_waited(managers: Managers) -> None:
    """flush.ms would promise what nobody does."""
    manager = managers.start()
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig(flush_ms=1000))
    append(log, batch())
    manager.flusher.run_now()
    log.local.wait_for_flushes()
    assert log.recovery_point == 1
    append(log, batch())
    managers.clock.now += 999
    manager.flusher.run_now()
    log.local.wait_for_flushes()
    assert log.recovery_point == 1
    managers.clock.now += 1
    manager.flusher.run_now()
    log.local.wait_for_flushes()
    assert log.recovery_point == 2


@pytest.mark.parametrize("settings", [{}, {"kbroker.fsync": "interval", "kbroker.fsync.interval.ms": "5000"}])
def test_no_record_waits_longer_than_its_flush_ms(settings: dict[str, str], managers: Managers) -> None:
    """flush.ms=1000 would mean up to twenty seconds: the period of the flusher would come on top, twice."""
    manager = managers.start(settings=settings)
    limits = {A0: 300, TopicPartition("a", 1): 1000, TopicPartition("a", 2): 25_000, TopicPartition("a", 3): 1 << 62}
    timer: list[int] = []
    manager.flusher.hasten = lambda: timer.append(manager.flusher.next_look_ms())
    logs = {tp: manager.get_or_create_log(tp, TOPIC_ID, LogConfig(flush_ms=limit)) for tp, limit in limits.items()}
    clock, next_look = managers.clock, min(timer)
    written: dict[TopicPartition, int] = {}
    start = clock.now
    waited: dict[TopicPartition, list[int]] = {tp: [] for tp in logs}
    while clock.now < start + 100_000:
        for number, (tp, log) in enumerate(logs.items()):
            if tp not in written and (clock.now // 10) % (7 + 60 * number) == 0:
                append(log, batch())
                written[tp] = clock.now
        next_look -= 10
        clock.now += 10
        if next_look <= 0:
            manager.flusher.run_now()
            for log in logs.values():
                log.local.wait_for_flushes()
            next_look = manager.flusher.next_look_ms()
        for tp in [tp for tp in written if logs[tp].recovery_point == logs[tp].log_end_offset]:
            waited[tp].append(clock.now - written.pop(tp))
    every = 5000 if settings else 1 << 62
    for tp, limit in limits.items():
        most = min(limit, every)
        assert most == 1 << 62 or (len(waited[tp]) > 2 and max(waited[tp]) <= most + 20), (tp, waited[tp])


def test_a_shorter_flush_ms_counts_at_once(managers: Managers) -> None:
    """A topic that gets flush.ms while the broker runs would be looked at when the old period is over."""
    manager = managers.start()
    log = manager.get_or_create_log(A0, TOPIC_ID, LogConfig())
    manager.flusher.run_now()
    assert manager.flusher.next_look_ms() == 10_000
    hastened: list[int] = []
    manager.flusher.hasten = lambda: hastened.append(manager.flusher.next_look_ms())
    manager.configure(log, LogConfig(flush_ms=200))
    assert hastened == [200]


def test_failing_disk_gets_no_clean_mark(managers: Managers, tmp_path: Path) -> None:
    """A full disk at shutdown would claim to be clean and skip the recovery that it needs."""
    files = FaultyFiles(fault=Fault.ERROR)
    manager = managers.start(files=files)
    append(manager.get_or_create_log(A0, TOPIC_ID, LogConfig()), batch())
    files.crash_at = files.calls + 1
    manager.shutdown()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert managers.start().logs[A0].log_end_offset == 1


def test_names_of_partition_directories() -> None:
    """Directories that are no partitions would be opened, or partitions overlooked."""
    names = {
        "a-0": PartitionDirectory("a", 0, ""),
        "my-topic.x_y-12": PartitionDirectory("my-topic.x_y", 12, ""),
        "a-0.5c0b2b5e1c9b4f7f8f9d0a1b2c3d4e5f-delete": PartitionDirectory("a", 0, "delete"),
        "a-0.5c0b2b5e1c9b4f7f8f9d0a1b2c3d4e5f-stray": PartitionDirectory("a", 0, "stray"),
    }
    assert {name: parse_partition_directory(name) for name in names} == names
    assert [parse_partition_directory(name) for name in ("metadata", "lost+found", "a-", "-1x", "a-0x")] == [None] * 5
    long = marked_directory("t" * 249, 7, "-delete")
    assert len(long) <= 255
    parsed = parse_partition_directory(long)
    assert parsed is not None and (parsed.partition, parsed.mark) == (7, "delete")


@pytest.mark.parametrize(
    "data", [b"", b"version=1\nnode.id=1\n", b"version=7\ncluster.id=x\n", b"version=1\ncluster.id=x\nnode.id=one\n"]
)
def test_damaged_identity_is_refused_in_clear_words(data: bytes) -> None:
    """A damaged meta.properties would bind the data to another cluster without a word."""
    with pytest.raises(LogDirError, match=r"meta\.properties"):
        decode_meta_properties(data, "meta.properties")


def test_a_directory_without_an_id_keeps_the_one_that_it_is_given(tmp_path: Path) -> None:
    """Data of Kafka 3.3 to 3.6: controllers would see another directory after each start, and its replicas as lost."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=abc\n")
    seen = set()
    for _ in range(2):
        directory = LogDir(FileSystem(), str(tmp_path))
        directory.open()
        directory.bind("abc", 3)
        assert directory.meta is not None
        seen.add(directory.meta.directory_id)
        directory.release()
    assert len(seen) == 1


def test_identity_of_a_zookeeper_broker_is_read() -> None:
    """Users who come from Kafka 2 and 3 could not start on their data."""
    meta = decode_meta_properties(b"#\n#now\nbroker.id=3\nversion=0\ncluster.id=abc\n", "x")
    assert (meta.node_id, meta.cluster_id) == (3, "abc")
    assert decode_meta_properties((VECTORS / "meta.properties").read_bytes(), "x").cluster_id == CLUSTER
