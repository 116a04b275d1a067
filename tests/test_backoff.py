"""`kbroker/backoff.py`: how long to wait between tries."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kbroker.backoff import JITTER, ExponentialBackoff


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e6), st.integers(0, 10_000))
def test_a_wait_doubles_up_to_the_longest(initial: float, longest: float, attempts: int) -> None:
    """A broker would ask without a pause what does not answer, or come back hours after it does."""
    backoff = ExponentialBackoff(initial, longest)
    before, wait = backoff.backoff(attempts), backoff.backoff(attempts + 1)
    assert backoff.backoff(0) == min(initial, longest)
    assert wait == min(longest, 2 * before)


@given(st.integers(0, 20), st.randoms(use_true_random=False))
def test_what_is_spread_stays_near(attempts: int, rng: random.Random) -> None:
    """Brokers that failed together would come back together, or one of them far too early."""
    backoff = ExponentialBackoff(0.05, 1.0)
    wait = backoff.backoff(attempts)
    assert wait * (1 - JITTER) <= backoff.backoff(attempts, rng.uniform) <= wait * (1 + JITTER)
