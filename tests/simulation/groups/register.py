"""The offset that a group has for a partition which several commit, as far as answers tell.

What was acknowledged before another commit was sent that is acknowledged as well is never seen again; what was refused
never is.  Of commits that were under way together either may be the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.judge import Judge, Partition

NOTHING = -1


@dataclass(slots=True)
class _Commit:
    """When it was sent, and acknowledged, counted in events of the register."""

    partition: Partition
    sent: int
    acknowledged: int | None = None
    is_over: bool = False
    """Whether it was refused, or others have come behind it."""


class OffsetRegister:
    """Of one group; each offset is committed once."""

    def __init__(self, group: str, judge: Judge) -> None:
        self.group = group
        self._judge = judge
        self._events = 0
        self._commits: dict[int, _Commit] = {}
        self._begun: set[Partition] = set()
        """Partitions that have an offset for good."""

    def sends(self, partition: Partition) -> int:
        """An offset is about to be committed."""
        self._events += 1
        offset = len(self._commits) + 1
        self._commits[offset] = _Commit(partition, self._events)
        return offset

    def refused(self, offset: int) -> None:
        """An answer says that it is not."""
        self._commits[offset].is_over = True

    def acknowledged(self, offset: int) -> None:
        """An answer says that it is."""
        self._events += 1
        found = self._commits[offset]
        found.acknowledged = self._events
        self._begun.add(found.partition)
        for each in self._commits.values():
            if each.partition == found.partition and each.acknowledged is not None and each.acknowledged < found.sent:
                each.is_over = True

    def asks(self) -> frozenset[int]:
        """OffsetFetch is about to be sent: what `found` may not have."""
        return frozenset(offset for offset, each in self._commits.items() if each.is_over)

    def has_begun(self, partition: Partition) -> bool:
        """Whether something is committed, and acknowledged."""
        return partition in self._begun

    def found(self, who: str, partition: Partition, offset: int, over: frozenset[int], *, begun: bool) -> None:
        """OffsetFetch says what is committed; `over`, `begun`: as when it was asked."""
        if offset == NOTHING and not begun:
            return
        commit = self._commits.get(offset)
        if commit is None or commit.partition != partition or offset in over:
            self._judge.fail(f"{who}: {partition} of {self.group} is committed at {offset}, which is {commit}")


__all__ = ["OffsetRegister"]
