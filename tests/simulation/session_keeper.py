"""Which fetch sessions a broker keeps that has room for few (KIP-227): looked at when all other clients are through.

One that nobody has used for two minutes makes room, the longest unused first; else a smaller one that is as old does.
Where there is neither, a fetch is served without a session.  All others go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

KEEPING = 0.4
"""The share of histories of one broker with room for few sessions in which that is looked at."""
SLOTS = 3
EVICTED_SECONDS = 121.0
FETCH = 11


class SessionKeeper:
    """Opens more sessions than a broker keeps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_done = False
        self._connection: ModelConnection
        self._partitions = [(each.name, number) for each in world.topics.values() for number in range(each.partitions)]

    async def run(self) -> None:
        """Once in a history: it takes minutes."""
        world = self._world
        connection = None if self._is_done else await world.connect(1, "keeper", "keeper")
        self._is_done = True
        if connection is not None:
            connection.may_be_closed = True
            self._connection = connection
            await self._look()
            if not connection.gone:
                connection.finish(world.later)

    async def _sleep(self, seconds: float) -> None:
        self._world.standstill.sleeps_until(self._world.loop.time() + seconds)
        await asyncio.sleep(seconds)

    async def _look(self) -> None:
        await self._sleep(EVICTED_SECONDS)
        one = self._partitions[:1]
        first, second, third = [await self._open(one, is_kept=True) for _ in range(SLOTS)]
        await self._open(self._partitions[:2], is_kept=False)
        await self._sleep(EVICTED_SECONDS / 2)
        await self._open(one, is_kept=False)
        await self._goes_on(first, 1, is_kept=True)
        await self._sleep(EVICTED_SECONDS / 2 + 1)
        # The second is the longest unused, and there is no session of the two minutes but the first.
        fourth = await self._open(one, is_kept=True)
        await self._goes_on(second, 1, is_kept=False)
        await self._goes_on(first, 2, is_kept=True)
        await self._goes_on(third, 1, is_kept=True)
        await self._goes_on(fourth, 1, is_kept=True)
        if len(self._partitions) > 1:
            larger = await self._open(self._partitions[:2], is_kept=True)
            await self._goes_on(larger, 1, is_kept=True)
            await self._goes_on(fourth, 2, is_kept=True)
            left = [await self._goes_on(each, epoch, is_kept=None) for each, epoch in ((first, 3), (third, 2))]
            if sorted(left) != [False, True]:
                self._fail(f"one of two old sessions makes room for a larger one, and they go on: {left}")

    async def _open(self, partitions: list[Partition], *, is_kept: bool) -> int:
        """The id of a new session, which there has to be or not."""
        answer = await self._fetch(partitions, 0, 0)
        if bool(answer.session_id) != is_kept:
            self._fail(f"a session of {len(partitions)} partitions is {answer.session_id}, and is to be: {is_kept}")
        return int(answer.session_id)

    async def _goes_on(self, session_id: int, epoch: int, *, is_kept: bool | None) -> bool:
        """Whether a session goes on, which it has to or not; None: either is right."""
        answer = await self._fetch([], session_id, epoch)
        code = answer.error_code
        if code not in (0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND) or (is_kept is not None and (code == 0) != is_kept):
            self._fail(f"session {session_id} answers {ErrorCode(code).name}, and is to go on: {is_kept}")
        return code == 0

    async def _fetch(self, partitions: list[Partition], session_id: int, epoch: int) -> Any:
        request = wire.FetchRequest
        topics = [
            request.FetchTopic(
                topic=name, partitions=[request.FetchPartition(partition=number, partition_max_bytes=1000)]
            )
            for name, number in partitions
        ]
        answer = await self._connection.answer(
            request(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics), FETCH
        )
        if answer is None:
            self._fail("is hung up on")
        return answer

    def _fail(self, what: str) -> None:
        self._world.judge.fail(f"{self._connection.name}: {what}")


def draw_keeper(world: World) -> None:
    """The one of a history, if it has one."""
    has_few = world.scale.nodes == 1 and world.setting(1, "max.incremental.fetch.session.cache.slots") == str(SLOTS)
    if world.later.random() < KEEPING and has_few:
        world.at_end.append(SessionKeeper(world).run)


__all__ = ["SessionKeeper", "draw_keeper"]
