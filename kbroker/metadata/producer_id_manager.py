"""Hands out producer ids, each one once in the life of the cluster.

Ids come from the store in blocks, so that a crash wastes at most one block and the hot path writes nothing.
"""

from __future__ import annotations

from kbroker.metadata.store import MetadataStore


class ProducerIdManager:
    """The next id of the current block; a new block when it is used up."""

    __slots__ = ("_end", "_next", "_store")

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = 0
        self._end = 0

    def next_id(self) -> int:
        """A producer id that was never handed out.  MetadataStoreError when no block can be had."""
        if self._next >= self._end:
            first_id, length = self._store.allocate_producer_id_block()
            self._next, self._end = first_id, first_id + length
        producer_id = self._next
        self._next += 1
        return producer_id
