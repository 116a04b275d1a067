"""Model clients: producers, fetchers and askers over raw frames, many requests under way, each answer judged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.connection import PATIENCE_SECONDS, ModelConnection
from tests.simulation.records import MalformedBatchError, encode_batch, read_batches

if TYPE_CHECKING:
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

FIRST_PRODUCE_BY_ID = FIRST_FETCH_BY_ID = 13
FIRST_FETCH_WITH_SESSIONS = FIRST_PRODUCE_WITH_ZSTD = 7
PRODUCE_VERSIONS = (3, 7, 8, 9, 11, 12, 13)
FETCH_VERSIONS = (4, 6, 7, 10, 11, 12, 13, 16, 17)
METADATA_VERSIONS = (0, 1, 4, 5, 8, 9, 10, 12, 13)
NOT_NOW = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""A broker that is not the leader (any more) says so, and has stored nothing."""
IN_DOUBT = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Client:
    """One client, of its own kind of habits; `run` ends when its budget is used up."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.judge = world.judge
        self.name = name
        self.rng = random.Random(world.rng.getrandbits(64))
        self._connections = 0

    async def run(self) -> None:
        """Do all that it does."""
        raise NotImplementedError

    async def connect(self, node: int) -> ModelConnection | None:
        """A connection to a broker; None where that is not there."""
        self._connections += 1
        return await self.world.connect(node, f"{self.name}.{self._connections}", self.name)

    async def pause(self) -> None:
        """Let some time pass, mostly none."""
        rng = self.rng
        if not self.world.is_crowd and rng.random() < 0.3:
            await asyncio.sleep(rng.choice((0.0, 0.0001, 0.001, 0.02)))

    def read_slowly(self, connection: ModelConnection) -> None:
        """Take no answers for a while."""
        connection.end.pause_reading()
        self.world.loop.call_later(self.rng.choice((0.001, 0.05, 0.5)), self._read_on, connection)

    def _read_on(self, connection: ModelConnection) -> None:
        connection.oldest_since = self.world.loop.time()
        connection.end.resume_reading()


@dataclass(slots=True, eq=False)
class Sent:
    """A batch of a producer."""

    partition: Partition
    values: list[bytes]
    data: bytes
    floor: int
    again: bool = False


@dataclass(slots=True)
class _State:
    """An idempotent producer's place in one partition."""

    sequence: int = 0
    recent: list[Sent] = field(default_factory=list)


