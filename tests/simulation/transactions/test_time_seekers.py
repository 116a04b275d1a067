"""What a search by time may find where transactions are open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.judge import Judge, ViolationError
from tests.simulation.transactions.time_seekers import TimeSeeker

KNOWN = {0: 100, 1: 200, 2: 300, 3: 400}


def judge(timestamp: int, found: tuple[int, int], stable: tuple[int, int]) -> None:
    """An answer of a timestamp and an offset, between two last stable offsets."""
    seeker: Any = SimpleNamespace(judge=Judge(lambda: 0.0))
    rows = [SimpleNamespace(timestamp=-1, offset=offset) for offset in stable]
    told = SimpleNamespace(timestamp=found[0], offset=found[1])
    TimeSeeker.judge_answers(seeker, "me", timestamp, [rows[0], told, rows[1]], KNOWN)


def test_what_is_right_is_no_violation() -> None:
    """The judge would call right answers wrong."""
    judge(150, (200, 1), (3, 3))
    judge(350, (-1, -1), (3, 3))
    # The transaction has ended meanwhile, or had not.
    judge(350, (400, 3), (3, 4))
    judge(350, (-1, -1), (3, 4))


@pytest.mark.parametrize(
    ("timestamp", "found", "stable"),
    [
        (350, (400, 3), (3, 3)),
        (150, (300, 2), (3, 3)),
        (150, (-1, -1), (3, 3)),
        (250, (200, 1), (3, 3)),
        (150, (250, 1), (3, 3)),
        (150, (200, 1), (3, 2)),
    ],
)
def test_what_is_wrong_is_seen(timestamp: int, found: tuple[int, int], stable: tuple[int, int]) -> None:
    """Above what is stable, not the first, nothing though there is one, too early, another time, and back again."""
    with pytest.raises(ViolationError, match=f"time {timestamp} is found at"):
        judge(timestamp, found, stable)
