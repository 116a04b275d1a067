"""Each rule and guard of retention as a row: which of the oldest segments go, why, and where the log starts then."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import LogConfig
from kbroker.storage.manager.retention import LogFacts, Reason, SegmentFacts, decide

NOW = 1_000_000
DELETE = frozenset({"delete"})
COMPACT = frozenset({"compact"})
BOTH = frozenset({"compact", "delete"})
START, SIZE, TIME = Reason.LOG_START, Reason.SIZE, Reason.TIME


def segments(*rows: tuple[int, int, int]) -> tuple[SegmentFacts, ...]:
    """(base offset, size, age in ms)."""
    return tuple(SegmentFacts(base, size, NOW - age) for base, size, age in rows)


# Three segments of ten records, the last one active; ages 300, 200 and 100 ms.
THREE = segments((0, 100, 300), (10, 100, 200), (20, 100, 100))
EMPTY_ACTIVE = segments((0, 100, 300), (10, 100, 200), (20, 0, 0))

ROWS = [
    # what, segments, policy, retention.bytes, retention.ms, log start, high watermark, log end -> reasons, start, roll
    ("nothing is due", THREE, DELETE, -1, 1000, 0, 30, 30, [], 0, False),
    ("a segment wholly below the log start goes", THREE, DELETE, -1, -1, 10, 30, 30, [START], 10, False),
    ("a segment that the log start lies in stays", THREE, DELETE, -1, -1, 9, 30, 30, [], 0, False),
    ("the active segment stays below the log start", THREE, DELETE, -1, -1, 30, 30, 30, [START, START], 20, False),
    ("compact alone honours the log start", THREE, COMPACT, 0, 0, 10, 30, 30, [START], 10, False),
    ("compact alone knows no size or time", THREE, COMPACT, 0, 0, 0, 30, 30, [], 0, False),
    ("compact and delete knows them", THREE, BOTH, -1, 150, 0, 30, 30, [TIME, TIME], 20, False),
    ("no policy honours the log start only", THREE, frozenset(), 0, 0, 10, 30, 30, [START], 10, False),
    ("size equal to the limit stays", THREE, DELETE, 300, -1, 0, 30, 30, [], 0, False),
    ("excess smaller than a segment stays", THREE, DELETE, 201, -1, 0, 30, 30, [], 0, False),
    ("excess of exactly one segment takes it", THREE, DELETE, 200, -1, 0, 30, 30, [SIZE], 10, False),
    ("excess of nearly two takes one", THREE, DELETE, 101, -1, 0, 30, 30, [SIZE], 10, False),
    ("retention.bytes 0 takes all and rolls", THREE, DELETE, 0, -1, 0, 30, 30, [SIZE] * 3, 30, True),
    ("retention.bytes -1 takes nothing", THREE, DELETE, -1, -1, 0, 30, 30, [], 0, False),
    ("age equal to the limit stays", THREE, DELETE, -1, 300, 0, 30, 30, [], 0, False),
    ("age over the limit goes", THREE, DELETE, -1, 299, 0, 30, 30, [TIME], 10, False),
    ("an old active segment goes after a roll", THREE, DELETE, -1, 50, 0, 30, 30, [TIME] * 3, 30, True),
    ("an empty active segment stays", EMPTY_ACTIVE, DELETE, -1, 50, 0, 20, 20, [TIME, TIME], 20, False),
    ("retention.ms 0 takes what is a millisecond old", THREE, DELETE, -1, 0, 0, 30, 30, [TIME] * 3, 30, True),
    ("retention.ms -1 takes nothing", THREE, DELETE, -1, -1, 0, 30, 30, [], 0, False),
    ("nothing at the high watermark goes by time", THREE, DELETE, -1, 50, 0, 19, 30, [TIME], 10, False),
    ("nothing at the high watermark goes by size", THREE, DELETE, 0, -1, 0, 20, 30, [SIZE] * 2, 20, False),
    ("nothing at the high watermark goes by start", THREE, DELETE, -1, -1, 20, 15, 30, [START], 10, False),
    ("the active one waits for the high watermark", THREE, DELETE, 0, -1, 0, 29, 30, [SIZE] * 2, 20, False),
    ("three rules in order", THREE, DELETE, 150, 50, 10, 30, 30, [START, TIME, TIME], 30, True),
    ("size counts what the log start left", THREE, DELETE, 200, -1, 10, 30, 30, [START], 10, False),
    ("start, then size", THREE, DELETE, 100, -1, 10, 30, 30, [START, SIZE], 20, False),
    (
        "a young segment keeps the old one after it",
        segments((0, 100, 300), (10, 100, 5), (20, 100, 300)),
        DELETE, -1, 100, 0, 30, 30, [TIME], 10, False,
    ),
    ("one empty segment stays", segments((0, 0, 10_000)), DELETE, 0, 0, 0, 0, 0, [], 0, False),
    ("one full segment goes after a roll", segments((5, 10, 10_000)), DELETE, 0, -1, 5, 9, 9, [SIZE], 9, True),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_rules(row: tuple[Any, ...]) -> None:
    """Data would be deleted too early or kept for ever."""
    _, held, policy, retention_bytes, retention_ms, start, high, end, reasons, new_start, roll = row
    config = LogConfig(cleanup_policy=policy, retention_bytes=retention_bytes, retention_ms=retention_ms)
    decision = decide(LogFacts(held, start, high, end), config, NOW)
    assert list(decision.reasons) == reasons
    assert (decision.new_start, decision.roll_first) == (new_start, roll)


def test_a_record_from_the_future_keeps_its_segment_and_is_reported() -> None:
    """An operator would not learn why a topic grows beyond its retention."""
    held = segments((0, 100, 300), (10, 100, -60_000), (20, 100, 300))
    decision = decide(LogFacts(held, 0, 30, 30), LogConfig(retention_ms=100), NOW)
    assert decision.reasons == (TIME,)
    assert decision.future is held[1]


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    ages=st.lists(st.integers(-20, 100), min_size=6, max_size=6),
    retention_bytes=st.integers(-1, 120),
    retention_ms=st.integers(-1, 80),
    start=st.integers(0, 60),
    high=st.integers(0, 60),
    policy=st.sampled_from([DELETE, COMPACT, BOTH]),
)
def test_the_guards_hold_whatever_the_rules_say(
    sizes: list[int], ages: list[int], retention_bytes: int, retention_ms: int, start: int, high: int,
    policy: frozenset[str],
) -> None:  # fmt: skip
    """Unreplicated records would be deleted, or a log would be left without a segment."""
    held = tuple(
        SegmentFacts(at * 10, size, NOW - age) for at, (size, age) in enumerate(zip(sizes, ages, strict=False))
    )
    end = len(held) * 10
    high = min(high, end)
    config = LogConfig(cleanup_policy=policy, retention_bytes=retention_bytes, retention_ms=retention_ms)
    decision = decide(LogFacts(held, min(start, high), high, end), config, NOW)
    assert decision.segment_count <= len(held)
    if decision.segment_count:
        assert decision.new_start <= high
    assert decision.roll_first == (decision.segment_count == len(held))
    assert not decision.roll_first or held[-1].size > 0
    if not config.delete:
        assert set(decision.reasons) <= {START}
