"""Who owns which partition of a consumer group (KIP-848), as far as its members know: nobody is given one that another
member may still read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.groups.register import OffsetRegister

if TYPE_CHECKING:
    from tests.simulation.judge import Judge, Partition


@dataclass(slots=True, eq=False)
class Owner:
    """A member; until `certain_until` it can be neither taken for dead nor for one that gives nothing back."""

    name: str
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    certain_until: float = 0.0

    def ends(self) -> None:
        """It reads nothing any more."""
        self.owned.clear()
        self.epoch = 0


class Ownership:
    """One group."""

    def __init__(self, name: str, judge: Judge) -> None:
        self.name = name
        self.owners: list[Owner] = []
        self.offsets = OffsetRegister(name, judge)
        self._judge = judge

    def enters(self, name: str) -> Owner:
        """One more client that may be a member."""
        made = Owner(name)
        self.owners.append(made)
        return made

    def has_epoch(self, who: Owner, epoch: int) -> None:
        """A heartbeat was answered with an epoch."""
        if epoch < who.epoch or epoch <= 0:
            self._judge.fail(f"{who.name}: its epoch in {self.name} is {epoch}, and was {who.epoch}")
        who.epoch = epoch

    def assigned(
        self, who: Owner, partitions: Iterable[Partition], subscribed: Iterable[Partition], now: float
    ) -> None:
        """A member is told what it may read; it gives back all else at once."""
        listed = list(partitions)
        given = set(listed)
        if len(given) != len(listed) or not given <= set(subscribed):
            self._judge.fail(f"{who.name}: {self.name} assigns {listed}, to one that has subscribed to {subscribed}")
        for each in sorted(given - who.owned):
            for other in self.owners:
                if other is not who and each in other.owned and now < other.certain_until:
                    self._judge.fail(f"{who.name}: {self.name} assigns {each}, which {other.name} has")
        who.owned = given
