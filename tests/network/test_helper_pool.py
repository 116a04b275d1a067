"""Threads that share a turn's pieces with the loop."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from kbroker._fast.base.helper_pool import HelperPool
from tests.broker.client import until
from tests.extensions.sleeping_pieces import share_sleeping_pieces
from tests.network.thread_names import threads_named

SECONDS = 60.0
MOST = 64


class Members:
    """Counts the helpers that a test's own pools have started: those of other tests may end at any moment."""

    def __init__(self) -> None:
        self._of_others = threads_named("kbroker-helper")

    def count(self) -> int:
        return len(threads_named("kbroker-helper") - self._of_others)


@pytest.fixture(name="members")
def _members() -> Members:
    return Members()


@pytest.fixture(name="helper_pool")
def _helper_pool(members: Members) -> Iterator[HelperPool]:
    helper_pool = HelperPool(2)
    yield helper_pool
    helper_pool.close()


def test_every_piece_is_done_once_whoever_does_it(helper_pool: HelperPool) -> None:
    """A batch would be written twice, or answered without having been written."""
    rng = random.Random(5)
    deadline = time.monotonic() + SECONDS
    shares = 0
    while shares < 3000 or helper_pool.helped_count < 1000:
        assert time.monotonic() < deadline
        done = share_sleeping_pieces(helper_pool, rng.randint(0, MOST), rng.randint(0, 3), rng.choice((0, 0, 0, 1)))
        assert all(times == 1 and 0 <= worker <= 2 for times, worker in done)
        shares += 1


def test_what_is_drawn_says_who_does_which_piece_without_threads(helper_pool: HelperPool, members: Members) -> None:
    """On virtual time who writes first would be another one with each run."""
    helper_pool.draw = lambda count, limit: [(each, each % (limit + 1)) for each in reversed(range(count))]
    assert share_sleeping_pieces(helper_pool, 4, 2) == [(1, 0), (1, 1), (1, 2), (1, 0)]
    assert helper_pool.running == members.count() == 0


def test_threads_take_pieces_while_the_loop_is_at_one(helper_pool: HelperPool, members: Members) -> None:
    """Other processors would stand idle while one writes what many sent."""
    deadline = time.monotonic() + SECONDS
    while {worker for _, worker in share_sleeping_pieces(helper_pool, 6, 2, 1_000_000)} != {0, 1, 2}:
        assert time.monotonic() < deadline
    assert helper_pool.running == members.count() == 2


def test_no_thread_helps_where_none_is_allowed_and_a_change_counts_at_once(members: Members) -> None:
    """`num.network.threads=1` would not leave a machine's other processors to others."""
    helper_pool = HelperPool(0)
    assert share_sleeping_pieces(helper_pool, 3, 2, 1000) == [(1, 0)] * 3
    assert (helper_pool.running, helper_pool.helped_count, members.count()) == (0, 0, 0)
    helper_pool.change(1)
    deadline = time.monotonic() + SECONDS
    while not helper_pool.helped_count:
        assert time.monotonic() < deadline
        share_sleeping_pieces(helper_pool, 4, 2, 100_000)
    assert (helper_pool.running, members.count()) == (1, 1)
    helper_pool.change(0)
    assert share_sleeping_pieces(helper_pool, 4, 2, 100_000) == [(1, 0)] * 4
    helper_pool.close()
    assert helper_pool.running == 0
    # The kernel lists one for a moment after its end.
    until(lambda: members.count() == 0, "no thread is left")
    assert share_sleeping_pieces(helper_pool, 4, 2, 1000) == [(1, 0)] * 4


def test_work_of_one_piece_calls_nobody() -> None:
    """A lone request would pay for waking a thread."""
    helper_pool = HelperPool(2)
    assert share_sleeping_pieces(helper_pool, 1, 2) == [(1, 0)]
    assert share_sleeping_pieces(helper_pool, 0, 2) == []
    assert helper_pool.running == 0


def test_wrong_numbers_are_refused() -> None:
    """A wrong number would start threads without an end, or write behind the end of an array."""
    with pytest.raises(ValueError, match="-1 threads"):
        HelperPool(-1)
    assert HelperPool(100).limit == 7
    for count in (-1, MOST + 1):
        with pytest.raises(ValueError, match=f"{count} pieces"):
            share_sleeping_pieces(HelperPool(0), count, 0)
