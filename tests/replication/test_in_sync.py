"""Who is in sync: the decisions of `kbroker.replication.follower`."""

from __future__ import annotations

from kbroker.replication.follower import Follower, in_sync_still, joining, may_join


def at(offset: int, caught_up_at: float = 0.0) -> Follower:
    follower = Follower(caught_up_at)
    follower.log_end_offset = offset
    return follower


def test_a_follower_joins_with_all_from_before_the_leaders_epoch() -> None:
    """As a leader it would lack records that the one before had committed, and this one does not know to be yet."""
    assert not may_join(at(7), high_watermark=5, epoch_start=8)
    assert may_join(at(8), high_watermark=5, epoch_start=8)
    assert not may_join(at(8), high_watermark=9, epoch_start=8)


def test_a_leader_stays_in_its_isr() -> None:
    """A partition would have no replica in sync: no follower of the leader's own tells how far it is."""
    followers = {2: at(5, caught_up_at=0.0), 3: at(9)}
    assert in_sync_still((1, 2, 3), 1, followers, leader_end=9, now=31.0, max_lag=30.0) == (1, 3)


def test_no_commit_waits_for_a_follower_that_may_not_join() -> None:
    """Producers would wait for a broker that is fenced as long as it fetches."""
    followers = {2: at(9), 3: at(9)}
    assert joining((1, 2, 3), (1,), followers, 9, 1.0, 30.0, lambda node_id: node_id != 3) == [2]
