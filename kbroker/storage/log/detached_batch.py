"""A large batch is written to a file of its own by a thread, and becomes a segment when the log takes it.

The page cache takes some 400 MB/s of fresh pages: a batch of 80 MB would hold the loop for 200 ms.  So the thread that
validates the batch also writes it, to a file that no other append touches, while the log goes on.  Then the loop does,
in the turn of the append:

    1  the log rolls, unless its active segment is empty
    2  the 16 bytes that depend on the place in the log (base offset, leader epoch) are written
    3  the file takes the name of the active segment's, and its place

Until 3 the file has a name that ends with `.deleted`, so that any start removes what a crash or a stop has left.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from kbroker.records.layout import STAMPED_BYTES
from kbroker.storage.files.open_files import SegmentFile
from kbroker.storage.log.log_segment import LOG_SUFFIX, LogSegment, file_prefix
from kbroker.storage.log.segment_removal import retired_suffix
from kbroker.types import FIRST_OFFSET

if TYPE_CHECKING:
    from kbroker.config import LogConfig
    from kbroker.storage.files.filesystem import Buffer, FileSystem

# Smaller batches are written on the loop, in at most 20 ms, usually in a tenth of that.
DETACHED_BYTES = 8 << 20


class DetachedBatch:
    """A batch in a file of its own.  `directory`: the log's when it was written; `path` is empty once it was taken."""

    __slots__ = ("_files", "allocated_bytes", "directory", "file", "path")

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self.directory = directory
        self.path = f"{directory}/{file_prefix(FIRST_OFFSET)}{LOG_SUFFIX}{retired_suffix()}"
        self.file = SegmentFile(files, self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.allocated_bytes = 0

    def write(self, batch: Buffer, preallocate_bytes: int) -> None:
        """Writes the batch; with `preallocate` the file gets a segment's size at once.

        Its blocks are reserved in any case: ext4 writes a file whose blocks are not reserved to the disk when a rename
        puts it in the place of another, which took 30 ms of the loop's time.
        """
        if preallocate_bytes:
            self._files.fallocate(self.file.fd, 0, preallocate_bytes)
        else:
            self._files.allocate_ahead(self.file.fd, 0, len(batch))
        self._files.pwrite(self.file.fd, batch, 0)
        self.allocated_bytes = max(len(batch), preallocate_bytes)

    def move_into(self, segment: LogSegment, batch: memoryview | bytearray) -> None:
        """Steps 2 and 3 for a batch that has been stamped; `segment` is empty.  OSError leaves the log as it was."""
        assert self.path and len(batch) <= self.allocated_bytes, (self.path, len(batch), self.allocated_bytes)
        self._files.pwrite(self.file.fd, memoryview(batch)[:STAMPED_BYTES], 0)
        segment.take_file(self.path, self.file, self.allocated_bytes)
        self.path = ""

    def discard(self) -> None:
        """Removes the file, unless the log has taken it.  Runs anywhere."""
        path, self.path = self.path, ""
        if path:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(path)


def write_detached(files: FileSystem, directory: str, config: LogConfig, batch: Buffer) -> DetachedBatch | None:
    """Writes a judged batch to a file of its own in a log's directory; None for one that the loop writes itself.

    Runs on a thread.  OSError when the disk refuses it; nothing is left then.
    """
    if not DETACHED_BYTES <= len(batch) <= config.roll_bytes:
        return None
    aside = DetachedBatch(files, directory)
    try:
        aside.write(batch, config.roll_bytes if config.preallocate else 0)
    except OSError:
        with contextlib.suppress(OSError):
            aside.discard()
        raise
    return aside
