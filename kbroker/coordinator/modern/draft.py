"""What an operation on a group of a newer kind wants: records to write, and what follows once they are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.plan import KeyValue


class TimerChange(NamedTuple):
    """Set or cancel (`delay_ms` None) a timer: a member's, or the group's (`member_id` empty).  A timer for a rebalance
    counts only in `member_epoch`; `if_absent` leaves one that runs as it is.  `kind`: of the kind's own enum."""

    kind: Enum
    member_id: str
    delay_ms: int | None
    member_epoch: int = 0
    if_absent: bool = False


@dataclass(slots=True)
class ModernDraft:
    """See the module's docstring.  `rebalanced`: why the group has a new epoch."""

    records: list[KeyValue] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    rebalanced: str | None = None

    @property
    def changes_what_is_known(self) -> bool:
        """Whether something follows for what this broker alone knows of the group, besides timers."""
        return False

    def set_timer(self, kind: Enum, member_id: str, delay_ms: int, member_epoch: int = 0) -> None:
        """Have a timer set once the records are written."""
        self.timers.append(TimerChange(kind, member_id, delay_ms, member_epoch))

    def cancel_timer(self, kind: Enum, member_id: str) -> None:
        """Have a timer cancelled once the records are written."""
        self.timers.append(TimerChange(kind, member_id, None))
