"""Model members of consumer groups (KIP-848): they say what they own, give back what they are told to, leave, die, and
come back, some of them static."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.coordination import MOVED, NOT_HERE, OF_GROUP, Coordinator
from tests.simulation.features import SESSION_SECONDS
from tests.simulation.groups.consumer_commits import ConsumerCommits
from tests.simulation.groups.ownership import Ownership

if TYPE_CHECKING:
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

FIRST_WITH_OWN_ID = 1
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
STABLE_WITHIN_SECONDS = 60.0


class Consumer(Client):
    """A member for so many turns, in several lives."""

    def __init__(self, world: World, name: str, group: Ownership, turns: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.group = group
        self.turns = turns
        self.me = group.enters(name)
        self.version = rng.choice((0, 1))
        self.instance_id = name if rng.random() < 0.3 else None
        self.rebalance_ms = rng.choice((500, 2000, 10_000))
        names = list(world.topics)
        self.topics = rng.sample(names, rng.randint(1, len(names)))
        self.coordinator = Coordinator(self, group.name, OF_GROUP)
        self.member_id = ""
        self._tells_all = True
        """Whether the coordinator may not know what was said last: the next heartbeat says it again."""
        self._has_lost = False
        self._commits = ConsumerCommits(self)

    async def run(self) -> None:
        rng = self.rng
        while self.turns > 0:
            self.turns -= 1
            await self.heartbeat()
            await self._commits.turn()
            await asyncio.sleep(rng.choice((0.01, 0.1, SESSION_SECONDS / 2)) * rng.random())
            if rng.random() < 0.05:
                await self._end()
            elif rng.random() < 0.03:
                names = list(self.world.topics)
                self.topics = rng.sample(names, rng.randint(1, len(names)))
                self._tells_all = True
            if rng.random() < self.world.scale.aborts:
                self.coordinator.lose()
        await self._end()
        self.coordinator.lose()

    async def _end(self) -> None:
        """Leave, for good or for a while, or die."""
        if self.me.epoch > 0 and self.rng.random() < 0.6:
            await self.leave()
        else:
            self.coordinator.lose()
        self._begins_anew()

    async def look(self) -> bool:
        """Ask what is committed; False: the coordinator cannot say now."""
        return await self._commits.look()

    async def leave(self) -> None:
        """Give all back, and say that it goes."""
        self.me.ends()
        is_back = self.instance_id is not None and self.rng.random() < 0.5
        await self._ask(
            wire.ConsumerGroupHeartbeatRequest(
                group_id=self.group.name,
                member_id=self.member_id,
                instance_id=self.instance_id,
                member_epoch=LEAVING_FOR_A_WHILE if is_back else LEAVING,
            )
        )

    def _begins_anew(self) -> None:
        self.me.ends()
        self.member_id = ""
        self._tells_all, self._has_lost = True, False
        self._commits.begins_anew()

    async def _ask(self, request: Any) -> Any:
        """The answer; None where it is lost, or the coordinator is away."""
        answer = await self.coordinator.ask(request, self.version)
        if answer is None or answer.error_code in NOT_HERE:
            self._tells_all = self._has_lost = True
            if answer is None or answer.error_code in MOVED:
                self.coordinator.lose()
            await self.try_later()
            return None
        return answer

    async def heartbeat(self) -> None:
        """Say what it owns, and take what it is given."""
        me, now = self.me, self.world.loop.time
        if not self.member_id and self.version >= FIRST_WITH_OWN_ID:
            self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))
        asked = wire.ConsumerGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self.member_id, member_epoch=me.epoch, instance_id=self.instance_id
        )
        if me.epoch == JOINING or self._tells_all:
            asked.rebalance_timeout_ms = self.rebalance_ms
            asked.subscribed_topic_names = self.topics
            asked.topic_partitions = self._rows()
        topics = list(self.topics)
        sent = now()
        answer = await self._ask(asked)
        if answer is None:
            return
        code = answer.error_code
        if code != 0:
            self._refused(code)
            return
        self._tells_all = False
        me.certain_until = sent + min(SESSION_SECONDS, self.rebalance_ms / 1000)
        if self.member_id and answer.member_id not in (None, self.member_id):
            self.judge.fail(f"{self.name}: {self.member_id} is called {answer.member_id}")
        self.member_id = answer.member_id or self.member_id
        self.group.has_epoch(me, answer.member_epoch)
        if answer.assignment is not None:
            self._take(answer.assignment, topics)
        self._commits.beats()

    def _take(self, assignment: Any, topics: list[str]) -> None:
        """What it owns from now on."""
        me = self.me
        ids = {self.world.topics[name].topic_id: name for name in self.world.topics}
        given = [
            (ids.get(bytes(topic.topic_id), "?"), number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        ]
        subscribed = [(name, number) for name in topics for number in range(self.world.topics[name].partitions)]
        before = set(me.owned)
        self.group.assigned(me, given, subscribed, self.world.loop.time())
        if me.owned != before:
            # What it has given back others wait for.
            self._tells_all = True

    def _rows(self) -> list[Any]:
        by_topic: dict[str, list[int]] = {}
        for name, number in sorted(self.me.owned):
            by_topic.setdefault(name, []).append(number)
        row = wire.ConsumerGroupHeartbeatRequest.TopicPartitions
        return [
            row(topic_id=self.world.topics[name].topic_id, partitions=numbers) for name, numbers in by_topic.items()
        ]

    def may_be_gone(self) -> bool:
        """Whether the group may know it no more, or in another epoch."""
        is_certain = self.world.loop.time() < self.me.certain_until and self.me.epoch > 0
        return self.world.fails or self._has_lost or not is_certain

    def _refused(self, code: int) -> None:
        may_be_gone = self.may_be_gone()
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and self.instance_id is not None:
            may_be_gone = True
        elif code not in GONE:
            may_be_gone = False
        if not may_be_gone:
            self.judge.fail(f"{self.name}: a heartbeat answers {ErrorCode(code).name}")
        self._begins_anew()


async def judge_ending(world: World, group: Ownership) -> None:
    """In the end: two members have all partitions between them, within a while."""
    for each in group.owners:
        each.ends()
    members = [Consumer(world, f"{group.name}-end-{number}", group, 0) for number in range(2)]
    for each in members:
        each.topics, each.instance_id = list(world.topics), None
    wanted: set[Partition] = {
        (topic.name, number) for topic in world.topics.values() for number in range(topic.partitions)
    }
    until = world.loop.time() + STABLE_WITHIN_SECONDS
    while members[0].me.owned | members[1].me.owned != wanted or members[0].me.owned & members[1].me.owned:
        for each in members:
            await each.heartbeat()
        await asyncio.sleep(SESSION_SECONDS / 10)
        if world.loop.time() > until:
            world.judge.fail(f"{group.name} is not stable: {[sorted(each.me.owned) for each in members]} of {wanted}")
    while not await members[0].look():
        if world.loop.time() > until:
            world.judge.fail(f"{group.name} cannot be asked for its offsets")
    for each in members:
        await each.leave()
