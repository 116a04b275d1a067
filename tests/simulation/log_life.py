"""What becomes of a log in the course of time: new segments, retention, DeleteRecords, compaction, looking up times.

A client has a topic of its own with one partition, writes it alone, one batch after the other, and so knows all of it:

KeptLog     a compacted topic: the last value of each key stays, at its offset; a tombstone goes when its time is up
ShortLog    a topic with retention: nothing goes before its time, nor while there is room, but what was deleted; what is
            gone is OFFSET_OUT_OF_RANGE for good, and the start that the broker tells is where the rest begins
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.scenarios.batches import Batch
from tests.simulation.client import IN_DOUBT, Client
from tests.simulation.old_formats import GZIP, LZ4, SNAPPY, ZSTD
from tests.simulation.records import ReadBatch, read_batches

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

EARLIEST, LATEST = -2, -1
TAKING_PART = 0.15
"""The share of histories with such a client."""
KEYS = 6
MOST_SECONDS = 3.0
LONG_MS = 60_000
SETTLE_SECONDS = 60.0
PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, EPOCHS, CREATE = 9, 11, 7, 2, 4, 7
BATCH_BYTES = 61


@dataclass(frozen=True, slots=True)
class Written:
    """A record that was sent; `offset` is -1 while nobody has told where it is, if anywhere."""

    key: bytes
    value: bytes | None
    timestamp: int
    offset: int
    size: int
    """Of its batch, in bytes; more of what comes behind it may be stored than it says, not less."""


class LogLife(Client):
    """Writes its topic, looks at it, and lets time pass."""

    kind = ""

    def __init__(self, world: World, number: int, chance: random.Random | None = None) -> None:
        super().__init__(world, f"{self.kind}-{number}", chance)
        rng = self.rng
        self.topic = f"{self.kind}-{number}"
        self.partition = (self.topic, 0)
        self.steps = rng.randint(10, 40)
        self.codecs = (0, rng.choice((0, GZIP, SNAPPY, LZ4, ZSTD)))
        self.pause_seconds = rng.choice((0.01, 0.1, 0.6))
        self.written: list[Written] = []
        self.end = 0
        """All below this offset was acknowledged, or found there later."""
        self._connection: ModelConnection | None = None

    def configs(self) -> dict[str, str]:
        """What its topic has of its own."""
        return {
            "segment.ms": self.rng.choice(("100", "1000")),
            "segment.bytes": str(1 << 20),
            "file.delete.delay.ms": self.rng.choice(("0", "1000", "60000")),
            "index.interval.bytes": self.rng.choice(("0", "4096")),
        }

    async def run(self) -> None:
        await self._create()
        while self.steps > 0:
            self.steps -= 1
            await self.step()
            await asyncio.sleep(self.pause_seconds * self.rng.random())
        if self._connection is not None and not self._connection.gone:
            self._connection.finish(self.rng)
        self._connection = None

    async def step(self) -> None:
        """One thing of what it does."""
        raise NotImplementedError

    async def read_back(self) -> None:
        """All that can be said in the end."""
        raise NotImplementedError

    # Asking

    async def _create(self) -> None:
        request = wire.CreateTopicsRequest
        rows = [request.CreatableTopicConfig(name=name, value=value) for name, value in self.configs().items()]
        topic = request.CreatableTopic(
            name=self.topic, num_partitions=1, replication_factor=self.world.replicas, configs=rows
        )
        while True:
            answer = await self.world.make_topics(request(topics=[topic], timeout_ms=10_000))
            code = -1 if answer is None else answer.topics[0].error_code
            if code in {0, ErrorCode.TOPIC_ALREADY_EXISTS}:
                return
            # Where the last disk has failed there is nobody to have it.
            has_room = not self.world.disks.may_hang_up(1) or code != ErrorCode.INVALID_REPLICATION_FACTOR
            if answer is not None and has_room and not self.world.tolerates(code) and code not in IN_DOUBT:
                self.fail(f"the topic cannot be made: {answer}")
            await self.try_later()

    async def ask(self, request: Any, version: int) -> Any:
        """The answer of the partition's leader; None where it is in doubt."""
        connection = self._connection
        if connection is None or connection.gone or connection.end.closed:
            connection = self._connection = await self.connect(await self.world.leader(self.partition))
        answer = None if connection is None else await connection.answer(request, version)
        if answer is None:
            self.lose()
        return answer

    def lose(self) -> None:
        """The leader is another one, or is not there."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.gone:
            connection.abort()
        self.world.forget_leader(self.partition)

    def passes(self, code: int) -> bool:
        """Whether an error is none; one that may be leads elsewhere."""
        if code == 0:
            return True
        if not self.world.tolerates(code, self.partition) and code not in IN_DOUBT:
            self.fail(f"answers {ErrorCode(code).name}")
        self.lose()
        return False

    def fail(self, what: str) -> None:
        self.judge.fail(f"{self.name}: {what}")

    async def write(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        """One batch."""
        request, now = wire.ProduceRequest, self.world.now_ms()
        data = Batch(pairs, [now] * len(pairs), self.rng.choice(self.codecs)).encoded()
        row = request.PartitionProduceData(index=0, records=data)
        topic = request.TopicProduceData(name=self.topic, partition_data=[row])
        answer = await self.ask(request(acks=-1, timeout_ms=20_000, topic_data=[topic]), PRODUCE)
        base = -1
        if answer is not None:
            got = answer.responses[0].partition_responses[0]
            if self.passes(got.error_code):
                base = got.base_offset
                if base < self.end:
                    self.fail(f"gives offset {base}, where {self.end} was the end")
                self.end = base + len(pairs)
        for number, (key, value) in enumerate(pairs):
            at = base + number if base >= 0 else -1
            self.written.append(Written(key, value, now, at, len(data)))

    async def offset_of(self, timestamp: int) -> tuple[int, int] | None:
        """What ListOffsets says: a time and an offset; None where it says nothing."""
        request = wire.ListOffsetsRequest
        row = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = request.ListOffsetsTopic(name=self.topic, partitions=[row])
        answer = await self.ask(request(replica_id=-1, topics=[topic]), LIST_OFFSETS)
        if answer is None:
            return None
        got = answer.topics[0].partitions[0]
        return (got.timestamp, got.offset) if self.passes(got.error_code) else None

    async def fetch(self, offset: int) -> Any:
        """What a fetch from an offset says of the partition; None where nothing."""
        request = wire.FetchRequest
        row = request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic=self.topic, partitions=[row])
        answer = await self.ask(request(min_bytes=0, max_bytes=1 << 20, topics=[topic], session_epoch=-1), FETCH)
        if answer is None:
            return None
        got = answer.responses[0].partitions[0]
        if got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return got
        return got if self.passes(got.error_code) else None

    async def read(self, offset: int) -> tuple[list[ReadBatch], int] | None:
        """All from an offset on, and the end; None where not all of it is to be had now."""
        found: list[ReadBatch] = []
        while True:
            got = await self.fetch(offset)
            if got is None or got.error_code:
                return None
            batches = list(read_batches(got.records))
            for batch in batches:
                self._compare(batch, offset)
            found.extend(batches)
            end = int(got.high_watermark)
            if not batches:
                return found, end
            offset = batches[-1].last_offset + 1

    def _compare(self, batch: ReadBatch, offset: int) -> None:
        """What is read at an offset is what was written there."""
        known = {each.offset: each.value for each in self.written if each.offset >= 0}
        sent = {each.value for each in self.written}
        if batch.last_offset < offset:
            self.fail(f"batch {batch.base_offset}-{batch.last_offset} is no answer from {offset}")
        for at, value in batch.values:
            if value not in sent:
                self.fail(f"{value!r} is at {at}, which nobody sent")
            if at in known and known[at] != value:
                self.fail(f"{value!r} is at {at}, where {known[at]!r} was acknowledged")

    async def settled(self, offset: int) -> tuple[list[ReadBatch], int]:
        """All from an offset on, when all is well again."""
        until = self.world.loop.time() + SETTLE_SECONDS
        while True:
            found = await self.read(offset)
            if found is not None and found[1] >= self.end:
                return found
            if self.world.loop.time() > until:
                self.fail(f"cannot be read from {offset} on, up to {self.end}: {found}")
            await self.try_later()


class KeptLog(LogLife):
    """A compacted topic."""

    kind = "kept"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.tombstone_ms = self.rng.choice((0, 500, 60_000))
        self._keys = [b"k%d" % number for number in range(KEYS)]
        self._next_key = KEYS

    def configs(self) -> dict[str, str]:
        return {
            **super().configs(),
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": self.rng.choice(("0.01", "0.5")),
            "delete.retention.ms": str(self.tombstone_ms),
            "min.compaction.lag.ms": self.rng.choice(("0", "0", "300")),
        }

    async def step(self) -> None:
        rng = self.rng
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(rng.choice((1, 2, 5))):
            value = None if rng.random() < 0.2 else self.world.next_value(rng.choice((0, 2000)))
            place = rng.randrange(KEYS)
            pairs.append((self._keys[place], value))
            if value is None and rng.random() < 0.4:
                # Another key from now on: the tombstone stays the last of its own, for more than one pass.
                self._keys[place] = b"k%d" % self._next_key
                self._next_key += 1
        await self.write(pairs)

    async def read_back(self) -> None:
        batches, _ = await self.settled(0)
        kept: dict[bytes, list[tuple[int, bytes | None]]] = {}
        by_offset = {each.offset: each.key for each in self.written if each.offset >= 0}
        by_value = {each.value: each.key for each in self.written if each.value is not None}
        for batch in batches:
            for at, value in batch.values:
                key = by_offset.get(at) or (by_value.get(value) if value is not None else None)
                if key is not None:
                    kept.setdefault(key, []).append((at, value))
        now = self.world.now_ms()
        for key in {each.key: None for each in self.written}:
            known = [each for each in self.written if each.key == key and each.offset >= 0]
            if not known:
                continue
            last = known[-1]
            found = kept.get(key, [])
            # One that is in doubt may have come behind it.
            later = {each.value for each in self.written[self.written.index(last) + 1 :] if each.key == key}
            if any(at == last.offset and value == last.value for at, value in found):
                continue
            if any(at > last.offset and value in later for at, value in found) or None in later:
                continue
            is_over = last.value is None and now - last.timestamp >= self.tombstone_ms
            if not is_over:
                self.fail(f"the last of {key!r} is gone: {last}, there are {found}")
            # A follower with the value that comes behind the tombstone's time keeps it: that is what the time is for.
            is_alone = self.world.scale.nodes == 1 or self.tombstone_ms >= LONG_MS
            if is_alone and any(at < last.offset for at, _ in found):
                self.fail(f"the tombstone of {key!r} at {last.offset} is gone before what it is for: {found}")


class ShortLog(LogLife):
    """A topic with retention, of which some is deleted now and then."""

    kind = "short"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        rng = self.rng
        self.retention_ms = rng.choice((300, 3_000, 600_000))
        self.retention_bytes = rng.choice((-1, -1, 3_000))
        self.deletes = rng.random() < 0.6
        self.deleted_to = 0
        """An offset below which all was asked to be deleted, whether that was answered or not."""
        self.start = 0
        """Where the log begins at least: as was told last, or deleted to."""

    def configs(self) -> dict[str, str]:
        return {
            **super().configs(),
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
        }

    async def step(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5 or not self.end:
            values = [self.world.next_value(rng.choice((0, 800))) for _ in range(rng.choice((1, 2, 5)))]
            await self.write([(b"k", value) for value in values])
            if rng.random() < 0.3:
                await self._look_at_the_start()
        elif kind < 0.65:
            await self._look_below()
        elif kind < 0.8:
            await self._look_up_a_time()
        elif kind < 0.9:
            await self._look_up_an_epoch()
        elif self.deletes:
            await self._delete()

    def begins(self, start: int) -> None:
        """A broker has told where the log begins: what is gone may be."""
        if self.world.scale.nodes == 1:
            # In a cluster each replica has its own segments, and retention for itself.
            if start < self.start:
                self.fail(f"begins at {start}, and has begun at {self.start}")
            self.start = start
        now = self.world.now_ms()
        behind = 0
        for each in reversed(self.written):
            if 0 <= each.offset < start and each.offset >= self.deleted_to:
                is_over = now - each.timestamp > self.retention_ms
                if not is_over and not (0 <= self.retention_bytes <= behind):
                    self.fail(
                        f"begins at {start}: {each} is gone after {now - each.timestamp} ms, {behind} bytes follow"
                    )
            behind += each.size

    async def _look_at_the_start(self) -> None:
        """Some time after a record, which may be gone by now or not."""
        await asyncio.sleep(self.rng.random() * min(self.retention_ms / 1000, MOST_SECONDS))
        found = await self.offset_of(EARLIEST)
        if found is not None:
            self.begins(found[1])

    async def _look_below(self) -> None:
        offset = self.rng.randrange(self.end)
        got = await self.fetch(offset)
        if got is None:
            return
        if got.error_code == 0:
            self.begins(max(0, got.log_start_offset))
            if offset < got.log_start_offset:
                self.fail(f"{offset} is read, where the log begins at {got.log_start_offset}")
            for batch in read_batches(got.records):
                self._compare(batch, offset)
            return
        found = await self.offset_of(EARLIEST)
        if found is not None:
            if found[1] <= offset and self.world.scale.nodes == 1:
                self.fail(f"{offset} is out of range, and the log begins at {found[1]}")
            self.begins(found[1])

    async def _look_up_a_time(self) -> None:
        timestamp = self.rng.choice([each.timestamp for each in self.written])
        found = await self.offset_of(timestamp)
        earliest = None if found is None else await self.offset_of(EARLIEST)
        if found is None or earliest is None:
            return
        self.begins(earliest[1])
        if any(each.offset < 0 for each in self.written):
            return  # One that is in doubt may be the one that was found.
        later = [each for each in self.written if each.timestamp >= timestamp]
        there = [each for each in later if each.offset >= earliest[1]]
        told, offset = found
        if offset < 0:
            if there:
                self.fail(f"there is nothing from {timestamp} on, where {there[0]} is")
        elif offset not in {each.offset for each in later} or (there and offset > there[0].offset):
            self.fail(f"time {timestamp} is found at {offset}, {told}, where the first is {there[:1] or later[:1]}")

    async def _look_up_an_epoch(self) -> None:
        request = wire.OffsetForLeaderEpochRequest
        row = request.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=1 << 20)
        topic = request.OffsetForLeaderTopic(topic=self.topic, partitions=[row])
        answer = await self.ask(request(replica_id=-1, topics=[topic]), EPOCHS)
        if answer is None:
            return
        got = answer.topics[0].partitions[0]
        if not self.passes(got.error_code) or got.leader_epoch < 0:
            return
        if got.end_offset < self.end and self.world.scale.nodes == 1:
            self.fail(f"the newest epoch ends at {got.end_offset}, where the log has {self.end}")

    async def _delete(self) -> None:
        request = wire.DeleteRecordsRequest
        to = self.rng.randint(0, self.end)
        self.deleted_to = max(self.deleted_to, to)
        sent = self.world.loop.time()
        row = request.DeleteRecordsPartition(partition_index=0, offset=to)
        topic = request.DeleteRecordsTopic(name=self.topic, partitions=[row])
        answer = await self.ask(request(topics=[topic], timeout_ms=20_000), DELETE_RECORDS)
        if answer is None:
            return
        got = answer.topics[0].partitions[0]
        if got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.world.may_lose_leaders:
            return  # A new leader learns late what is committed.
        if self.passes(got.error_code):
            if got.low_watermark < to:
                self.fail(f"is deleted up to {got.low_watermark}, where {to} was asked for")
            self.world.witness.is_deleted(self.name, self.partition, got.low_watermark, sent)
            self.start = max(self.start, to)

    async def read_back(self) -> None:
        until = self.world.loop.time() + SETTLE_SECONDS
        while (found := await self.offset_of(EARLIEST)) is None or found[1] < self.start:
            if self.world.loop.time() > until:
                self.fail(f"begins at {found}, and has begun at {self.start}")
            await self.try_later()
        self.begins(found[1])
        got = await self.read(found[1])
        while got is None or got[1] < self.end:
            if self.world.loop.time() > until:
                self.fail(f"cannot be read from {found} on, up to {self.end}: {got}")
            await self.try_later()
            found = await self.offset_of(EARLIEST) or found
            self.begins(found[1])
            got = await self.read(found[1])
        there = {at: value for batch in got[0] for at, value in batch.values}
        for each in self.written:
            if each.offset >= found[1] and there.get(each.offset) != each.value:
                self.fail(f"{each} is gone, where the log begins at {found[1]}")


def draw_lives(world: World) -> list[LogLife]:
    """Those of a history, mostly none."""
    if world.rng.random() > TAKING_PART or world.has_old_formats or not world.has_virtual_time:
        return []  # Old formats have no times, and no epochs; a log's life takes hours.
    kinds = world.rng.choice(((KeptLog,), (ShortLog,), (KeptLog, ShortLog)))
    world.lives = [kind(world, number) for number, kind in enumerate(kinds)]
    return list(world.lives)
