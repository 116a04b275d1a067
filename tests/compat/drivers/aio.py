"""aiokafka, whose calls all run on one loop that lives as long as the driver."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

from tests.compat.drivers.loop import Json, PythonDriver, decode, emit, record_line, run


def _line(record: Any) -> Json:
    return record_line(record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        emit("assigned", partitions=[place.partition for place in assigned])

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        emit("assigned", partitions=[])


class AioKafkaDriver(PythonDriver):
    """aiokafka's producer and consumer."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        self._producers: dict[tuple[str, bool], AIOKafkaProducer] = {}
        self._member: AIOKafkaConsumer | None = None

    def produce(self, command: Json) -> list[int]:
        return self._loop.run_until_complete(self._produce(command))

    async def _produce(self, command: Json) -> list[int]:
        kind = (command["codec"], bool(command.get("idempotent")))
        if kind not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if kind[0] == "none" else kind[0],
                enable_idempotence=kind[1],
                acks="all",
                linger_ms=5,
                max_request_size=2_000_000,
            )
            await producer.start()
            self._producers[kind] = producer
        producer = self._producers[kind]
        futures = [
            await producer.send(
                command["topic"],
                key=decode(record["key"]),
                value=decode(record["value"]),
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
                headers=[(name, decode(data)) for name, data in record["headers"]],
            )
            for record in command["records"]
        ]
        written = await asyncio.wait_for(asyncio.gather(*futures), 100)
        return [one.offset for one in written]

    def _consumer(self, group: str | None, **settings: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **settings,
        )

    def read(self, command: Json) -> list[Json]:
        return self._loop.run_until_complete(self._read(command))

    async def _read(self, command: Json) -> list[Json]:
        consumer = self._consumer(None)
        left = {int(partition): end for partition, end in command["ends"].items()}
        await consumer.start()
        places = [TopicPartition(command["topic"], partition) for partition in left]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        found = []
        while left:
            polled = await consumer.getmany(timeout_ms=90_000)
            if not polled:
                raise TimeoutError(f"nothing more came; missing ends: {left}")
            for records in polled.values():
                for record in records:
                    found.append(_line(record))
                    if record.offset + 1 >= left.get(record.partition, -1):
                        left.pop(record.partition, None)
        await consumer.stop()
        return found

    def join(self, command: Json) -> None:
        self._loop.run_until_complete(self._join(command))

    async def _join(self, command: Json) -> None:
        self._member = self._consumer(
            command["group"],
            session_timeout_ms=command["session_ms"],
            heartbeat_interval_ms=command["heartbeat_ms"],
            rebalance_timeout_ms=30_000,
        )
        self._member.subscribe([command["topic"]], listener=_Listener())
        await self._member.start()

    def poll(self) -> None:
        assert self._member is not None
        polled = self._loop.run_until_complete(self._member.getmany(timeout_ms=50))
        for records in polled.values():
            for record in records:
                emit("record", **_line(record))

    def commit(self, command: Json) -> None:
        assert self._member is not None
        self._loop.run_until_complete(self._member.commit())

    def leave(self, command: Json) -> None:
        assert self._member is not None
        self._loop.run_until_complete(self._member.stop())
        self._member = None


if __name__ == "__main__":
    run(AioKafkaDriver)
