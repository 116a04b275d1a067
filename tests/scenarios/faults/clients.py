"""Producers that count in each partition, and members of groups (`tests/scenarios/soak`)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compat.tooling import ROOT, compiled, java_command
from tests.scenarios.faults.cluster import PARTITIONS
from tests.scenarios.soak import history
from tests.scenarios.soak.plan import CONFLUENT_RANGE, JAVA_RANGE, MemberKind
from tests.scenarios.soak.run import Member

TICK_SECONDS = 0.02
PER_TICK = 2
FLUSH_SECONDS = 90.0


class Counting(Protocol):
    """A producer of one topic: what it was told of each number of each partition, and what failed."""

    topic: str
    is_idempotent: bool
    acknowledged: list[dict[int, int]]
    failed: list[str]

    def collect(self) -> None:
        """Take up what came since."""

    def stop(self) -> None:
        """Wait for what is under way, and end."""

    def kill(self) -> None:
        """End at once."""


def count_of(producer: Counting) -> int:
    """How many records it was told of."""
    return sum(map(len, producer.acknowledged))


class FileLog:
    """What a client of librdkafka says, in a file until it is closed."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.FileHandler(path)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self.logger = logging.Logger(path.stem, logging.DEBUG)
        self.logger.addHandler(self._handler)

    def close(self) -> None:
        """Write nothing any more."""
        self.logger.removeHandler(self._handler)
        self.logger.addHandler(logging.NullHandler())
        self._handler.close()


class LibrdkafkaProducer:
    """librdkafka in a thread; acks=all, and no record is ever given up.  Its log of epochs goes into a file."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.is_idempotent = is_idempotent
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._log = FileLog(folder / f"producer-{topic}.log")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "retries": 1 << 30,
                "socket.timeout.ms": 4_000,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "debug": "eos,broker",
                "enable.idempotence": is_idempotent,
            },
            logger=self._log.logger,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=topic, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(TICK_SECONDS):
            for _ in range(PER_TICK):
                for partition in range(PARTITIONS):
                    self._produce(partition, number)
                number += 1
            self._producer.poll(0)

    def _produce(self, partition: int, number: int) -> None:
        done = partial(self._done, number)
        while not self._stopping.is_set():
            try:
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=done)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _done(self, number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            offset = message.offset()
            self.acknowledged[message.partition()][number] = -1 if offset is None else offset
        else:
            self.failed.append(f"{self.topic}-{message.partition()} {number}: {error}")

    def collect(self) -> None:
        """Nothing to do: the thread has it."""

    def stop(self) -> None:
        """See `Counting`."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_SECONDS)
        if left:
            self.failed.append(f"{self.topic}: {left} records were never acknowledged")

    def kill(self) -> None:
        """See `Counting`."""
        self._stopping.set()
        self._thread.join()
        self._log.close()


@cache
def _classes() -> Path:
    return compiled(Path(__file__).parent / "CountingProducer.java")


class Process:
    """A process of ours that says what happens to it, one line each."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        output = folder / f"{name}.out"
        with output.open("wb") as out, (folder / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        self.said = Member(name, process, output)

    def end(self, number: signal.Signals, seconds: float) -> None:
        """Send a signal, and wait."""
        process = self.said.process
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class JavaProducer(Process):
    """The same with Java's producer, in a process."""

    is_idempotent = True

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.topic = topic
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        rate = [str(PARTITIONS), str(round(TICK_SECONDS * 1000)), str(PER_TICK)]
        command = java_command("CountingProducer", bootstrap, topic, *rate, classes=_classes(), heap="128m")
        super().__init__(f"producer-{topic}", command, folder)

    def collect(self) -> None:
        """See `Counting`."""
        for line in self.said.lines():
            word, partition, number, rest = line.split(maxsplit=3)
            if word == "acked":
                self.acknowledged[int(partition)][int(number)] = int(rest)
            else:
                self.failed.append(f"{self.topic}-{partition} {number}: {rest.strip()}")

    def stop(self) -> None:
        """See `Counting`."""
        self.end(signal.SIGTERM, FLUSH_SECONDS)
        self.collect()

    def kill(self) -> None:
        """See `Counting`."""
        self.end(signal.SIGKILL, 10)


class Group:
    """A group of two members that reads one topic and commits."""

    def __init__(self, name: str, topic: str, kind: MemberKind, bootstrap: str, folder: Path) -> None:
        self.name = name
        self.topic = topic
        self.events: list[history.Event] = []
        self._members = [
            Process(f"{name}-{each}", kind.command(bootstrap, topic, name), folder) for each in ("one", "other")
        ]

    def collect(self) -> None:
        """Take up what the members have said."""
        for member in self._members:
            for line in member.said.lines():
                event = history.read_line(member.said.name, line)
                if event is not None:
                    self.events.append(event)

    def ended(self) -> list[str]:
        """Members that are not there any more."""
        return [each.said.name for each in self._members if each.said.process.poll() is not None]

    def kill(self) -> None:
        """End at once."""
        for member in self._members:
            member.end(signal.SIGKILL, 10)


def groups(bootstrap: str, topics: Sequence[str], folder: Path) -> list[Group]:
    """One of librdkafka, one of Java."""
    kinds = (CONFLUENT_RANGE, JAVA_RANGE)
    return [Group(f"group-{topic}", topic, kind, bootstrap, folder) for topic, kind in zip(topics, kinds, strict=True)]


def read_numbers(bootstrap: str, topic: str, partition: int, seconds: float = 60.0) -> list[int]:
    """The number at each offset of a partition.  AssertionError where one is left out or the end does not come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verdict",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                error, value = message.error(), message.value()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return found
                    continue
                assert value is not None
                assert message.offset() == len(found), f"{topic}-{partition}: {message.offset()} behind {len(found)}"
                found.append(int(value))
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition} cannot be read to its end, {len(found)} records came")
