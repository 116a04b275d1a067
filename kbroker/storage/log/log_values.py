"""Values that go in and out of a log."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kbroker._fast.files.file_region import FileRegion
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.txn_index import AbortedTransaction

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "FetchData",
    "FetchIsolation",
    "TimestampOffset",
]

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
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
    offset: int
    leader_epoch: int = -1


class AppendResult:
    """What an append did.  For a duplicate, what the first append of the same batch did."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time", "log_start_offset", "size_bytes")

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time: int,
        log_start_offset: int,
        duplicate: bool,
        size_bytes: int,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"AppendResult({self.first_offset}..{self.last_offset}, duplicate={self.duplicate})"


class FetchData:
    """What a read found: a region of a segment's file and the offsets that go with it.

    `fetch_offset_position` is the region's place in its segment; `size` the region's length (0 when `records` is None).
    """

    __slots__ = (
        "aborted_transactions",
        "fetch_offset_position",
        "first_entry_incomplete",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
        "size",
    )

    def __init__(
        self,
        records: FileRegion | None,
        fetch_offset_position: int,
        first_entry_incomplete: bool,
        aborted_transactions: list[AbortedTransaction] | None,
        high_watermark: int,
        log_start_offset: int,
        last_stable_offset: int,
        size: int,
    ) -> None:
        self.records = records
        self.fetch_offset_position = fetch_offset_position
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.last_stable_offset = last_stable_offset
        self.size = size
