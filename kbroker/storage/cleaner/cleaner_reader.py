"""Reading a segment for compaction, through one buffer that grows for a batch larger than it is.

What a batch says of its size may be damaged, so memory is not taken on its word alone, as in Kafka's Cleaner:

    up to max.message.bytes    the buffer grows
    up to MOST_BATCH_BYTES     as a topic may hold batches from before its limit was lowered, and compression may make
                               one slightly larger: the buffer grows after the batch's checksum was found right, for
                               which it is read in pieces
    beyond that                CorruptSegmentError; so is a batch that goes beyond the end of its segment
"""

from __future__ import annotations

import os
import zlib

from kbroker._fast.base.crc32c import crc32c
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_V2
from kbroker.records.batch import STORED_LIMIT_BYTES
from kbroker.records.layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    LENGTH_END,
    LENGTH_POSITION,
    MAGIC_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_CRC_START,
)
from kbroker.storage.cleaner.cleaner_plan import Source
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.open_files import SegmentFile
from kbroker.storage.log.segment_damage import CorruptSegmentError

MOST_BATCH_BYTES = STORED_LIMIT_BYTES

#: Where the checksum lies, and where the bytes that it is of begin: of record batches, and of older messages.
CRC_PLACE = CRC_POSITION, ATTRIBUTES_POSITION
LEGACY_CRC_PLACE = MESSAGE_CRC_POSITION, MESSAGE_CRC_START
CRC_BYTES = 4


class Reader:
    """One buffer over a segment's file, filled from wherever the last whole batch ended."""

    __slots__ = ("_file", "_files", "_limit_bytes", "buffer", "position", "source")

    def __init__(
        self, files: FileSystem, source: Source, buffer: bytearray, position: int, max_message_bytes: int
    ) -> None:
        self._files = files
        self._file = SegmentFile(files, source.path, os.O_RDONLY)
        self._limit_bytes = max_message_bytes
        self.source = source
        self.buffer = buffer
        self.position = position

    @property
    def fd(self) -> int:
        """The source's descriptor."""
        return self._file.fd

    @property
    def left(self) -> int:
        """Bytes behind the position."""
        return max(self.source.size - self.position, 0)

    def fill(self) -> int:
        """How many bytes from `position` on are in the buffer, while some are left.  Raises CorruptSegmentError."""
        want = min(len(self.buffer), self.left)
        got = self._read(self.position, want)
        if got < want:
            raise CorruptSegmentError(
                f"{self.source.path} ends at {self.position + got}, expected {self.source.size} bytes"
            )
        return got

    def _read(self, position: int, size: int) -> int:
        return self._files.pread_into(self._file.fd, memoryview(self.buffer)[:size], position)

    def make_room(self, filled: int) -> None:
        """After a buffer without a whole batch: a larger one, as large as the batch is.  Raises CorruptSegmentError."""
        left = self.source.size - self.position
        size = (
            int.from_bytes(self.buffer[LENGTH_POSITION:LENGTH_END], signed=True) + LOG_OVERHEAD
            if filled >= LOG_OVERHEAD
            else 0
        )
        where = f"position {self.position} of {self.source.size}"
        if size <= LOG_OVERHEAD or size > left:
            raise CorruptSegmentError(f"{self.source.path}: no whole batch at {where}")
        if size > MOST_BATCH_BYTES:
            raise CorruptSegmentError(
                f"{self.source.path}: the batch at {where} has {size} bytes, at most {MOST_BATCH_BYTES} are compacted"
            )
        if size > self._limit_bytes and not self._is_whole(filled, size):
            raise CorruptSegmentError(
                f"{self.source.path}: the batch at {where} says that it has {size} bytes, over max.message.bytes "
                f"({self._limit_bytes}), and its checksum is wrong"
            )
        missing = size - len(self.buffer)
        if missing > 0:
            self.buffer.extend(bytes(missing))

    def _is_whole(self, filled: int, size: int) -> bool:
        """Whether the batch at `position`, whose first bytes are in the buffer, has the checksum of `size` bytes.

        The buffer holds other bytes afterwards.
        """
        if filled < BATCH_OVERHEAD:
            return False
        is_legacy = self.buffer[MAGIC_POSITION] < MAGIC_V2
        at, start = LEGACY_CRC_PLACE if is_legacy else CRC_PLACE
        stored = int.from_bytes(self.buffer[at : at + CRC_BYTES])
        checksum = 0
        while start < size:
            got = self._read(self.position + start, min(len(self.buffer), size - start))
            if not got:
                return False
            with memoryview(self.buffer)[:got] as piece:
                checksum = zlib.crc32(piece, checksum) if is_legacy else crc32c(piece, checksum)
            start += got
        return checksum == stored
