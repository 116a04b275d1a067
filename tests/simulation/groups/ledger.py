"""What is known of a classic group, and what each answer to its members may say given that.

Generations  have one leader and one protocol, and never go back.  One whose assignment was handed out is stored, and
             outlives its coordinator; one that only formed is forgotten with it, and its number is used again
Assignments  are those that the leader of that generation sent, to the member that they are for
Offsets      that were acknowledged are there, and members of an older generation commit none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.judge import Judge, Partition

NOTHING = -1
UUID_LETTERS = 37
"""What a member's id has behind the client's or the instance's."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a leader sends for a member, as text."""

    generation: int
    leader: str
    member: str
    partitions: tuple[int, ...]

    def encoded(self) -> bytes:
        numbers = ",".join(map(str, self.partitions))
        return f"{self.generation}|{self.leader}|{self.member}|{numbers}".encode()

    @staticmethod
    def decoded(data: bytes) -> Assignment:
        """ValueError for what no leader sent."""
        generation, leader, member, numbers = data.decode().split("|")
        return Assignment(int(generation), leader, member, tuple(int(each) for each in numbers.split(",") if each))


class ClassicGroup:
    """One group; `fails`: its coordinator may be replaced, or started again."""

    def __init__(self, name: str, topic: str, judge: Judge, *, fails: bool) -> None:
        self.name = name
        self.topic = topic
        self.fails = fails
        self.longest_seconds = 0.0
        """The longest rebalance timeout of its members."""
        self.top = NOTHING
        """The highest generation that nobody may go behind."""
        self._metadata: dict[str, set[bytes]] = {}
        """What each client has sent."""
        self._clients: dict[str, str] = {}
        self._judge = judge
        self._leaders: dict[int, str] = {}
        self._protocols: dict[int, str] = {}
        self._handed_out: dict[int, str] = {}
        self.static: set[str] = set()
        """The instance ids of its static members."""
        self._offset = 0
        self.floors: dict[Partition, int] = {}
        self._in_doubt: dict[Partition, set[int]] = {}
        self._sent: dict[Partition, int] = {}

    # Members

    def sends_metadata(self, client: str, member_id: str, metadata: bytes) -> None:
        """JoinGroup is about to be sent."""
        self._metadata.setdefault(client, set()).add(metadata)
        if member_id:
            self._clients[member_id] = client

    def is_known_as(self, member_id: str, client: str) -> None:
        """A member was given an id."""
        self._clients[member_id] = client

    def _who(self, member_id: str) -> str:
        """A static member is the same under each of its ids, which begin with its own."""
        instance_id = member_id[:-UUID_LETTERS]
        return instance_id if instance_id in self.static else member_id

    def joined(
        self, who: str, floor: int, generation: int, leader: str, protocol: str, members: Iterable[tuple[str, bytes]]
    ) -> None:
        """JoinGroup was answered; `floor` was `top` when it was sent."""
        if generation < floor or generation <= 0:
            self._judge.fail(f"{who}: {self.name} is at generation {generation}, and was at {floor}")
        if self.fails and generation > self.top:
            # It may be formed anew, by another coordinator.
            self._leaders[generation], self._protocols[generation] = leader, protocol
        else:
            before = self._leaders.setdefault(generation, leader)
            if self._who(before) != self._who(leader):
                self._judge.fail(f"{who}: {leader} leads generation {generation} of {self.name}, and {before} did")
            chosen = self._protocols.setdefault(generation, protocol)
            if chosen != protocol:
                self._judge.fail(f"{who}: generation {generation} of {self.name} has {protocol}, and {chosen} before")
        for member_id, metadata in members:
            # The leader may hear of members before they know their ids.
            client = self._clients.get(member_id, metadata.decode().partition("/")[0])
            if metadata not in self._metadata.get(client, ()):
                self._judge.fail(f"{who}: {member_id} of {self.name} is said to have sent {metadata!r}")
        if not self.fails:
            self.top = max(self.top, generation)

    def synced(self, who: str, member_id: str, generation: int, data: bytes) -> Assignment:
        """SyncGroup was answered in a generation."""
        try:
            found = Assignment.decoded(data)
        except ValueError:
            self._judge.fail(f"{who}: {self.name} assigns {data!r} in generation {generation}")
        if found.generation != generation or self._who(found.member) != self._who(member_id):
            self._judge.fail(f"{who}: {member_id} of generation {generation} of {self.name} is assigned {data!r}")
        leader = self._handed_out.setdefault(generation, found.leader)
        if leader != found.leader:
            self._judge.fail(
                f"{who}: in generation {generation} of {self.name} both {leader} and {found.leader} have assigned"
            )
        self.top = max(self.top, generation)
        return found

    # Offsets

    def sends_offset(self, partition: Partition) -> int:
        """An offset is about to be committed."""
        self._offset += 1
        self._sent[partition] = self._offset
        return self._offset

    def lost_offset(self, partition: Partition, offset: int) -> None:
        """It is not known whether it is committed; it may be later on, too."""
        self._in_doubt.setdefault(partition, set()).add(offset)

    def committed(self, who: str, partition: Partition, offset: int, generation: int, top: int) -> None:
        """OffsetCommit of a member was acknowledged; `top` as when it was sent."""
        if generation < top:
            self._judge.fail(f"{who}: a member of generation {generation} of {self.name} commits after {top}")
        self.floors[partition] = max(self.floors.get(partition, NOTHING), offset)

    def found(self, who: str, partition: Partition, offset: int, floor: int) -> None:
        """OffsetFetch says what is committed; `floor` is what was acknowledged before it was sent."""
        if offset < floor and offset not in self._in_doubt.get(partition, ()):
            self._judge.fail(f"{who}: {partition} of {self.name} is committed at {offset}, and was at {floor}")
        if offset > self._sent.get(partition, NOTHING):
            self._judge.fail(f"{who}: {partition} of {self.name} is committed at {offset}, which nobody sent")
