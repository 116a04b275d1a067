"""What a node with the controller role may start with: its metadata log as the node left it, whole.

A voter has promised what it had on disk when it answered: its vote, its epoch, the records up to its log's end.  Where
these files cannot be all of that, the node does not start: a voter that has forgotten breaks what the quorum has
committed.  Nothing is forgiven but what a crash leaves behind of a write or a deletion that was never answered:

- the torn end of the last segment: a batch that is not complete, or of which zeros are left from some block on, with
  no batch behind it;
- an older log beside the snapshot of another node that has taken its place (`MetadataDirectory.restart`).

A last segment that is gone, empty or shorter looks like one that was about to be written.  So `durable-end` keeps how
far the log was at least: as it was at the last stop, and where its last segment began.  Apache Kafka has no such file.

Nothing on disk is changed before all of it has been looked at.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.cluster.kraft.quorum_requests import METADATA_TOPIC_ID
from kbroker.cluster.kraft.quorum_state import QUORUM_STATE, QuorumState, decode_quorum_state, encode_quorum_state
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.segments import SEGMENT, segment_name
from kbroker.cluster.kraft.snapshots import snapshot_name
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.records.layout import LENGTH_END, LENGTH_POSITION, LOG_OVERHEAD, MAGIC_POSITION
from kbroker.storage.files.filesystem import naming
from kbroker.storage.log.partition_metadata import (
    PARTITION_METADATA,
    CorruptPartitionMetadataError,
    decode_partition_metadata,
)
from kbroker.types import uuid_to_text

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.cluster")

BLOCK_BYTES = 512
"""Disks write no less at once."""
LEAST_ZEROS = 16
"""Fewer zeros behind a block's beginning may be the end of a record."""
BATCHES_AT_ONCE = 1 << 14
DURABLE_END = "durable-end"
_NEW = SnapshotId(0, 0)
"""The checkpoint with which a directory is formatted: it holds no records."""
_MEND = (
    "This node does not take part in the quorum with it, as it may have forgotten what it has promised. Where other "
    "voters have the log, remove this one from the quorum, delete {directory}, give the node a new directory id and "
    "add it again; where it is the only voter, put back the directory as it was at the last stop, or make a new store "
    "from the partitions by `kbroker metadata rebuild`"
)


@dataclass(slots=True)
class _Segment:
    """A segment; `whole_bytes` and `end_offset` are of what can be read of it."""

    base_offset: int
    path: str
    size: int
    whole_bytes: int = 0
    end_offset: int = 0


