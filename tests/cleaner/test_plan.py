"""What may be compacted, what is due, how segments are grouped: rows over snapshots; and the table of states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import LogConfig
from kbroker.storage.cleaner.cleaner_plan import (
    ACTIVE_BOUND,
    LAG_BOUND,
    STABLE_BOUND,
    CleanableSegment,
    LogShape,
    Source,
    assess,
    cleanable_range,
    group_segments,
)
from kbroker.storage.cleaner.cleaner_state import (
    TRANSITIONS,
    CleaningState,
    CleaningStates,
    Event,
    IllegalTransitionError,
    Phase,
    next_state,
)
from kbroker.storage.files.throttle import Throttle
from tests.cleaner.logs import COMPACT
from tests.storage.batches import TP

NOW = 1_000_000
BASES = (0, 10, 20, 30)
# Largest timestamps of the segments: 400, 300, 200 and 100 ms old.
TIMES = tuple(NOW - age for age in (400, 300, 200, 100))


def shape(*, start: int = 0, stable: int = 35, end: int = 35, sizes: tuple[int, ...] = (100, 100, 100, 50)) -> LogShape:
    segments = [CleanableSegment(base, size) for base, size in zip(BASES, sizes, strict=True)]
    return LogShape(segments, start, stable, end, lambda at: TIMES[at], lambda at: TIMES[at] - 50)


def compacting(**settings: Any) -> LogConfig:
    return LogConfig(cleanup_policy=COMPACT, **settings)


RANGES = [
    # what, checkpoint, shape, min lag -> first dirty, first uncleanable, bound
    ("never cleaned", None, shape(), 0, 0, 30, ACTIVE_BOUND),
    ("cleaned before", 20, shape(), 0, 20, 30, ACTIVE_BOUND),
    ("all clean", 30, shape(), 0, 30, 30, ACTIVE_BOUND),
    ("an open transaction", None, shape(stable=25), 0, 0, 20, STABLE_BOUND),
    ("an open transaction at a segment's base", None, shape(stable=20), 0, 0, 20, STABLE_BOUND),
    ("an open transaction in the clean part", 20, shape(stable=5), 0, 20, 20, STABLE_BOUND),
    ("a young record", None, shape(), 250, 0, 20, LAG_BOUND),
    ("exactly old enough", None, shape(), 300, 0, 20, LAG_BOUND),
    ("a millisecond too young", None, shape(), 301, 0, 10, LAG_BOUND),
    ("everything too young", None, shape(), 500, 0, 0, LAG_BOUND),
    ("young segments in the clean part do not count", 20, shape(), 250, 20, 20, LAG_BOUND),
    ("a lag that has passed", None, shape(), 200, 0, 30, ACTIVE_BOUND),
    ("a checkpoint below the log start", 5, shape(start=12), 0, 12, 30, ACTIVE_BOUND),
    ("a checkpoint past the log end", 36, shape(start=12), 0, 12, 30, ACTIVE_BOUND),
    ("a log that starts late", None, shape(start=12), 0, 12, 30, ACTIVE_BOUND),
]


@pytest.mark.parametrize("row", RANGES, ids=[row[0] for row in RANGES])
def test_the_bounds_of_a_clean(row: tuple[Any, ...]) -> None:
    """Undecided or protected records would be compacted, or a log never."""
    _, checkpoint, held, lag, dirty, uncleanable, bound = row
    found = cleanable_range(held, compacting(min_compaction_lag_ms=lag), checkpoint, NOW)
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.bound) == (dirty, uncleanable, bound)


def test_only_a_checkpoint_that_cannot_be_true_is_reported_and_not_with_retention() -> None:
    """The log would fill with warnings, as retention moves the log start past the checkpoint all the time."""
    both = LogConfig(cleanup_policy=COMPACT | {"delete"})
    assert cleanable_range(shape(start=12), both, 5, NOW).healed is None
    assert "below the log start" in (cleanable_range(shape(start=12), compacting(), 5, NOW).healed or "")
    assert "past the log end" in (cleanable_range(shape(), both, 99, NOW).healed or "")


DUE = [
    ("half dirty is not more than half", 15, compacting(), 100, 200, 0, True),
    ("equal to the ratio waits", 20, compacting(min_cleanable_dirty_ratio=1 / 3), 200, 100, 0, False),
    ("above the ratio goes", 20, compacting(min_cleanable_dirty_ratio=0.33), 200, 100, 0, True),
    ("nothing dirty", 30, compacting(min_cleanable_dirty_ratio=0.0), 300, 0, 0, False),
    (
        "a lag that is over",
        20,
        compacting(max_compaction_lag_ms=200, min_cleanable_dirty_ratio=1.0),
        200,
        100,
        50,
        True,
    ),
    ("a lag that is not", 20, compacting(max_compaction_lag_ms=250, min_cleanable_dirty_ratio=1.0), 200, 100, 0, False),
]


@pytest.mark.parametrize("row", DUE, ids=[row[0] for row in DUE])
def test_when_a_log_is_due(row: tuple[Any, ...]) -> None:
    """A log would be rewritten for nothing, or never."""
    _, checkpoint, settings, clean, cleanable, overdue, due = row
    found = assess(shape(), settings, checkpoint, NOW)
    assert (found.clean_bytes, found.cleanable_bytes, found.overdue_ms) == (clean, cleanable, overdue)
    assert found.is_due(settings) is due
    dirty = {15: 1, 20: 2, 30: None}[checkpoint]
    assert found.oldest_dirty_timestamp == (-1 if dirty is None else TIMES[dirty] - 50)


def source(base: int, end: int, size: int, index: int = 8, times: int = 12) -> Source:
    return Source("", base, end, size, index, times, 0)


def bases(groups: list[tuple[Source, ...]]) -> list[list[int]]:
    return [[each.base_offset for each in group] for group in groups]


def test_groups_by_size_index_and_offsets() -> None:
    """Segments would shrink with every clean until there are thousands, or outgrow their limits."""
    small = [source(at * 10, at * 10 + 10, 40) for at in range(5)]
    assert bases(group_segments(small, 100, 1000)) == [[0, 10], [20, 30], [40]]
    assert bases(group_segments(small, 39, 1000)) == [[0], [10], [20], [30], [40]]
    assert bases(group_segments(small, 1000, 24)) == [[0, 10], [20, 30], [40]]
    assert bases(group_segments(small, 1000, 16)) == [[0], [10], [20], [30], [40]]
    wide = [source(0, 10, 1), source(10, 1 << 31, 1), source(1 << 31, (1 << 31) + 1, 1)]
    assert bases(group_segments(wide, 1000, 1000)) == [[0, 10], [1 << 31]]
    hollow = [source(0, 10, 1), source(10, 1 << 31, 0), source(1 << 31, 1 << 32, 0)]
    assert bases(group_segments(hollow, 1000, 1000)) == [[0, 10, 1 << 31]]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=30), st.integers(1, 100), st.integers(1, 50)
)
def test_groups_keep_every_segment_in_order(rows: list[tuple[int, int]], most: int, index: int) -> None:
    """A segment that no group has would be lost."""
    sources = [source(at * 10, at * 10 + 10, size, entries, entries) for at, (size, entries) in enumerate(rows)]
    groups = group_segments(sources, most, index)
    assert [each for group in groups for each in group] == sources
    for group in groups:
        assert len(group) == 1 or sum(each.size for each in group) <= most


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_the_table_of_states_is_all_there_is(phase: Phase, event: Event) -> None:
    """A partition would stay paused for ever, or be cleaned while it is truncated."""
    state = CleaningState(phase, 2 if phase in (Phase.ABORTED, Phase.PAUSED) else 0)
    if (phase, event) not in TRANSITIONS:
        with pytest.raises(IllegalTransitionError):
            next_state(state, event)
        return
    after = next_state(state, event)
    assert after.pauses == state.pauses + {Event.PAUSE: 1, Event.RESUME: -1}.get(event, 0)
    if event is Event.GRAB:
        assert phase is Phase.NONE
    assert (after.phase is Phase.IN_PROGRESS) == (event is Event.GRAB)


def test_pauses_nest_and_outlast_an_abort() -> None:
    """The second of two who need a partition would find the cleaner at work again."""
    states = CleaningStates()
    states.apply(TP, Event.GRAB)
    with states.paused(TP):
        assert states.of(TP) == CleaningState(Phase.ABORTED, 1)
        with states.paused(TP):
            states.apply(TP, Event.FINISH)
            assert states.of(TP) == CleaningState(Phase.PAUSED, 2)
        with pytest.raises(IllegalTransitionError):
            states.apply(TP, Event.GRAB)
    assert states.of(TP).phase is Phase.NONE
    states.apply(TP, Event.GRAB)
    states.apply(TP, Event.PAUSE)
    states.apply(TP, Event.RESUME)
    assert states.of(TP) == CleaningState(Phase.ABORTED, 0)
    states.apply(TP, Event.FINISH)
    assert states.of(TP).phase is Phase.NONE
    with pytest.raises(IllegalTransitionError):
        states.apply(TP, Event.RESUME)


# -- throttle ---------------------------------------------------------------------------------------------------------


class HandTime:
    """Seconds that pass when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_throttle_holds_a_rate_and_forgives_a_pause_of_a_second_at_most() -> None:
    """Compaction would take the disk from produce and fetch."""
    time = HandTime()
    throttle = Throttle(1000.0, time.monotonic, time.sleep)
    for _ in range(20):
        throttle.spend(500, lambda: None)
    assert 8.9 <= time.now - 100.0 <= 10.1
    time.now += 3600
    before = time.now
    for _ in range(20):
        throttle.spend(500, lambda: None)
    assert 8.9 <= time.now - before <= 9.1
    assert throttle.waited_seconds > 17


def test_who_waits_for_the_throttle_can_be_stopped() -> None:
    """A stop of the broker would wait as long as the throttle says."""
    time = HandTime()

    class StoppedError(Exception):
        pass

    def check() -> None:
        if time.now > 105:
            raise StoppedError

    with pytest.raises(StoppedError):
        Throttle(1.0, time.monotonic, time.sleep).spend(1_000_000, check)
