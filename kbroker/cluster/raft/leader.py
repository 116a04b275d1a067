"""What the leader of an epoch knows of the voters: how far they are, and when they were last heard of (KIP-595).

The high watermark is the offset up to which a majority of the voters has the log on disk.  It counts only when it is
beyond the epoch's first record, and never goes back.  The leader's own log counts as far as it is synced: Kafka counts
it as soon as it is written, so a leader that loses its power may have promised what it has not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.quorum_steps import UNKNOWN

if TYPE_CHECKING:
    from kbroker.cluster.raft.election import ReplicaKey, Voters


class LeaderProgress:
    """`start_offset`: of the epoch's first record, the LeaderChange."""

    __slots__ = ("_ends", "_heard", "_heard_since", "_me", "high_watermark", "start_offset")

    def __init__(self, me: ReplicaKey, start_offset: int, high_watermark: int, now: float) -> None:
        self._me = me
        self.start_offset = start_offset
        self.high_watermark = high_watermark
        self._ends: dict[int, int] = {}
        self._heard: dict[int, float] = {}
        self._heard_since = now

    def synced(self, voters: Voters, end_offset: int) -> bool:
        """The leader's own log is on disk up to here, or further; whether the high watermark has moved."""
        if voters.has(self._me):
            self._ends[self._me.node_id] = max(end_offset, self._ends.get(self._me.node_id, 0))
        return self.recompute(voters)

    def fetched(self, voters: Voters, key: ReplicaKey, end_offset: int, now: float) -> bool:
        """A replica has asked, validly, from `end_offset` on, up to which it has all on disk; whether the high
        watermark has moved.  Those that do not vote count for nothing, another directory of a voter's node as well."""
        assert end_offset >= 0
        self.heard(voters, key, now)
        if voters.has(key):
            self._ends[key.node_id] = end_offset
        return self.recompute(voters)

    def heard(self, voters: Voters, key: ReplicaKey, now: float) -> None:
        """A replica is there, if only to fetch a snapshot."""
        if voters.has(key):
            self._heard[key.node_id] = now

    def begin(self, voters: Voters, key: ReplicaKey, now: float) -> None:
        """A replica votes from now on; what another directory of its node has acknowledged counts no more."""
        if not key.matches(self._me):
            self._ends.pop(key.node_id, None)
        self.heard(voters, key, now)

    def recompute(self, voters: Voters) -> bool:
        """By the voters of now; whether the high watermark has moved."""
        ends = sorted((self._ends.get(node_id, UNKNOWN) for node_id in voters.keys), reverse=True)
        reached = ends[voters.majority - 1] if ends else UNKNOWN
        if reached <= max(self.start_offset, self.high_watermark):
            return False
        self.high_watermark = reached
        return True

    @property
    def answered_high_watermark(self) -> int:
        """The one in answers to replicas: none until a record of this epoch is committed, as theirs may be newer."""
        return self.high_watermark if self.high_watermark > self.start_offset else UNKNOWN

    def last_heard(self, node_id: int) -> float | None:
        """When a voter last fetched; None: not in this epoch."""
        return self._heard.get(node_id)

    def end_of(self, node_id: int) -> int:
        """Up to where a voter has all on disk; UNKNOWN: it has not fetched in this epoch."""
        return self._ends.get(node_id, UNKNOWN)

    def quorum_since(self, voters: Voters) -> float:
        """When the last one of a majority was heard, of the majority that was heard most lately.

        The leader counts as heard, if it votes; a voter that has not fetched in this epoch as heard at its begin.
        """
        times = sorted((self.heard_at(voter) for voter in voters.keys.values()), reverse=True)
        return times[voters.majority - 1] if times else self._heard_since

    def heard_at(self, voter: ReplicaKey) -> float:
        """When a voter has fetched last; of one that has not in this epoch when that began, of the leader for ever."""
        if voter.matches(self._me):
            return math.inf
        heard = self._heard.get(voter.node_id)
        return self._heard_since if heard is None else heard

    def by_progress(self, voters: Voters) -> tuple[ReplicaKey, ...]:
        """The other voters, those that have most first: who should lead next."""
        others = [voter for voter in voters.keys.values() if not voter.matches(self._me)]
        return tuple(sorted(others, key=lambda voter: (-self.end_of(voter.node_id), voter.node_id)))
