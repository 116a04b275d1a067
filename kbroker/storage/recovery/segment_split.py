"""Splitting a segment whose offsets do not fit its indexes (Kafka before 1.1 could write one: KAFKA-6264).

The batches are copied into new segments, as `.cleaned`, made durable, and renamed to `.swap` from the last to the
first; the next pass over the directory installs them in place of the old one.  A crash leaves the old segment or the
new ones.
"""

from __future__ import annotations

import os

from kbroker._fast.log.batch_rules import MAX_RELATIVE_OFFSET
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_segment import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, LogSegment
from kbroker.storage.log.segment_batches import first_offset, iterate_headers
from kbroker.types import FIRST_POSITION, Offset, Position

COPY_BYTES = 1 << 20


def parts_of(segment: LogSegment, environment: LogEnvironment) -> list[tuple[Offset, Position, Position]]:
    """(base offset, first position, end position) of the segments that the batches fit into."""
    # The file's own size: a recovery that stopped at the first offset that is too wide has counted up to there only.
    size = Position(environment.files.size(segment.file().fd))
    base, start, end = segment.base_offset, FIRST_POSITION, FIRST_POSITION
    parts = []
    for info in iterate_headers(environment.files, segment, FIRST_POSITION, size):
        if info.last_offset - base > MAX_RELATIVE_OFFSET:
            if end > start:
                parts.append((base, start, end))
            base, start = first_offset(environment.files, segment, info), info.position
        end = info.position + info.size_in_bytes
    parts.append((base, start, size))
    return parts


def split_segment(segment: LogSegment, directory: str, environment: LogEnvironment) -> None:
    """Leaves `.swap` segments beside the one that is too wide."""
    files = environment.files
    parts = parts_of(segment, environment)
    for base, start, end in parts:
        fd = files.open(f"{directory}/{base:020d}{LOG_SUFFIX}{CLEANED_SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            for position in range(start, end, COPY_BYTES):
                data = files.pread(segment.file().fd, min(COPY_BYTES, end - position), position)
                files.pwrite(fd, data, position - start)
            files.fsync(fd)
        finally:
            files.close(fd)
    files.fsync_directory(directory)
    for base, _, _ in reversed(parts):
        path = f"{directory}/{base:020d}{LOG_SUFFIX}"
        files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    files.fsync_directory(directory)
    segment.close_files()