class Producer(Client):
    """Sends batches, `depth` requests at a time; what it is told lies where it is said to."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.requests = requests
        self.depth = rng.choice((1, 2, 3, 5, 8))
        self.acks = rng.choice(world.scale.acks)
        self.version = rng.choice(PRODUCE_VERSIONS)
        self.several = rng.random() < 0.4
        self.idempotent = self.acks != 0 and rng.random() < 0.4
        self.codec = rng.choice((0, 0, 0, 1, 4 if self.version >= FIRST_PRODUCE_WITH_ZSTD else 0))
        self.pad = rng.choice((0, 0, 100, 5000))
        self.slow = rng.random() < 0.15
        topic = rng.choice(list(world.topics.values()))
        self.partitions = [(topic.name, number) for number in range(topic.partitions)]
        if rng.random() < 0.5:
            self.partitions = self.partitions[:1]
        if world.is_crowd:
            self.depth, self.several, self.slow, self.pad = rng.choice((2, 3, 5)), False, False, 0
            self.acks = rng.choice((-1, -1, -1, 1))
            self.partitions = [(topic.name, 0) for topic in world.topics.values()][:1]
        self.producer = (-1, -1)
        self._here: list[Partition] = []
        self._states: dict[Partition, _State] = {}
        self._unsettled: dict[Sent, None] = {}

    async def run(self) -> None:
        world = self.world
        while self.requests > 0 or self._unsettled:
            node = await world.leader(self.partitions[0])
            connection = await self.connect(node)
            if connection is None:
                await asyncio.sleep(0.01)
                continue
            self._here = [each for each in self.partitions if world.leads(node, each)]
            if self.idempotent and self.producer[0] < 0:
                await self._introduce(connection)
            await self._talk(connection)

    async def _introduce(self, connection: ModelConnection) -> None:
        answer = await connection.answer(wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 3)
        if answer is not None and answer.error_code == 0:
            self.producer = (answer.producer_id, answer.producer_epoch)

    async def _talk(self, connection: ModelConnection) -> None:
        """Over one connection, until it or the budget is at its end."""
        rng = self.rng
        if self.idempotent:
            if self.producer[0] < 0:
                connection.abort()
                return
            for sent in self._unsettled:
                if sent.partition in self._here:
                    self._send(connection, [sent])
            connection.flush()
        else:
            self._unsettled.clear()
        while not connection.gone and self._here and (self.requests > 0 or connection.outstanding):
            while self.requests > 0 and len(connection.outstanding) < self.depth:
                self.requests -= 1
                self._send(connection, self._batches())
                if self.acks == 0:
                    break
            if connection.end.closed:
                break
            connection.flush()
            if self.slow and rng.random() < 0.2 and not connection.end.paused:
                self.read_slowly(connection)
            if rng.random() < self.world.scale.aborts:
                connection.abort()
            await self.pause()
            if connection.outstanding:
                await connection.change()
        if not connection.gone:
            connection.finish(rng)
        if self.acks == 0:
            self._unsettled.clear()

    def _batches(self) -> list[Sent]:
        rng = self.rng
        partitions = self._here
        chosen = rng.sample(partitions, rng.randint(1, len(partitions))) if self.several else [rng.choice(partitions)]
        found = []
        for partition in chosen:
            state = self._states.setdefault(partition, _State())
            if self.idempotent and state.recent and rng.random() < 0.15:
                found.append(rng.choice(state.recent))
                found[-1].again = True
                continue
            values = [self.world.next_value(self.pad) for _ in range(rng.choice((1, 1, 2, 5)))]
            producer = (*self.producer, state.sequence) if self.idempotent else (-1, -1, -1)
            data = encode_batch(values, self.world.now_ms(), codec=self.codec, producer=producer)
            state.sequence += len(values)
            sent = Sent(partition, values, data, self.judge.sends(self.name, partition, values))
            state.recent = [*state.recent[-3:], sent]
            self._unsettled[sent] = None
            found.append(sent)
        return found

    def _send(self, connection: ModelConnection, batches: list[Sent]) -> None:
        request = wire.ProduceRequest
        by_topic: dict[str, list[Sent]] = {}
        for sent in batches:
            by_topic.setdefault(sent.partition[0], []).append(sent)
        topics = [
            request.TopicProduceData(
                name=name,
                topic_id=self.world.topics[name].topic_id,
                partition_data=[
                    request.PartitionProduceData(index=sent.partition[1], records=sent.data) for sent in members
                ],
            )
            for name, members in by_topic.items()
        ]
        flat = [sent for members in by_topic.values() for sent in members]
        connection.ask(
            request(acks=self.acks, timeout_ms=20_000, topic_data=topics),
            self.version,
            lambda answer: self._answered(connection, flat, answer),
            is_answered=self.acks != 0,
        )

    def _answered(self, connection: ModelConnection, batches: list[Sent], answer: Any) -> None:
        if answer is None:
            return
        rows = [
            (topic.name or self.world.topic_name(topic.topic_id), row)
            for topic in answer.responses
            for row in topic.partition_responses
        ]
        asked = [sent.partition for sent in batches]
        if [(name, row.index) for name, row in rows] != asked:
            self.judge.fail(f"{connection.name}: asked for {asked}, the answer has {rows}")
        for sent, (_, row) in zip(batches, rows, strict=True):
            code = row.error_code
            if code == 0:
                self._unsettled.pop(sent, None)
                floor = 0 if sent.again or self.idempotent else sent.floor
                self.judge.acknowledged(
                    connection.name, sent.partition, sent.values, row.base_offset, floor, committed=self.acks == -1
                )
            elif not self.world.tolerates(code):
                self.judge.fail(f"{connection.name}: {sent.partition} answers {ErrorCode(code).name}")
            elif code in NOT_NOW and not self.idempotent:
                self._unsettled.pop(sent, None)
                self.judge.refused(sent.partition, sent.values)
            elif not self.idempotent:
                self._unsettled.pop(sent, None)
            if code in NOT_NOW:
                self.world.forget_leader(sent.partition)
                connection.abort()


class Fetcher(Client):
    """Reads partitions from their beginning, with or without a session."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.requests = requests
        self.version = rng.choice(FETCH_VERSIONS)
        self.sessions = self.version >= FIRST_FETCH_WITH_SESSIONS and rng.random() < 0.5
        self.depth = 1 if self.sessions else rng.choice((1, 1, 2, 3))
        self.max_wait_ms = rng.choice((0, 5, 100, 100, 500, 60_000))
        self.min_bytes = rng.choice((1, 1, 1, 300, 5000)) if self.max_wait_ms < 1000 else 1
        self.partition_max_bytes = rng.choice((200, 2000, 1 << 20))
        self.max_bytes = rng.choice((1, 3000, 1 << 20, 1 << 20))
        self.isolation = rng.choice((0, 1))
        self.slow = rng.random() < 0.2
        topics = list(world.topics.values())
        partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        chosen = rng.sample(partitions, rng.choice((1, 1, min(3, len(partitions)), len(partitions))))
        self.offsets: dict[Partition, int] = dict.fromkeys(sorted(chosen), 0)
        self._here: list[Partition] = []
        self._session = (0, -1)
        self._told: dict[Partition, int] = {}

    async def run(self) -> None:
        while self.requests > 0 and not self.world.writers_done:
            node = await self.world.leader(next(iter(self.offsets)))
            connection = await self.connect(node)
            if connection is None:
                await asyncio.sleep(0.01)
                continue
            self._session = (0, 0 if self.sessions else -1)
            self._told = {}
            self._here = [each for each in self.offsets if self.world.leads(node, each)]
            if self._here:
                await self._talk(connection)

    async def _talk(self, connection: ModelConnection) -> None:
        rng = self.rng
        while not connection.gone and not connection.end.closed and (self.requests > 0 or connection.outstanding):
            while self.requests > 0 and len(connection.outstanding) < self.depth:
                self.requests -= 1
                self._fetch(connection)
            connection.flush()
            if self.slow and rng.random() < 0.2 and not connection.end.paused:
                self.read_slowly(connection)
            if rng.random() < self.world.scale.aborts:
                connection.abort()
            if connection.outstanding:
                await connection.change()
            await self.pause()
            if self.world.writers_done and connection.outstanding and self.max_wait_ms > 1000:
                connection.abort()
        if not connection.gone:
            connection.finish(rng)

    def _fetch(self, connection: ModelConnection) -> None:
        request = wire.FetchRequest
        world, judge = self.world, self.judge
        session_id, epoch = self._session
        asked = {each: self.offsets[each] for each in self._here}
        changed = {each: at for each, at in asked.items() if epoch <= 0 or self._told.get(each) != at}
        self._told = asked
        by_topic: dict[str, list[Any]] = {}
        for (name, number), offset in changed.items():
            by_topic.setdefault(name, []).append(
                request.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=self.partition_max_bytes
                )
            )
        topics = [
            request.FetchTopic(topic=name, topic_id=world.topics[name].topic_id, partitions=rows)
            for name, rows in by_topic.items()
        ]
        floors = {each: judge.ledger(each).committed_end for each in asked}
        sent_at = world.loop.time()
        connection.ask(
            request(
                max_wait_ms=self.max_wait_ms,
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation_level=self.isolation,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
            ),
            self.version,
            lambda answer: self._answered(connection, asked, floors, sent_at, answer),
            allowed_seconds=PATIENCE_SECONDS + self.max_wait_ms / 1000,
            late=lambda: any(judge.ledger(each).committed_end > at for each, at in asked.items()),
        )

    def _answered(
        self,
        connection: ModelConnection,
        asked: dict[Partition, int],
        floors: dict[Partition, int],
        sent_at: float,
        answer: Any,
    ) -> None:
        if answer is None:
            return
        world, judge, name = self.world, self.judge, connection.name
        if answer.error_code != 0:
            if not world.tolerates(answer.error_code):
                judge.fail(f"{name}: the fetch answers {ErrorCode(answer.error_code).name}")
            self._session = (0, 0 if self.sessions else -1)
            return
        session_id, epoch = self._session
        if epoch >= 0:
            if epoch > 0 and answer.session_id != session_id:
                judge.fail(f"{name}: session {session_id} answers as {answer.session_id}")
            self._session = (answer.session_id, epoch + 1) if answer.session_id else (0, 0)
        found = failed = False
        for topic in answer.responses:
            topic_name = topic.topic or world.topic_name(topic.topic_id)
            for row in topic.partitions:
                partition = (topic_name, row.partition_index)
                if partition not in asked:
                    judge.fail(f"{name}: {partition} was not asked for")
                if row.error_code != 0:
                    failed = True
                    if not world.tolerates(row.error_code):
                        judge.fail(f"{name}: {partition} answers {ErrorCode(row.error_code).name}")
                    world.forget_leader(partition)
                    connection.abort()
                    continue
                try:
                    batches = list(read_batches(row.records))
                except MalformedBatchError as error:
                    judge.fail(f"{name}: {partition} from {asked[partition]}: {error}")
                found |= bool(row.records)
                if row.high_watermark < floors[partition] and world.scale.nodes == 1:
                    judge.fail(
                        f"{name}: {partition} has a high watermark of {row.high_watermark}, {floors[partition]} was committed"
                    )
                position = judge.fetched(name, partition, batches, asked[partition], row.high_watermark)
                self.offsets[partition] = max(self.offsets[partition], position)
        if not found and not failed:
            behind = {each: end for each, end in floors.items() if end > asked[each]}
            if behind:
                judge.fail(f"{name}: nothing from {asked}, where {behind} was committed before it was asked")
            if world.loop.time() - sent_at < self.max_wait_ms / 1000 - 0.001 and not world.is_stopping:
                judge.fail(
                    f"{name}: an empty answer after {world.loop.time() - sent_at:.6f} s of {self.max_wait_ms} ms"
                )


