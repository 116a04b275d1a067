"""What searches, walks and rebuilt indexes see of a segment (`LogSegment` is one), and the values they exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker.types import Offset, Position

if TYPE_CHECKING:
    from kbroker._fast.log.batch_seek import FollowUps
    from kbroker._fast.log.index import AppendTail
    from kbroker.storage.files.open_files import SegmentFile
    from kbroker.storage.log.indexes import OffsetIndex, TimeIndex


class SegmentConfig(NamedTuple):
    """What a segment takes from its topic's configuration."""

    index_interval_bytes: int
    max_index_bytes: int
    preallocate_bytes: int = 0
    segment_bytes: int = 1 << 30


class BatchLocation(NamedTuple):
    """Where a batch lies in its segment, and its offsets (-1 when they were not needed to find it)."""

    position: Position
    size: int
    base_offset: Offset
    last_offset: Offset


class Hole(NamedTuple):
    """Bytes `[position, end_position)` are no batches; offsets `[offset, end_offset)` cannot be read.

    `end_offset` is None where no batch of the segment follows.
    """

    position: Position
    end_position: Position
    offset: Offset
    end_offset: Offset | None
    reason: str

    def holds(self, offset: Offset) -> bool:
        """Whether the offset lies in the hole."""
        return self.offset <= offset and (self.end_offset is None or offset < self.end_offset)


class Segment(Protocol):
    """A segment's files, indexes and what is known of its batches."""

    base_offset: Offset
    config: SegmentConfig
    follow_ups: FollowUps | None
    holes: tuple[Hole, ...]
    is_index_checked: bool
    tail: AppendTail | None
    times_checked: bool

    @property
    def path(self) -> str:
        """The log file."""

    @property
    def size(self) -> Position:
        """The bytes of its batches: the position behind them."""

    @property
    def offset_index(self) -> OffsetIndex:
        """Positions by offset."""

    @property
    def time_index(self) -> TimeIndex:
        """Offsets by time."""

    @property
    def max_timestamp(self) -> tuple[int, Offset]:
        """(largest timestamp, offset of its batch)."""

    def file(self) -> SegmentFile:
        """The open log file."""

    def locate(self, offset: Offset) -> BatchLocation | None:
        """The first batch that ends at or after `offset`."""

    def add_hole(self, hole: Hole) -> None:
        """Notes bytes that are no batches."""

    def prepare_append(self) -> AppendTail:
        """Makes the segment ready to be appended to."""
