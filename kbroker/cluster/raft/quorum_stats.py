"""What a node of the quorum counts for those who watch it: elections, commits, records.

Times are seconds of the loop.  What is counted goes on over all of the node's leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kbroker.cluster.kraft.quorum_steps import NO_LEADER
from kbroker.cluster.raft.election import RaftState

WINDOW_SECONDS = 30.0
"""A largest time is that of the last window and the one before it, as in Kafka."""
STANDING = (RaftState.PROSPECTIVE, RaftState.CANDIDATE)


class Times:
    """How often something took how long."""

    __slots__ = ("_before", "_begun", "_largest", "_now", "count", "seconds")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun = now()
        self._largest = self._before = 0.0
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self._turn()
        self.count += 1
        self.seconds += seconds
        self._largest = max(self._largest, seconds)

    @property
    def largest(self) -> float:
        """The longest of the last half minute to a minute; 0 without one."""
        self._turn()
        return max(self._largest, self._before)

    def _turn(self) -> None:
        passed = self._now() - self._begun
        if passed < WINDOW_SECONDS:
            return
        self._before = self._largest if passed < 2 * WINDOW_SECONDS else 0.0
        self._largest = 0.0
        self._begun = self._now()


class _Appended(NamedTuple):
    end_offset: int
    at: float


class QuorumStats:
    """Of one replica; each method is called when what it names has happened."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.commits = Times(now)
        """From when this leader appended a batch until a majority has it on disk."""
        self.elections = Times(now)
        """From when this node stood, or asked whether it might, until there was a leader."""
        self.leader_changes = 0
        """How often a leader was heard of, this node included: one of a new epoch counts again."""
        self.appended_count = 0
        self.fetched_count = 0
        self.appended_ms = -1
        """When this leader appended last, in ms since 1970."""
        self._known = (0, NO_LEADER)
        self._stands_since: float | None = None
        self._appended: deque[_Appended] = deque()

    def seen(self, state: RaftState, epoch: int, leader_id: int) -> None:
        """The replica may have another state, epoch or leader."""
        if state in STANDING:
            if self._stands_since is None:
                self._stands_since = self._now()
        elif state in (RaftState.FOLLOWER, RaftState.LEADER):
            if self._stands_since is not None:
                self.elections.add(self._now() - self._stands_since)
            self._stands_since = None
        if (epoch, leader_id) != self._known:
            self._known = epoch, leader_id
            self.leader_changes += leader_id != NO_LEADER

    def appended(self, base_offset: int, end_offset: int, now_ms: int) -> None:
        """This leader has appended records."""
        self.appended_count += end_offset - base_offset
        self.appended_ms = now_ms
        self._appended.append(_Appended(end_offset, self._now()))

    def committed(self, high_watermark: int) -> None:
        """A majority has what is below this offset."""
        while self._appended and self._appended[0].end_offset <= high_watermark:
            self.commits.add(self._now() - self._appended.popleft().at)

    def lead_ended(self) -> None:
        """What this leader has appended and not committed is another one's to commit."""
        self._appended.clear()

    def fetched(self, count: int) -> None:
        """A leader has sent so many records."""
        self.fetched_count += count
