"""Clients with a quota: how long each answer says that they are throttled, and that they are, and no longer.

A rate is over `quota.window.num` windows of a second and the one that has begun (`quotas/rate.py` has Kafka's rule).
What was counted, and when, a client knows within bounds: from the sending of a request to its answer, its records and
its frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.setting import Setting
from tests.simulation.client import Client
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.records import encode_batch, read_batches

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.world import World

TOPIC = "limited"
PRODUCE_VERSIONS = (3, 5, 6, 9, 11)
FETCH_VERSIONS = (4, 7, 8, 11, 12)
AROUND_BYTES = 400
"""What a frame has around its records, at most."""
MOST_BYTES = 5_000
REQUEST_THROTTLE_MS = 1_000
"""A share of the processor's time is throttled for one window at most (KIP-124)."""
NO_QUOTA = 0
SLACK_MS = 2
LAG_SECONDS = 2.0
"""Within so long all brokers of a cluster without faults know of a quota."""


@dataclass(slots=True)
class Use:
    """What a request was counted as."""

    sent_at: float
    answered_at: float
    least: int
    most: int


class Limited(Client):
    """One request after the other, of one connection at a time."""

    key = ""

    def __init__(self, world: World, name: str, requests: int, windows: int) -> None:
        super().__init__(world, name)
        self.requests = requests
        self.windows = windows
        self.limit = Setting(NO_QUOTA, 0.0 if world.scale.nodes == 1 else LAG_SECONDS)
        self._has_user = self.rng.random() < 0.5
        self._uses: list[Use] = []
        self.muted_until = 0.0
        self._throttle_ms = 0

    async def run(self) -> None:
        rng = self.rng
        while self.requests > 0:
            connection = await self.connect(1)
            if connection is None:
                self.requests -= 1
                self._forget()
                await self.try_later()
                continue
            # The broker may have been started again since the connection before this one.
            self._forget()
            await self._alter(rng.choice((300, 1000, 3000)))
            while self.requests > 0 and not connection.gone:
                self.requests -= 1
                await self._use(connection)
                if rng.random() < 0.1:
                    await self._alter(rng.choice((300, 1000, 3000, NO_QUOTA)))
                await asyncio.sleep(rng.choice((0.0, 0.0, 0.0, 0.5, 3.0)) * rng.random())
            if connection.gone:
                self._is_mute_no_more()
            else:
                connection.finish(rng)

    def _is_mute_no_more(self) -> None:
        """A broker mutes the connection of the answer that says so, not its client (KIP-219): the next one is heard."""
        self._throttle_ms = 0
        self.muted_until = 0.0

    def _forget(self) -> None:
        """The broker has gone, and does not know any more what was used; what was is not more than it was."""
        for each in self._uses:
            each.least = 0

    async def _alter(self, limit: int) -> None:
        request = wire.AlterClientQuotasRequest
        names = [("client-id", self.name)] + ([("user", "ANONYMOUS")] if self._has_user else [])
        entity = [request.EntityData(entity_type=kind, entity_name=name) for kind, name in names]
        operation = request.OpData(key=self.key, value=float(limit), remove=limit == NO_QUOTA)
        self.limit.asked(limit, self.world.loop.time())
        entry = request.EntryData(entity=entity, ops=[operation])
        while True:
            node = self.rng.choice(list(self.world.nodes))
            connection = await self.world.connect(node, f"{self.name}.quota", "admin")
            answer = None
            if connection is not None:
                answer = await connection.answer(request(entries=[entry], validate_only=False), 1)
            if connection is not None and not connection.gone:
                connection.finish(self.rng)
            if answer is not None:
                break
            self._forget()
            await self.try_later()
        (row,) = answer.entries
        if row.error_code != 0:
            self.judge.fail(f"{self.name}: quota {limit} is refused: {row.error_code} {row.error_message}")
        self.limit.acknowledged(self.world.loop.time())

    async def _use(self, connection: ModelConnection) -> None:
        """One request."""
        raise NotImplementedError

    async def ask(self, connection: ModelConnection, request: Any, version: int) -> tuple[Any, float]:
        """The answer, and when its request was sent."""
        sent_at = self.world.loop.time()
        answer = await connection.answer(request, version, allowed_seconds=PATIENCE_SECONDS + self._throttle_ms / 1000)
        return answer, sent_at

    def told(self, sent_at: float, least: int, most: int, throttle_ms: int) -> None:
        """An answer has come, whose request was counted as something between `least` and `most`."""
        now = self.world.loop.time()
        if now < self.muted_until:
            self.judge.fail(f"{self.name} has an answer at {now:.6f}, and is muted until {self.muted_until:.6f}")
        limits = self.limit.between(sent_at, now)
        # What is not limited is not counted either.
        self._uses.append(Use(sent_at, now, 0 if NO_QUOTA in limits else least, most))
        longest = max((self._longest(limit, sent_at) for limit in limits if limit), default=0)
        if throttle_ms > max(longest, self.longest_besides()):
            self.judge.fail(f"{self.name} is throttled for {throttle_ms} ms, where {longest} follow from {limits}")
        shortest = min(self._shortest(limit, now) if limit else 0 for limit in limits)
        if throttle_ms < shortest:
            self.judge.fail(f"{self.name} is throttled for {throttle_ms} ms, where {shortest} follow from {limits}")
        self._throttle_ms = throttle_ms
        self.muted_until = sent_at + throttle_ms / 1000

    def longest_besides(self) -> int:
        """For how long something else than bytes may have it throttled."""
        return 0

    def _longest(self, limit: int, sent_at: float) -> int:
        """By Kafka's rule, were all counted as much as it may have been, over as short a time as there is."""
        since = sent_at - (self.windows + 1)
        used = sum(each.most for each in self._uses if each.answered_at >= since)
        return max(0, int(used * 1000 / limit - (self.windows - 1) * 1000) + SLACK_MS)

    def _shortest(self, limit: int, now: float) -> int:
        """Were it as little, over as long a time."""
        used = sum(each.least for each in self._uses if each.sent_at >= now - self.windows)
        return max(0, int(used * 1000 / limit - (self.windows + 1) * 1000) - SLACK_MS)


