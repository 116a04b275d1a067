"""A broker with a disk that fails: a real ext4 file system that gives EIO, one unmounted, one without a byte left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.runtime.partitioner import partition_for
from tests.broker.client import Batch, Client, Closed, fetch_values, scrape, wait_for
from tests.broker.failing_disk import FailingDisk, failing_disk, two_disks
from tests.broker.records import Writer, begin, check_all_there_once, read_topic
from tests.broker.slow_disk import slow_fsync
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

__all__ = ["slow_fsync"]

MEGABYTE = 1 << 20
STORAGE_ERROR = 56
LEADER_NOT_AVAILABLE = 5
REQUEST_TIMED_OUT = 7
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
LOST, KEPT = 1, 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    folder = tmp_path / "second"
    folder.mkdir()
    with failing_disk(folder) as made:
        yield made


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MB in memory."""
    path = tmp_path / "memory"
    path.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


def offline(broker: BrokerProcess) -> int:
    return int(scrape(broker.metrics_url)["kbroker_log_dirs_offline"])


def fail_until_noticed(broker: BrokerProcess, disk: FailingDisk, topic: str = "t") -> None:
    with Client(broker.port) as client:
        before = metadata(client, topic)[LOST].leader_epoch
        disk.fail()
        assert client.produce(topic, Batch(), partition=LOST).error_code == STORAGE_ERROR
        assert offline(broker) == 1
        until_known(client, topic, before + 1)


def until_known(client: Client, topic: str, epoch: int) -> None:
    """Wait for Metadata to show the new epoch: the broker stores it first, and shows at once that no broker leads."""
    wait_for(lambda: metadata(client, topic)[LOST].leader_epoch >= epoch, f"epoch {epoch} of the lost partition")


def metadata(client: Client, topic: str, version: int = 12) -> list[Any]:
    asked: dict[str, Any] = {"topics": [{"name": topic}]}
    if version >= 4:
        asked["allow_auto_topic_creation"] = False
    return sorted(client.ask("Metadata", version, asked).topics[0].partitions, key=lambda each: each.partition_index)


def list_offset(client: Client, partition: int, timestamp: int) -> int:
    rows = [{"partition_index": partition, "timestamp": timestamp}]
    answer = client.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}]})
    return int(answer.topics[0].partitions[0].error_code)


def delete_records(client: Client, partition: int) -> int:
    rows = [{"partition_index": partition, "offset": 1}]
    answer = client.ask("DeleteRecords", 2, {"topics": [{"name": "t", "partitions": rows}], "timeout_ms": 9_000})
    return int(answer.topics[0].partitions[0].error_code)


def epoch_end(client: Client, partition: int) -> int:
    rows = [{"partition": partition, "current_leader_epoch": -1, "leader_epoch": 0}]
    asked = {"replica_id": -1, "topics": [{"topic": "t", "partitions": rows}]}
    return int(client.ask("OffsetForLeaderEpoch", 4, asked).topics[0].partitions[0].error_code)


def epoch_ends(client: Client, partition: int, epoch: int) -> tuple[int, int]:
    """The newest epoch up to the one asked for, and where it ends."""
    rows = [{"partition": partition, "current_leader_epoch": -1, "leader_epoch": epoch}]
    asked = {"replica_id": -1, "topics": [{"topic": "t", "partitions": rows}]}
    answer = client.ask("OffsetForLeaderEpoch", 4, asked).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.leader_epoch), int(answer.end_offset)


def commit(client: Client, group: str) -> int:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    asked = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{"name": "t", "partitions": rows}],
    }
    return int(client.ask("OffsetCommit", 2, asked).topics[0].partitions[0].error_code)


def find_coordinator(client: Client, group: str) -> int:
    asked = {"key_type": 0, "coordinator_keys": [group]}
    return int(client.ask("FindCoordinator", 4, asked).coordinators[0].error_code)


