"""What a broker's controller has done, over all of its terms, and what it knows of the cluster while it has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage

NO_CONTROLLER_STATE = "none"


@dataclass(slots=True)
class ControllerStats:
    """Times are seconds.  `state`: of the term, `none` without one; `partitions()`: all that are not being deleted."""

    state: str = NO_CONTROLLER_STATE
    leader_elections: int = 0
    unclean_elections: int = 0
    busy_seconds: float = 0.0
    longest_wait_seconds: float = 0.0
    changes: dict[str, int] = field(default_factory=dict)
    partitions: Callable[[], Iterable[PartitionImage]] | None = None

    def begin(self, partitions: Callable[[], Iterable[PartitionImage]]) -> None:
        """The broker was elected."""
        self.state = "taking_over"
        self.longest_wait_seconds = 0.0
        self.partitions = partitions

    def done(self, kind: str, waited: float, busy: float) -> None:
        """A change was dealt with, after it had waited."""
        self.changes[kind] = self.changes.get(kind, 0) + 1
        self.busy_seconds += busy
        self.longest_wait_seconds = max(self.longest_wait_seconds, waited)

    def end(self) -> None:
        """The broker is not the controller any more."""
        self.state = NO_CONTROLLER_STATE
        self.partitions = None
