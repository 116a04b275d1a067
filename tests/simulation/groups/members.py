"""Model members of classic groups, of old and new versions, some static: they join, are assigned, commit, leave, die,
and come back."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.simulation.client import Client
from tests.simulation.connection import WAKE_SECONDS
from tests.simulation.coordination import MOVED, NOT_HERE, OF_GROUP, SERVED_WITHIN_SECONDS, Coordinator
from tests.simulation.groups.ledger import Assignment, ClassicGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.judge import Partition
    from tests.simulation.world import World

PROTOCOL_TYPE = "model"
FIRST_LEAVE_OF_SEVERAL = 3
FETCH_VERSION = 5
FORMING_SECONDS = WAKE_SECONDS + 10.0
"""What a rebalance may take beyond its timeout: the wait for a first one's members, a coordinator's load and writes."""
OUT_OF_STEP = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


@dataclass(frozen=True, slots=True)
class Versions:
    """Of the requests of one member."""

    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int

    @staticmethod
    def drawn(rng: random.Random, *, static: bool) -> Versions:
        if static:
            return Versions(
                rng.choice((5, 6, 7, 8, 9)),
                rng.choice((3, 4, 5)),
                rng.choice((3, 4)),
                rng.choice((3, 4, 5)),
                rng.choice((7, 8, 9)),
            )
        return Versions(
            rng.randint(0, 9),
            rng.randint(0, 5),
            rng.randint(0, 4),
            rng.randint(0, 5),
            rng.choice((2, 3, 5, 6, 7, 8, 9)),
        )


class Step(Enum):
    """What comes next in the life of a member."""

    JOIN = 0
    SYNC = 1
    WORK = 2


class Member(Client):
    """A member for so many turns, in several lives."""

    def __init__(self, world: World, name: str, group: ClassicGroup, turns: int) -> None:
        super().__init__(world, name)
        rng = self.rng
        self.group = group
        self.turns = turns
        self.instance_id = name if rng.random() < 0.3 else None
        if self.instance_id is not None:
            group.static.add(self.instance_id)
        self.versions = Versions.drawn(rng, static=self.instance_id is not None)
        self.session_ms = rng.choice((300, 1000, 6000))
        self.rebalance_ms = self.session_ms if self.versions.join == 0 else rng.choice((500, 2000, 10_000))
        group.longest_seconds = max(group.longest_seconds, self.rebalance_ms / 1000)
        self._coordinator = Coordinator(self, group.name, OF_GROUP)
        self._member_id = ""
        self._generation = -1
        self._protocol = ""
        self._is_leader = False
        self._members: list[str] = []
        self._assigned: list[Partition] = []
        self._old_generation = -1
        self._seen_until = 0.0
        self._stays_until = 0.0
        self._has_lost = False
        """Whether a request was lost: what became of it the group alone knows."""
        self._joins = 0

    async def run(self) -> None:
        rng, step = self.rng, Step.JOIN
        while self.turns > 0:
            self.turns -= 1
            if step is Step.JOIN:
                step = await self._join()
            elif step is Step.SYNC:
                step = await self._sync()
            else:
                step = await self._work()
            if step is Step.WORK:
                await asyncio.sleep(self.session_ms / 1000 * rng.uniform(0.02, 0.4))
                if rng.random() < 0.05:
                    await self._end()
                    step = Step.JOIN
        await self._end()
        self._coordinator.lose()

    async def _end(self) -> None:
        """Leave, or die, and perhaps come back as somebody else."""
        if self.rng.random() < 0.5 and self._member_id:
            await self._leave()
        else:
            self._coordinator.lose()
        self._forgets_itself()
        await asyncio.sleep(self.rng.choice((0.0, 0.1, 1.0)) * self.rng.random())

    def _forgets_itself(self) -> None:
        self._member_id, self._generation, self._old_generation = "", -1, -1

    # Requests

    async def _ask(
        self, request: Any, version: int, code_of: Callable[[Any], int], allowed_seconds: float = 30.0
    ) -> tuple[Any, int]:
        """The answer of whoever coordinates, and its error; None and NOT_COORDINATOR where there is none."""
        sent = self.world.loop.time()
        answer = await self._coordinator.ask(request, version, allowed_seconds=allowed_seconds)
        code = ErrorCode.NOT_COORDINATOR if answer is None else code_of(answer)
        if answer is None:
            self._has_lost = True
        if code in MOVED:
            self._coordinator.lose()
        if code in NOT_HERE:
            await self.try_later()
        elif code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            if request.api_key != ApiKey.SYNC_GROUP:
                # A member that asks for its assignment late is to say that it is there all the same.
                self._seen_until = sent + self.session_ms / 1000
            if request.api_key != ApiKey.OFFSET_COMMIT:
                # Offsets are taken while others join, too.
                self._stays_until = sent + self.rebalance_ms / 1000
        elif code == ErrorCode.REBALANCE_IN_PROGRESS and request.api_key == ApiKey.HEARTBEAT:
            # Neither a commit nor SyncGroup that comes while others join is a sign of life, in Kafka as here.
            self._seen_until = sent + self.session_ms / 1000
        return answer, code

    def _is_out(self, code: int, what: str, step: Step) -> Step:
        """What follows from an error; the judge fails where there is no reason for it."""
        world = self.world
        if code in NOT_HERE:
            return step
        if code in GONE:
            too_soon = world.loop.time() < min(self._seen_until, self._stays_until)
            if too_soon and not (self.group.fails or self._has_lost):
                self.judge.fail(f"{self.name}: {what} answers {ErrorCode(code).name} to a member in good standing")
            self._forgets_itself()
            return Step.JOIN
        if code in OUT_OF_STEP:
            may_be_behind = self.group.fails or self._has_lost or self.instance_id is not None
            if code == ErrorCode.ILLEGAL_GENERATION and not may_be_behind:
                self.judge.fail(f"{self.name}: {what} answers ILLEGAL_GENERATION, and it was in all of them")
            return Step.JOIN
        return self.judge.fail(f"{self.name}: {what} answers {ErrorCode(code).name}")

    # Steps

    async def _join(self) -> Step:
        request = wire.JoinGroupRequest
        group, version = self.group, self.versions.join
        self._joins += 1
        metadata = f"{self.name}/{self._joins if self.rng.random() < 0.3 else 0}".encode()
        # All support both: of a member that it has read a coordinator knows the protocol alone that was chosen.
        names = ["a", "b"] if self.rng.random() < 0.7 else ["b", "a"]
        asked = request(
            group_id=group.name,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[request.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
        )
        group.sends_metadata(self.name, self._member_id, metadata)
        floor = group.top
        answer, code = await self._ask(
            asked, version, lambda answer: int(answer.error_code), group.longest_seconds + FORMING_SECONDS
        )
        if code == ErrorCode.MEMBER_ID_REQUIRED and not self._member_id and self.instance_id is None:
            self._member_id = answer.member_id
            group.is_known_as(answer.member_id, self.name)
            return Step.JOIN
        if code != 0:
            return self._is_out(code, "JoinGroup", Step.JOIN)
        group.is_known_as(answer.member_id, self.name)
        if self._generation >= 0:
            self._old_generation = self._generation
        self._member_id, self._generation = answer.member_id, answer.generation_id
        self._protocol = answer.protocol_name
        self._is_leader = bool(answer.members) and not answer.skip_assignment
        self._members = [each.member_id for each in answer.members]
        members = [(each.member_id, bytes(each.metadata)) for each in answer.members]
        group.joined(self.name, floor, answer.generation_id, answer.leader, answer.protocol_name, members)
        if answer.members and answer.leader != answer.member_id:
            self.judge.fail(f"{self.name}: {answer.leader} leads, and {answer.member_id} is told the members")
        return Step.SYNC

    async def _sync(self) -> Step:
        request = wire.SyncGroupRequest
        group, version = self.group, self.versions.sync
        rows = [
            request.SyncGroupRequestAssignment(member_id=each.member, assignment=each.encoded())
            for each in (self._shares() if self._is_leader else ())
        ]
        asked = request(
            group_id=group.name,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=rows,
        )
        generation = self._generation
        if self.rng.random() < 0.05:
            await asyncio.sleep(self.rebalance_ms / 1000 * self.rng.uniform(0.1, 1.5))
        answer, code = await self._ask(
            asked, version, lambda answer: int(answer.error_code), group.longest_seconds + FORMING_SECONDS
        )
        if code != 0:
            return self._is_out(code, "SyncGroup", Step.SYNC)
        found = group.synced(self.name, self._member_id, generation, bytes(answer.assignment))
        self._assigned = [(group.topic, number) for number in found.partitions]
        return Step.WORK

    def _shares(self) -> list[Assignment]:
        """The partitions, one member after the other."""
        count = self.world.topics[self.group.topic].partitions
        members = sorted(self._members)
        return [
            Assignment(self._generation, self._member_id, member, tuple(range(number, count, len(members))))
            for number, member in enumerate(members)
        ]

    async def _work(self) -> Step:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5:
            return await self._heartbeat()
        if kind < 0.8 and self._assigned:
            is_old = self._old_generation >= 0 and rng.random() < 0.2
            return await self._commit(self._old_generation if is_old else self._generation)
        await look(self, self._coordinator, self.group)
        return Step.WORK

    async def _heartbeat(self) -> Step:
        request = wire.HeartbeatRequest(
            group_id=self.group.name,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        top = self.group.top
        _, code = await self._ask(request, self.versions.heartbeat, lambda answer: int(answer.error_code))
        if code == 0 and self._generation < top and not self.group.fails:
            self.judge.fail(f"{self.name}: generation {self._generation} of {self.group.name} lives on behind {top}")
        return Step.WORK if code == 0 else self._is_out(code, "Heartbeat", Step.WORK)

    async def _commit(self, generation: int) -> Step:
        """Commit as a member of a generation, at times one that is over."""
        request = wire.OffsetCommitRequest
        group = self.group
        partition = self.rng.choice(self._assigned)
        top, offset = group.top, group.sends_offset(partition)
        row = request.OffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=""
        )
        asked = request(
            group_id=group.name,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[request.OffsetCommitRequestTopic(name=partition[0], partitions=[row])],
        )
        _, code = await self._ask(
            asked, self.versions.commit, lambda answer: int(answer.topics[0].partitions[0].error_code)
        )
        if code == 0:
            group.committed(self.name, partition, offset, generation, top)
            return Step.WORK
        if code in NOT_HERE:
            group.lost_offset(partition, offset)
        if generation != self._generation and code in OUT_OF_STEP:
            return Step.WORK
        return self._is_out(code, "OffsetCommit", Step.WORK)

    async def _leave(self) -> None:
        request = wire.LeaveGroupRequest
        if self.versions.leave < FIRST_LEAVE_OF_SEVERAL:
            asked = request(group_id=self.group.name, member_id=self._member_id)
        else:
            row = request.MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
            asked = request(group_id=self.group.name, members=[row])

        def code_of(answer: Any) -> int:
            return int(answer.error_code or (answer.members[0].error_code if answer.members else 0))

        until = self.world.loop.time() + SERVED_WITHIN_SECONDS
        while self.world.loop.time() < until:
            _, code = await self._ask(asked, self.versions.leave, code_of)
            if code not in NOT_HERE:
                break
        else:
            self.judge.fail(f"{self.name}: it cannot leave {self.group.name} for {SERVED_WITHIN_SECONDS} s")
        if code != 0:
            self._is_out(code, "LeaveGroup", Step.JOIN)


async def look(client: Client, coordinator: Coordinator, group: ClassicGroup) -> bool:
    """Ask what is committed, and have that judged; False: the coordinator cannot say now."""
    request = wire.OffsetFetchRequest
    numbers = list(range(client.world.topics[group.topic].partitions))
    floors = dict(group.floors)
    topics = [request.OffsetFetchRequestTopic(name=group.topic, partition_indexes=numbers)]
    answer = await coordinator.ask(request(group_id=group.name, topics=topics), FETCH_VERSION)
    if answer is None or answer.error_code in NOT_HERE:
        coordinator.lose()
        await client.try_later()
        return False
    if answer.error_code != 0:
        client.judge.fail(f"{client.name}: {group.name} is asked for its offsets: {answer}")
    for row in answer.topics[0].partitions:
        partition = (group.topic, row.partition_index)
        group.found(client.name, partition, row.committed_offset, floors.get(partition, -1))
    return True


async def judge_ending(world: World, group: ClassicGroup) -> None:
    """In the end: what members have committed is there."""
    client = Client(world, f"{group.name}-end")
    coordinator = Coordinator(client, group.name, OF_GROUP)
    until = world.loop.time() + SERVED_WITHIN_SECONDS
    while not await look(client, coordinator, group):
        if world.loop.time() > until:
            world.judge.fail(f"{group.name} cannot be asked for its offsets")
    coordinator.lose()
