"""The segments of a log: an immutable sorted list that is replaced, never changed.

Who holds a `LogSegments` sees the same segments for as long as it likes, whatever is rolled, deleted or truncated
meanwhile.  A log always has at least one segment; the last one is active.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kbroker._fast.log.log_fields import SegmentsFields
from kbroker.storage.log.log_segment import LogSegment
from kbroker.types import Offset


class LogSegments(SegmentsFields):
    """Segments in order of their base offsets."""

    __slots__ = ("_bases", "_segments")

    active: LogSegment

    def __init__(self, segments: Iterable[LogSegment], *, in_order: bool = False) -> None:
        ordered = segments if in_order else sorted(segments, key=lambda segment: segment.base_offset)
        self._segments: tuple[LogSegment, ...] = tuple(ordered)
        self._bases = [segment.base_offset for segment in self._segments]
        if not self._segments:
            raise ValueError("a log has at least one segment")
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        total = 0
        for segment in self._segments:  # a scrape asks every log: no generator
            total += segment.size
        return total

    def with_added(self, segment: LogSegment) -> LogSegments:
        """These segments and a new active one."""
        assert segment.base_offset > self.active.base_offset, (segment, self.active)
        return LogSegments((*self._segments, segment))

    def without(self, removed: Iterable[LogSegment]) -> LogSegments:
        """These segments without some."""
        gone = set(map(id, removed))
        left = LogSegments([segment for segment in self._segments if id(segment) not in gone], in_order=True)
        assert len(left) + len(gone) == len(self), "segments are removed that are not the log's"
        return left

    def replacing(self, removed: Iterable[LogSegment], added: Iterable[LogSegment]) -> LogSegments:
        """These segments with some in place of others."""
        gone = set(map(id, removed))
        made = LogSegments((*(segment for segment in self._segments if id(segment) not in gone), *added))
        assert len(set(made._bases)) == len(made), made._bases
        return made

    def get(self, base_offset: Offset) -> LogSegment | None:
        """The segment with this base offset."""
        at = bisect_left(self._bases, base_offset)
        return self._segments[at] if at < len(self._bases) and self._bases[at] == base_offset else None

    def floor(self, offset: Offset) -> LogSegment | None:
        """The last segment that begins at or before `offset`."""
        at = bisect_right(self._bases, offset)
        return self._segments[at - 1] if at else None

    def higher(self, offset: Offset) -> LogSegment | None:
        """The first segment that begins after `offset`."""
        at = bisect_right(self._bases, offset)
        return self._segments[at] if at < len(self._segments) else None

    def before(self, segment: LogSegment) -> Sequence[LogSegment]:
        """The segments older than this one."""
        return self._segments[: bisect_left(self._bases, segment.base_offset)]

    def from_offset(self, start: Offset) -> Sequence[LogSegment]:
        """The segments that may hold `start` or anything after it."""
        return self._segments[max(bisect_right(self._bases, start) - 1, 0) :]

    def between(self, start: Offset, end: Offset) -> Sequence[LogSegment]:
        """The segments that may hold something of [start, end)."""
        return self._segments[max(bisect_right(self._bases, start) - 1, 0) : bisect_left(self._bases, end)]
