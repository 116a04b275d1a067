"""Fetch sessions: what a request means by its id and epoch, and what an incremental answer may leave out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from kbroker.replication.fetch_session import EVICT_AFTER_MS, MAX_EPOCH, FetchPlan, FetchSessionCache, FetchTarget
from kbroker.types import ZERO_UUID


def target(topic: str = "t", index: int = 0, offset: int = 0) -> FetchTarget:
    return FetchTarget(topic, ZERO_UUID, index, offset, 1000, -1, -1)


def plan(
    cache: FetchSessionCache, session_id: int, epoch: int, *targets: FetchTarget, now: int = 0, by_id: bool = False
) -> FetchPlan:
    return cache.plan(session_id, epoch, list(targets), [], by_id, now)


def test_a_fetch_without_a_session_leaves_none() -> None:
    """A client that does not want a session would fill the cache of those that do."""
    cache = FetchSessionCache(10)
    made = plan(cache, 0, -1, target())
    assert made.session_id == 0
    assert not made.incremental
    assert len(cache) == 0


def test_a_session_goes_on_with_its_epochs_in_order() -> None:
    """A repeated or lost fetch would be answered with partitions missing: records never seen."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target(index=0), target(index=1))
    assert first.session_id > 0
    second = plan(cache, first.session_id, 1, target(index=1, offset=7))
    assert second.incremental
    assert [(each.index, each.fetch_offset) for each in second.targets] == [(0, 0), (1, 7)]
    with pytest.raises(InvalidFetchSessionEpochError):
        plan(cache, first.session_id, 1)
    with pytest.raises(InvalidFetchSessionEpochError):
        plan(cache, first.session_id, 3)
    assert plan(cache, first.session_id, 2).incremental


def test_an_unknown_session_is_refused() -> None:
    """After a restart a client would wait for partitions that the broker has never heard of."""
    with pytest.raises(FetchSessionIdNotFoundError):
        plan(FetchSessionCache(10), 77, 1)


def test_a_session_does_not_mix_names_and_ids() -> None:
    """A topic deleted and made again would be read under the old id's offsets."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target())
    with pytest.raises(FetchSessionTopicIdError):
        plan(cache, first.session_id, 1, by_id=True)


def test_the_epoch_wraps_to_one() -> None:
    """After two billion fetches a long-lived consumer would be thrown out of its session, or start a full fetch."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target())
    first.session.epoch = MAX_EPOCH
    plan(cache, first.session_id, MAX_EPOCH)
    assert first.session.epoch == 1


def test_closing_and_replacing_a_session() -> None:
    """Sessions of clients that left would hold the cache's places."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target())
    second = plan(cache, first.session_id, 0, target())
    assert second.session_id not in (0, first.session_id)
    assert len(cache) == 1
    plan(cache, second.session_id, -1, target())
    assert len(cache) == 0


def test_forgotten_partitions_are_no_longer_read() -> None:
    """A consumer that gave a partition away would still get its records."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target(index=0), target(index=1))
    second = cache.plan(first.session_id, 1, [], [("t", 0)], False, 0)
    assert [each.index for each in second.targets] == [1]
    third = cache.plan(first.session_id, 2, [], [("t", 1)], False, 0)
    assert third.session_id == 0
    assert len(cache) == 0


def test_a_fetch_that_names_partitions_forgets_others() -> None:
    """A consumer that takes one partition for another would go on to get the records of the one that it gave away."""
    cache = FetchSessionCache(10)
    first = plan(cache, 0, 0, target(index=0), target(index=1))
    second = cache.plan(first.session_id, 1, [target(index=2)], [("t", 0)], False, 0)
    assert [each.index for each in second.targets] == [1, 2]
    assert [each.index for each in plan(cache, first.session_id, 2).targets] == [1, 2]


