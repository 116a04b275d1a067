"""`kbroker.fsync` and `flush.messages` on a running broker: served as ever, and acknowledged after the disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.broker.client import Batch, Client, scrape, wait_for
from tests.broker.records import QUIET, Writer, check_all_there_once, read_topic
from tests.broker.slow_disk import slow_fsync
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

__all__ = ["slow_fsync"]

MAX_TIMESTAMP = -3
REQUEST_TIMED_OUT = 7
COORDINATOR_NOT_AVAILABLE = 15


def fsyncs(broker: BrokerProcess) -> float:
    return scrape(broker.metrics_url)["kbroker_commit_fsyncs_total"]


def recovery_points(broker: BrokerProcess) -> dict[str, int]:
    """Offset by `topic-partition`, from the checkpoint on the disk."""
    path = broker.data_dir / "recovery-point-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}


def read_records(consumer: Any, count: int) -> list[Any]:
    """The next records of a consumer."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(consumer.consume(count - len(found), 0.2))
        return len(found) == count

    wait_for(enough, f"{count} records")
    return found


def test_commit_acknowledges_after_an_fsync_and_before_that_shows_nothing(kbroker_process: StartBroker) -> None:
    """kbroker.fsync=commit would be a setting that does nothing."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t", 4)
        before = fsyncs(broker)
        for number in range(10):
            assert client.write("t") == number
            assert client.fetch("t", offset=number).high_watermark == number + 1
        assert fsyncs(broker) - before == 10
        for partition in range(4):
            client.produce("t", Batch(), partition=partition, acks=1)
        assert client.offset("t") == 11


def test_many_producers_share_fsyncs(kbroker_process: StartBroker) -> None:
    """Each record would cost an fsync of its own: a few hundred records a second, whatever the load."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t")
        before = fsyncs(broker)
        writers = [Writer(broker.bootstrap, "t", settings={"linger.ms": 0}) for _ in range(4)]
        for writer in writers:
            writer.send(1000)
        for writer in writers:
            writer.finish()
        assert client.offset("t") == 4000
        waited = scrape(broker.metrics_url)["kbroker_commit_waits_total"]
        assert 0 < fsyncs(broker) - before <= waited


def test_a_group_commits_its_offsets_durably(kbroker_process: StartBroker) -> None:
    """A consumer group would hang, or be told of offsets that a power failure takes back."""
    from confluent_kafka import Consumer

    broker = kbroker_process({"kbroker.fsync": "commit"})
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", *([Batch()] * 10))
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUIET}
    consumer: Any = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe(["t"])
    read_records(consumer, 10)
    before = fsyncs(broker)
    consumer.commit(asynchronous=False)
    assert fsyncs(broker) > before
    assert [each.offset for each in consumer.committed(consumer.assignment())] == [10]
    consumer.close()
    broker.restart(kill=True)
    again: Any = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    again.subscribe(["t"])
    with Client(broker.port) as client:
        client.write("t", Batch(((b"later", b""),)))
    assert read_records(again, 1)[0].offset() == 10
    again.close()


def test_flush_messages_follows_the_topic_while_it_is_written(kbroker_process: StartBroker) -> None:
    """A topic whose flush.messages was lowered would be acknowledged as before, until a restart."""
    broker = kbroker_process()
    with Client(broker.port) as client:
        client.create("t")
        client.write("t", Batch(), Batch())
        assert fsyncs(broker) == 0
        entry = {"name": "flush.messages", "config_operation": 0, "value": "1"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [entry]}
        answer = client.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        assert answer.responses[0].error_code == 0
        assert client.write("t", Batch(), Batch()) == 3
        assert fsyncs(broker) == 2
        assert client.fetch("t", offset=3).high_watermark == 4


@pytest.mark.parametrize("settings", [{"kbroker.fsync": "commit"}, {"log.flush.interval.messages": "1"}])
def test_recovery_points_follow_group_commits(kbroker_process: StartBroker, settings: dict[str, str]) -> None:
    """The start after a crash would read everything again, although each record was fsynced."""
    broker = kbroker_process(
        {"log.initial.task.delay.ms": "50", "log.flush.offset.checkpoint.interval.ms": "50", **settings}
    )
    with Client(broker.port) as client:
        client.create("t", configs={"retention.ms": "-1"})
        client.write("t", *([Batch()] * 10))
        wait_for(lambda: recovery_points(broker).get("t-0") == 10, "the recovery point to reach the end")
        broker.restart(kill=True)
    with Client(broker.port) as client:
        assert client.offset("t") == 10
        assert client.fetch("t", offset=0).high_watermark == 10


def test_flush_ms_of_a_new_topic_counts_from_its_first_record(kbroker_process: StartBroker) -> None:
    """A topic that is made while the broker runs would be flushed with the round that was planned without it."""
    broker = kbroker_process({"log.initial.task.delay.ms": "50", "log.flush.offset.checkpoint.interval.ms": "50"})

    def flushed(topic: str) -> bool:
        return recovery_points(broker).get(f"{topic}-0") == 1

    with Client(broker.port) as client:
        for number in range(3):
            topic = f"t{number}"
            client.create(topic, configs={"flush.ms": "100", "retention.ms": "-1"})
            client.write(topic)
            wait_for(partial(flushed, topic), "the flush")


