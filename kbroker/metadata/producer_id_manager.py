"""Hands out producer ids, each one once in the life of the cluster.

Ids come from the controller in blocks, so that a crash wastes at most one block and the hot path writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kbroker.metadata.store import ProducerIdBlock


class ProducerIdManager:
    """The next id of the current block; a new block, from `allocate`, when it is used up."""

    __slots__ = ("_allocate", "_end", "_fetching", "_next")

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._fetching = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def next_id(self) -> int:
        """A producer id that was never handed out.  The controller's error when no block can be had."""
        while self._next >= self._end:
            async with self._fetching:
                if self._next >= self._end:
                    first_id, length = await self._allocate()
                    self._next, self._end = first_id, first_id + length
        producer_id = self._next
        self._next += 1
        return producer_id
