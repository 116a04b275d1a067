"""Model producers: many batches under way, old and new versions, idempotent ones that send again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import NOT_NOW, Client
from tests.simulation.old_formats import GZIP, LZ4, SNAPPY, ZSTD, encode_messages
from tests.simulation.records import encode_batch

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.replication_witness import Term
    from tests.simulation.world import World

FIRST_PRODUCE_WITH_ZSTD = 7
LAST_PRODUCE_BY_NAME = 12
MOST_UNSETTLED = 5
MOST_PAD = 95_000
"""Of two values, in a request that is as large as brokers take."""
FIRST_PRODUCE_WITH_BATCHES = 3
FIRST_PRODUCE_WITH_TIMESTAMPS = 2
OLD_PRODUCE_VERSIONS = (0, 1, 2)
OLD_SHARE = 0.12
"""The share of producers that know the message formats before record batches alone."""
SLACK_SECONDS = 10.0
"""What an answer may take beside the wait for a commit."""
TURMOIL_SLACK_SECONDS = 3.0
PRODUCE_VERSIONS = (3, 7, 8, 9, 11, 12, 13)


@dataclass(slots=True, eq=False)
class Sent:
    """A batch of a producer."""

    partition: Partition
    values: list[bytes]
    data: bytes
    floor: int
    at: float
    """When it was sent for the first time."""
    again: bool = False
    was_refused: bool = False
    """While those that were under way behind it may have been taken."""
    since: float = 0.0
    """When it was sent last."""
    term: Term | None = None
    """Its leader's then."""
    floor_of_term: int = 0


@dataclass(slots=True)
class _State:
    """An idempotent producer's place in one partition."""

    sequence: int = 0
    is_known: bool = False
    """Whether a batch is known to be there."""
    recent: list[Sent] = field(default_factory=list)
    """The last four: brokers know them still when another one follows."""


