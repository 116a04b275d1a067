"""An idempotent producer and a reader of everything, to hold what was acknowledged against what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.compat.waiting import wait_for

QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Writer:
    """Sends numbered records and notes where each acknowledged one was put."""

    def __init__(
        self, bootstrap: str, topic: str, *, padding: bytes = b"", settings: Mapping[str, Any] | None = None
    ) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.padding = padding
        self.sent = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: list[str] = []
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                **QUIET,
                **(settings or {}),
            }
        )

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            value = b"%d" % self.sent + self.padding
            while True:
                try:
                    self._producer.produce(self.topic, value, key=b"%d" % self.sent, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.sent += 1
            self._producer.poll(0)

    def poll(self) -> int:
        """Lets acknowledgements in; how many there are."""
        self._producer.poll(0.01)
        return len(self.acknowledged)

    def finish(self) -> None:
        """Waits until every record was acknowledged."""
        left = self._producer.flush(90)
        assert left == 0, f"{left} of {self.sent} records were never acknowledged"
        assert self.refused == []

    def _delivered(self, error: Any, record: Any) -> None:
        if error is not None:
            self.refused.append(str(error))
        else:
            self.acknowledged[record.key()] = (record.partition(), record.offset())


def begin(*writers: Writer) -> None:
    """Have each send records, until some of them are acknowledged."""
    for writer in writers:
        writer.send(300)
        wait_for(lambda each=writer: each.poll() >= 100, "acknowledgements")  # type: ignore[misc]


def read_topic(bootstrap: str, topic: str, settings: Mapping[str, Any] | None = None) -> list[tuple[int, int, bytes]]:
    """(partition, offset, key) of every record of a topic, in the order of each partition."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            **QUIET,
            **(settings or {}),
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, 20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
        found: list[tuple[int, int, bytes]] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for record in consumer.consume(1000, 0.2):
                if record.error() is not None:
                    ended.add(record.partition())
                else:
                    found.append((record.partition(), record.offset(), record.key()))
        return found
    finally:
        consumer.close()


def check_all_there_once(writer: Writer, found: list[tuple[int, int, bytes]]) -> None:
    """Every acknowledged record lies where it was said to lie, nothing is there twice, and no offset is missing."""
    places = {key: (partition, offset) for partition, offset, key in found}
    missing = [key for key, place in writer.acknowledged.items() if places.get(key) != place]
    assert missing == [], f"{len(missing)} acknowledged records are missing or elsewhere, first {missing[:5]}"
    twice = [key for key, count in Counter(key for _, _, key in found).items() if count > 1]
    assert twice == [], f"{len(twice)} records are there twice, first {twice[:5]}"
    for partition in {partition for partition, _, _ in found}:
        offsets = [offset for each, offset, _ in found if each == partition]
        assert offsets == list(range(len(offsets))), f"partition {partition} has a hole"