class LimitedProducer(Limited):
    """Its requests are counted."""

    key = "producer_byte_rate"

    async def _use(self, connection: ModelConnection) -> None:
        rng, world, partition = self.rng, self.world, (TOPIC, 0)
        values = [world.next_value(rng.choice((0, 1000, 2000))) for _ in range(rng.randint(1, 3))]
        data = encode_batch(values, world.now_ms())
        request = wire.ProduceRequest
        row = request.PartitionProduceData(index=0, records=memoryview(data))
        topic = request.TopicProduceData(name=TOPIC, partition_data=[row])
        floor = self.judge.sends(self.name, partition, values)
        version = rng.choice(PRODUCE_VERSIONS)
        answer, sent_at = await self.ask(connection, request(acks=-1, timeout_ms=20_000, topic_data=[topic]), version)
        if answer is None:
            return
        found = answer.responses[0].partition_responses[0]
        if found.error_code != 0:
            if not world.tolerates(found.error_code, partition):
                self.judge.fail(f"{connection.name}: {partition} answers {ErrorCode(found.error_code).name}")
        else:
            self.judge.acknowledged(
                connection.name, partition, values, found.base_offset, floor, committed=True, certain=True
            )
        self.told(sent_at, len(data), len(data) + AROUND_BYTES, answer.throttle_time_ms)


