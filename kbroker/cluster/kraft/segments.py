"""The segments of the metadata log on disk: whole batches, one behind the other, in files named by their first offset.

    <base offset, 20 digits>.log     as Kafka writes them

Batches come from the controllers as they are and are never changed.  Kafka's index files are not kept: Kafka makes them
again from the segments.  All calls may wait for the disk; they belong to one thread at a time.
"""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch, checked_batch
from kbroker.cluster.kraft.quorum_steps import EpochStart
from kbroker.records.layout import LENGTH_END, LENGTH_POSITION, LOG_OVERHEAD, MAGIC_V2
from kbroker.storage.files.filesystem import naming

if TYPE_CHECKING:
    from kbroker._fast.records.record_batch import BatchInfo
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.cluster")

SEGMENT = re.compile(r"^(\d{20})\.log$")
READ_BYTES = 4 << 20
PLACE_BYTES = 64 << 10
SCANNED_BATCHES = 1 << 14


def segment_name(base_offset: int) -> str:
    """The name of the segment that begins with an offset."""
    return f"{base_offset:020}.log"


def stored_batches(
    files: FileSystem, fd: int, size: int, where: str, begin_at: int = 0, at_once: int = READ_BYTES
) -> Iterator[tuple[int, MetadataBatch]]:
    """The batches of a file with their positions, from `begin_at` on; `at_once` bytes are read by one call.

    DamagedBatchesError where there is no whole one, OSError."""
    buffer, begin, position = b"", begin_at, begin_at
    while position < size:
        at = position - begin
        if len(buffer) - at < LENGTH_END:
            buffer, begin, at = files.pread(fd, at_once, position), position, 0
        length = LOG_OVERHEAD + int.from_bytes(buffer[at + LENGTH_POSITION : at + LENGTH_END], "big", signed=True)
        length = min(max(length, LENGTH_END), size - position)
        if len(buffer) - at < length:
            buffer, begin, at = files.pread(fd, max(at_once, length), position), position, 0
        yield position, checked_batch(buffer[at : at + length], f"{where}: the batch at byte {position}")
        position += length


@dataclass(slots=True)
class _Segment:
    base_offset: int
    path: str
    size: int
    first_ms: int | None = None
    places: list[tuple[int, int]] = field(default_factory=list)
    """Of a batch each PLACE_BYTES: its first offset, and its position."""

    def note(self, offset: int, position: int) -> None:
        """A batch begins here."""
        if not self.places or position - self.places[-1][1] >= PLACE_BYTES:
            self.places.append((offset, position))

    def took(self, info: BatchInfo, position: int, due: int) -> int:
        """A batch has been read here, where an offset is due; what follows it.  DamagedBatchesError."""
        if info.base_offset != due or info.magic != MAGIC_V2:
            raise DamagedBatchesError(f"{self.path}: a batch begins at offset {info.base_offset}, {due} is due")
        if self.first_ms is None:
            self.first_ms = info.max_timestamp
        self.note(due, position)
        return info.last_offset + 1