def check_the_wire(client: Client) -> None:
    """What Apache Kafka 4.3.1 answers with one of its directories offline."""
    until_known(client, "t", 1)
    client.write("t", partition=KEPT)
    assert client.fetch("t", partition=KEPT).error_code == 0
    assert client.produce("t", Batch(), partition=LOST).error_code == STORAGE_ERROR
    assert client.fetch("t", partition=LOST).error_code == STORAGE_ERROR
    for timestamp in (-1, -2, -3, 5):
        assert [list_offset(client, each, timestamp) for each in (KEPT, LOST)] == [0, STORAGE_ERROR]
    assert [delete_records(client, each) for each in (KEPT, LOST)] == [0, STORAGE_ERROR]
    assert [epoch_end(client, each) for each in (KEPT, LOST)] == [0, STORAGE_ERROR]
    for version in (0, 4, 12):
        kept, lost = metadata(client, "t", version)
        assert (kept.error_code, kept.leader_id, len(kept.isr_nodes)) == (0, kept.replica_nodes[0], 1)
        assert (lost.error_code, lost.leader_id, list(lost.isr_nodes)) == (LEADER_NOT_AVAILABLE, -1, [])
        if version >= 7:
            assert (kept.leader_epoch, lost.leader_epoch) == (0, 1)
        assert list(lost.replica_nodes) == list(kept.replica_nodes)
        if version >= 5:
            assert (list(kept.offline_replicas), list(lost.offline_replicas)) == ([], list(lost.replica_nodes))
    asked = {"topics": [{"name": "t"}], "response_partition_limit": 10}
    described = client.ask("DescribeTopicPartitions", 0, asked).topics[0].partitions[LOST]
    assert (described.error_code, described.leader_id, list(described.isr_nodes)) == (0, -1, [])
    assert described.leader_epoch == 1
    assert len(described.eligible_leader_replicas) == len(described.offline_replicas) == 1
    first, second = client.ask("DescribeLogDirs", 4, {"topics": None}).results
    assert first.error_code == 0 and {topic.name for topic in first.topics} >= {"t"}
    assert (second.error_code, list(second.topics), second.total_bytes) == (STORAGE_ERROR, [], -1)


def test_the_wire_says_what_kafka_says(tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker) -> None:
    """Clients written for Kafka would give up where they should wait, or wait where they should look elsewhere."""
    broker = two_disks(kbroker_process, tmp_path, disk.path)
    with Client(broker.port) as client:
        client.create("t", 2)
        for partition in (KEPT, LOST):
            client.write("t", Batch(), Batch(), partition=partition)
        groups = [f"g{number}" for number in range(8)]
        assert {commit(client, group) for group in groups} == {0}
        fail_until_noticed(broker, disk)
        check_the_wire(client)
        found = {group: find_coordinator(client, group) for group in groups}
        assert set(found.values()) == {0, COORDINATOR_NOT_AVAILABLE}
        assert {group: commit(client, group) for group in groups} == {
            group: NOT_COORDINATOR if code else 0 for group, code in found.items()
        }
        listed = client.ask("ListGroups", 4, {"states_filter": []})
        assert (listed.error_code, {each.group_id for each in listed.groups}) == (
            0,
            {group for group, code in found.items() if not code},
        )
        client.create("new", 4)
        assert [client.write("new", partition=index) for index in range(4)] == [0] * 4
        assert scrape(broker.metrics_url)["kbroker_partitions_offline"] == 2
    lines = broker.output().splitlines()
    assert sum("has failed" in line for line in lines) == 1
    assert sum("serve on" in line for line in lines) == 1
    assert broker.stop() == 0
    disk.repair()
    broker.start()
    with Client(broker.port) as client:
        assert offline(broker) == 0
        assert [client.offset("t", partition=each) for each in (KEPT, LOST)] == [3, 2]
        assert {commit(client, group) for group in groups} == {0}
        client.write("t", partition=LOST)
        assert [each.leader_epoch for each in metadata(client, "t")] == [0, 2]
        assert [epoch_ends(client, LOST, each) for each in (0, 1, 2)] == [(0, 2), (0, 2), (2, 3)]
        assert {each.leader_id for each in metadata(client, "t")} == {metadata(client, "t")[0].replica_nodes[0]}


