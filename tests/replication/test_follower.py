"""What a leader notes of a follower, and what a follower asks for, where nothing comes: the short ways say the same."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbroker.replication.fetcher import _Followed
from kbroker.replication.follower import Follower

OFFSETS = st.integers(0, 3)
FETCHES = st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=6)


def fields(follower: Follower) -> tuple[Any, ...]:
    return tuple(getattr(follower, name) for name in Follower.__slots__)


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


@given(st.lists(st.tuples(st.sampled_from(["end", "start", "epoch", "last", "id", "bytes", ""]), OFFSETS), max_size=12))
def test_a_follower_asks_for_what_is_so_by_then(changes: list[tuple[str, int]]) -> None:
    """It would fetch from an old offset, or in an old epoch, for ever."""
    log = SimpleNamespace(log_end_offset=0, log_start_offset=0, latest_epoch=-1)
    partition: Any = SimpleNamespace(topic="t", index=0, topic_id=b"0" * 16, leader_epoch=0, log=log)
    followed = _Followed(partition, False)
    max_bytes, last = 1, followed.now_asks(1, True)
    for field, value in changes:
        match field:
            case "end":
                log.log_end_offset = value
            case "start":
                log.log_start_offset = value
            case "epoch":
                partition.leader_epoch = value
            case "last":
                log.latest_epoch = value
            case "id":
                partition.topic_id = bytes([value]) * 16
            case "bytes":
                max_bytes = value
        ask = followed.now_asks(max_bytes, True)
        expected = _Followed(partition, False).now_asks(max_bytes, True)
        assert ask == expected
        assert followed.key == (ask.topic, ask.topic_id, ask.partition)
        assert (ask is last) == (ask == last)
        last = ask
