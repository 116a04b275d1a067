"""Batches of a segment, one after the other, read in chunks: for replay, recovery and lookups by time."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker._fast.record_batch import BatchInfo, read_header
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.log_segment import HEADER_BYTES, LogSegment

CHUNK_BYTES = 1 << 20
_LENGTH_START = 8
_LENGTH_END = 12


def batch_size(data: bytes, at: int) -> int:
    """The whole size of the batch whose header begins at `at`; its length field must be there."""
    return int.from_bytes(data[at + _LENGTH_START : at + _LENGTH_END], signed=True) + _LENGTH_END


def iterate_batches(
    files: FileSystem, segment: LogSegment, position: int, end: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchInfo, memoryview]]:
    """(position, header, bytes) of each whole batch in [position, end).

    Ends at the first bytes that are not a whole batch: the caller sees how far it came.  Headers that break the
    format raise BatchError.
    """
    fd = segment.file().fd
    want = chunk_bytes
    while end - position >= HEADER_BYTES:
        data = files.pread(fd, min(want, end - position), position)
        view = memoryview(data)
        at = 0
        size = HEADER_BYTES
        while len(data) - at >= HEADER_BYTES:
            size = batch_size(data, at)
            if size < HEADER_BYTES or at + size > len(data):
                break
            info = read_header(view, at)
            yield position + at, info, view[at : at + size]
            at += size
        if at == 0:
            if size < HEADER_BYTES or size > end - position or len(data) >= size:
                return
            want = size
        else:
            want = chunk_bytes
        position += at
