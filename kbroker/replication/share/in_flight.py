"""The records of a share-partition that are under way, as runs of offsets with one state each.

A run is split where an acknowledgement, a lock or an acquisition covers a part of it, and neighbours in the same
terminal state are merged again.  A batch costs one object, however many records it has, while all of them share one
state.

Invariants: runs are sorted by offset and disjoint; between two runs lie only offsets that the log does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from kbroker.replication.share.record_state import TERMINAL, TRANSITIONS, RecordState

NO_MEMBER = ""
NO_LOCK = 0.0

_FIRST = attrgetter("first")


class Before(NamedTuple):
    """What a run was before a change that is not stored yet."""

    state: RecordState
    member_id: str
    lock_expires: float


class Run:
    """Offsets `first` to `last`, both included, which share one state.

    `lock_expires`: seconds on the monotonic clock, while ACQUIRED.  `before`: set while a change waits to be stored.
    """

    __slots__ = ("before", "delivery_count", "first", "last", "lock_expires", "member_id", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        lock_expires: float = NO_LOCK,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_expires = lock_expires
        self.before: Before | None = None

    def __repr__(self) -> str:
        return f"Run({self.first}..{self.last} {self.state.name} x{self.delivery_count} {self.member_id})"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it may be acquired now."""
        return self.state is RecordState.AVAILABLE and self.before is None

    @property
    def is_acquired(self) -> bool:
        """Whether a member holds it, and has not said anything of it."""
        return self.state is RecordState.ACQUIRED and self.before is None

    def acquire(self, member_id: str, lock_expires: float) -> None:
        """Hand it to a member once more."""
        assert self.before is None and member_id != NO_MEMBER, (self, member_id)
        self._become(RecordState.ACQUIRED)
        self.delivery_count += 1
        self.member_id = member_id
        self.lock_expires = lock_expires

    def change(self, state: RecordState) -> None:
        """Take it from its member; `commit` or `roll_back` follows."""
        assert self.before is None, f"{self!r} waits to be stored already"
        self.before = Before(self.state, self.member_id, self.lock_expires)
        self.settle(state)

    def settle(self, state: RecordState) -> None:
        """Take it from its member at once, whether or not that will be stored."""
        self._become(state)
        self.member_id = NO_MEMBER
        self.lock_expires = NO_LOCK

    def commit(self) -> None:
        """The change is stored."""
        self.before = None

    def roll_back(self) -> None:
        """The change could not be stored."""
        if self.before is not None:
            self.state, self.member_id, self.lock_expires = self.before
            self.before = None

    def _become(self, state: RecordState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"{self!r} cannot become {state.name}")
        self.state = state


class InFlight:
    """The runs of one share-partition."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """The runs that have offsets of `first` to `last`."""
        begin = bisect_right(self.runs, first, key=_FIRST)
        if begin and self.runs[begin - 1].last >= first:
            begin -= 1
        return self.runs[begin : bisect_right(self.runs, last, key=_FIRST)]

    def cut(self, first: int, last: int) -> list[Run]:
        """The same, of which none reaches beyond `first` or `last`.  They must not wait to be stored."""
        self._split(first)
        self._split(last + 1)
        return self.overlapping(first, last)

    def add(self, run: Run) -> None:
        """Add offsets that no run has."""
        if not self.runs or run.first > self.runs[-1].last:
            self.runs.append(run)
        else:
            self.runs.insert(bisect_right(self.runs, run.first, key=_FIRST), run)

    def drop_below(self, offset: int) -> None:
        """Forget offsets below `offset`, but for those that wait to be stored."""
        end = bisect_right(self.runs, offset - 1, key=_FIRST)
        if not end:
            return
        kept = [run for run in self.runs[:end] if run.before is not None or run.last >= offset]
        for run in kept:
            if run.before is None:
                run.first = max(run.first, offset)
        self.runs[:end] = kept
        first = self.runs[0] if self.runs else None
        assert first is None or first.before is not None or first.first >= offset, (first, offset)

    def first_unsettled(self) -> Run | None:
        """The first run that has not come to its end."""
        return next((run for run in self.runs if run.state not in TERMINAL), None)

    def join_ends(self) -> None:
        """Make one run of terminal neighbours of equal state and count."""
        joined: list[Run] = []
        for run in self.runs:
            last = joined[-1] if joined else None
            if (
                last is not None
                and run.state in TERMINAL
                and last.state is run.state
                and last.delivery_count == run.delivery_count
                and last.before is None
                and run.before is None
                and last.last + 1 == run.first
            ):
                last.last = run.last
            else:
                joined.append(run)
        if len(joined) < len(self.runs):
            self.runs = joined

    def _split(self, offset: int) -> None:
        """Have no run hold both `offset - 1` and `offset`."""
        at = bisect_right(self.runs, offset, key=_FIRST) - 1
        if at < 0:
            return
        run = self.runs[at]
        if run.first < offset <= run.last:
            assert run.before is None, f"{run!r} waits to be stored as a whole"
            rest = Run(offset, run.last, run.state, run.delivery_count, run.member_id, run.lock_expires)
            run.last = offset - 1
            self.runs.insert(at + 1, rest)
