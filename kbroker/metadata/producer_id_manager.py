"""Hands out producer ids, each one once in the life of the cluster.

Ids come from the store in blocks, so that a crash wastes at most one block and the hot path writes nothing.
"""

from __future__ import annotations

import asyncio

from kbroker.metadata.store import MetadataStore, StoreCalls


class ProducerIdManager:
    """The next id of the current block; a new block when it is used up."""

    __slots__ = ("_call", "_end", "_fetching", "_next", "_store")

    def __init__(self, store: MetadataStore, call: StoreCalls | None = None) -> None:
        self._store = store
        self._call = call or StoreCalls()
        self._fetching = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def next_id(self) -> int:
        """A producer id that was never handed out.  MetadataStoreError when no block can be had."""
        while self._next >= self._end:
            async with self._fetching:
                if self._next >= self._end:
                    first_id, length = await self._call(self._store.allocate_producer_id_block)
                    self._next, self._end = first_id, first_id + length
        producer_id = self._next
        self._next += 1
        return producer_id