@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_producers_of_the_disk_that_works_notice_nothing(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker, fsync: str
) -> None:
    """One failing disk would cost records, or every topic of the broker instead of its own."""
    broker = two_disks(kbroker_process, tmp_path, disk.path, **{"kbroker.fsync": fsync})
    with Client(broker.port) as client:
        client.create("kept", 1)
        client.create("lost", 1)
    kept, lost = (Writer(broker.bootstrap, topic, padding=b"x" * 500) for topic in ("kept", "lost"))
    begin(kept, lost)
    disk.fail()
    before = kept.poll()
    for _ in range(10):
        kept.send(100)
        lost.send(20)
    wait_for(lambda: kept.poll() >= before + 500, "the disk that works to take more")
    wait_for(lambda: offline(broker) == 1, "the failure to be noticed")
    kept.finish()
    assert lost.poll() < lost.sent
    check_all_there_once(kept, read_topic(broker.bootstrap, "kept"))
    assert broker.stop() == 0
    disk.repair()
    broker.start()
    # Its producer has waited, and goes on where it was.
    lost.send(50)
    lost.finish()
    for writer in (kept, lost):
        check_all_there_once(writer, read_topic(broker.bootstrap, writer.topic))


def test_a_broker_that_is_only_read_from_notices(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker
) -> None:
    """A consumer would be cut off again and again, without a word of the reason."""
    rarely = dict.fromkeys(("replica.high.watermark.checkpoint.interval.ms", "log.initial.task.delay.ms"), "3600000")
    broker = two_disks(kbroker_process, tmp_path, disk.path, **rarely)
    with Client(broker.port) as client:
        client.create("t", 2)
        client.write("t", *([Batch(((b"k", b"v" * 100_000),))] * 5), partition=LOST)
        disk.fail()
        with suppress(Closed):
            # Where the last batch lies is known; its bytes cannot be read any more, when the answer is on its way.
            client.fetch("t", partition=LOST, offset=4)
    wait_for(lambda: offline(broker) == 1, "the failure to be noticed")
    with Client(broker.port) as client:
        check_the_wire(client)


def test_fetches_and_members_that_wait_are_answered_when_their_disk_fails(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker
) -> None:
    """A consumer would wait for data, or for its group, on a disk that gives neither, until its time is up."""
    broker = two_disks(kbroker_process, tmp_path, disk.path, **{"group.initial.rebalance.delay.ms": "300000"})
    protocols = [{"name": "range", "metadata": b""}]
    with Client(broker.port) as fetching, Client(broker.port) as joining, Client(broker.port) as other:
        other.create("t", 2)
        groups = [f"g{number}" for number in range(8)]
        assert {commit(other, group) for group in groups} == {0}
        partition_of = {group: partition_for(group, 2) for group in groups}
        group = next(name for name, partition in partition_of.items() if partition == LOST)
        fetching.send("Fetch", 11, fetch_values("t", partition=LOST, wait_ms=300_000))
        join = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 300_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        joining.send("JoinGroup", 2, join)
        wait_for(lambda: scrape(broker.metrics_url)["kbroker_fetches_waiting"] == 1, "the fetch to wait")
        fail_until_noticed(broker, disk)
        assert fetching.answer("Fetch", 11).responses[0].partitions[0].error_code == STORAGE_ERROR
        assert joining.answer("JoinGroup", 2).error_code == NOT_COORDINATOR


def test_a_directory_that_does_not_work_at_start_is_offline_from_then_on(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker
) -> None:
    """The broker would not start at all, or start with empty partitions where the disk's were."""
    broker = two_disks(kbroker_process, tmp_path, disk.path)
    with Client(broker.port) as client:
        client.create("t", 2)
        for partition in (KEPT, LOST):
            client.write("t", Batch(), Batch(), partition=partition)
    assert broker.stop() == 0
    disk.fail()
    broker.start()
    assert f"cannot use log directory {disk.path}: Input/output error" in broker.output()
    assert offline(broker) == 1
    with Client(broker.port) as client:
        check_the_wire(client)
    assert broker.stop() == 0
    disk.repair()
    broker.start()
    with Client(broker.port) as client:
        assert [client.offset("t", partition=each) for each in (KEPT, LOST)] == [3, 2]
        assert client.write("t", partition=LOST) == 2
        assert [each.leader_epoch for each in metadata(client, "t")] == [0, 2]


