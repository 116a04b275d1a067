"""Batches of a segment, one after the other: for replay, recovery and lookups by time.

Headers are found in C without the GIL, a bounded number at a time; bytes are read for the batches that the caller asks
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import MAGIC_V2, BatchInfo
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import Offset, Position

if TYPE_CHECKING:
    from kbroker.storage.log.segment_view import Segment

BATCHES_AT_ONCE = 4096


def iterate_headers(
    files: FileSystem, segment: Segment, position: Position, end: int, batches_at_once: int = BATCHES_AT_ONCE
) -> Iterator[BatchInfo]:
    """The header, with its position, of each batch that begins in [position, end); checksums are not looked at.

    Ends without a word at bytes that are no batch: only recovery has to say what they are.
    """
    file = segment.file()
    while position < end:
        scan = files.scan_segment(file.fd, position, end, check_crc=False, max_batches=batches_at_once)
        yield from scan.batches
        position = scan.valid_end
        if scan.complete:
            return


def first_offset(files: FileSystem, segment: Segment, info: BatchInfo) -> Offset:
    """The offset of a batch's first record; that of an old format's wrapper takes decompressing it."""
    if info.magic >= MAGIC_V2 or not info.compression:
        return info.base_offset
    return Offset(next(iterate_stored_records(read_batch(files, segment, info))).offset)


def read_batch(files: FileSystem, segment: Segment, info: BatchInfo) -> bytes:
    """The bytes of a batch that `iterate_headers` found."""
    return files.pread(segment.file().fd, info.size_in_bytes, info.position)
