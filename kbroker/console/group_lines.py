"""All groups, as the list of them shows each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.base.slices import Pace

if TYPE_CHECKING:
    from kbroker.coordinator.classic.group import Group
    from kbroker.coordinator.classic.messages import ListedGroup
    from kbroker.metrics.snapshot import GroupRow

SHARE, CLASSIC = "share", "classic"


class Standing(NamedTuple):
    """What groups of all kinds have in common."""

    state: str
    group_type: str
    member_count: int


def standing_of(group: Group) -> Standing:
    """Of one group."""
    kind = group.kind
    if kind is None:
        return Standing(group.state.value, CLASSIC, len(group.members))
    return Standing(kind.state_name, kind.group_type, kind.member_count)


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in the list.  `lag` sums over the partitions that it reads; None where it is not known."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    member_count: int
    lag: int | None


async def group_lines(groups: Iterable[ListedGroup], rows: Mapping[str, GroupRow], pace: Pace) -> list[GroupLine]:
    """A line for each group.  Where a share group stands is known to its share coordinator alone, so it has no lag."""
    lines = []
    for group_id, protocol_type, state, group_type in groups:
        await pace
        row = rows.get(group_id)
        count, lag = (0, None) if row is None else (row.member_count, row.lag)
        lines.append(GroupLine(group_id, group_type, protocol_type, state, count, None if group_type == SHARE else lag))
    return lines
