"""Committed offsets of one group.

`OffsetTable` maps topic and partition to the newest `CommittedOffset`.  Offsets of an undecided transaction are kept
aside by producer id until its marker arrives.  They cannot be fetched and never expire, and an OffsetFetch with
`require_stable` gets UNSTABLE_OFFSET_COMMIT for their partitions.

Of two commits of one partition the later record wins, even if the earlier one's transaction ends after it.  Kafka
decides by the offset of the record, too, and so does compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbroker._fast.base.build_facts import CHECKED
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """`expire_timestamp` is -1 unless an old client asked for a retention time of its own."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = NO_EXPIRY
    topic_id: bytes = ZERO_UUID


class PendingOffset(NamedTuple):
    """An offset of an open transaction; `committed` is None once a later commit has superseded it."""

    number: int
    committed: CommittedOffset | None


class OffsetTable:
    """The offsets of one group."""

    __slots__ = ("topics", "pending", "_written")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CommittedOffset]] = {}
        self.pending: dict[int, dict[tuple[str, int], PendingOffset]] = {}
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self.topics or self.pending)

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.topics.values())

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def places(self) -> dict[tuple[str, int], None]:
        """Every topic and partition of which anything is stored, be it committed or of an open transaction."""
        places = dict.fromkeys((topic, partition) for topic, partition, _ in self)
        for pending in self.pending.values():
            places.update(dict.fromkeys(pending))
        return places

    def places_of(self, topics: frozenset[str]) -> list[tuple[str, int]]:
        """The same for some topics."""
        if topics.isdisjoint(self.topics) and not self.pending:
            return []
        return [place for place in self.places() if place[0] in topics]

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset, or None."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Commit an offset, which is the newest."""
        self.put_all(((topic, partition, committed),))

    def put_all(self, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> None:
        """Commit offsets, which are the newest."""
        topics = self.topics
        for topic, partition, committed in offsets:
            if self.pending:
                self._supersede(topic, partition, self._written)
            # `setdefault` would make a dictionary for each offset, and most topics are known.
            partitions = topics.get(topic)
            if partitions is None:
                partitions = topics[topic] = {}
            partitions[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Forget an offset, pending ones included: a tombstone means that it is not wanted any more."""
        partitions = self.topics.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.topics[topic]
        for producer_id, offsets in list(self.pending.items()):
            offsets.pop((topic, partition), None)
            if not offsets:
                del self.pending[producer_id]
        assert self.get(topic, partition) is None and not self.has_pending(topic, partition), (topic, partition)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError where a topic or a transaction is kept without offsets, or one is numbered twice."""
        assert all(self.topics.values()) and all(self.pending.values()), (self.topics, self.pending)
        numbers = [each.number for offsets in self.pending.values() for each in offsets.values()]
        assert len(numbers) == len(set(numbers)) and max(numbers, default=0) <= self._written, numbers

    def has_pending(self, topic: str, partition: int) -> bool:
        """Whether an undecided transaction has written this offset."""
        if not self.pending:
            return False
        return any((topic, partition) in offsets for offsets in self.pending.values())

    def put_pending(self, producer_id: int, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Keep an offset until the transaction of `producer_id` is decided."""
        self._written += 1
        self.pending.setdefault(producer_id, {})[topic, partition] = PendingOffset(self._written, committed)

    def decide(self, producer_id: int, committed: bool) -> None:
        """The transaction of `producer_id` ended: its offsets count, or never were."""
        offsets = self.pending.pop(producer_id, {})
        if committed:
            for (topic, partition), offset in offsets.items():
                if offset.committed is not None:
                    self._supersede(topic, partition, offset.number)
                    self.topics.setdefault(topic, {})[partition] = offset.committed
        if CHECKED:
            self.check_invariants()

    def _supersede(self, topic: str, partition: int, number: int) -> None:
        """Pending offsets with a lower number are superseded, whether their transactions commit or abort."""
        for offsets in self.pending.values():
            pending = offsets.get((topic, partition))
            if pending is not None and pending.number <= number and pending.committed is not None:
                offsets[topic, partition] = PendingOffset(pending.number, None)
