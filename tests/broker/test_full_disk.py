"""A broker on a file system that fills up: a small one in memory, where mounting is allowed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.client import Batch, Client, readiness, scrape, wait_for
from tests.broker.records import Writer, check_all_there_once, read_topic
from tests.broker.small_disk import MEGABYTE, SmallDisk, small_disk
from tests.broker_process import BrokerProcess
from tests.conftest import StartBroker

STORAGE_ERROR = 56
NOT_COORDINATOR = 16
RESERVE = 16 * MEGABYTE


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def broker_on(disk: SmallDisk, start: StartBroker, **settings: str) -> BrokerProcess:
    return start({"log.dirs": f"{disk.path}/data", "kbroker.disk.reserve.bytes": str(RESERVE), **settings})


def refusing(broker: BrokerProcess) -> bool:
    samples = scrape(broker.metrics_url)
    return any(value == 1 for name, value in samples.items() if name.startswith("kbroker_log_dir_refusing{"))


def free_of(broker: BrokerProcess) -> float:
    """The bytes left as far as the broker has seen."""
    samples = scrape(broker.metrics_url)
    return next(value for name, value in samples.items() if name.startswith("kbroker_log_dir_free_bytes{"))


def commit(client: Client, offset: int) -> int:
    """Commits an offset as a simple consumer; the error code."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    answer = client.ask(
        "OffsetCommit",
        2,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time_ms": -1,
            "topics": [{"name": "t", "partitions": [partition]}],
        },
    )
    return int(answer.topics[0].partitions[0].error_code)


def test_a_producer_waits_for_space_and_loses_nothing(disk: SmallDisk, kbroker_process: StartBroker) -> None:
    """A full disk would end the broker, or cost records that were acknowledged before it filled up."""
    broker = broker_on(disk, kbroker_process)
    with Client(broker.port) as client:
        client.create("t")
        assert commit(client, 1) == 0
        disk.take(leave=RESERVE + 12 * MEGABYTE)
        writer = Writer(broker.bootstrap, "t", padding=os.urandom(50_000))
        writer.send(600)
        wait_for(
            lambda: writer.poll() >= 0 and refusing(broker) and len(writer.acknowledged) > 50, "produce to be refused"
        )
        assert client.produce("t", Batch()).error_code == STORAGE_ERROR
        assert len(writer.acknowledged) < 600
        # The rest goes on.
        assert client.fetch("t", offset=len(writer.acknowledged) - 1).error_code == 0
        assert commit(client, 50) == 0
        client.create("made-on-a-short-disk")
        client.delete("made-on-a-short-disk")
        disk.give_back()
        writer.finish()
        assert not refusing(broker)
    check_all_there_once(writer, read_topic(broker.bootstrap, "t"))
    lines = broker.output().splitlines()
    assert sum("produce is refused there" in line for line in lines) == 1
    assert sum("produce is accepted there again" in line for line in lines) == 1
    assert broker.stop() == 0
    broker.start()
    assert "after an unclean stop" not in broker.output()


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_a_disk_without_a_byte_left_can_be_restarted(disk: SmallDisk, kbroker_process: StartBroker, kill: bool) -> None:
    """People delete segments by hand, and lose more than they free, when a broker does not start on a full disk."""
    broker = broker_on(disk, kbroker_process)
    with Client(broker.port) as client:
        # The records are of 2023: retention, which has its turn at once on a short disk, must not take them.
        client.create("t", configs={"retention.ms": "-1"})
        assert client.write("t", *([Batch()] * 20)) == 19
        assert commit(client, 7) == 0
        disk.take(leave=0)
        assert disk.free == 0
        # Not only the first look at a disk that was being filled: half of the reserve is for commits.
        wait_for(lambda: refusing(broker) and free_of(broker) == 0, "produce and commits to be refused")
        assert client.produce("t", Batch()).error_code == STORAGE_ERROR
        assert commit(client, 8) == NOT_COORDINATOR
    broker.restart(kill=kill)
    assert not (disk.path / "data" / ".kafka_cleanshutdown").exists()
    with Client(broker.port) as client:
        assert client.offset("t") == 20
        assert client.fetch("t", offset=19).error_code == 0
        assert client.produce("t", Batch()).error_code == STORAGE_ERROR
        disk.give_back()
        wait_for(lambda: not refusing(broker), "produce to be accepted")
        assert client.write("t") == 20
    assert broker.stop() == 0
    broker.start()
    with Client(broker.port) as client:
        assert client.offset("t") == 21


def test_without_a_reserve_a_full_disk_refuses_each_write_and_heals(
    disk: SmallDisk, kbroker_process: StartBroker
) -> None:
    """With the watch turned off a write that fails midway would leave half a batch in the log."""
    broker = broker_on(disk, kbroker_process, **{"kbroker.disk.reserve.bytes": "0"})
    with Client(broker.port) as client:
        # A full disk has retention look at once, and the records of tests are old.
        client.create("t", configs={"retention.ms": "-1"})
        disk.take(leave=5 * MEGABYTE)
        big = Batch(((b"k", b"v" * 300_000),))
        written = 0
        while client.produce("t", big).error_code == 0:
            written += 1
        assert 5 < written < 20
        assert client.produce("t", big).error_code == STORAGE_ERROR
        assert client.offset("t") == written
        assert refusing(broker)
        status, text = readiness(broker.metrics_url)
        assert status == 200 and "- produce finds no space in log directory" in text
        disk.give_back()
        assert client.write("t", big) == written
        wait_for(lambda: not refusing(broker), "the space to be noticed")
        assert readiness(broker.metrics_url) == (200, "ready\n")
    broker.restart(kill=True)
    assert [offset for _, offset, _ in read_topic(broker.bootstrap, "t")] == list(range(written + 1))


@pytest.mark.parametrize("fsync", ["os", "commit"])
def test_a_broker_that_is_killed_while_its_disk_fills_up_starts_on_it(
    disk: SmallDisk, kbroker_process: StartBroker, fsync: str
) -> None:
    """What a recovery makes again (snapshots, indexes, epochs) would need room, and the broker not come back."""
    broker = broker_on(
        disk,
        kbroker_process,
        **{
            "kbroker.disk.reserve.bytes": "0",
            "kbroker.fsync": fsync,
            "log.segment.bytes": str(MEGABYTE),
            "log.index.interval.bytes": "4096",
            "log.retention.ms": "-1",
        },
    )
    with Client(broker.port) as client:
        client.create("t", 3)
    writer = Writer(broker.bootstrap, "t", padding=os.urandom(20_000))
    for _ in range(3):
        acknowledged = len(writer.acknowledged)
        writer.send(200)
        wait_for(lambda least=acknowledged + 100: writer.poll() >= least, "records to be acknowledged")  # type: ignore[misc]
        disk.take(leave=0)
        broker.kill()
        disk.take(leave=0)
        broker.start()
        # The metadata store has given up its spare file for the start.
        disk.take(leave=0)
        wait_for(lambda: ": 0 bytes are left" in readiness(broker.metrics_url)[1], "the full disk to be named")
        disk.give_back()
    writer.finish()
    check_all_there_once(writer, read_topic(broker.bootstrap, "t"))
    assert broker.stop() == 0