class DurableEnd:
    """`durable-end`: an offset up to which a voter has had its log on disk, and the epoch of the last record there."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{DURABLE_END}"
        self.offset, self.epoch = self._read()

    def _read(self) -> tuple[int, int]:
        if not self._files.exists(self._path):
            return 0, 0
        try:
            offset, epoch = map(int, self._files.read_file(self._path).split())
        except ValueError:
            logger.warning("%s is damaged: whether the metadata log has lost its end is not known", self._path)
            return 0, 0
        return offset, epoch

    def keep(self, offset: int, epoch: int) -> None:
        """The log is durable up to there.  OSError."""
        if (offset, epoch) != (self.offset, self.epoch):
            self._files.write_atomic(self._path, b"%d %d\n" % (offset, epoch))
            self.offset, self.epoch = offset, epoch

    def fall(self, offset: int) -> None:
        """The log is about to end there.  OSError."""
        if offset < self.offset:
            self._files.unlink(self._path)
            self._files.fsync_directory(self._path.rpartition("/")[0])
            self.offset = self.epoch = 0


class VoterFiles:
    """Looks at the files in `directory`; `whole` and `damaged` are the snapshots there, the newest last."""

    def __init__(
        self, files: FileSystem, directory: str, whole: Sequence[SnapshotId], damaged: Sequence[SnapshotId]
    ) -> None:
        self._files = files
        self._directory = directory
        self._whole = whole
        self._damaged = damaged
        self.durable_end = DurableEnd(files, directory)
        self._newest = max((*whole, *damaged), default=_NEW)
        self._segments: list[_Segment] = []
        self._end = 0
        self._epoch = -1
        self._epoch_before = -1
        """That of the batch which ends where the newest snapshot does."""
        self._is_at_border = False

    def make_whole(self, parts: Sequence[SnapshotId]) -> None:
        """Refuse what is not whole, and end what a crash has interrupted.  MetadataLogError, OSError.

        `parts` are snapshots that were being fetched or written."""
        self._segments = self._listed()
        self._check_topic()
        state = self._state()
        if not self._segments:
            self._begin(state)
            return
        if state is None:
            self._refuse(QUORUM_STATE, "is missing beside a log: it has the epoch and the vote of this node")
        unused = self._without_an_unused_segment(parts)
        dropped = self._scan()
        self._check_snapshots(state)
        if unused is not None:
            self._delete([unused])
        self._delete(dropped)
        self._cut()

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise MetadataLogError(f"{self._directory}/{name} {why}. {_MEND.format(directory=self._directory)}")

    def _listed(self) -> list[_Segment]:
        found = [
            _Segment(int(match[1]), f"{self._directory}/{entry.name}", entry.size)
            for entry in self._files.list_directory(self._directory)
            if (match := SEGMENT.match(entry.name))
        ]
        return sorted(found, key=lambda each: each.base_offset)

    def _check_topic(self) -> None:
        path = f"{self._directory}/{PARTITION_METADATA}"
        if not self._files.exists(path):
            return
        try:
            topic_id = decode_partition_metadata(self._files.read_file(path), path)
        except CorruptPartitionMetadataError:
            return  # It holds nothing that is not known.
        if topic_id != METADATA_TOPIC_ID:
            self._refuse(PARTITION_METADATA, f"is of the topic {uuid_to_text(topic_id)}: it is not the metadata log's")

    def _state(self) -> QuorumState | None:
        path = f"{self._directory}/{QUORUM_STATE}"
        if not self._files.exists(path):
            return None
        try:
            return decode_quorum_state(self._files.read_file(path))
        except ValueError as error:
            self._refuse(QUORUM_STATE, f"is damaged: {error}. It has the epoch and the vote of this node")

    def _begin(self, state: QuorumState | None) -> None:
        """A directory that is new, or just formatted: from now on it has both quorum-state and a segment."""
        if self._newest != _NEW:
            self._refuse(snapshot_name(self._newest), "is there, and no segment of the log")
        if state is not None and state != QuorumState():
            self._refuse(QUORUM_STATE, f"is of epoch {state.epoch}, and there is no segment of the log")
        if self._damaged:
            self._refuse(snapshot_name(_NEW), "is damaged: it has the voters with which the quorum begins")
        if state is None:
            self._files.write_atomic(f"{self._directory}/{QUORUM_STATE}", encode_quorum_state(QuorumState()))

    def _without_an_unused_segment(self, parts: Sequence[SnapshotId]) -> _Segment | None:
        """Leave out the segment that was made for a snapshot which has not got its name."""
        last = self._segments[-1]
        if last.size or len(self._segments) == 1 or last.base_offset not in [each.end_offset for each in parts]:
            return None
        return self._segments.pop()

    def _scan(self) -> list[_Segment]:
        """Read all segments; those whose place the newest snapshot has taken."""
        segments, newest = self._segments, self._newest
        self._end = segments[0].base_offset
        last = segments[-1]
        has_begun_anew = newest in self._whole and not last.size and last.base_offset == newest.end_offset > 0
        for segment in segments:
            if segment.base_offset != self._end:
                if has_begun_anew and segment is last:
                    break
                self._refuse(
                    segment_name(segment.base_offset), f"does not go on at offset {self._end}, where the log ends"
                )
            self._read(segment, is_last=segment is last)
        is_older = self._is_at_border and self._epoch_before < newest.epoch and newest in self._whole
        if has_begun_anew and (self._end != newest.end_offset or is_older):
            self._segments, self._end, self._epoch = [last], newest.end_offset, newest.epoch
            return segments[:-1]
        return []

    def _read(self, segment: _Segment, *, is_last: bool) -> None:
        files, name = self._files, segment_name(segment.base_offset)
        fd = files.open(segment.path, os.O_RDONLY)
        try:
            with naming(segment.path):
                position, is_over = 0, not segment.size
                while not is_over:
                    found = files.scan_segment(fd, position, segment.size, check_crc=True, max_batches=BATCHES_AT_ONCE)
                    for info in found.batches:
                        if info.base_offset != self._end or info.last_offset < info.base_offset:
                            self._refuse(
                                name, f"has a batch at offset {info.base_offset}, where {self._end} is due: damaged"
                            )
                        if info.magic != MAGIC_V2 or info.partition_leader_epoch < self._epoch:
                            self._refuse(name, f"is damaged: its batch at offset {self._end} is of no later epoch")
                        self._end, self._epoch = info.last_offset + 1, info.partition_leader_epoch
                        if self._end == self._newest.end_offset:
                            self._is_at_border, self._epoch_before = True, self._epoch
                    is_over = found.valid_end == position or found.valid_end == segment.size
                    position = found.valid_end
                segment.whole_bytes, segment.end_offset = position, self._end
                left = b"" if position == segment.size else files.pread(fd, segment.size - position, position)
        finally:
            files.close(fd)
        if left and not (is_last and is_torn(left, position)):
            self._refuse(name, f"is damaged at byte {position}: there is no whole batch with offset {self._end}")

    def _check_snapshots(self, state: QuorumState) -> None:
        newest, base = self._newest, self._whole[-1] if self._whole else _NEW
        start = self._segments[0].base_offset if self._segments else self._end
        name = snapshot_name(newest)
        if start > base.end_offset:
            if self._damaged:
                self._refuse(name, f"is damaged, and the log, which begins at offset {start}, does not say the same")
            self._refuse(segment_name(start), "is the first segment, and no snapshot has the records before it")
        if self._end < newest.end_offset:
            self._refuse(name, f"goes further than the log, which ends at offset {self._end}: records are missing")
        if _NEW in self._damaged and self._end == 0:
            self._refuse(name, "is damaged: it has the voters with which the quorum begins")
        is_within = start < newest.end_offset
        if is_within and not (self._is_at_border and self._epoch_before == newest.epoch):
            self._refuse(name, "ends where no batch of that epoch does: it is not of this log")
        epoch, least = max(self._epoch, newest.epoch), self.durable_end
        if self._end < least.offset and epoch <= least.epoch:
            self._refuse(
                segment_name(self._segments[-1].base_offset if self._segments else start),
                f"ends at offset {self._end}, and the log has ended at {least.offset}: records are missing",
            )
        if state.epoch < epoch:
            self._refuse(
                QUORUM_STATE,
                f"is of epoch {state.epoch}, and the log of epoch {epoch}: it is an older one, and may lack this "
                "node's vote",
            )

    def _delete(self, segments: Sequence[_Segment]) -> None:
        for each in reversed(segments):
            logger.warning("%s is deleted: a snapshot has taken its place, or was to take it", each.path)
            self._files.unlink(each.path)
            self._files.fsync_directory(self._directory)

    def _cut(self) -> None:
        last = self._segments[-1] if self._segments else None
        if last is None or last.whole_bytes == last.size:
            return
        logger.warning(
            "%s: its last %d bytes were being written at a crash and were never acknowledged: they are cut off",
            last.path,
            last.size - last.whole_bytes,
        )
        fd = self._files.open(last.path, os.O_RDWR)
        try:
            with naming(last.path):
                self._files.ftruncate(fd, last.whole_bytes)
                self._files.fsync(fd)
        finally:
            self._files.close(fd)


def is_torn(left: bytes, position: int) -> bool:
    """Whether bytes at a position behind the last whole batch are the beginning of one, as a crash leaves it."""
    if batch_behind(left):
        return False
    written = len(left.rstrip(b"\0"))
    if not written or len(left) < LENGTH_END:
        return True
    size = LENGTH_END + int.from_bytes(left[LENGTH_POSITION:LENGTH_END], "big", signed=True)
    if size > len(left):
        return not _is_whole_but_for_its_size(left)
    border = -(-(position + written) // BLOCK_BYTES) * BLOCK_BYTES
    return position + len(left) - border >= LEAST_ZEROS


def _is_whole_but_for_its_size(left: bytes) -> bool:
    """Whether the checksum is right for what is there: then it was written whole, and its length is damaged."""
    size = len(left) - LOG_OVERHEAD
    return _is_batch(left[:LENGTH_POSITION] + size.to_bytes(LENGTH_END - LENGTH_POSITION, "big") + left[LENGTH_END:], 0)


def batch_behind(data: bytes) -> bool:
    """Whether any whole batch begins behind the first byte, where none does."""
    at = 1
    while (found := data.find(bytes([MAGIC_V2]), at + MAGIC_POSITION)) >= 0:
        at = found - MAGIC_POSITION
        size = int.from_bytes(data[at + LENGTH_POSITION : at + LENGTH_END], "big", signed=True) + LENGTH_END
        if BATCH_OVERHEAD < size <= len(data) - at and _is_batch(data, at):
            return True
        at += 1
    return False


def _is_batch(data: bytes, at: int) -> bool:
    try:
        read_stored_header(data, at, len(data), check_crc=True)
    except BatchError:
        return False
    return True