def test_leader_epochs_never_go_back(tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker) -> None:
    """Clients keep the newest leader epoch that they saw: an older one would leave them without a leader for good."""
    broker = two_disks(kbroker_process, tmp_path, disk.path)
    with Client(broker.port) as client:
        client.create("t", 2)
        client.write("t", partition=LOST)
    seen = []
    for _ in range(2):
        fail_until_noticed(broker, disk)
        for kill in (False, True):
            with Client(broker.port) as client:
                seen.append(metadata(client, "t")[LOST].leader_epoch)
            if kill:
                broker.kill()
            else:
                assert broker.stop() == 0
                broker.start()
        disk.repair()
        broker.start()
        with Client(broker.port) as client:
            assert client.write("t", partition=LOST) > 0
            seen.append(metadata(client, "t")[LOST].leader_epoch)
    assert seen == [1, 1, 2, 3, 3, 4]


def test_the_last_directory_ends_the_broker_with_a_reason(disk: FailingDisk, kbroker_process: StartBroker) -> None:
    """A broker that can serve nothing would look alive to whoever is to start it again."""
    broker = kbroker_process({"log.dirs": str(disk.path), "kbroker.disk.reserve.bytes": "0"})
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", *([Batch()] * 20))
        disk.fail()
        assert client.produce("t", Batch()).error_code == STORAGE_ERROR
    assert broker.wait() == 1
    assert "halts: all log directories have failed" in broker.output()
    broker.spawn()
    assert broker.wait() == 1
    assert "cannot start: cannot use log directory" in broker.output()
    disk.repair()
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("t") == 20


