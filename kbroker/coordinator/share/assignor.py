"""Kafka's assignor `simple` for share groups: which members read which partitions; pure, sticky, balanced.

Every partition has a member, and every member a partition if its topics have any.  With fewer members than partitions
no partition has two; with more members the surplus is spread over the partitions evenly, since records of one partition
may go to many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TopicPartitionId = tuple[bytes, int]
Assignment = frozenset[TopicPartitionId]
MOST_PASSES = 8


def assign(
    subscriptions: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, Sequence[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Partitions by member.  `partitions` may lack topics that do not exist; `current` those of before.

    A member may get more partitions than it keeps in the next round.  The round is therefore repeated until nothing
    moves, seldom more than once."""
    given: dict[str, Assignment] = {}
    for _ in range(MOST_PASSES):
        given = _pass(subscriptions, partitions, current)
        if given == current:
            break
        current = given
    return given


def _pass(
    subscriptions: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, Sequence[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    work = _Assigning(subscriptions, partitions, current)
    work.keep()
    work.give_to_few()
    work.give_to_idle()
    work.check()
    return {member: frozenset(given) for member, given in work.given.items()}


class _Assigning:
    """One assignment on its way."""

    def __init__(
        self,
        subscriptions: Mapping[str, frozenset[bytes]],
        partitions: Mapping[bytes, Sequence[int]],
        current: Mapping[str, Assignment],
    ) -> None:
        self._subscriptions = subscriptions
        self._current = current
        self._members = sorted(subscriptions)
        self._subscribers: dict[bytes, list[str]] = {}
        for member in self._members:
            for topic in sorted(subscriptions[member]):
                if partitions.get(topic):
                    self._subscribers.setdefault(topic, []).append(member)
        self._partitions = [
            (topic, index) for topic in sorted(self._subscribers) for index in sorted(partitions[topic])
        ]
        self._owners: dict[TopicPartitionId, list[str]] = {each: [] for each in self._partitions}
        self._fair = {
            member: _fair_share(subscriptions[member], partitions, self._subscribers) for member in self._members
        }
        self.given: dict[str, set[TopicPartitionId]] = {member: set() for member in self._members}

    def keep(self) -> None:
        """One member keeps what it has, up to its fair share."""
        for member in self._members:
            for each in sorted(self._current.get(member, ())):
                free = each in self._owners and not self._owners[each] and each[0] in self._subscriptions[member]
                if free and len(self.given[member]) < self._fair[member]:
                    self._give(each, member)

    def give_to_few(self) -> None:
        """What has no member goes to one of those with the fewest partitions, before others to one that had it."""
        for each in self._partitions:
            if not self._owners[each]:
                ranked = [(self._rank(member, each), member) for member in self._subscribers[each[0]]]
                self._give(each, min(ranked)[1])

    def give_to_idle(self) -> None:
        """A member without partitions shares a partition that has the fewest members, preferably one that it had
        before."""
        for member in self._members:
            if self.given[member]:
                continue
            known = self._current.get(member, frozenset())
            choices = [each for each in self._partitions if each[0] in self._subscriptions[member]]
            if choices:
                ranked = [(len(self._owners[each]), each not in known, each) for each in choices]
                self._give(min(ranked)[2], member)

    def check(self) -> None:
        """Raises AssertionError unless each partition has a member, which subscribes to its topic."""
        assert all(self._owners.values()), self._owners
        for member, given in self.given.items():
            assert {topic for topic, _ in given} <= self._subscriptions[member], (member, given)

    def _rank(self, member: str, each: TopicPartitionId) -> tuple[int, bool]:
        return len(self.given[member]), each not in self._current.get(member, ())

    def _give(self, each: TopicPartitionId, member: str) -> None:
        self._owners[each].append(member)
        self.given[member].add(each)


def _fair_share(
    topics: frozenset[bytes], partitions: Mapping[bytes, Sequence[int]], subscribers: Mapping[bytes, Sequence[str]]
) -> int:
    """How many partitions a member may keep before all others have as many."""
    share = sum(len(partitions[topic]) / len(subscribers[topic]) for topic in topics if topic in subscribers)
    return max(1, int(share))
