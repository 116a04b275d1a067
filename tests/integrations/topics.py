"""What tests write to topics and read from them, with clients that live through the broker's restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.compat.waiting import Waited, wait_for


class Reader:
    """All values of a topic in the order of each partition, as a read_committed consumer without a group sees them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "allow.auto.create.topics": True,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, seconds: float = 0.3) -> int:
        """Take what is there; how many values there are by now."""
        for message in self._consumer.consume(1000, seconds):
            if message.error() is None:
                self.values.append((message.value() or b"").decode())
        return len(self.values)

    def wait_for(self, count: int, seconds: float = 300) -> None:
        """Until there are so many values."""
        try:
            wait_for(lambda: self.read() >= count, f"{count} values", seconds=seconds)
        except Waited:
            raise Waited(f"{len(self.values)} of {count} values; the last: {self.values[-3:]}") from None

    def wait_for_all(self, wanted: Iterable[str], seconds: float = 300) -> None:
        """Until each of these has come, once or more often."""
        missing = set(wanted)

        def are_there() -> bool:
            self.read()
            return missing <= set(self.values)

        try:
            wait_for(are_there, "all values", seconds=seconds)
        except Waited:
            lost = sorted(missing - set(self.values))
            raise Waited(f"{len(lost)} of {len(missing)} values did not come: {lost[:5]}") from None

    def assert_exactly(self, wanted: Sequence[str]) -> None:
        """These came, each once, in this order, and nothing came behind them."""
        self.wait_for(len(wanted))
        self.read(2)
        counts = Counter(self.values)
        lost, doubled = [each for each in wanted if not counts[each]], [each for each in counts if counts[each] > 1]
        assert not lost, f"{len(lost)} lost: {lost[:5]}"
        assert not doubled, f"{len(doubled)} doubled: {doubled[:5]}"
        assert self.values == list(wanted), f"not in order, or more came: {self.values[:5]} … {self.values[-5:]}"


class Writer:
    """Writes values to partition 0 of a topic, each once and in order, whatever happens to the broker."""

    def __init__(self, bootstrap: str, topic: str, *, key: str | None = None) -> None:
        self._topic, self._key = topic, key
        self._failures: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def write(self, values: Iterable[str]) -> None:
        """Hand values to the producer."""
        for value in values:
            self._producer.produce(self._topic, value, key=self._key, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def finish(self) -> None:
        """Until all are stored."""
        assert self._producer.flush(300) == 0
        assert not self._failures, self._failures[:3]


def numbered(word: str, first: int, count: int) -> list[str]:
    """`word-000017` and so on: values that sort as they were made."""
    return [f"{word}-{number:06}" for number in range(first, first + count)]


def through_restarts(
    broker: BrokerProcess,
    writer: Writer,
    values: Sequence[str],
    reaches: Callable[[int], None],
    again: Callable[[], None],
) -> None:
    """Write 3,000 values while the broker is stopped and killed, and the program dies and starts anew (`again`).

    `reaches(count)` waits until the program is so far.
    """
    writer.write(values[:500])
    reaches(200)
    broker.restart()
    writer.write(values[500:1500])
    reaches(1000)
    broker.restart(kill=True)
    writer.write(values[1500:2500])
    reaches(2000)
    again()
    writer.write(values[2500:])
    writer.finish()