def test_acks_0_is_not_answered_and_becomes_visible(kbroker_process: StartBroker) -> None:
    """The high watermark would wait for an acknowledgement that nobody asked for."""
    broker = kbroker_process({"kbroker.fsync": "commit"})
    writer = Writer(broker.bootstrap, "t", settings={"enable.idempotence": False, "acks": 0})
    writer.send(50)
    writer.finish()
    wait_for(lambda: len(read_topic(broker.bootstrap, "t")) == 50, "fifty records")


def test_interval_brings_every_record_to_the_disk_in_time(kbroker_process: StartBroker) -> None:
    """kbroker.fsync=interval would leave records to the system's half minute."""
    broker = kbroker_process(
        {
            "kbroker.fsync": "interval",
            "kbroker.fsync.interval.ms": "50",
            # The first checkpoint, which shows what was flushed, would come when the wait for it ends.
            "log.initial.task.delay.ms": "50",
            "log.flush.offset.checkpoint.interval.ms": "50",
        }
    )
    writer = Writer(broker.bootstrap, "t")
    writer.send(100)
    writer.finish()
    wait_for(lambda: recovery_points(broker).get("t-0") == 100, "the recovery point to reach the end")
    broker.restart(kill=True)
    check_all_there_once(writer, read_topic(broker.bootstrap, "t"))


@pytest.fixture
def slow(tmp_path: Path, slow_fsync: tuple[dict[str, str], Path]) -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker with kbroker.fsync=commit, and the file that holds its fsyncs up."""
    environ, switch = slow_fsync
    settings = {"kbroker.fsync": "commit", "offsets.commit.timeout.ms": "200"}
    broker = BrokerProcess(tmp_path / "broker", settings, environ=environ).start()
    yield broker, switch
    switch.unlink(missing_ok=True)
    assert broker.stop() == 0


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_largest_time_above_the_high_watermark_is_not_told(
    slow: tuple[BrokerProcess, Path], isolation_level: int
) -> None:
    """A consumer would be sent to a record that a failing machine may take back."""
    broker, switch = slow

    def largest(client: Client) -> tuple[int, int, int]:
        rows = [{"partition_index": 0, "timestamp": MAX_TIMESTAMP}]
        asked = {"replica_id": -1, "isolation_level": isolation_level, "topics": [{"name": "t", "partitions": rows}]}
        found = client.ask("ListOffsets", 7, asked).topics[0].partitions[0]
        return found.error_code, found.timestamp, found.offset

    with Client(broker.port) as client:
        client.create("t")
        client.produce("t", Batch(timestamps=[1000]))
        assert largest(client) == (0, 1000, 0)
        switch.touch()
        assert client.produce("t", Batch(timestamps=[2000]), timeout_ms=100).error_code == REQUEST_TIMED_OUT
        assert largest(client) == (0, -1, -1)
        switch.unlink()
        wait_for(lambda: largest(client) == (0, 2000, 1), "the record to become durable")


def test_a_coordinator_s_write_waits_no_longer_than_its_timeout(slow: tuple[BrokerProcess, Path]) -> None:
    """A group would hang for as long as a disk does, and its consumers' connections with it."""
    broker, switch = slow

    def commit(client: Client, offset: int) -> list[int]:
        rows = [
            {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1} for index in (0, 5)
        ]
        who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        asked = {**who, "topics": [{"name": "t", "partitions": rows}]}
        return [each.error_code for each in client.ask("OffsetCommit", 8, asked).topics[0].partitions]

    def committed(client: Client) -> int:
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
        return int(client.ask("OffsetFetch", 5, asked).topics[0].partitions[0].committed_offset)

    with Client(broker.port) as client, Client(broker.port) as other:
        client.create("t")
        # A busy disk may take longer than the timeout by itself.
        wait_for(lambda: commit(client, 1) == [0, 3], "a commit in time")
        switch.touch()
        assert commit(client, 2) == [COORDINATOR_NOT_AVAILABLE, 3]
        deleted = other.ask("DeleteGroups", 2, {"groups_names": ["g", "none"]}).results
        assert [each.error_code for each in deleted] == [COORDINATOR_NOT_AVAILABLE, 69]
        joining = {"group_id": "h", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
        protocols = [{"name": "range", "metadata": b""}]
        asked = {**joining, "protocol_type": "consumer", "protocols": protocols}
        assert other.ask("JoinGroup", 3, asked).error_code == COORDINATOR_NOT_AVAILABLE
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
        for version in (1, 5):
            found = other.ask("OffsetFetch", version, asked)
            row = found.topics[0].partitions[0]
            assert (row.error_code, row.committed_offset) == (COORDINATOR_NOT_AVAILABLE, -1)
            assert found.error_code == (COORDINATOR_NOT_AVAILABLE if version == 5 else 0)
        found = other.ask("OffsetFetch", 8, {"groups": [asked]}).groups[0]
        assert (found.error_code, found.topics) == (COORDINATOR_NOT_AVAILABLE, [])
        switch.unlink()
        wait_for(lambda: commit(client, 3) == [0, 3], "the log of the groups to become durable")
        assert committed(other) == 3


def test_a_setting_that_does_not_exist_is_refused(kbroker_process: StartBroker) -> None:
    """Somebody who writes `always` would believe in a promise that nobody made."""
    broker = kbroker_process({"kbroker.fsync": "always"}, wait=False)
    broker.spawn()
    assert broker.wait() != 0
    assert "kbroker.fsync" in broker.output() and "os, interval, commit" in broker.output()
