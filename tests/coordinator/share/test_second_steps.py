"""What a share group notes before it is done at the share coordinator is done in the end, whatever comes in between.

Also of `kbroker.coordinator.share.under_way`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kbroker.coordinator.share import group_records
from kbroker.coordinator.share.heartbeat import HeartbeatAnswer, HeartbeatRequest
from kbroker.coordinator.share.share_groups import ShareGroups
from kbroker.coordinator.share.state_partitions import TopicState
from kbroker.errors import CoordinatorNotAvailableError, KafkaError
from kbroker.replication.share.persister import SharePartitionKey
from kbroker.replication.share.settings import ShareSettings
from tests.coordinator.harness import T1_ID, World, delete_topic
from tests.unbroken import UNBROKEN

RETRY_SECONDS = 30
ALL = {(T1_ID, 0), (T1_ID, 1), (T1_ID, 2)}


class States:
    """A share coordinator; `obstacle` is awaited before each of its steps."""

    def __init__(self) -> None:
        self.known: set[tuple[str, int]] = set()
        self.begun = 0
        self.obstacle: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def _pass(self) -> None:
        if self.obstacle is not None:
            await self.obstacle()

    async def initialize(self, key: SharePartitionKey, _state_epoch: int, _start_offset: int) -> None:
        self.begun += 1
        await self._pass()
        self.known.add((key.group_id, key.partition))

    async def delete(self, key: SharePartitionKey) -> None:
        await self._pass()
        self.known.discard((key.group_id, key.partition))


class Controller:
    async def ensure_internal_topic(self, _name: str) -> None:
        """It is there."""


class ShareWorld:
    """Share groups over the log of a group coordinator; `restarted` is another broker over the same log."""

    def __init__(self, world: World | None = None, states: States | None = None) -> None:
        self.world = world or World()
        self.states = states or States()
        self.groups = ShareGroups(
            self.world.coordinator.registry,
            self.states,  # type: ignore[arg-type]
            Controller(),  # type: ignore[arg-type]
            self.world.cache,
            self.world.loop,
            lambda _group_id: ShareSettings(assignment_interval_ms=0),  # type: ignore[arg-type]
            5_000,
            UNBROKEN,
            RETRY_SECONDS * 1000,
        )
        self.world.cache.subscribe(self.groups.on_metadata)

    def restarted(self) -> ShareWorld:
        world = self.world
        world.coordinator.stop()
        again = ShareWorld(World(log=world.log, start=world.loop.time, with_topic=False), self.states)
        again.world.log.ensure_topic()
        self.states.obstacle = None
        return again

    async def beat(self, member_epoch: int, member_id: str = "m", *topics: str) -> HeartbeatAnswer:
        request = HeartbeatRequest("g", member_id, member_epoch, None, topics or None, "c", "h")
        return await self.groups.heartbeat(request)

    async def leave(self) -> None:
        await self.beat(-1)

    @property
    def epoch(self) -> int:
        return self.groups.describe("g").members["m"].member_epoch

    @property
    def noted(self) -> Any:
        return self.groups.describe("g").state_partitions


async def stuck() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise CoordinatorNotAvailableError()


async def begun(task: asyncio.Task[Any], states: States) -> None:
    """Let a task go on until it waits for the share coordinator."""
    before = states.begun
    while states.begun == before and not task.done():
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_crash_in_the_first_initialization_leaves_no_group_without_partitions() -> None:
    """A share group that was joined for the first time within a moment of a crash would never be given anything."""

    async def scenario() -> None:
        before = ShareWorld()
        before.states.obstacle = stuck
        task = asyncio.ensure_future(before.beat(0, "m", "t1"))
        await begun(task, before.states)
        assert before.noted.initializing
        task.cancel()
        after = before.restarted()
        assert after.noted.initializing
        answer = await after.beat(after.epoch)
        assert answer.assignment == ALL
        assert (after.noted.initializing, set(after.noted.initialized)) == ({}, {T1_ID})
        assert after.states.known == {("g", 0), ("g", 1), ("g", 2)}

    run(scenario)


def test_a_member_that_hangs_up_while_its_states_are_made_leaves_them_to_the_next() -> None:
    """A lost connection at the wrong moment would leave a group without partitions until a restart, and after it."""

    async def scenario() -> None:
        world = ShareWorld()
        world.states.obstacle = stuck
        task = asyncio.ensure_future(world.beat(0, "m", "t1"))
        await begun(task, world.states)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        world.states.obstacle = None
        assert (await world.beat(world.epoch)).assignment == ALL

    run(scenario)


def test_what_cannot_be_noted_either_is_begun_again() -> None:
    """A group whose log refuses a record just after its share coordinator did would stay without partitions."""

    async def scenario() -> None:
        world = ShareWorld()

        async def fails_with_the_log() -> None:
            world.world.log.failure = CoordinatorNotAvailableError()
            raise CoordinatorNotAvailableError()

        world.states.obstacle = fails_with_the_log
        assert (await world.beat(0, "m", "t1")).assignment == set()
        assert world.noted.initializing
        world.world.log.failure = world.states.obstacle = None
        assert (await world.beat(world.epoch)).assignment == ALL

    run(scenario)


def test_states_that_are_being_made_are_not_made_twice_until_the_retry_is_due() -> None:
    """Each heartbeat of a large group would ask the share coordinator for everything again; or, where one hung, none
    ever would."""

    async def scenario() -> None:
        world = ShareWorld()
        world.states.obstacle = stuck
        task = asyncio.ensure_future(world.beat(0, "m", "t1"))
        await begun(task, world.states)
        assert world.states.begun == 1
        epoch = (await world.beat(0, "n", "t1")).member_epoch
        for _ in range(3):
            await world.beat(epoch, "n")
        world.world.loop.advance(RETRY_SECONDS - 1)
        await world.beat(epoch, "n")
        assert world.states.begun == 1, "it is under way"
        world.world.loop.advance(1)
        world.states.obstacle = None
        answer = await world.beat(epoch, "n")
        assert answer.assignment
        task.cancel()

    run(scenario)


@pytest.mark.parametrize("by", ["offsets", "group"])
def test_a_crash_while_states_are_deleted_is_made_good(by: str) -> None:
    """A group would go on with partitions whose state is gone, and its members never be given a record."""

    async def scenario() -> None:
        before = ShareWorld()
        await before.beat(0, "m", "t1")
        await before.leave()
        before.states.obstacle = stuck
        if by == "offsets":
            task: asyncio.Task[Any] = asyncio.ensure_future(before.groups.delete_offsets("g", T1_ID))
        else:
            task = asyncio.ensure_future(before.groups.delete_state("g"))
        while not before.noted.deleting:
            await asyncio.sleep(0)
        assert before.noted.initialized == {}
        task.cancel()
        after = before.restarted()
        assert after.noted.deleting
        after.groups.sweep()
        while after.noted.deleting:
            await asyncio.sleep(0)
        assert after.states.known == set()
        assert (await after.beat(0, "m", "t1")).assignment == ALL

    run(scenario)


def test_a_topic_is_not_begun_anew_while_its_state_of_before_is_deleted() -> None:
    """The deletion would take the new state along, and its partitions would never be delivered."""

    async def scenario() -> None:
        world = ShareWorld()
        await world.beat(0, "m", "t1")
        await world.leave()
        world.states.obstacle = fails
        with pytest.raises(KafkaError):
            await world.groups.delete_offsets("g", T1_ID)
        world.states.obstacle = None
        made = world.states.begun
        answer = await world.beat(0, "m", "t1")
        assert (answer.assignment, world.states.begun) == (set(), made)
        world.groups.sweep()
        await asyncio.sleep(0)
        assert world.noted.deleting, "it is tried again when that is due"
        world.world.loop.advance(RETRY_SECONDS)
        world.groups.sweep()
        while world.noted.deleting:
            await asyncio.sleep(0)
        assert (await world.beat(answer.member_epoch)).assignment == ALL

    run(scenario)


def test_a_failed_deletion_is_done_when_it_is_asked_for_again() -> None:
    """An administrator would be told that there is nothing to delete, and the offsets come back."""

    async def scenario() -> None:
        world = ShareWorld()
        await world.beat(0, "m", "t1")
        await world.leave()
        world.states.obstacle = fails
        with pytest.raises(KafkaError):
            await world.groups.delete_offsets("g", T1_ID)
        world.states.obstacle = None
        await world.groups.delete_offsets("g", T1_ID)
        assert (world.states.known, world.noted.deleting) == (set(), {})

    run(scenario)


def test_the_state_of_all_partitions_goes_with_a_group_those_under_way_included() -> None:
    """Partitions that were added to a topic of a group just before its deletion would keep their state for ever."""

    async def scenario() -> None:
        world = ShareWorld()
        await world.beat(0, "m", "t1")
        await world.leave()
        known = world.noted.began({T1_ID: TopicState("t1", frozenset({3}))})
        record = group_records.state_partitions_record("g", known)
        await world.groups._write("g", lambda _group, _now: (None, [record]))
        world.states.known.add(("g", 3))
        await world.groups.delete_state("g")
        assert world.states.known == set()

    run(scenario)


def test_a_topic_that_is_deleted_while_its_states_are_made_leaves_no_note() -> None:
    """The note would stay for as long as the group."""

    async def scenario() -> None:
        world = ShareWorld()
        world.states.obstacle = stuck
        task = asyncio.ensure_future(world.beat(0, "m", "t1"))
        await begun(task, world.states)
        world.states.obstacle = None
        delete_topic(world.world.cache, "t1")
        while world.noted.is_known(T1_ID):
            await asyncio.sleep(0)
        task.cancel()

    run(scenario)
