"""The states of a classic group and the moves between them.

    Empty                no members; may still hold offsets.  Also the state of a group of "simple" consumers.
    PreparingRebalance   waiting for members to (re)join.
    CompletingRebalance  a generation is formed; waiting for its leader's assignment.
    Stable               every member has, or can ask for, its assignment.
    Dead                 the group was deleted or its partition is no longer ours; nothing leads out of it.

`PREDECESSORS` is the whole machine: for each state, the states from which it may be entered.  Only
`Group.transition_to` moves a group, and it refuses every other move.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The value is the name that Kafka puts into answers."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    def __str__(self) -> str:
        return self.value


PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class IllegalTransitionError(RuntimeError):
    """A move that the table does not know: a bug in the coordinator, never a client's doing."""

    def __init__(self, group_id: str, source: GroupState, target: GroupState) -> None:
        super().__init__(f"group {group_id!r} cannot go from {source} to {target}")


def can_rebalance(state: GroupState) -> bool:
    """Whether a rebalance may start in `state`."""
    return state in PREDECESSORS[GroupState.PREPARING_REBALANCE]
