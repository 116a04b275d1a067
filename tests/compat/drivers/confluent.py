"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.compat.drivers.loop import Json, PythonDriver, decode, emit, record_line, run


def _line(message: Any) -> Json:
    headers = message.headers() or []
    kind_and_time = message.timestamp()
    return record_line(message.partition(), message.offset(), message.key(), message.value(), headers, kind_and_time[1])


class ConfluentDriver(PythonDriver):
    """librdkafka under its Python binding."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: dict[tuple[str, bool, str], Producer] = {}
        self._member: Consumer | None = None
        self._positions: dict[tuple[str, int], int] = {}

    def produce(self, command: Json) -> list[int]:
        kind = (command["codec"], bool(command.get("idempotent")), str(command.get("acks", "all")))
        if kind not in self._producers:
            settings = {
                "bootstrap.servers": self.bootstrap,
                "compression.type": kind[0],
                "enable.idempotence": kind[1],
                "acks": kind[2],
                "linger.ms": 5,
                "message.max.bytes": 2_000_000,
            }
            self._producers[kind] = Producer(settings)
        producer = self._producers[kind]
        records = command["records"]
        offsets: list[int | Exception | None] = [None] * len(records)

        def delivery(place: int) -> Callable[[Any, Any], None]:
            def delivered(error: Any, message: Any) -> None:
                offsets[place] = KafkaException(error) if error is not None else message.offset()

            return delivered

        for place, record in enumerate(records):
            producer.produce(
                command["topic"],
                key=decode(record["key"]),
                value=decode(record["value"]),
                partition=record["partition"],
                timestamp=record["timestamp"],
                headers=[(name, decode(data)) for name, data in record["headers"]],
                on_delivery=delivery(place),
            )
        producer.flush(100)
        for place, offset in enumerate(offsets):
            if isinstance(offset, Exception):
                raise offset
            if offset is None:
                raise TimeoutError(f"record {place} was never acknowledged")
        return [offset for offset in offsets if isinstance(offset, int)]

    def _consumer(self, group: str, **settings: Any) -> Consumer:
        common = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        return Consumer(common | settings)

    def read(self, command: Json) -> list[Json]:
        consumer = self._consumer("reader", **command.get("settings", {}))
        left = {int(partition): end for partition, end in command["ends"].items()}
        consumer.assign([TopicPartition(command["topic"], partition, 0) for partition in left])
        found = []
        while left:
            message: Any = consumer.poll(90)
            if message is None:
                raise TimeoutError(f"nothing more came; missing ends: {left}")
            if message.error():
                raise KafkaException(message.error())
            found.append(_line(message))
            if message.offset() + 1 >= left.get(message.partition(), -1):
                left.pop(message.partition(), None)
        consumer.close()
        return found

    def join(self, command: Json) -> None:
        # The consumer protocol leaves sessions, heartbeats and the assignor to the broker.
        settings = {"group.protocol": "consumer"}
        if command.get("protocol") != "consumer":
            settings = {
                "session.timeout.ms": command["session_ms"],
                "heartbeat.interval.ms": command["heartbeat_ms"],
                "partition.assignment.strategy": "range",
            }
        self._member = self._consumer(command["group"], **settings, **command.get("settings", {}))
        owned: set[int] = set()

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            owned.update(place.partition for place in partitions)
            emit("assigned", partitions=sorted(owned))

        def gone(_: Consumer, partitions: list[TopicPartition]) -> None:
            for place in partitions:
                owned.discard(place.partition)
                self._positions.pop((place.topic, place.partition), None)
            emit("assigned", partitions=sorted(owned))

        self._member.subscribe([command["topic"]], on_assign=assigned, on_revoke=gone, on_lost=gone)

    def poll(self) -> None:
        assert self._member is not None
        message: Any = self._member.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is not None:
            if not error.retriable() and error.fatal():
                raise KafkaException(error)
            return
        topic, partition = message.topic(), message.partition()
        self._positions[(topic, partition)] = message.offset() + 1
        emit("record", **_line(message))

    def commit(self, command: Json) -> None:
        assert self._member is not None
        places = [TopicPartition(topic, partition, at) for (topic, partition), at in self._positions.items()]
        if places:
            self._member.commit(offsets=places, asynchronous=False)

    def leave(self, command: Json) -> None:
        assert self._member is not None
        self._member.close()
        self._member = None


if __name__ == "__main__":
    run(ConfluentDriver)
