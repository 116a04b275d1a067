"""A leader whose answers a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

OURS, LEADER = 1, 2


class SpokenFor:
    """A leader: `answer(request)` is what it says."""

    def __init__(self, answer: Callable[[Any], Awaitable[Any]]) -> None:
        self.asked: list[Any] = []
        self._answer = answer

    async def send(self, request: Any, _version: int) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        return await self._answer(request)

    def close(self) -> None:
        pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


def rows_of(request: Any) -> list[Any]:
    return [row for topic in request.topics for row in topic.partitions]