class Producer(Client):
    """Sends batches, `depth` requests at a time; what it is told lies where it is said to."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.requests = requests
        self.depth = rng.choice((1, 2, 3, 5, 8))
        self.acks = rng.choice(world.scale.acks)
        self.version = rng.choice(OLD_PRODUCE_VERSIONS if rng.random() < OLD_SHARE else PRODUCE_VERSIONS)
        self.several = rng.random() < 0.4
        self.idempotent = self.acks != 0 and rng.random() < 0.4
        if self.version < FIRST_PRODUCE_WITH_BATCHES:
            self.idempotent = False
        if self.idempotent:
            self.depth = min(self.depth, 5)
        self.codec = self._drawn_codec()
        self.pad = rng.choice((0, 0, 100, 5000))
        if not self.several and rng.random() < (0.9 if world.is_large else 0.1):
            # With requests that no pooled buffer holds, for the most part of few values.
            self.pad = rng.choice((35_000, MOST_PAD))
        self.slow = rng.random() < 0.15
        self.timeout_ms = rng.choice(world.timeouts_ms)
        # In turmoil disks are well.
        self.slack_seconds = TURMOIL_SLACK_SECONDS if world.may_lead_twice and self.pad < 1000 else SLACK_SECONDS
        topic = rng.choice(list(world.topics.values()))
        self.partitions = [(topic.name, number) for number in range(topic.partitions)]
        if rng.random() < 0.5:
            self.partitions = self.partitions[:1]
        if world.is_crowd:
            self.depth, self.several, self.slow, self.pad = rng.choice((2, 3, 5)), False, False, 0
            self.acks = rng.choice((-1, -1, -1, 1))
            self.partitions = [(topic.name, 0) for topic in world.topics.values()][:1]
        if self.acks == 1 and world.may_lose_leaders:
            # The next leader may lack a batch that was acknowledged, and would miss its sequence for good.
            self.idempotent = False
        world.has_zstd = world.has_zstd or self.codec == ZSTD
        if not world.has_topic_ids:
            self.version = min(self.version, LAST_PRODUCE_BY_NAME)
        if world.topics[self.partitions[0][0]].is_old:
            self.idempotent, self.codec = False, self.codec if self.version < FIRST_PRODUCE_WITH_BATCHES else 0
        self.producer = (-1, -1)
        self._is_in_doubt = False
        self._here: list[Partition] = []
        self._states: dict[Partition, _State] = {}
        self._unsettled: dict[Sent, None] = {}

    def _drawn_codec(self) -> int:
        if self.version >= FIRST_PRODUCE_WITH_ZSTD:
            return self.rng.choice((0, 0, 0, 0, GZIP, SNAPPY, LZ4, ZSTD))
        # Of magic 0 lz4 has a header of its own, which only Java's old clients write.
        return self.rng.choice(
            (0, 0, 0, GZIP, SNAPPY, *((LZ4,) if self.version >= FIRST_PRODUCE_WITH_TIMESTAMPS else ()))
        )

    async def run(self) -> None:
        world = self.world
        while self.requests > 0 or self._unsettled:
            first = next(iter(self._unsettled)).partition if self._unsettled else self.rng.choice(self.partitions)
            node = await world.leader(first)
            connection = await self.connect(node)
            if connection is None:
                world.forget_leader(first)
                await self.try_later()
                continue
            self._here = [each for each in self.partitions if world.leads(node, each)]
            if self.idempotent and self.producer[0] < 0:
                self.producer = await self.producer_id(connection)
            before = self.requests, len(self._unsettled)
            await self._talk(connection)
            if before == (self.requests, len(self._unsettled)):
                await self.try_later()

    async def _talk(self, connection: ModelConnection) -> None:
        """Over one connection, until it or the budget is at its end."""
        rng = self.rng
        self._is_in_doubt = False
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
            while self.requests > 0 and len(connection.outstanding) < self.depth and self._may_go_on():
                self.requests -= 1
                self._send(connection, self._batches())
                if self.acks == 0:
                    break
            if connection.end.closed or not (connection.outstanding or self._may_go_on()):
                break
            connection.flush()
            if self.requests <= 0:
                self.sends_last(connection)
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
        elif self.idempotent and self.world.forgets_after < math.inf:
            # When what is in doubt comes again, brokers may know the producer no more.
            self._forget()

    def _may_go_on(self) -> bool:
        """Whether a new batch may follow: brokers know the last five of an idempotent producer in a partition, so one
        that is in doubt is sent again before that, also where some of those behind it are acknowledged."""
        if not self.idempotent:
            return True
        if self._is_in_doubt or len(self._unsettled) >= MOST_UNSETTLED:
            return False
        return all(sent in self._states[sent.partition].recent for sent in self._unsettled)

    def _is_behind(self, sent: Sent) -> bool:
        """Whether a batch of an idempotent producer comes behind one that is in doubt, and may not be stored before."""
        first = next((each for each in self._unsettled if each.partition == sent.partition), sent)
        return self.idempotent and self._is_in_doubt and first is not sent

    def _may_have_lost_its_place(self, sent: Sent) -> bool:
        """Whether a batch in doubt cannot be sent again: a broker that stops in order keeps of each producer its last
        batch alone, as Kafka's snapshots do; and one that does not know a producer takes any batch for its first, so
        that one of those that were under way when it came to lead, or when the ISR was large enough again, may have
        been before the first of them."""
        state = self._states.get(sent.partition)
        others = any(each is not sent and each.partition == sent.partition for each in self._unsettled)
        may_miss_one = self.world.may_lose_leaders or sent.was_refused
        is_unknown = may_miss_one and (state is None or not state.is_known)
        return sent.at <= self.world.stopped_at or (is_unknown and others)

    def _is_behind_another_leader(self, sent: Sent) -> bool:
        """Whether the batch went to a broker that takes itself for the leader while another one is: it lacks what that
        one has of the producer, and says so, as Apache Kafka's does (`tests/compat/test_deposed_leaders.py`)."""
        return self.world.may_lead_twice and sent.term is not None and not self.world.is_in_force(sent.term)

    def _begin_anew(self, connection: ModelConnection) -> None:
        self._forget()
        connection.abort()

    def _forget(self) -> None:
        self.producer = (-1, -1)
        self._states.clear()
        self._unsettled.clear()

    def _values(self) -> list[bytes]:
        """Those of the next batch."""
        count = self.rng.choice((2,) if self.pad == MOST_PAD else (1, 1, 2, 5))
        return [self.world.next_value(self.pad) for _ in range(count)]

    def _batches(self) -> list[Sent]:
        rng = self.rng
        partitions = self._here
        chosen = rng.sample(partitions, rng.randint(1, len(partitions))) if self.several else [rng.choice(partitions)]
        found = []
        for partition in chosen:
            state = self._states.setdefault(partition, _State())
            recent = [each for each in state.recent if each.at > self.world.stopped_at]
            is_known = self.world.forgets_after == math.inf
            if self.idempotent and recent and is_known and rng.random() < 0.15:
                found.append(rng.choice(recent))
                found[-1].again = True
                continue
            values = self._values()
            producer = (*self.producer, state.sequence) if self.idempotent else (-1, -1, -1)
            if self.version < FIRST_PRODUCE_WITH_BATCHES:
                magic = 1 if self.version >= FIRST_PRODUCE_WITH_TIMESTAMPS else 0
                data = encode_messages(values, self.world.now_ms(), magic=magic, codec=self.codec)
            else:
                data = encode_batch(values, self.world.now_ms(), codec=self.codec, producer=producer)
            state.sequence += len(values)
            sent = Sent(partition, values, data, self.judge.sends(self.name, partition, values), self.world.loop.time())
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
        witness, now = self.world.witness, self.world.loop.time()
        for sent in flat:
            sent.since, sent.term = now, witness.term(connection.node, sent.partition)
            sent.floor_of_term = witness.floor(sent.term)
        connection.ask(
            request(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=topics),
            self.version,
            lambda answer: self._answered(connection, flat, answer),
            is_answered=self.acks != 0,
            allowed_seconds=self.timeout_ms / 1000 + self.slack_seconds,
        )

    def _answered(self, connection: ModelConnection, batches: list[Sent], answer: Any) -> None:
        if answer is None:
            return
        rows = {
            (topic.name or self.world.topic_name(topic.topic_id), row.index): row
            for topic in answer.responses
            for row in topic.partition_responses
        }
        asked, told = [sent.partition for sent in batches], list(rows)
        if told != asked and (self.world.keeps_order or sorted(told) != sorted(asked)):
            self.judge.fail(f"{connection.name}: asked for {asked}, the answer has {rows}")
        for sent in batches:
            row = rows[sent.partition]
            code = row.error_code
            if code == 0:
                self._unsettled.pop(sent, None)
                if self.idempotent:
                    self._states.setdefault(sent.partition, _State()).is_known = True
                certain = self.acks == -1 or not self.world.may_lose_leaders
                # One that leads no more has what others have yet to get, and lacks what they got since.
                is_late = not certain and self.world.may_lead_twice
                floor = 0 if sent.again or self.idempotent or is_late else sent.floor
                self.judge.acknowledged(
                    connection.name,
                    sent.partition,
                    sent.values,
                    row.base_offset,
                    floor,
                    committed=self.acks == -1,
                    certain=certain,
                )
                if not (sent.again or self.idempotent):
                    self._witness(connection, sent, row.base_offset)
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_behind(sent):
                self._is_in_doubt = True
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_have_lost_its_place(sent):
                self._begin_anew(connection)
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_behind_another_leader(sent):
                self._is_in_doubt = True
                self.world.forget_leader(sent.partition)
                connection.abort()
            elif not self.world.tolerates(code, sent.partition) or not self.world.witness.excuses(
                code, sent.partition, connection.node, sent.since, self.acks
            ):
                self.judge.fail(f"{connection.name}: {sent.partition} answers {ErrorCode(code).name}")
            elif code in NOT_NOW and not self.idempotent:
                self._unsettled.pop(sent, None)
                # One that was the leader says so of batches, too, that the next one has, or itself in another epoch; a
                # disk may have more than it told.
                is_certain = not self.world.may_lose_leaders and self.world.is_in_force(sent.term)
                if is_certain and code != ErrorCode.KAFKA_STORAGE_ERROR:
                    self.judge.refused(sent.partition, sent.values)
            elif not self.idempotent:
                self._unsettled.pop(sent, None)
            else:
                self._is_in_doubt = sent.was_refused = True
            if code in NOT_NOW:
                self.world.forget_leader(sent.partition)
                connection.abort()

    def _witness(self, connection: ModelConnection, sent: Sent, base: int) -> None:
        """What brokers have of a batch that is acknowledged, and was sent once."""
        witness, last = self.world.witness, base + len(sent.values) - 1
        witness.is_stored(connection.name, sent.partition, sent.term, sent.floor_of_term, base, len(sent.values))
        if self.acks == -1:
            witness.is_held(connection.name, sent.partition, last, sent.since)