def test_the_directory_with_the_metadata_ends_the_broker_and_the_others_stop_cleanly(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker
) -> None:
    """Topics would be made and deleted in memory only; and the disk that works would be recovered for nothing."""
    dirs = f"{disk.path},{tmp_path}/second-disk"
    broker = kbroker_process({"log.dirs": dirs, "kbroker.disk.reserve.bytes": "0"})
    with Client(broker.port) as client:
        client.create("t", 2)
        client.write("t", partition=1)
        disk.fail()
        asked = {"topics": [{"name": "x", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 9_000}
        assert client.ask("CreateTopics", 7, asked).topics[0].error_code == STORAGE_ERROR
    assert broker.wait() == 1
    assert "which has the metadata, has failed" in broker.output()
    assert (tmp_path / "second-disk" / ".kafka_cleanshutdown").exists()
    disk.repair()
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("t", partition=1) == 1


def test_a_directory_that_is_unmounted_under_the_broker_is_noticed(
    tmp_path: Path, memory: Path, kbroker_process: StartBroker
) -> None:
    """Records would be acknowledged into files that nobody finds again."""
    broker = two_disks(kbroker_process, tmp_path, memory)
    with Client(broker.port) as client:
        client.create("t", 2)
        for partition in (KEPT, LOST):
            client.write("t", Batch(), Batch(), partition=partition)
        subprocess.run(["umount", "-l", str(memory)], check=True)
        wait_for(lambda: offline(broker) == 1, "the directory to be missed")
        check_the_wire(client)
    assert "was removed or replaced" in broker.output()
    assert list(memory.iterdir()) == [], "nothing may be written to where the disk was"


def test_a_disk_that_is_not_mounted_at_start_is_missed(
    tmp_path: Path, disk: FailingDisk, kbroker_process: StartBroker
) -> None:
    """Its partitions would be made anew and empty below the mount point, and twice be there when it is back."""
    broker = two_disks(kbroker_process, tmp_path, disk.path)
    with Client(broker.port) as client:
        client.create("t", 2)
        for partition in (KEPT, LOST):
            client.write("t", Batch(), Batch(), partition=partition)
    assert broker.stop() == 0
    disk.unmount()
    broker.start()
    assert "is its disk mounted?" in broker.output()
    with Client(broker.port) as client:
        check_the_wire(client)
    assert broker.stop() == 0
    disk.mount()
    broker.start()
    with Client(broker.port) as client:
        assert [client.offset("t", partition=each) for each in (KEPT, LOST)] == [3, 2]
    assert broker.stop() == 0
    # Its data are gone for good: somebody has to say so.
    disk.unmount()
    for left in disk.path.iterdir():
        left.unlink()
    format_anew = [sys.executable, "-m", "kbroker.cli", "format", "--ignore-formatted"]
    dirs = broker.overrides["log.dirs"]
    subprocess.run([*format_anew, "--override", f"log.dirs={dirs}"], check=True, capture_output=True)
    broker.start()
    with Client(broker.port) as client:
        assert offline(broker) == 0
        assert [client.offset("t", partition=each) for each in (KEPT, LOST)] == [3, 0]


def test_topics_can_be_deleted_on_a_disk_without_a_byte_left(memory: Path, kbroker_process: StartBroker) -> None:
    """The way out of a full disk would itself need space."""
    broker = kbroker_process({"log.dirs": str(memory / "data"), "kbroker.disk.reserve.bytes": "0"})
    spare = memory / "data" / "kbroker-metadata.sqlite.spare"
    with Client(broker.port) as client:
        names = [f"t{number}" for number in range(30)]
        for name in names:
            client.create(name, 6)
        assert spare.stat().st_blocks * 512 >= MEGABYTE
        with (memory / "foreign").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        refused = client.ask(
            "CreateTopics",
            7,
            {"topics": [{"name": "x", "num_partitions": 60, "replication_factor": 1}], "timeout_ms": 9_000},
        )
        assert refused.topics[0].error_code == STORAGE_ERROR
        for name in names:
            client.delete(name)
        assert "gave up" in broker.output()
        (memory / "foreign").unlink()
        client.create("after")
        wait_for(spare.exists, "the spare file to be made again")
        assert client.write("after") == 0
    broker.restart(kill=True)
    with Client(broker.port) as client:
        listed = client.ask("Metadata", 12, {"topics": None}).topics
        assert [topic.name for topic in listed] == ["after"]


def test_a_request_does_not_wait_longer_for_an_fsync_than_it_said(
    tmp_path: Path, slow_fsync: tuple[dict[str, str], Path]
) -> None:
    """A slow disk would hold producers for longer than they asked for, and their connections with them."""
    environ, switch = slow_fsync
    broker = BrokerProcess(tmp_path / "broker", {"kbroker.fsync": "commit"}, environ=environ).start()
    try:
        with Client(broker.port) as client, Client(broker.port) as other:
            client.create("t", 2)
            producer = client.producer_id()
            first = Batch(producer_id=producer, producer_epoch=0, base_sequence=0)
            second = Batch(producer_id=producer, producer_epoch=0, base_sequence=1)
            assert client.produce("t", first).error_code == 0
            switch.touch()
            answer = client.produce("t", second, timeout_ms=200)
            assert (answer.error_code, answer.base_offset) == (REQUEST_TIMED_OUT, 1)
            # Nobody sees what is not durable yet, and the connection goes on.
            assert other.offset("t") == 1
            assert client.fetch("t", offset=0).high_watermark == 1
            # The renewal is recognised, and waits for the same fsync.
            assert client.produce("t", second, timeout_ms=0).error_code == REQUEST_TIMED_OUT
            switch.unlink()
            wait_for(lambda: other.offset("t") == 2, "the record to become durable")
            answer = client.produce("t", second)
            assert (answer.error_code, answer.base_offset) == (0, 1)
            assert client.write("t") == 2
    finally:
        switch.unlink(missing_ok=True)
        assert broker.stop() == 0
