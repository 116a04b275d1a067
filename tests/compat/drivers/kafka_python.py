"""kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.compat.drivers.loop import Json, PythonDriver, decode, emit, record_line, run


def _line(record: Any) -> Json:
    return record_line(record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        emit("assigned", partitions=[place.partition for place in assigned])

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        emit("assigned", partitions=[])


class KafkaPythonDriver(PythonDriver):
    """kafka-python's own producer and consumer."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: dict[tuple[str, bool], KafkaProducer] = {}
        self._member: KafkaConsumer | None = None

    def produce(self, command: Json) -> list[int]:
        kind = (command["codec"], bool(command.get("idempotent")))
        if kind not in self._producers:
            self._producers[kind] = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if kind[0] == "none" else kind[0],
                enable_idempotence=kind[1],
                acks="all",
                linger_ms=5,
                max_request_size=2_000_000,
            )
        producer = self._producers[kind]
        futures = [
            producer.send(
                command["topic"],
                key=decode(record["key"]),
                value=decode(record["value"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
                headers=[(name, decode(data)) for name, data in record["headers"]],
            )
            for record in command["records"]
        ]
        return [future.get(100).offset for future in futures]

    def _consumer(self, group: str | None, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **settings,
        )

    def read(self, command: Json) -> list[Json]:
        consumer = self._consumer(None)
        left = {int(partition): end for partition, end in command["ends"].items()}
        places = [TopicPartition(command["topic"], partition) for partition in left]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found = []
        while left:
            polled = consumer.poll(timeout_ms=90_000)
            if not polled:
                raise TimeoutError(f"nothing more came; missing ends: {left}")
            for records in polled.values():
                for record in records:
                    found.append(_line(record))
                    if record.offset + 1 >= left.get(record.partition, -1):
                        left.pop(record.partition, None)
        consumer.close()
        return found

    def join(self, command: Json) -> None:
        self._member = self._consumer(
            command["group"],
            session_timeout_ms=command["session_ms"],
            heartbeat_interval_ms=command["heartbeat_ms"],
        )
        self._member.subscribe([command["topic"]], listener=_Listener())

    def poll(self) -> None:
        assert self._member is not None
        # A poll that ends while kafka-python 3.0 rejoins for new metadata loses the outcome of that rejoin, and the
        # member never comes back: as long as it has nothing, it gets the time to finish.
        patience_ms = 50 if self._member.assignment() else 2000
        try:
            polled = self._member.poll(timeout_ms=patience_ms)
        except KafkaError as error:
            # It also raises what the next poll gets over, as a refused connection while the broker is away.
            if not error.retriable:
                raise
            return
        for records in polled.values():
            for record in records:
                emit("record", **_line(record))

    def commit(self, command: Json) -> None:
        assert self._member is not None
        places = {place: self._member.position(place) for place in self._member.assignment()}
        if places:
            self._member.commit({place: OffsetAndMetadata(at, "", -1) for place, at in places.items()})

    def leave(self, command: Json) -> None:
        assert self._member is not None
        self._member.close(autocommit=False)
        self._member = None


if __name__ == "__main__":
    run(KafkaPythonDriver)
