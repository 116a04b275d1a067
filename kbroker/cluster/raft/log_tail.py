"""The end of the metadata log in memory, from which replicas that keep up are answered without a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kbroker.cluster.kraft.batches import MetadataBatch

TAIL_BYTES = 1 << 20


class LogTail:
    """The last batches, TAIL_BYTES of them and one at least."""

    __slots__ = ("_batches", "_size")

    def __init__(self) -> None:
        self._batches: deque[MetadataBatch] = deque()
        self._size = 0

    def put(self, batches: Iterable[MetadataBatch]) -> None:
        """They follow the log's end."""
        for batch in batches:
            assert not self._batches or self._batches[-1].end_offset == batch.base_offset, "a batch follows the end"
            self._batches.append(batch)
            self._size += len(batch.data)
        while self._size > TAIL_BYTES and len(self._batches) > 1:
            self._size -= len(self._batches.popleft().data)

    def cut(self, end_offset: int) -> None:
        """The log ends here now."""
        while self._batches and self._batches[-1].end_offset > end_offset:
            self._size -= len(self._batches.pop().data)

    def clear(self) -> None:
        """The log begins anew."""
        self._batches.clear()
        self._size = 0

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        """Whole batches from an offset on, `max_bytes` at most, but one at least; None where it begins later."""
        if not self._batches or offset < self._batches[0].base_offset:
            return None
        found: list[bytes] = []
        size = 0
        for batch in self._batches:
            if batch.end_offset <= offset:
                continue
            if found and size + len(batch.data) > max_bytes:
                break
            found.append(batch.data)
            size += len(batch.data)
        return b"".join(found)