class Segments:
    """The log behind a snapshot.  `open` comes first; OSError in any call leaves it unusable."""

    def __init__(self, files: FileSystem, directory: str, segment_bytes: int, segment_ms: int) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._segments: list[_Segment] = []
        self._fd = -1
        self._has_new_names = False
        self._rolls = False
        self.end_offset = 0
        self.epochs: list[EpochStart] = []

    @property
    def size_bytes(self) -> int:
        """Of all segments."""
        return sum(each.size for each in self._segments)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._segments)

    @property
    def start_offset(self) -> int:
        """Where the log on disk begins."""
        return self._segments[0].base_offset if self._segments else self.end_offset

    def open(self, start: int, epoch: int = 0) -> list[MetadataBatch]:
        """The batches behind `start`, where the newest snapshot ends, whose epoch is `epoch`.

        What is damaged, or does not join on, is cut off with a warning: the controllers have it.
        """
        found = self._listed()
        first = max((i for i, each in enumerate(found) if each.base_offset <= start), default=None)
        if first is None:
            self._drop(found, "begin behind the newest snapshot")
            found = []
        kept: list[MetadataBatch] = []
        end = found[first].base_offset if first is not None else start
        for index in range(first or 0, len(found)):
            segment = found[index]
            if segment.base_offset != end:
                self._drop(found[index:], f"do not follow offset {end}")
                found = found[:index]
                break
            whole, end = self._read(segment, start, end, kept)
            if not whole:
                self._drop(found[index + 1 :], "lie behind what was cut off")
                found = found[: index + 1]
                break
        if end < start or (kept and (kept[0].base_offset < start or kept[0].epoch < epoch)):
            self._drop(found, "do not go on behind the newest snapshot")
            found, end, kept = [], start, []
        self._segments, self.end_offset = found, max(end, start)
        self.epochs = _epochs_of(kept)
        if found:
            self._fd = self._files.open(found[-1].path, os.O_RDWR)
        else:
            self._begin(self.end_offset)
        return kept

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{segment_name(base_offset)}"

    def _listed(self) -> list[_Segment]:
        return sorted(
            (
                _Segment(int(match[1]), f"{self._directory}/{entry.name}", entry.size)
                for entry in self._files.list_directory(self._directory)
                if (match := SEGMENT.match(entry.name)) and not entry.is_directory
            ),
            key=lambda each: each.base_offset,
        )

    def _read(self, segment: _Segment, start: int, end: int, kept: list[MetadataBatch]) -> tuple[bool, int]:
        """Whether the segment is whole, and where it ends; what follows its last good batch is cut off."""
        fd, position = self._files.open(segment.path, os.O_RDWR), 0
        try:
            with naming(segment.path):
                for info in self._before(fd, segment, start):
                    end, position = segment.took(info, info.position, end), info.position + info.size_in_bytes
                for at, batch in stored_batches(self._files, fd, segment.size, segment.path, position):
                    end, position = segment.took(batch.info, at, end), at + len(batch.data)
                    kept.append(batch)
        except DamagedBatchesError as error:
            logger.warning("%s; %d bytes are cut off and fetched anew", error, segment.size - position)
            with naming(segment.path):
                self._files.ftruncate(fd, position)
                self._files.fsync(fd)
            segment.size = position
            return False, end
        finally:
            self._files.close(fd)
        return True, end

    def _before(self, fd: int, segment: _Segment, start: int) -> Iterator[BatchInfo]:
        """The headers of the whole batches that end below an offset: nothing else of them is asked for."""
        position, is_over = 0, segment.base_offset >= start
        while not is_over:
            found = self._files.scan_segment(fd, position, segment.size, check_crc=True, max_batches=SCANNED_BATCHES)
            batches = found.batches
            for info in batches:
                if info.last_offset >= start:
                    return
                yield info
            position, is_over = found.valid_end, not batches

    def _drop(self, segments: Sequence[_Segment], why: str) -> None:
        for each in reversed(segments):
            logger.warning("%s is deleted, as the segments from there on %s", each.path, why)
            self._files.unlink(each.path)
            self._has_new_names = True

    def goes_on_with(self, batches: Sequence[MetadataBatch]) -> bool:
        """Whether these batches go into the segment that is open: no file begins or ends with them."""
        if self._fd < 0 or not self._segments[-1].size:
            return False
        size = sum(len(each.data) for each in batches)
        return not self._ends_with(self._segments[-1], size, batches[-1].info.max_timestamp)

    def append(self, batches: Iterable[MetadataBatch]) -> None:
        """Write batches, of which the first begins at the end.  They are durable once their segment has ended, or with
        the next `sync`."""
        for batch in batches:
            assert batch.base_offset == self.end_offset, f"{batch.base_offset} follows {self.end_offset}"
            segment = self._active(batch)
            with naming(segment.path):
                self._files.pwrite(self._fd, batch.data, segment.size)
            segment.note(batch.base_offset, segment.size)
            segment.size += len(batch.data)
            if segment.first_ms is None:
                segment.first_ms = batch.info.max_timestamp
            self.end_offset = batch.end_offset
            if not self.epochs or self.epochs[-1].epoch != batch.epoch:
                self.epochs.append(EpochStart(batch.epoch, batch.base_offset))

    def _active(self, batch: MetadataBatch) -> _Segment:
        last = self._segments[-1] if self._segments else None
        if last is not None and last.size and self._ends_with(last, len(batch.data), batch.info.max_timestamp):
            self._finish()
            last = None
        if last is None:
            last = self._begin(batch.base_offset)
        self._rolls = False
        return last

    def _begin(self, base_offset: int) -> _Segment:
        segment = _Segment(base_offset, self._path(base_offset), 0)
        self._fd = self._files.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._segments.append(segment)
        self._has_new_names = True
        return segment

    def _ends_with(self, segment: _Segment, size: int, newest_ms: int) -> bool:
        """Whether a segment with records ends where so many bytes are to follow, of which the newest are of then."""
        is_full = segment.size + size > self._segment_bytes
        is_old = segment.first_ms is not None and newest_ms - segment.first_ms > self._segment_ms
        return self._rolls or is_full or is_old

    def _finish(self) -> None:
        """Leave the active segment, durable."""
        if self._fd >= 0:
            self.sync()
            self._files.close(self._fd)
            self._fd = -1

    def roll(self) -> None:
        """Begin a new segment with the next batch."""
        self._rolls = True

    def sync(self) -> None:
        """Make all that was written durable, with its names."""
        if self._fd >= 0:
            with naming(self._segments[-1].path):
                self._files.fdatasync(self._fd)
        if self._has_new_names:
            self._files.fsync_directory(self._directory)
            self._has_new_names = False

    def truncate(self, end_offset: int) -> None:
        """Take away all from an offset on, where a batch begins, durably; the log does not begin behind it."""
        while len(self._segments) > 1 and self._segments[-1].base_offset >= end_offset:
            self._drop_last()
        segment = self._segments[-1]
        if self._fd < 0:
            self._fd = self._files.open(segment.path, os.O_RDWR)
        with naming(segment.path):
            begin = self._place(self._fd, segment, end_offset)
            for position, batch in stored_batches(
                self._files, self._fd, segment.size, segment.path, begin, PLACE_BYTES
            ):
                if batch.end_offset > end_offset:
                    self._files.ftruncate(self._fd, position)
                    self._files.fsync(self._fd)
                    segment.size = position
                    segment.places = [each for each in segment.places if each[1] < position]
                    segment.first_ms = segment.first_ms if position else None
                    break
        self.end_offset = end_offset
        self.epochs = [each for each in self.epochs if each.offset < end_offset]
        self.sync()

    def _drop_last(self) -> None:
        """Durably: after a crash no segment lies behind a gap."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1
        self._files.unlink(self._segments.pop().path)
        self._files.fsync_directory(self._directory)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds an offset on: `max_bytes` at most, but one at least.

        Nothing where the log does not reach there.  OSError, DamagedBatchesError."""
        found: list[bytes] = []
        size = 0
        for segment in self._segments:
            if segment.base_offset > offset and not found:
                break
            is_last = segment is self._segments[-1]
            if not is_last and self._segments[self._segments.index(segment) + 1].base_offset <= offset:
                continue
            for batch in self._batches_from(segment, offset, max_bytes):
                if found and size + len(batch.data) > max_bytes:
                    return b"".join(found)
                found.append(batch.data)
                size += len(batch.data)
                if size >= max_bytes:
                    return b"".join(found)
        return b"".join(found)

    def _batches_from(self, segment: _Segment, offset: int, max_bytes: int) -> Iterator[MetadataBatch]:
        at_once = min(READ_BYTES, max(max_bytes, PLACE_BYTES))
        fd = self._files.open(segment.path, os.O_RDONLY)
        try:
            with naming(segment.path):
                begin = self._place(fd, segment, offset)
                for _, batch in stored_batches(self._files, fd, segment.size, segment.path, begin, at_once):
                    if batch.end_offset > offset:
                        yield batch
        finally:
            self._files.close(fd)

    def _place(self, fd: int, segment: _Segment, offset: int) -> int:
        """Where a batch begins that is not behind the one with an offset, and near it."""
        at = bisect_right(segment.places, (offset, segment.size)) - 1
        if at < 0:
            return 0
        begin, position = segment.places[at][1], 0
        data = self._files.pread(fd, PLACE_BYTES, begin)
        while True:
            following = (
                position + LOG_OVERHEAD + int.from_bytes(data[position + LENGTH_POSITION : position + LENGTH_END])
            )
            if following + LENGTH_POSITION > len(data) or offset < int.from_bytes(
                data[following : following + LENGTH_POSITION]
            ):
                return begin + position
            position = following

    def prepare(self, start: int) -> None:
        """Make the segment with which the log is to begin anew, at its end or behind it.  A start then knows that the
        log before it has no use, and has not lost its end."""
        if start > self._segments[-1].base_offset:
            self._files.close(self._files.open(self._path(start), os.O_RDWR | os.O_CREAT))
            self._files.fsync_directory(self._directory)

    def restart(self, start: int) -> None:
        """Delete all, durably: the log begins anew at an offset, behind its beginning.  See `prepare`."""
        while len(self._segments) > 1:
            self._drop_last()
        if self._fd >= 0:
            self._files.close(self._fd)
        before = self._segments.pop()
        self._begin(start)
        self.sync()
        if before.path != self._segments[-1].path:
            self._files.unlink(before.path)
            self._files.fsync_directory(self._directory)
        self.end_offset, self.epochs = start, []

    def delete_below(self, offset: int) -> None:
        """Delete the segments that have no record from an offset on, the first one first; the last one stays."""
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self._files.unlink(self._segments[0].path)
            self._files.fsync_directory(self._directory)
            del self._segments[0]

    def close(self) -> None:
        """Make all durable, and close the file."""
        self._finish()


def _epochs_of(batches: Iterable[MetadataBatch]) -> list[EpochStart]:
    epochs: list[EpochStart] = []
    for batch in batches:
        if not epochs or epochs[-1].epoch != batch.epoch:
            epochs.append(EpochStart(batch.epoch, batch.base_offset))
    return epochs
