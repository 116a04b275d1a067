"""The leader's knowledge of each follower of a partition, from its fetches, and the ISR that follows from it.

A follower is caught up at the time of a fetch whose offset is the leader's log end.  A fetch whose offset is the log
end as of the fetch before makes it caught up as of that earlier fetch: under a steady load no fetch ever reaches the
current end.  Pure; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbroker._fast.log.replica_fields import FollowerFields
from kbroker.types import Offset

UNKNOWN_OFFSET = Offset(-1)
NOT_YET = float("-inf")


class Follower(FollowerFields):
    """One follower; offsets of -1: it has not fetched since this broker leads."""

    __slots__ = ()

    def __init__(self, caught_up_at: float = NOT_YET) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_at = caught_up_at
        self.fetched_at = NOT_YET
        self.leader_end = UNKNOWN_OFFSET

    def lag_seconds(self, leader_end: Offset, now: float) -> float:
        """For how long it has not been caught up; 0 while it has all."""
        return 0.0 if self.log_end_offset == leader_end else now - self.caught_up_at


NO_FOLLOWER = Follower()


def in_sync_still(
    isr: Sequence[int], leader: int, followers: Mapping[int, Follower], leader_end: Offset, now: float, max_lag: float
) -> tuple[int, ...]:
    """The ISR without those that have lagged for more than `max_lag` seconds; the leader stays."""
    return tuple(
        each
        for each in isr
        if each == leader or followers.get(each, NO_FOLLOWER).lag_seconds(leader_end, now) <= max_lag
    )


def may_join(follower: Follower, high_watermark: Offset, epoch_start: Offset) -> bool:
    """Whether a follower has all that is committed, and all that came before this leader's epoch."""
    return follower.log_end_offset >= max(high_watermark, epoch_start)


def joining(
    replicas: Sequence[int],
    isr: Sequence[int],
    followers: Mapping[int, Follower],
    leader_end: Offset,
    now: float,
    max_lag: float,
    is_eligible: Callable[[int], bool],
) -> list[int]:
    """Replicas outside the ISR that are caught up, and so about to be proposed for it (Kafka's maximal ISR).  A commit
    waits for them, too: otherwise an ISR with them could be granted although they lack a record committed meanwhile."""
    return [
        each
        for each in replicas
        if each not in isr
        and each in followers
        and followers[each].lag_seconds(leader_end, now) <= max_lag
        and is_eligible(each)
    ]
