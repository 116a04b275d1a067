"""Producers on topics that change: by name or by topic id, pipelined, idempotent or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.client import ABSENT, FIRST_PRODUCE_BY_ID, ChangingClient
from tests.simulation.administration.in_sync import judge_acknowledged, may_be_too_few
from tests.simulation.administration.lives import MAX_MESSAGE, Life, Wanderer
from tests.simulation.records import encode_batch

if TYPE_CHECKING:
    from tests.simulation.administration.lives import ChangingTopic
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

PRODUCE_VERSIONS = (3, 7, 9, 11, 12, 13, 13, 13)
MOST_UNSETTLED = 5
TOO_FEW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
LOST_PLACE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH})


@dataclass(slots=True, eq=False)
class Batch:
    """A batch and the life that its producer meant."""

    life: Life
    number: int
    values: list[bytes]
    data: bytes
    floor: int
    wanderer: Wanderer
    idempotent: bool
    since: float
    again: bool = False
    over: object = None
    """The connection that it was sent over last."""


@dataclass(slots=True)
class _Place:
    """An idempotent producer's place in a partition of a life."""

    life: Life
    since: float
    sequence: int = 0
    last_answer_at: float = 0.0
    unsettled: list[Batch] = field(default_factory=list)


class ChangingProducer(ChangingClient):
    """Sends to the topics as it knows them, and learns of a new one by an error, or at the next connection."""

    def __init__(self, world: World, name: str, requests: int, topics: list[ChangingTopic]) -> None:
        super().__init__(world, name, requests, topics)
        rng = self.rng
        self.depth = rng.choice((1, 2, 3, 5))
        self.acks = rng.choice((-1, -1, -1, 1, 0))
        self.version = rng.choice(PRODUCE_VERSIONS)
        self.by_name = self.version < FIRST_PRODUCE_BY_ID
        self.idempotent = self.acks == -1 and rng.random() < 0.5
        self.pad = rng.choice((0, 0, 100, 3000))
        self._producer = (-1, -1)
        self._places: dict[tuple[str, int], _Place] = {}

    async def run(self) -> None:
        while self.requests > 0:
            self._learn_lives()
            node, connection = await self.reach()
            if connection is None:
                self.requests -= 1
                await self.try_later()
                continue
            if self.acks == 0:
                connection.may_be_closed = True  # It is the only way to say that something is wrong.
            if self.idempotent and self._producer[0] < 0:
                self._producer = await self.producer_id(connection)
            await self._talk(connection, node)

    def _learn_lives(self) -> None:
        self.learn()
        for place in self._places.values():
            known = self.known.get(place.life.name)
            if known is place.life:
                continue
            # What was sent by name may come to the new topic, and would have a place there.
            strays = self.by_name and (place.unsettled or place.last_answer_at >= (known or place.life).asked_at)
            if strays or known is None:
                self._anew()
                return

    def _anew(self) -> None:
        """Be another producer."""
        self._producer = (-1, -1)
        self._places.clear()

    async def _talk(self, connection: ModelConnection, node: int) -> None:
        rng = self.rng
        if self.idempotent and self._producer[0] < 0:
            connection.abort()
            return
        for (_, number), place in self._places.items():
            if self.known.get(place.life.name) is place.life and self.world.leads(node, (place.life.name, number)):
                for batch in place.unsettled:
                    batch.again = True
                    self._send(connection, [batch])
        sent = 0
        while not connection.gone and not connection.end.closed and (self.requests > 0 or connection.outstanding):
            while self.requests > 0 and len(connection.outstanding) < self.depth:
                batches = self._batches(connection, node)
                self.requests -= 1
                sent += 1
                if batches:
                    self._send(connection, batches)
                if not batches or self.acks == 0:
                    break
            if not connection.outstanding and (sent > 0 and rng.random() < 0.2):
                break
            connection.flush()
            if rng.random() < self.world.scale.aborts:
                connection.abort()
            await self.pause()
            if connection.outstanding:
                await connection.change()
            elif self.acks == 0:
                await self.try_later()
        if not connection.gone:
            connection.finish(rng)

    def _batches(self, connection: ModelConnection, node: int) -> list[Batch]:
        rng, now = self.rng, self.world.loop.time()
        found: list[Batch] = []
        for life, number in self.partitions(node):
            place = self._places.setdefault((life.key, number), _Place(life, now))
            # What is in doubt goes before what is new, which is sent when that was sent again.
            is_behind = any(each.over is not connection for each in place.unsettled)
            if self.idempotent and (is_behind or len(place.unsettled) >= MOST_UNSETTLED):
                continue
            values = [self.world.next_value(self.pad) for _ in range(rng.choice((1, 1, 2, 5)))]
            producer = (*self._producer, place.sequence) if self.idempotent else (-1, -1, -1)
            data = encode_batch(values, self.world.now_ms(), producer=producer)
            place.sequence += len(values)
            floor = self.judge.ledger((life.key, number)).acknowledged_end
            topic = self.topic(life.name)
            wanderer = topic.sends(self.name, life, number, values, now, by_name=self.by_name)
            batch = Batch(life, number, values, data, floor, wanderer, self.idempotent, now)
            if self.idempotent:
                place.unsettled.append(batch)
            found.append(batch)
        return found

    def _send(self, connection: ModelConnection, batches: list[Batch]) -> None:
        request = wire.ProduceRequest
        by_topic: dict[Life, list[Any]] = {}
        for batch in batches:
            batch.over = connection
            row = request.PartitionProduceData(index=batch.number, records=memoryview(batch.data))
            by_topic.setdefault(batch.life, []).append(row)
        topics = [
            request.TopicProduceData(name=life.name, topic_id=life.topic_id, partition_data=rows)
            for life, rows in by_topic.items()
        ]
        sent_at = self.world.loop.time()
        connection.ask(
            request(acks=self.acks, timeout_ms=20_000, topic_data=topics),
            self.version,
            lambda answer: self._answered(connection, batches, sent_at, answer),
            is_answered=self.acks != 0,
        )

    def _answered(self, connection: ModelConnection, batches: list[Batch], sent_at: float, answer: Any) -> None:
        if answer is None:
            return
        told = {
            (topic.name if self.by_name else bytes(topic.topic_id), row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        asked = [(each.life.name if self.by_name else each.life.topic_id, each.number) for each in batches]
        if sorted(told) != sorted(asked):
            self.judge.fail(f"{connection.name}: asked for {asked}, the answer has {told}")
        for batch, place in zip(batches, asked, strict=True):
            self._told(connection, batch, sent_at, told[place])

    def _told(self, connection: ModelConnection, batch: Batch, sent_at: float, row: Any) -> None:
        code, now, topic = row.error_code, self.world.loop.time(), self.topic(batch.life.name)
        place = self._places.get((batch.life.key, batch.number))
        # Sent again over another connection, an earlier one may still be under way.
        is_answered = not batch.again
        if is_answered:
            topic.wanderers.pop(batch.wanderer, None)
        met = topic.between(batch.since, now) if self.by_name else [batch.life]
        if place is not None:
            place.last_answer_at = now
            if batch in place.unsettled and (code == 0 or code not in ABSENT):
                place.unsettled.remove(batch)
        if code == 0:
            if len(met) == 1:
                self.judge.acknowledged(
                    connection.name,
                    (met[0].key, batch.number),
                    batch.values,
                    row.base_offset,
                    0 if batch.idempotent or met[0] is not batch.life else batch.floor,
                    committed=self.acks == -1,
                    # These topics get other leaders without any fault, which need not have what one alone has taken.
                    certain=self.acks == -1 or self.world.scale.nodes == 1,
                )
            self._judge_size(connection, met, batch, now, refused=False)
            if self.acks == -1 and len(met) == 1 and not batch.again:
                last = row.base_offset + len(batch.values) - 1
                judge_acknowledged(self.world, connection.name, met[0], batch.number, last, batch.since)
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            self._judge_size(connection, met, batch, now, refused=True)
        elif code in TOO_FEW:
            if self.acks != -1 or not any(may_be_too_few(self.world, life, batch.since, now) for life in met):
                self.judge.fail(
                    f"{connection.name}: {batch.life.key}-{batch.number} answers {ErrorCode(code).name}, where acks is "
                    f"{self.acks}, and there are enough replicas"
                )
        elif not self.tolerates(code, (batch.life, batch.number), sent_at, now, by_name=self.by_name) and not (
            code in LOST_PLACE and self._is_mixed(batch, now)
        ):
            self.judge.fail(
                f"{connection.name}: {batch.life.key}-{batch.number} answers {ErrorCode(code).name}, "
                f"{self.story(batch.life)}"
            )
        # A leader that is no more by the time of its commit has appended what it answers NOT_LEADER_OR_FOLLOWER for.
        not_stored = ABSENT - {ErrorCode.NOT_LEADER_OR_FOLLOWER} | {ErrorCode.MESSAGE_TOO_LARGE}
        if not self.world.may_lose_leaders and not batch.again and code in not_stored:
            for life in met:
                self.judge.refused((life.key, batch.number), batch.values)
        if self.idempotent:
            self._anew()
        self.world.forget_leader((batch.life.name, batch.number))
        connection.abort()

    def _is_mixed(self, batch: Batch, now: float) -> bool:
        """Whether the producer's batches may lie in several lives, or one of them was refused."""
        place = self._places.get((batch.life.key, batch.number))
        if place is None:
            return True
        return self.by_name and len(self.topic(batch.life.name).between(place.since, now)) > 1

    def _judge_size(
        self, connection: ModelConnection, met: list[Life], batch: Batch, now: float, *, refused: bool
    ) -> None:
        limits = [limit for life in met for limit in life.settings[MAX_MESSAGE].between(batch.since, now)]
        size = len(batch.data)
        if refused and min(limits) >= size:
            self.judge.fail(f"{connection.name}: {size} bytes are too large, where {limits} are allowed")
        if not refused and max(limits) < size:
            self.judge.fail(f"{connection.name}: {size} bytes are taken, where {limits} are allowed")
