"""A disk that gives EIO while records go to it and come from it over TLS, by clients that have logged in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.security.tls.kernel import probe
from kbroker.testing import Security
from tests.broker.client import Batch, Closed, wait_for
from tests.broker.failing_disk import MEGABYTE, FailingDisk, failing_disk
from tests.broker.records import Writer, begin, check_all_there_once, read_topic
from tests.broker_process import BrokerProcess
from tests.security.secured_client import SecuredClient

STORAGE_ERROR = 56
LOST, KEPT = 1, 0
SETTINGS = {"kbroker.disk.reserve.bytes": str(MEGABYTE), "offsets.topic.num.partitions": "2"}
# So that nothing notices the disk but those who read from it.
RARELY = dict.fromkeys(("replica.high.watermark.checkpoint.interval.ms", "log.initial.task.delay.ms"), "3600000")
WHO_ENCRYPTS = [
    pytest.param("auto", marks=pytest.mark.skipif(isinstance(probe(), str), reason="a kernel without TLS")),
    "off",
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    folder = tmp_path / "second"
    folder.mkdir()
    with failing_disk(folder) as made:
        yield made


def two_disks(tmp_path: Path, disk: FailingDisk, **settings: str) -> BrokerProcess:
    """Partition 1 lies on the disk that fails."""
    dirs = {"log.dirs": f"{tmp_path}/first,{disk.path}"}
    return BrokerProcess(tmp_path / "broker", {**SETTINGS, **dirs, **settings}, security=Security())


def offline(client: SecuredClient) -> list[bool]:
    """Whether each of the directories is."""
    answer = client.ask("DescribeLogDirs", 4, {"topics": None})
    return [each.error_code == STORAGE_ERROR for each in answer.results]


def check_that_it_serves(client: SecuredClient, topic: str) -> None:
    """The same connection, for the disk that works and for the one that does not."""
    client.write(topic, partition=KEPT)
    assert client.fetch(topic, partition=KEPT).error_code == 0
    assert client.produce(topic, Batch(), partition=LOST).error_code == STORAGE_ERROR
    assert client.fetch(topic, partition=LOST).error_code == STORAGE_ERROR


def test_what_was_acknowledged_over_tls_stays_and_connections_go_on(tmp_path: Path, disk: FailingDisk) -> None:
    """One failing disk would cost records, or the connections of all who produce over TLS."""
    with two_disks(tmp_path, disk) as broker:
        settings = broker.client_settings()
        with SecuredClient(broker) as client:
            for topic in ("kept", "lost"):
                client.create(topic)
            client.create("t", 2)
            for partition in (KEPT, LOST):
                client.write("t", Batch(), Batch(), partition=partition)
            writers = kept, lost = [
                Writer(broker.bootstrap, topic, padding=b"x" * 500, settings=settings) for topic in ("kept", "lost")
            ]
            begin(*writers)
            disk.fail()
            before = kept.poll()
            for _ in range(10):
                kept.send(100)
                lost.send(20)
            assert client.produce("t", Batch(), partition=LOST).error_code == STORAGE_ERROR
            wait_for(lambda: kept.poll() >= before + 500, "the disk that works to take more")
            wait_for(lambda: offline(client) == [False, True], "the failure to be noticed")
            kept.finish()
            check_that_it_serves(client, "t")
        assert lost.poll() < lost.sent
        check_all_there_once(kept, read_topic(broker.bootstrap, "kept", settings))
        assert broker.stop() == 0
        disk.repair()
        broker.start()
        lost.send(50)
        lost.finish()
        for writer in writers:
            check_all_there_once(writer, read_topic(broker.bootstrap, writer.topic, settings))
        with SecuredClient(broker) as client:
            assert client.offset("t", partition=LOST) == 2
            assert client.write("t", partition=LOST) == 2


@pytest.mark.parametrize("who", WHO_ENCRYPTS)
def test_a_fetch_over_tls_that_cannot_be_read_costs_its_own_connection_at_most(
    tmp_path: Path, disk: FailingDisk, who: str
) -> None:
    """A consumer would be given bytes that are no records, or all others of the broker be cut off with it."""
    with two_disks(tmp_path, disk, **{**RARELY, "kbroker.tls.kernel": who}) as broker:
        with SecuredClient(broker) as other, SecuredClient(broker) as client:
            client.create("t", 2)
            sent = Batch(((b"k", b"v" * 100_000),))
            client.write("t", *([sent] * 5), partition=LOST)
            client.write("t", partition=KEPT)
            whole = client.fetch("t", partition=LOST, limit=MEGABYTE).records
            disk.fail()
            # What the kernel has of the file may be read still.
            with suppress(Closed):
                answer = client.fetch("t", partition=LOST, offset=4)
                assert answer.error_code or bytes(answer.records) in bytes(whole)
            wait_for(lambda: offline(other) == [False, True], "the failure to be noticed")
            check_that_it_serves(other, "t")
        with SecuredClient(broker) as client:
            check_that_it_serves(client, "t")
        assert broker.output().count("has failed") == 1 and "Traceback" not in broker.output()
