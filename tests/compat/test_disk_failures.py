"""Clients over many failures of the broker's only disk: each goes on when the broker is back, without a word to it.

`KBROKER_TEST_FAILURES` says how often the disk fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.broker.failing_disk import FailingDisk, failing_disk
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.compat.client import ClientKind, Driver, gather
from tests.compat.kinds import CONFLUENT, JAVA, KAFKA_PYTHON
from tests.compat.records import Record

FAILURES = int(os.environ.get("KBROKER_TEST_FAILURES", "2"))
PARTITIONS = 4
PER_ROUND = 40
KINDS = [CONFLUENT, JAVA, KAFKA_PYTHON]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path) as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path, disk: FailingDisk) -> Iterator[BrokerProcess]:
    """A broker with nothing but that disk."""
    settings = {
        "log.dirs": str(disk.path),
        "kbroker.fsync": "commit",
        "kbroker.disk.reserve.bytes": "0",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    process = BrokerProcess(tmp_path / "broker", settings).start()
    yield process
    if process.running:
        process.stop()


class Client:
    """A producer and a member of a group, each a process of one library, with a topic of their own."""

    def __init__(self, kind: ClientKind, idempotent: bool, broker: BrokerProcess, folder: Path) -> None:
        self.name = f"{kind.name}-{'idempotent' if idempotent else 'plain'}"
        self.idempotent = idempotent
        self.sent: list[bytes] = []
        self.topic = Admin(broker.bootstrap).create_topic(self.name, PARTITIONS)
        self.producer = Driver(kind, broker.bootstrap, folder / f"{self.name}-producer.err")
        self.member = Driver(kind, broker.bootstrap, folder / f"{self.name}-member.err")
        self.member.join(self.topic, self.name)

    def begin(self) -> None:
        keys = [b"%d" % (len(self.sent) + number) for number in range(PER_ROUND)]
        records = [Record(place % PARTITIONS, key, b"v", timestamp=1) for place, key in enumerate(keys)]
        self.sent.extend(keys)
        self.producer.begin_produce(self.topic, records, idempotent=self.idempotent)

    def finish(self) -> None:
        assert len(self.producer.finish(f"produce of {self.name}")) == PER_ROUND

    @property
    def received(self) -> set[bytes]:
        return {record.key for record in self.member.received if record.key is not None}

    def close(self) -> None:
        self.producer.close()
        self.member.close()


def test_clients_go_on_after_failures_of_the_only_disk(
    tmp_path: Path, disk: FailingDisk, broker: BrokerProcess
) -> None:
    """Clients keep the newest leader epoch that they saw, and drop what is older: they would hang for good."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(closing(Client(kind, idempotent, broker, tmp_path)))
            for kind in KINDS
            for idempotent in (False, True)
        ]
        members = [client.member for client in clients]

        def check() -> None:
            for client in clients:
                client.finish()
            gather(
                members,
                lambda: all(client.received.issuperset(client.sent) for client in clients),
                f"{[(client.name, len(client.sent), len(client.received)) for client in clients]}",
            )

        for client in clients:
            client.begin()
        check()
        for _ in range(FAILURES):
            for client in clients:
                client.begin()
            disk.fail()
            assert broker.wait() == 1
            disk.repair()
            broker.start()
            check()
