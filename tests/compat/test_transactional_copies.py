"""Consume, process, produce in transactions of every client, while the broker is killed ten times."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.compat.drivers.copier import ABORTED
from tests.compat.tooling import ROOT, java_command, node_folder
from tests.compat.transaction_rounds import create, read_all
from tests.compat.waiting import wait_for

pytestmark = pytest.mark.slow

KILLS = 10
COUNT = 4_400
PARTITIONS = 2


def _python(client: str) -> Callable[[str, str], list[str]]:
    def command(bootstrap: str, name: str) -> list[str]:
        module = [sys.executable, "-m", "tests.compat.drivers.copier", client]
        return [*module, bootstrap, "source", "copy", name, str(COUNT)]

    return command


def _kafkajs(bootstrap: str, name: str) -> list[str]:
    return ["node", str(node_folder() / "copier.js"), bootstrap, "source", "copy", name, str(COUNT)]


def _java(bootstrap: str, name: str) -> list[str]:
    fixed = ["--input-topic", "source", "--input-partition", "0", "--output-topic", "copy", "--enable-random-aborts"]
    ids = ["--consumer-group", name, "--transactional-id", name, "--broker-list", bootstrap]
    size = ["--transaction-size", "20", "--max-messages", str(COUNT)]
    return java_command("org.apache.kafka.tools.TransactionalMessageCopier", *fixed, *ids, *size)


COMMANDS = {
    "confluent": _python("confluent"),
    "kafka-python": _python("kafka_python"),
    "aiokafka": _python("aiokafka"),
    "kafkajs": _kafkajs,
    "java": _java,
}


class CommittedReader:
    """A read_committed consumer that reads `copy` all the while, over every death of the broker."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, **settings})
        self._consumer.assign([TopicPartition("copy", index, 0) for index in range(PARTITIONS)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.values: list[bytes] = []
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")
        self._consumer.close()

    def close(self) -> None:
        """Read no more."""
        self._stop.set()
        self._thread.join()


@contextmanager
def copier(command: list[str], errors: Path) -> Iterator[Callable[[], bool]]:
    """A copier that is started again when its client gives up; gives what says whether it has copied everything."""
    stop = threading.Event()
    done = threading.Event()

    def run() -> None:
        while not stop.is_set() and not done.is_set():
            with errors.open("ab") as file:
                process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
                while process.poll() is None and not stop.wait(0.05):
                    pass
                process.kill()
                if process.wait() == 0:
                    done.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done.is_set
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", COMMANDS)
def test_a_copy_is_exact_over_ten_kills(
    client: str, kbroker_process: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Records would be lost or copied twice, or those of an aborted transaction be read, when the broker dies."""
    chance = random.Random(client)
    broker = kbroker_process({"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"})
    create(broker.bootstrap, source=1, copy=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce("source", b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    reader = CommittedReader(broker.bootstrap)
    errors = tmp_path / "copier.err"

    def seen(count: int) -> None:
        wait_for(lambda: len(reader.values) >= count, f"{count} copies by {client}", seconds=120)

    try:
        with copier(COMMANDS[client](broker.bootstrap, f"copy-{client}"), errors) as is_done:
            for kill in range(KILLS):
                seen(kill * COUNT // (KILLS + 1) + chance.randrange(COUNT // (KILLS + 1)))
                broker.restart(kill=True)
            wait_for(is_done, f"the end of the copy by {client}", seconds=180)
        seen(COUNT)
    finally:
        reader.close()
    expected = Counter(b"%d" % number for number in range(COUNT))
    assert Counter(reader.values) == expected
    assert Counter(read_all(broker.bootstrap, "copy", PARTITIONS)) == expected
    # Aborted records were there to be seen.
    everything = Counter(read_all(broker.bootstrap, "copy", PARTITIONS, "read_uncommitted"))
    assert everything[ABORTED] > 0 or client == "java"
