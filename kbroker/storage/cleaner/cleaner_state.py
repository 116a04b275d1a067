"""Who may change a partition's segments: the cleaner, or a task that has paused it.

    NONE         + grab   -> IN_PROGRESS      a worker cleans it
    NONE         + pause  -> PAUSED(1)
    IN_PROGRESS  + finish -> NONE
    IN_PROGRESS  + pause  -> ABORTED(1)       the worker stops
    ABORTED(n)   + pause  -> ABORTED(n + 1)
    ABORTED(n)   + resume -> ABORTED(n - 1)
    ABORTED(n)   + finish -> PAUSED(n)        NONE when n is 0
    PAUSED(n)    + pause  -> PAUSED(n + 1)
    PAUSED(n)    + resume -> PAUSED(n - 1)    NONE when n is 1

Anything else is a fault of the caller (IllegalTransitionError).  A task that has paused a partition may proceed at
once, before the worker notices.  The worker writes to files of its own, and only the loop swaps these in, and only in
state IN_PROGRESS.  An aborted clean is started anew later; the segments that it has swapped in stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from kbroker.types import TopicPartition


class Phase(Enum):
    NONE = "not being compacted"
    IN_PROGRESS = "being compacted"
    ABORTED = "its compaction is being stopped"
    PAUSED = "its compaction is paused"


class Event(Enum):
    GRAB = "grab"
    FINISH = "finish"
    PAUSE = "pause"
    RESUME = "resume"


# (phase, event) -> (phase, change of the pauses); NONE and PAUSED(0) are the same.
TRANSITIONS: dict[tuple[Phase, Event], tuple[Phase, int]] = {
    (Phase.NONE, Event.GRAB): (Phase.IN_PROGRESS, 0),
    (Phase.NONE, Event.PAUSE): (Phase.PAUSED, 1),
    (Phase.IN_PROGRESS, Event.FINISH): (Phase.NONE, 0),
    (Phase.IN_PROGRESS, Event.PAUSE): (Phase.ABORTED, 1),
    (Phase.ABORTED, Event.PAUSE): (Phase.ABORTED, 1),
    (Phase.ABORTED, Event.RESUME): (Phase.ABORTED, -1),
    (Phase.ABORTED, Event.FINISH): (Phase.PAUSED, 0),
    (Phase.PAUSED, Event.PAUSE): (Phase.PAUSED, 1),
    (Phase.PAUSED, Event.RESUME): (Phase.PAUSED, -1),
}


class CleaningState(NamedTuple):
    phase: Phase
    pauses: int = 0


NONE = CleaningState(Phase.NONE)


class IllegalTransitionError(RuntimeError):
    """An event that cannot happen in the state that a partition is in."""


def next_state(state: CleaningState, event: Event) -> CleaningState:
    """What follows.  IllegalTransitionError when the table has nothing."""
    found = TRANSITIONS.get((state.phase, event))
    if found is None:
        raise IllegalTransitionError(f"{event.value} while {state.phase.value}")
    phase, change = found
    pauses = state.pauses + change
    if pauses < 0:
        raise IllegalTransitionError(f"{event.value} more often than it was paused")
    if phase is Phase.PAUSED and pauses == 0:
        return NONE
    assert not pauses or phase in (Phase.ABORTED, Phase.PAUSED), f"{phase.value} though it is paused {pauses} times"
    return CleaningState(phase, pauses)


class CleaningStates:
    """The state of every partition that is not NONE.  Belongs to the loop."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[TopicPartition, CleaningState] = {}

    def of(self, topic_partition: TopicPartition) -> CleaningState:
        """The state of a partition."""
        return self._states.get(topic_partition, NONE)

    def apply(self, topic_partition: TopicPartition, event: Event) -> CleaningState:
        """Move a partition to its next state, which it returns.  ValueError where the table has none."""
        state = next_state(self.of(topic_partition), event)
        if state == NONE:
            self._states.pop(topic_partition, None)
        else:
            self._states[topic_partition] = state
        return state

    def in_phase(self, phase: Phase) -> list[TopicPartition]:
        """The partitions that are in this phase."""
        return [tp for tp, state in self._states.items() if state.phase is phase]

    @contextmanager
    def paused(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Keeps the cleaner away from a partition while the block runs."""
        self.apply(topic_partition, Event.PAUSE)
        try:
            yield
        finally:
            self.apply(topic_partition, Event.RESUME)
