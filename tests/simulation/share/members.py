"""Model members of share groups: they acquire records, and accept, release or reject them, or keep them."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.connection import PATIENCE_SECONDS
from tests.simulation.coordination import MOVED, NOT_HERE, OF_GROUP, Coordinator
from tests.simulation.features import SESSION_SECONDS
from tests.simulation.records import MalformedBatchError, read_batches
from tests.simulation.share.ledger import ACCEPT, REJECT, RELEASE, Held, ShareGroup

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

GROUP_RESOURCE = 32
HEARTBEAT_VERSION = 1
CONFIGURE_VERSION = 1
EXACT = 1
CLAIMING, CLAIM_SECONDS = 0.1, 0.5
"""The chance that it says something of a record of another member, which has it for so long at least."""
LEAVING = -1
DRAINED_WITHIN_SECONDS = 90.0
NO_SESSION = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class LostError(Exception):
    """The connection, the session or the membership is gone: it begins anew."""


class ShareMember(Client):
    """A member for so many turns, in several lives."""

    def __init__(self, world: World, name: str, group: ShareGroup, turns: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.group = group
        self.turns = turns
        self.version = rng.choice((1, 2))
        self.max_wait_ms = rng.choice((0, 50, 500))
        self.max_records = rng.choice((1, 5, 500))
        self.is_exact = self.version > 1 and rng.random() < 0.5
        self.habits = rng.choice(((8, 1, 1, 1), (3, 3, 1, 1), (1, 0, 0, 0)))
        """How often it accepts, releases, rejects and keeps what it was given."""
        self._connection: ModelConnection
        """To the leader that it reads from in this life."""
        self._coordinator = Coordinator(self, group.name, OF_GROUP) if world.scale.nodes > 1 else None
        """Of several brokers the group's own; of one it is the same connection."""
        self._member_id = ""
        self._epoch = 0
        self._session = 0
        self._assigned: list[Partition] = []
        self._here: list[Partition] = []
        """What of it the connection's broker leads, as far as is known."""
        self._beat_at = 0.0
        self._named: dict[Partition, None] = {}
        """What its session reads."""
        self.later = random.Random(world.later.getrandbits(64))
        self._to_say: list[tuple[Partition, int, int, int, float]] = []
        """Partition, first and last offset, kind, and when they were asked for."""

    async def run(self) -> None:
        while self.turns > 0:
            if not await self._reach_leader():
                continue
            try:
                await self._live()
            except LostError:
                await self.try_later()
            self._dies()

    async def _reach_leader(self) -> bool:
        """Connect to a leader of one of the topic's partitions; whether it is there."""
        partition = self.group.topic, self.rng.randrange(self.world.topics[self.group.topic].partitions)
        found = await self.connect(await self.world.leader(partition))
        if found is None:
            self.world.forget_leader(partition)
            await self.try_later()
            return False
        self._connection = found
        return True

    def _dies(self) -> None:
        """Hang up, with or without having left."""
        self.group.lets_go(self.name)
        self._to_say.clear()
        if self._coordinator is not None:
            self._coordinator.lose()
        if not self._connection.gone:
            self._connection.finish(self.rng)

    async def _live(self) -> None:
        rng = self.rng
        await self._configure()
        # Each life is another member.
        self._member_id, self._epoch, self._session = str(uuid.UUID(int=rng.getrandbits(128))), 0, 0
        await self._heartbeat()
        for _ in range(rng.choice((5, 20, 50))):
            if self.turns <= 0:
                break
            self.turns -= 1
            await self.turn()
            if rng.random() < self.world.scale.aborts:
                self._connection.abort()
        if rng.random() < 0.5:
            await self.leave()

    async def turn(self) -> None:
        """One thing that members do."""
        rng = self.rng
        if rng.random() < 0.1 or not self._here or self._is_silent():
            await self._heartbeat()
            if not self._here:
                await asyncio.sleep(rng.uniform(0.05, 0.5))
        elif self._session > 0 and self.later.random() < CLAIMING and (claim := self._claim()) is not None:
            await self._say_of_anothers(*claim)
        elif self._to_say and rng.random() < 0.5:
            await self._acknowledge()
        else:
            await self._fetch()
        await self.pause()

    def _is_silent(self) -> bool:
        """Whether it is time to say that it is there."""
        return self.world.loop.time() - self._beat_at > SESSION_SECONDS / 3

    async def _ask(self, request: Any, version: int, wait_ms: int = 0) -> Any:
        connection = self._connection
        if connection.gone or connection.end.closed:
            raise LostError
        answer = await connection.answer(request, version, allowed_seconds=PATIENCE_SECONDS + wait_ms / 1000)
        if answer is None:
            self.group.lets_go(None if self.world.fails else self.name)
            raise LostError
        return answer

    async def _ask_coordinator(self, request: Any) -> Any:
        if self._coordinator is None:
            return await self._ask(request, HEARTBEAT_VERSION)
        answer = await self._coordinator.ask(request, HEARTBEAT_VERSION)
        if answer is None or answer.error_code in MOVED:
            self._coordinator.lose()
        if answer is None:
            self.group.lets_go(None if self.world.fails else self.name)
            raise LostError
        return answer

    def _check(self, code: int, allowed: frozenset[ErrorCode], what: str) -> None:
        """LostError for what may be after a failure."""
        if code == 0:
            return
        for partition in self._here:
            self.world.forget_leader(partition)
        was_silent = allowed is GONE and self.world.loop.time() >= self._beat_at + SESSION_SECONDS
        if code not in NOT_HERE and not ((self.world.fails or was_silent) and code in allowed):
            self.judge.fail(f"{self.name}: {what} answers {ErrorCode(code).name}")
        raise LostError

    # Requests

    async def _configure(self) -> None:
        if self.group.is_configured:
            return
        request = wire.IncrementalAlterConfigsRequest
        values = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if self.group.committed else "read_uncommitted",
        }
        rows = [request.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
        resource = request.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group.name, configs=rows
        )
        answer = await self._ask(request(resources=[resource]), CONFIGURE_VERSION)
        # The worker that keeps the metadata may be away.
        away = frozenset({ErrorCode.NOT_CONTROLLER})
        self._check(answer.responses[0].error_code, away, "IncrementalAlterConfigs")
        self.group.is_configured = True

    async def _heartbeat(self) -> None:
        request = wire.ShareGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self.group.topic] if self._epoch == 0 else None,
        )
        sent = self.world.loop.time()
        answer = await self._ask_coordinator(request)
        self._check(answer.error_code, GONE, "ShareGroupHeartbeat")
        self._beat_at = sent
        if answer.member_epoch < self._epoch:
            self.judge.fail(f"{self.name}: its epoch is {answer.member_epoch}, and was {self._epoch}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            topic_id = self.world.topics[self.group.topic].topic_id
            self._assigned = [
                (self.group.topic, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
                if bytes(topic.topic_id) == topic_id
            ]
        self._here = [each for each in self._assigned if self.world.leads(self._connection.node, each)]

    async def leave(self) -> None:
        """Say that it goes."""
        request = wire.ShareGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self._member_id, member_epoch=LEAVING
        )
        answer = await self._ask_coordinator(request)
        self._check(answer.error_code, GONE, "leaving")

    async def _fetch(self) -> None:
        request = wire.ShareFetchRequest
        says = self._session > 0 and self.rng.random() < 0.5
        said = self._taken() if says else {}
        rows = []
        if self._session == 0:
            self._named.clear()
        new = [each for each in self._here if each not in self._named]
        gone = [each for each in self._named if each not in self._here and each not in said]
        for partition in [*new, *(each for each in said if each not in new)]:
            batches = [
                request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind, _ in said.get(partition, ())
            ]
            rows.append(request.FetchPartition(partition_index=partition[1], acknowledgement_batches=batches))
        topic_id = self.world.topics[self.group.topic].topic_id
        asked = request(
            group_id=self.group.name,
            member_id=self._member_id,
            share_session_epoch=self._session,
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=self.max_records,
            batch_size=self.max_records,
            topics=[request.FetchTopic(topic_id=topic_id, partitions=rows)] if rows else [],
            forgotten_topics_data=[
                request.ForgottenTopic(topic_id=topic_id, partitions=[number for _, number in gone])
            ],
        )
        if self.is_exact:
            asked.share_acquire_mode = EXACT
        for partition in gone:
            del self._named[partition]
        self._named.update(dict.fromkeys(new))
        sent = self.world.loop.time()
        answer = await self._ask(asked, self.version, self.max_wait_ms)
        self._check(answer.error_code, NO_SESSION, "ShareFetch")
        self._session += 1
        rows = {(self.group.topic, row.partition_index): row for topic in answer.responses for row in topic.partitions}
        # What was said came first: the same records may be given again.
        self._settle(said, {partition: row.acknowledge_error_code for partition, row in rows.items()})
        count = 0
        for partition, row in rows.items():
            self._check(row.error_code, frozenset(), f"ShareFetch of {partition}")
            count += self._take(partition, row, sent)
        if self.is_exact and count > self.max_records:
            self.judge.fail(f"{self.name}: {count} records are given where {self.max_records} were asked for")

    def _take(self, partition: Partition, row: Any, sent: float) -> int:
        """Note what was given, and decide what becomes of it."""
        now = self.world.loop.time()
        try:
            batches = list(read_batches(row.records))
        except MalformedBatchError as error:
            self.judge.fail(f"{self.name}: {partition}: {error}")
        if batches:
            high = batches[-1].last_offset + 1
            self.judge.fetched(self.name, partition, batches, batches[0].base_offset, high)
        connection, count = self._connection, 0
        term = self.world.witness.term(connection.node, partition)

        def is_linked() -> bool:
            end = connection.end
            return not (connection.gone or end.closed or end.peer.closed) and self.world.is_in_force(term)

        for each in row.acquired_records:
            first, last = each.first_offset, each.last_offset
            count += last - first + 1
            if not any(batch.base_offset <= first <= batch.last_offset for batch in batches):
                self.judge.fail(f"{self.name}: {partition} {first}-{last} is given without its records")
            times = sent, now
            self.group.acquired(self.name, partition, first, last, each.delivery_count, batches, times, is_linked)
            self._drop_overtaken(partition, first, last)
            kind = self.rng.choices((ACCEPT, RELEASE, REJECT, 0), self.habits)[0]
            if kind:
                self._to_say.append((partition, first, last, kind, sent))
        return count

    def _drop_overtaken(self, partition: Partition, first: int, last: int) -> None:
        """What it has yet to say of records that it is given once more is void: their locks had ended."""
        for each in [each for each in self._to_say if each[0] == partition and each[1] <= last and each[2] >= first]:
            *_, sent = each
            if self.world.loop.time() < sent + self.group.lock_seconds and not self.world.fails:
                self.judge.fail(f"{self.name}: {partition} {first}-{last} is given again, and held since {sent:.3f}")
            self._to_say.remove(each)

    def _taken(self) -> dict[Partition, list[tuple[int, int, int, float]]]:
        """What is to be said now, in order; each range once."""
        found: dict[Partition, list[tuple[int, int, int, float]]] = {}
        for partition, first, last, kind, sent in sorted(self._to_say):
            self.group.acknowledges(partition, range(first, last + 1), kind)
            found.setdefault(partition, []).append((first, last, kind, sent))
        self._to_say.clear()
        return found

    async def _acknowledge(self) -> None:
        request = wire.ShareAcknowledgeRequest
        said = self._taken()
        rows = [
            request.AcknowledgePartition(
                partition_index=partition[1],
                acknowledgement_batches=[
                    request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                    for first, last, kind, _ in ranges
                ],
            )
            for partition, ranges in said.items()
        ]
        topic = request.AcknowledgeTopic(topic_id=self.world.topics[self.group.topic].topic_id, partitions=rows)
        asked = request(
            group_id=self.group.name,
            member_id=self._member_id,
            share_session_epoch=self._session,
            topics=[topic],
        )
        answer = await self._ask(asked, self.version)
        self._check(answer.error_code, NO_SESSION, "ShareAcknowledge")
        self._session += 1
        told = {
            (self.group.topic, row.partition_index): row.error_code
            for topic in answer.responses
            for row in topic.partitions
        }
        self._settle(said, told)

    def _settle(self, said: dict[Partition, list[tuple[int, int, int, float]]], told: dict[Partition, int]) -> None:
        """What the answer says of what was said."""
        now = self.world.loop.time()
        for partition, ranges in said.items():
            if partition not in told:
                self.judge.fail(f"{self.name}: nothing is answered to what was said of {partition}")
            code = told[partition]
            if code == 0:
                for first, last, kind, _ in ranges:
                    self.group.acknowledged(self.name, partition, range(first, last + 1), kind, now)
            elif code == ErrorCode.INVALID_RECORD_STATE:
                has_ended = any(now >= sent + self.group.lock_seconds for *_, sent in ranges)
                if not (has_ended or self.world.fails):
                    self.judge.fail(f"{self.name}: {partition} {ranges} is held, and answers INVALID_RECORD_STATE")
            else:
                self._check(code, frozenset(), f"what was said of {partition}")

    def _claim(self) -> tuple[Partition, int, Held] | None:
        """A record that another member holds."""
        until = self.world.loop.time() + CLAIM_SECONDS
        found = [
            (partition, offset, record.held)
            for partition in self._named
            for offset, record in self.group.records.get(partition, {}).items()
            if record.held is not None and record.held.member != self.name and record.held.is_certain_until(until)
        ]
        return self.later.choice(found) if found else None

    async def _say_of_anothers(self, partition: Partition, offset: int, held: Held) -> None:
        """Nothing that is said of a record counts but by its holder: that is refused, and whoever has it keeps it."""
        request = wire.ShareAcknowledgeRequest
        kind = self.later.choice((ACCEPT, RELEASE, REJECT))
        batch = request.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
        row = request.AcknowledgePartition(partition_index=partition[1], acknowledgement_batches=[batch])
        topic = request.AcknowledgeTopic(topic_id=self.world.topics[self.group.topic].topic_id, partitions=[row])
        asked = request(
            group_id=self.group.name,
            member_id=self._member_id,
            share_session_epoch=self._session,
            topics=[topic],
        )
        answer = await self._ask(asked, self.version)
        self._check(answer.error_code, NO_SESSION, "ShareAcknowledge")
        self._session += 1
        code = answer.responses[0].partitions[0].error_code
        now = self.world.loop.time()
        is_held = self.group.record(partition, offset).held is held and held.is_certain_until(now)
        if code == 0 and is_held:
            self.judge.fail(f"{self.name}: says {kind} of {partition} {offset}, which {held.member} has, and is heard")
        if code not in (0, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST):
            self._check(code, frozenset(), f"what was said of {partition} {offset}")

    async def drain(self) -> None:
        """Accept all that there is until nothing is missing."""
        self.habits, self.max_wait_ms, self.max_records = (1, 0, 0, 0), 100, 500
        partitions = [(self.group.topic, each) for each in range(self.world.topics[self.group.topic].partitions)]
        until = self.world.loop.time() + DRAINED_WITHIN_SECONDS
        while missing := {each: found for each in partitions if (found := self.group.missing(each))}:
            if self.world.loop.time() > until:
                self.judge.fail(f"{self.group.name} is never given {missing}")
            if not await self._reach_leader():
                continue
            try:
                await self._configure()
                self._member_id, self._epoch, self._session = str(uuid.UUID(int=self.rng.getrandbits(128))), 0, 0
                await self._heartbeat()
                while self.world.loop.time() <= until:
                    if self._is_silent() or not self._here:
                        await self._heartbeat()
                    if self._assigned and not self._here:
                        break
                    if not self._here:
                        await asyncio.sleep(0.3)
                        continue
                    await self._fetch()
                    while self._to_say:
                        await self._acknowledge()
                    if not any(self.group.missing(each) for each in self._here):
                        break
                await self.leave()
            except LostError:
                await self.try_later()
            self._dies()


async def judge_ending(world: World, group: ShareGroup) -> None:
    """In the end: every record was delivered."""
    if group.is_configured:
        await ShareMember(world, f"{group.name}-end", group, 0).drain()