class LimitedFetcher(Limited):
    """Its answers are counted; one that is throttled is empty, and is counted again when it is asked for again."""

    key = "consumer_byte_rate"

    async def _use(self, connection: ModelConnection) -> None:
        rng, partition = self.rng, (TOPIC, 0)
        request = wire.FetchRequest
        row = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=rng.choice((1000, MOST_BYTES)))
        topic = request.FetchTopic(topic=TOPIC, partitions=[row])
        asked = request(max_wait_ms=0, min_bytes=0, max_bytes=MOST_BYTES, topics=[topic], session_epoch=-1)
        answer, sent_at = await self.ask(connection, asked, rng.choice(FETCH_VERSIONS))
        if answer is None:
            return
        throttle_ms = answer.throttle_time_ms
        size = 0
        for found in answer.responses:
            for part in found.partitions:
                if part.error_code != 0:
                    if not self.world.tolerates(part.error_code, partition):
                        self.judge.fail(f"{connection.name}: {partition} answers {ErrorCode(part.error_code).name}")
                    continue
                size += len(part.records or b"")
                batches = list(read_batches(part.records))
                if batches and throttle_ms > 0:
                    self.judge.fail(f"{connection.name} is throttled for {throttle_ms} ms, and gets {size} bytes")
                if batches:
                    self.judge.fetched(connection.name, partition, batches, 0, part.high_watermark)
        # What a throttled answer would have had is not known, nor that it was counted.
        self.told(sent_at, size, 0 if throttle_ms else size + AROUND_BYTES, throttle_ms)

    def longest_besides(self) -> int:
        """What is not sent, as there is no room for it, is as much as one answer has."""
        now = self.world.loop.time()
        limits = [each for each in self.limit.between(now - PATIENCE_SECONDS, now) if each]
        if not limits:
            return 0
        return self._longest(min(limits), now - PATIENCE_SECONDS) + int(2 * MOST_BYTES * 1000 / min(limits))


class LimitedAsker(Limited):
    """The time that its requests take is counted, of which a simulated processor needs next to none."""

    key = "request_percentage"

    async def _use(self, connection: ModelConnection) -> None:
        asked = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        answer, sent_at = await self.ask(connection, asked, self.rng.choice((3, 5, 9, 12)))
        if answer is not None:
            self.told(sent_at, 0, 0, answer.throttle_time_ms)

    def longest_besides(self) -> int:
        return REQUEST_THROTTLE_MS


KINDS: tuple[Callable[[World, str, int, int], Limited], ...] = (LimitedProducer, LimitedFetcher, LimitedAsker)


class Quotas:
    """Whether a history has clients with quotas, and their topic."""

    def __init__(self, world: World, share: float) -> None:
        rng = world.rng
        self._world = world
        self._windows = rng.choice((2, 4, 11))
        self._limited: list[Limited] = []
        # A partition of one replica has the first broker lead it, for as long as that is there.
        has_leader = world.scale.nodes == 1 or not world.fails
        self.is_drawn = has_leader and rng.random() < share and not world.scale.is_focused

    def settings(self) -> dict[str, str]:
        """Of a broker."""
        return {"quota.window.num": str(self._windows)} if self.is_drawn else {}

    async def begin(self) -> None:
        """Make the topic."""
        if self.is_drawn:
            request = wire.CreateTopicsRequest
            assignment = request.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
            row = request.CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assignment])
            answer = await self._world.make_topics(request(topics=[row], timeout_ms=10_000))
            if answer.topics[0].error_code != 0:
                self._world.judge.fail(f"{TOPIC} cannot be made: {answer.topics[0].error_message}")
            while not self._world.is_led_by(1, (TOPIC, 0)):
                await asyncio.sleep(0.05)

    def clients(self) -> list[Client]:
        """A producer, so that there is something to fetch, and others."""
        if not self.is_drawn:
            return []
        world, rng = self._world, self._world.rng
        kinds = [LimitedProducer, *(rng.choice(KINDS) for _ in range(rng.randint(1, 3)))]
        self._limited = [
            kind(world, f"limited-{number}", rng.choice((5, 10, 20)), self._windows)
            for number, kind in enumerate(kinds)
        ]
        return list(self._limited)

    @property
    def muted_until(self) -> float:
        """A broker does not see before that that a client has gone."""
        return max((each.muted_until for each in self._limited), default=0.0)
