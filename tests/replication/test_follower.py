"""What a leader notes of a follower, and what a follower asks for, where nothing comes: the short ways say the same."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.log.replica_fields import unsettled
from kbroker.replication.fetcher import _Followed
from kbroker.replication.follower import Follower
from kbroker.replication.follower_session import NO_SESSION, Ask, FollowerSession, Key
from tests.replication.bare_replica import replica

OFFSETS = st.integers(0, 3)
FETCHES = st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=6)


def fields(follower: Follower) -> tuple[Any, ...]:
    return (
        follower.log_end_offset,
        follower.log_start_offset,
        follower.leader_end,
        follower.fetched_at,
        follower.caught_up_at,
    )


@given(FETCHES, OFFSETS, OFFSETS)
def test_a_fetch_that_says_nothing_new_is_noted_as_any_other(
    before: list[tuple[int, int, int]], end: int, start: int
) -> None:
    """A follower that has everything would fall out of the ISR, or what it says anew would be missed."""
    follower = Follower()
    for now, (offset, log_start, leader_end) in enumerate(before):
        follower.fetched(offset, log_start, max(offset, leader_end), float(now))
    other = copy.copy(follower)
    now = float(len(before))
    is_news = other.fetched(end, start, end, now)
    known = fields(follower)
    assert follower.asks_again(end, start, now) is not is_news
    assert fields(follower) == (known if is_news else fields(other))


CHANGES = st.sampled_from(["end", "start", "epoch", "last", "bytes", "retry", "throttle", "cut", ""])


@given(st.lists(st.tuples(CHANGES, OFFSETS), max_size=12), st.booleans())
def test_a_follower_asks_for_what_is_so_by_then(changes: list[tuple[str, int]], truncates_on_fetch: bool) -> None:
    """It would fetch from an old offset, or in an old epoch, for ever, or a partition that it is to leave out."""
    partition = replica()
    log = partition.log
    followed = _Followed(partition, False)
    max_bytes, asked = 1, None
    for field, value in [("", 0), *changes]:
        match field:
            case "end":
                log.local.log_end_offset = value
            case "start":
                log.log_start_offset = value
            case "epoch":
                partition.leader_epoch = value
            case "last":
                log.leader_epoch_cache.latest_epoch = value
            case "bytes":
                max_bytes = value
            case "retry":
                followed.retry_at = float(value)
            case "throttle":
                partition.follower_throttled = value > 1
            case "cut":
                followed.has_to_truncate = value > 1
        expected = _Followed(partition, False).asks(max_bytes, truncates_on_fetch)
        is_left_out = followed.retry_at > 1.0 or followed.has_to_truncate
        found = unsettled({0: followed}, 1.0, max_bytes, truncates_on_fetch)
        is_same = asked is None if is_left_out else asked == expected
        assert bool(found) is (not is_same or followed.has_to_truncate or partition.follower_throttled)
        if is_left_out:
            followed.is_asked, asked = False, None
        elif found:
            asked = followed.asks(max_bytes, truncates_on_fetch)
            assert asked == expected


STEPS = st.lists(
    st.tuples(st.sampled_from(["want", "drop", "fetch", "refused"]), st.integers(0, 3), OFFSETS, st.booleans()),
    max_size=30,
)


@given(STEPS)
def test_a_session_holds_what_is_wanted_after_each_fetch(steps: list[tuple[str, int, int, bool]]) -> None:
    """A partition would not be copied any more, or one that others lead by now be asked for."""
    session = FollowerSession()
    wanted: dict[Key, Ask] = {}
    held: dict[Key, Ask] = {}
    for step, index, offset, has_id in steps:
        key = ("t", bytes([has_id]) * 16, index)
        match step:
            case "want":
                wanted[key] = Ask(*key, 0, offset, -1, 0, 1)
                session.want(key, wanted[key])
            case "drop":
                wanted.pop(key, None)
                session.drop(key)
            case "refused":
                session.reset()
            case "fetch":
                names = session.next()
                if names.session_id == NO_SESSION:
                    held = {}
                for ask in names.sent:
                    assert held.get(ask[:3]) != ask, "only what has changed is named"
                    held[ask[:3]] = ask
                for each in names.forgotten:
                    del held[each]
                assert held == wanted == session.known
                assert len(session) == len(wanted)
                assert session.all_have_ids is all(each.topic_id != bytes(16) for each in wanted.values())
                session.answered(7)
