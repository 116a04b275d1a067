"""A host of several workers as real processes, with what is delivered to it and read from it."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.ports import free_port

QUIET = {"log_level": 0}
SECONDS = 60.0


class Workers(BrokerProcess):
    """`kbroker start --workers N` on loopback."""

    def __init__(self, directory: Path, count: int, settings: Mapping[str, str] | None = None) -> None:
        self.count = count
        small = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "3"}
        super().__init__(directory, {**small, **(settings or {})}, port=free_port(count))

    def command(self) -> list[str]:
        return [*super().command(), "--workers", str(self.count)]

    def up(self) -> Workers:
        """Start, and wait until all workers serve."""
        self.spawn()
        self.wait_until_ready()
        return self

    def ready(self) -> tuple[int, str]:
        """Status and text of /readyz; 0 while there is none."""
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/readyz", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_until_ready(self) -> None:
        """Until `/readyz` says so."""
        wait_for(lambda: self.ready()[0] == 200 or not self.running, "all workers", seconds=SECONDS)
        assert self.running, self.output()

    def metrics(self, path: str = "/metrics") -> str:
        """The page of all workers."""
        with urllib.request.urlopen(f"{self.metrics_url}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def worker_directory(self, number: int) -> Path:
        """A worker's log directory."""
        return self.data_dir if number == 1 else self.data_dir / "workers" / str(number)

    def worker_pid(self, number: int) -> int:
        """The process id of a worker, which its lock file names."""
        return int((self.worker_directory(number) / ".lock").read_text())

    def kill_worker(self, number: int) -> int:
        """kill -9; the id that the process had."""
        pid = self.worker_pid(number)
        os.kill(pid, signal.SIGKILL)
        return pid


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Deliveries:
    """A producer with acks=all that notes what is acknowledged."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._count = 0
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                # Each record goes to a partition of its own choice; a burst would go to one, and most have none.
                "sticky.partitioning.linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                **settings,
            }
        )

    def send(self, topic: str, count: int) -> None:
        """Records of values that follow each other."""
        for _ in range(count):
            self._count += 1
            value = f"{topic}-{self._count}"
            self._producer.produce(topic, value, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        (self.acknowledged if error is None else self.failed).append(value.decode())

    def poll(self) -> int:
        """How many were acknowledged by now."""
        self._producer.poll(0.05)
        return len(self.acknowledged)

    def finish(self) -> None:
        """Wait for all."""
        assert self._producer.flush(SECONDS) == 0


def read_all(bootstrap: str, group: str, topics: list[str], wanted: set[str]) -> list[str]:
    """The values that a group reads until it has all of `wanted`; its offsets are committed then."""
    consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    found: list[str] = []
    missing = set(wanted)

    def read() -> bool:
        for message in consumer.consume(500, 0.2):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value.decode())
                missing.discard(found[-1])
        return not missing

    try:
        consumer.subscribe(topics)
        wait_for(read, "all that was acknowledged", seconds=SECONDS)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> int:
    """The sum of a group's offsets of a topic; of a partition without records there is none."""
    consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": group})
    try:
        rows = consumer.committed([TopicPartition(topic, each) for each in range(partitions)], timeout=SECONDS)
    finally:
        consumer.close()
    return sum(each.offset for each in rows if each.offset >= 0)
