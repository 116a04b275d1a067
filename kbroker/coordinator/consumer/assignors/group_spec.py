"""What an assignor is given and what it gives back: values only, so it may run on any thread.

    Assignment   partitions by topic id; a topic without partitions is left out
    MemberSpec   one member: the topics that it subscribes to, and its target assignment of now
    GroupSpec    all members, by id, and how many partitions each topic has

A group is homogeneous when all members subscribe to the same topics.  Members and topics are looked at in the order of
their ids, so equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Assignment = Mapping[bytes, frozenset[int]]
NOTHING: Assignment = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """`topics` holds ids of topics that exist."""

    topics: frozenset[bytes]
    target: Assignment = field(default_factory=lambda: NOTHING)
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`partition_counts` has every topic that a member subscribes to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool


Assign = Callable[[GroupSpec], dict[str, Assignment]]


def freeze(assignment: Mapping[bytes, set[int]]) -> Assignment:
    """An assignment that does not change any more, without empty topics."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items() if partitions}
