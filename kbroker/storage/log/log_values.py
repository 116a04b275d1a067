"""Values that go in and out of a log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.files.file_region import FileRegion
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, Position

if TYPE_CHECKING:
    from kbroker._fast.log.log_fields import LateRead
    from kbroker.types import TopicPartition

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "FetchData",
    "FetchIsolation",
    "TimestampOffset",
]

EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5


class FetchIsolation(Enum):
    """Up to where a read may see."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(slots=True, eq=False)
class AppendResult:
    """What an append did.  For a duplicate, what the first append of the same batch did."""

    first_offset: Offset
    last_offset: Offset
    log_append_time: int
    log_start_offset: Offset
    duplicate: bool
    size_bytes: int


@dataclass(slots=True, eq=False)
class FetchData:
    """What a read found: a region of a segment's file and the offsets that go with it.

    `fetch_offset_position` is the region's place in its segment; `size` the region's length (0 when `records` is None).
    `late`: there are records, which come later.
    """

    records: FileRegion | None
    fetch_offset_position: Position
    first_entry_incomplete: bool
    aborted_transactions: list[AbortedTransaction] | None
    high_watermark: Offset
    log_start_offset: Offset
    last_stable_offset: Offset
    size: int
    late: LateRead | None = None


class Tier(Protocol):
    """Remote storage, as a log sees it."""

    def read_into(
        self,
        data: FetchData,
        partition: TopicPartition,
        start_offset: Offset,
        max_bytes: int,
        isolation: FetchIsolation,
        min_one_message: bool,
    ) -> None:
        """Gives `data`, which has the log's bounds, the records from an offset below the first on this disk, or the
        late read that they wait for: see `UnifiedLog.read`.  KafkaError."""
