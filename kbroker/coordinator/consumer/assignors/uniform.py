"""The assignor `uniform`: sticky, and as even as the subscriptions allow (Kafka's UniformAssignor).

Homogeneous: everybody has `partitions // members` or one more.  A member keeps what it has up to its quota, and only
what exceeds it, or is unowned, moves.

Heterogeneous: a member keeps what it still subscribes to; unowned partitions go to the least loaded subscriber, topics
with the most partitions per subscriber first; then partitions move, topic by topic, from the most to the least loaded
subscriber while they differ by two or more, in at most `BALANCE_ROUNDS` rounds over all topics.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kbroker.coordinator.consumer.assignors.group_spec import NOTHING, Assignment, GroupSpec, freeze

NAME = "uniform"
BALANCE_ROUNDS = 16
_NO_OWNER = -1


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    """The next target assignment of every member."""
    if not spec.members:
        return {}
    return _homogeneous(spec) if spec.is_homogeneous else _Heterogeneous(spec).assign()


# All members subscribe to the same topics


def _homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    member_ids = sorted(spec.members)
    topics = spec.members[member_ids[0]].topics
    if not topics:
        return dict.fromkeys(member_ids, NOTHING)
    loose = _unowned(spec, topics)
    quota, extra = divmod(sum(spec.partition_counts[topic_id] for topic_id in topics), len(member_ids))
    result: dict[str, Assignment] = {}
    hungry: list[tuple[str, int]] = []
    for index, member_id in enumerate(member_ids):
        target = spec.members[member_id].target
        room = quota + (extra > 0)
        kept, given_up = _keep(target, topics, room)
        result[member_id] = kept
        loose += given_up
        room -= sum(map(len, kept.values()))
        takes_extra = extra > 0
        if room and takes_extra and len(member_ids) - index > extra:
            # A member behind may have one too many already; the last ones must take what is left.
            room -= 1
            takes_extra = False
        extra -= takes_extra
        if room:
            hungry.append((member_id, room))
    _feed(result, hungry, loose)
    assert extra == 0 and sum(room for _, room in hungry) == len(loose), (extra, hungry, len(loose))
    return result


def _unowned(spec: GroupSpec, topics: Iterable[bytes]) -> list[tuple[bytes, int]]:
    owned: dict[bytes, set[int]] = defaultdict(set)
    for member in spec.members.values():
        for topic_id, partitions in member.target.items():
            owned[topic_id] |= partitions
    return [
        (topic_id, partition)
        for topic_id in sorted(topics)
        for partition in range(spec.partition_counts[topic_id])
        if partition not in owned[topic_id]
    ]


def _keep(target: Assignment, topics: frozenset[bytes], room: int) -> tuple[Assignment, list[tuple[bytes, int]]]:
    """What a member may keep, at most `room` partitions, and what it gives up; `target` itself where that is all."""
    if target.keys() <= topics and sum(map(len, target.values())) <= room:
        return target, []
    kept: dict[bytes, set[int]] = {}
    given_up: list[tuple[bytes, int]] = []
    for topic_id in sorted(target.keys() & topics):
        for partition in sorted(target[topic_id]):
            if room > 0:
                room -= 1
                kept.setdefault(topic_id, set()).add(partition)
            else:
                given_up.append((topic_id, partition))
    return freeze(kept), given_up


def _feed(result: dict[str, Assignment], hungry: Sequence[tuple[str, int]], loose: list[tuple[bytes, int]]) -> None:
    start = 0
    for member_id, room in hungry:
        portion = loose[start : start + room]
        start += room
        if portion:
            parts = {topic_id: set(partitions) for topic_id, partitions in result[member_id].items()}
            for topic_id, partition in portion:
                parts.setdefault(topic_id, set()).add(partition)
            result[member_id] = freeze(parts)


# Members subscribe to different topics


class _Heterogeneous:
    """Members are numbered in the order of their ids."""

    def __init__(self, spec: GroupSpec) -> None:
        self._counts = spec.partition_counts
        self._member_ids = sorted(spec.members)
        self._load = [0] * len(self._member_ids)
        self._subscribers: dict[bytes, list[int]] = defaultdict(list)
        for index, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].topics:
                self._subscribers[topic_id].append(index)
        self._owners: dict[bytes, list[int]] = {
            topic_id: [_NO_OWNER] * self._counts[topic_id] for topic_id in self._subscribers
        }
        for index, member_id in enumerate(self._member_ids):
            member = spec.members[member_id]
            for topic_id, partitions in member.target.items():
                if topic_id in member.topics:
                    self._take_over(index, topic_id, partitions)

    def _take_over(self, index: int, topic_id: bytes, partitions: Iterable[int]) -> None:
        owners = self._owners[topic_id]
        for partition in partitions:
            if partition < len(owners) and owners[partition] == _NO_OWNER:
                owners[partition] = index
                self._load[index] += 1

    def assign(self) -> dict[str, Assignment]:
        """See the module's docstring."""
        topics = sorted(self._subscribers, key=self._urgency)
        for topic_id in topics:
            self._hand_out(topic_id)
        contested = [topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1]
        quiet = 0
        for _ in range(BALANCE_ROUNDS):
            for topic_id in contested:
                # As many topics in a row without a move as there are: balanced.
                quiet = 0 if self._balance(topic_id) else quiet + 1
                if quiet >= len(contested):
                    return self._result()
        return self._result()

    def _urgency(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, topic_id

    def _by_load(self, topic_id: bytes) -> list[int]:
        return sorted(self._subscribers[topic_id], key=lambda index: (self._load[index], index))

    def _hand_out(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        if _NO_OWNER not in owners:
            return
        # Sorted, so a heap already; the place breaks ties.
        idlest = [(self._load[index], place, index) for place, index in enumerate(self._by_load(topic_id))]
        for partition, owner in enumerate(owners):
            if owner == _NO_OWNER:
                load, place, index = idlest[0]
                owners[partition] = index
                self._load[index] = load + 1
                heapq.heapreplace(idlest, (load + 1, place, index))

    def _balance(self, topic_id: bytes) -> bool:
        """Whether something moved."""
        order = self._by_load(topic_id)
        if self._load[order[-1]] - self._load[order[0]] <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = defaultdict(list)
        for partition, owner in enumerate(owners):
            owned[owner].append(partition)
        idlest = [(self._load[index], place, index) for place, index in enumerate(order)]
        busiest = [(-self._load[index], -place, index) for place, index in enumerate(order) if owned[index]]
        heapq.heapify(busiest)
        moved = False
        while busiest:
            load, place, giver = busiest[0]
            if -load != self._load[giver] or not owned[giver]:
                heapq.heappop(busiest)
                if owned[giver]:
                    heapq.heappush(busiest, (-self._load[giver], place, giver))
                continue
            least, taker_place, taker = idlest[0]
            if least != self._load[taker]:
                heapq.heapreplace(idlest, (self._load[taker], taker_place, taker))
                continue
            if -load - least <= 1:
                return moved
            owners[owned[giver].pop()] = taker
            self._load[giver] -= 1
            self._load[taker] += 1
            moved = True
        return moved

    def _result(self) -> dict[str, Assignment]:
        parts: dict[int, dict[bytes, set[int]]] = {index: {} for index in range(len(self._member_ids))}
        for topic_id, owners in self._owners.items():
            assert _NO_OWNER not in owners, f"{topic_id.hex()}: partitions that no member gets: {owners}"
            for partition, owner in enumerate(owners):
                parts[owner].setdefault(topic_id, set()).add(partition)
        return {member_id: freeze(parts[index]) for index, member_id in enumerate(self._member_ids)}
