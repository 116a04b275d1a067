"""The word count of Kafka Streams as processes, what it is fed, and what must have come of it."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.compat.tooling import streams_command
from tests.compat.waiting import wait_for

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")


class WordCountProcess:
    """One instance of the application; `states` are those that it went through."""

    def __init__(
        self, bootstrap: str, application: str, topics: tuple[str, str], folder: Path, settings: Mapping[str, str]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.states: list[str] = []
        words = [f"{key}={value}" for key, value in {"state.dir": str(folder / "state"), **settings}.items()]
        command = streams_command(bootstrap, application, *topics, *words)
        self._errors = (folder / "errors").open("wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.states.append(line.decode().strip())

    def wait_running(self, seconds: float = 120) -> None:
        """Until it processes."""
        wait_for(lambda: self.states[-1:] == ["RUNNING"], "the application to run", seconds=seconds)

    def close(self) -> None:
        """Ask it to end, and wait."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(30)
        self.process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(30)


class Feeder:
    """Writes lines of words to a topic, each once, whatever happens to the broker; `counts` are the words' by now."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._topic = topic
        self._failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._number = 0

    def feed(self, lines: int) -> None:
        """Hand lines to the producer."""
        for _ in range(lines):
            words = [WORDS[(self._number * step) % len(WORDS)] for step in (1, 2, 3)]
            self.counts.update(words)
            self._producer.produce(self._topic, " ".join(words), key=str(self._number), on_delivery=self._delivered)
            self._number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def finish(self) -> None:
        """Until all lines are stored."""
        assert self._producer.flush(300) == 0
        assert not self._failures, self._failures[:3]


class Results:
    """What the application wrote, by word, as read_committed consumers see it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.by_word: dict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-results",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def wait_for(self, counts: Mapping[str, int], seconds: float) -> None:
        """Until each word has been counted so often; each count came once and in order."""

        def is_complete() -> bool:
            for message in self._consumer.consume(500, 0.5):
                if message.error() is None:
                    self.by_word[message.key().decode()].append(int(message.value()))
            return all(self.by_word[word][-1:] == [count] for word, count in counts.items())

        try:
            wait_for(is_complete, "all counts", seconds=seconds)
        finally:
            self._consumer.close()
        for word, count in counts.items():
            assert self.by_word[word] == list(range(1, count + 1)), word


class Ends:
    """How many offsets of a topic are used, asked over one connection that outlives the broker's crashes."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})

    def now(self) -> int:
        """The sum over the partitions; 0 while the broker does not answer."""
        try:
            return sum(self._consumer.get_watermark_offsets(each, timeout=5)[1] for each in self._partitions)
        except KafkaException:
            return 0

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()