def test_a_full_cache_keeps_active_sessions_and_replaces_idle_ones() -> None:
    """A burst of short-lived clients would throw out the sessions of consumers at work."""
    cache = FetchSessionCache(2)
    first = plan(cache, 0, 0, target(), now=0)
    second = plan(cache, 0, 0, target(), now=0)
    assert plan(cache, 0, 0, target(), now=1000).session_id == 0
    plan(cache, second.session_id, 1, now=EVICT_AFTER_MS)
    third = plan(cache, 0, 0, target(), now=EVICT_AFTER_MS + 1)
    assert third.session_id > 0
    assert {session.session_id for session in cache} == {second.session_id, third.session_id}
    assert first.session_id not in {session.session_id for session in cache}
    assert cache.evictions == 1


def test_a_smaller_session_makes_room_once_it_is_old() -> None:
    """Large consumers that start together would throw out the sessions of small ones, again and again."""
    cache = FetchSessionCache(1)
    small = plan(cache, 0, 0, target(), now=0)
    assert plan(cache, 0, 0, target(index=0), target(index=1), now=EVICT_AFTER_MS).session_id == 0
    plan(cache, small.session_id, 1, now=EVICT_AFTER_MS + 1)
    assert plan(cache, 0, 0, target(), now=EVICT_AFTER_MS + 1).session_id == 0
    large = plan(cache, 0, 0, target(index=0), target(index=1), now=EVICT_AFTER_MS + 1)
    assert [session.session_id for session in cache] == [large.session_id]
    assert cache.evictions == 1


def test_the_smallest_of_the_old_sessions_makes_room_whatever_young_ones_there_are() -> None:
    """One new consumer of a single partition would keep every larger one from a session of its own."""
    cache = FetchSessionCache(2)
    old = plan(cache, 0, 0, target(index=0), target(index=1), now=0)
    plan(cache, old.session_id, 1, now=EVICT_AFTER_MS)
    young = plan(cache, 0, 0, target(), now=EVICT_AFTER_MS)
    large = [target(index=index) for index in range(3)]
    assert plan(cache, 0, 0, *large, now=EVICT_AFTER_MS + 1).session_id == 0, "it was not old when it was last used"
    plan(cache, old.session_id, 2, now=EVICT_AFTER_MS + 1)
    made = plan(cache, 0, 0, *large, now=EVICT_AFTER_MS + 1)
    assert {session.session_id for session in cache} == {young.session_id, made.session_id}


def test_a_followers_session_goes_before_those_of_consumers() -> None:
    """Where consumers fill the cache, followers would name all of their partitions with every fetch."""
    cache = FetchSessionCache(2)
    many = [target(index=index) for index in range(3)]
    for _ in range(2):
        assert plan(cache, 0, 0, *many, now=0).session_id > 0
    follower = cache.plan(0, 0, [target()], [], False, 1, is_of_follower=True)
    second = cache.plan(0, 0, [target()], [], False, 1, is_of_follower=True)
    assert {session.session_id for session in cache} == {follower.session_id, second.session_id}
    assert cache.plan(0, 0, many, [], False, 1, is_of_follower=True).session_id == 0
    for each in (follower, second):
        plan(cache, each.session_id, 1, now=EVICT_AFTER_MS + 2)
    assert plan(cache, 0, 0, *many, now=EVICT_AFTER_MS + 2).session_id == 0
    assert cache.plan(0, 0, many, [], False, EVICT_AFTER_MS + 2, is_of_follower=True).session_id > 0


def test_no_slots_means_no_sessions() -> None:
    """A broker with the cache turned off would fail every consumer."""
    assert plan(FetchSessionCache(0), 0, 0, target()).session_id == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30
    )
)
def test_news_are_told_once_and_errors_until_they_end(steps: list[tuple[int, int, int, int]]) -> None:
    """A consumer would never learn of a moved high watermark, or be woken for nothing for ever."""
    each = target()
    told: tuple[int, int] | None = None
    for error, size, high_watermark, log_start in steps:
        news = each.must_respond(error, size, high_watermark, log_start)
        assert news == (error != 0 or size > 0 or told != (high_watermark, log_start))
        told = None if error else (high_watermark, log_start)
