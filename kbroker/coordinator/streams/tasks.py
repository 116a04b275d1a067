"""Tasks of a streams group: a subtopology and a partition; a member has them in one of three roles.

Active tasks carry the epoch in which the member got them, so that a commit of an earlier owner is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# Partitions by subtopology; of active tasks that a member has, with the epoch in which it got each.
Partitions = Mapping[str, frozenset[int]]
Epochs = Mapping[str, Mapping[int, int]]
NO_PARTITIONS: Partitions = MappingProxyType({})
NO_EPOCHS: Epochs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks by role: a target assignment, or what a member says that it has."""

    active: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    standby: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    warmup: Partitions = field(default_factory=lambda: NO_PARTITIONS)

    def has_any(self, other: OwnedTasks) -> bool:
        """Whether a task is in both, in the same role."""
        return any(
            not mine.isdisjoint(theirs.get(subtopology, ()))
            for role, theirs in (
                (self.active, other.active),
                (self.standby, other.standby),
                (self.warmup, other.warmup),
            )
            for subtopology, mine in role.items()
        )

    def is_within(self, other: OwnedTasks) -> bool:
        """Whether all of them are in `other`, in the same role."""
        return all(
            subtopology in theirs and mine <= theirs[subtopology].keys()
            for subtopology, mine in self.active.items()
            for theirs in (other.active,)
        ) and all(
            subtopology in theirs and mine <= theirs[subtopology]
            for role, theirs in ((self.standby, other.standby), (self.warmup, other.warmup))
            for subtopology, mine in role.items()
        )


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """Tasks that a member has, or is to give up."""

    active: Epochs = field(default_factory=lambda: NO_EPOCHS)
    standby: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    warmup: Partitions = field(default_factory=lambda: NO_PARTITIONS)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    @property
    def active_partitions(self) -> Partitions:
        """The active tasks without epochs."""
        return {subtopology: frozenset(epochs) for subtopology, epochs in self.active.items()}

    def as_tasks(self) -> Tasks:
        """The same without epochs."""
        return Tasks(self.active_partitions, self.standby, self.warmup)

    def merged(self, other: OwnedTasks) -> OwnedTasks:
        """Both."""
        active = {subtopology: dict(epochs) for subtopology, epochs in self.active.items()}
        for subtopology, epochs in other.active.items():
            active.setdefault(subtopology, {}).update(epochs)
        return OwnedTasks(active, _joined(self.standby, other.standby), _joined(self.warmup, other.warmup))


NO_TASKS = Tasks()
NOTHING_OWNED = OwnedTasks()


def _joined(first: Partitions, second: Partitions) -> Partitions:
    names = first.keys() | second.keys()
    return {name: first.get(name, frozenset()) | second.get(name, frozenset()) for name in names}


def each_task(partitions: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    """Subtopology and partition of every task."""
    return ((subtopology, partition) for subtopology, indexes in partitions.items() for partition in indexes)
