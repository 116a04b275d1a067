"""Hands out producer ids, each one once in the life of the cluster.

Ids come from the controller in blocks, so that a crash wastes at most one block and the hot path writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kbroker.errors import again, bare
from kbroker.metadata.store import ProducerIdBlock


class ProducerIdManager:
    """The next id of the current block; a new block, from `allocate`, when it is used up.

    All who wait for a block share one request, and its failure: in turn they would each wait for a controller that is
    away.
    """

    __slots__ = ("_allocate", "_end", "_is_fetching", "_next", "_waiting")

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._is_fetching = False
        self._waiting: list[asyncio.Future[None]] = []
        self._next = 0
        self._end = 0

    async def next_id(self) -> int:
        """A producer id that was never handed out.  The controller's error when no block can be had."""
        while self._next >= self._end:
            if self._is_fetching:
                await self._next_block()
            else:
                await self._fetch()
        producer_id = self._next
        self._next += 1
        return producer_id

    def _next_block(self) -> asyncio.Future[None]:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    async def _fetch(self) -> None:
        self._is_fetching = True
        failure: Exception | None = None
        try:
            first_id, length = await self._allocate()
            self._next, self._end = first_id, first_id + length
        except Exception as error:
            failure = bare(again(error))
            raise
        finally:
            self._is_fetching = False
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if each.done():
                    continue
                if failure is None:
                    # There are ids, or who asked for all has gone, and the next one asks again.
                    each.set_result(None)
                else:
                    each.set_exception(again(failure))