class Asker(Client):
    """Asks what does not change anything, pipelined with a few other requests."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        self.requests = requests
        self.depth = self.rng.choice((1, 4, 10))

    async def run(self) -> None:
        while self.requests > 0:
            connection = await self.connect(self.rng.choice(list(self.world.brokers)))
            if connection is None:
                await asyncio.sleep(0.01)
                continue
            while not connection.gone and not connection.end.closed and (self.requests > 0 or connection.outstanding):
                while self.requests > 0 and len(connection.outstanding) < self.depth:
                    self.requests -= 1
                    self._ask(connection)
                connection.flush()
                if self.rng.random() < self.world.scale.aborts:
                    connection.abort()
                await self.pause()
                if connection.outstanding:
                    await connection.change()
            if not connection.gone:
                connection.finish(self.rng)

    def _ask(self, connection: ModelConnection) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5:
            self._ask_for_metadata(connection)
        elif kind < 0.7:
            connection.ask(
                wire.ApiVersionsRequest(client_software_name="sim", client_software_version="1"),
                rng.choice((0, 1, 2, 3)),
                lambda answer: self._expect(answer is None or answer.error_code == 0, answer),
            )
        else:
            self._ask_for_offsets(connection)

    def _ask_for_metadata(self, connection: ModelConnection) -> None:
        version = self.rng.choice(METADATA_VERSIONS)
        names = self.rng.sample(list(self.world.topics), self.rng.randint(1, len(self.world.topics)))
        topics = [wire.MetadataRequest.MetadataRequestTopic(name=name) for name in names]

        def judge(answer: Any) -> None:
            if answer is not None:
                told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
                expected = {name: (0, self.world.topics[name].partitions) for name in names}
                self._expect(told == expected or self.world.scale.nodes > 1, told)

        connection.ask(wire.MetadataRequest(topics=topics), version, judge)

    def _ask_for_offsets(self, connection: ModelConnection) -> None:
        request = wire.ListOffsetsRequest
        topic = self.rng.choice(list(self.world.topics.values()))
        partition = (topic.name, self.rng.randrange(topic.partitions))
        floor = self.judge.ledger(partition).committed_end
        row = request.ListOffsetsPartition(partition_index=partition[1], timestamp=-1)

        def judge(answer: Any) -> None:
            if answer is not None:
                found = answer.topics[0].partitions[0]
                if found.error_code != 0:
                    self._expect(self.world.tolerates(found.error_code), found)
                else:
                    self._expect(found.offset >= floor or self.world.scale.nodes > 1, (found.offset, floor))

        connection.ask(
            request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic.name, partitions=[row])]),
            self.rng.choice((1, 2, 4, 5, 6, 7)),
            judge,
        )

    def _expect(self, holds: bool, answer: object) -> None:
        if not holds:
            self.judge.fail(f"{self.name}: {answer}")


async def read_all(connection: ModelConnection, world: World, partition: Partition) -> tuple[dict[int, bytes], int]:
    """What a partition holds from its beginning to its end, and that end."""
    request = wire.FetchRequest
    found: dict[int, bytes] = {}
    position, end = 0, -1
    while position != end:
        row = request.FetchPartition(partition=partition[1], fetch_offset=position, partition_max_bytes=1 << 20)
        topic = request.FetchTopic(topic=partition[0], partitions=[row])
        answer = await connection.answer(
            request(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[topic], session_epoch=-1), 11
        )
        if answer is None:
            world.judge.fail(f"{partition} cannot be read: the connection is gone")
        got = answer.responses[0].partitions[0]
        if got.error_code != 0:
            world.judge.fail(f"{partition} cannot be read: {ErrorCode(got.error_code).name}")
        end = got.high_watermark
        before = position
        for batch in read_batches(got.records):
            if batch.base_offset != position:
                world.judge.fail(f"{partition} goes on at {batch.base_offset} behind {position}")
            if not batch.is_control:
                found.update((at, value) for at, value in batch.values if value is not None)
            position = batch.last_offset + 1
        if position == before and position != end:
            world.judge.fail(f"{partition} has nothing at {position}, and ends at {end}")
    return found, end


def draw_clients(world: World, requests: int, count: int) -> Sequence[Client]:
    """So many clients that share so many requests."""
    rng = world.rng
    shares = [rng.uniform(0.3, 1.0) for _ in range(count)]
    each = [max(1, int(requests * share / sum(shares))) for share in shares]
    made: list[Client] = []
    for number, budget in enumerate(each):
        kind = rng.choices((Producer, Fetcher, Asker), (6, 3, 1))[0]
        if number == 0:
            kind = Producer
        made.append(kind(world, f"{kind.__name__.lower()}-{number}", budget))
    return made
