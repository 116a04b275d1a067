"""`__cluster_metadata-0`, where KRaft keeps a cluster's metadata: its newest snapshot, and the records behind it.

Files (KIP-630, KIP-631):

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint   all records up to that offset, compacted: record batches,
                                                            the first with the control record SNAPSHOT_HEADER, the last
                                                            with SNAPSHOT_FOOTER; offsets in it are its own
    <base offset, 20 digits>.log                            record batches

See `metadata.metadata_record` for the records themselves.

Bytes at the end of the newest segment that are no batch, with no batch behind them, are a write that a crash cut short.
Kafka truncates them at its next start; here they are skipped, with a note.  Any other deviation from the format is a
MetadataLogError: half of a cluster's metadata is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.metadata.metadata_record import MetadataLogError, MetadataRecord, MetadataTransactions, decode_record
from kbroker.records.batch import Record, iterate_records
from kbroker.records.compression import CompressionError
from kbroker.records.control import ControlType, parse_control_key
from kbroker.records.layout import LENGTH_END, LENGTH_POSITION, MAGIC_POSITION
from kbroker.schemas import message
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY

if TYPE_CHECKING:
    from kbroker._fast.records.record_batch import BatchInfo
    from kbroker.storage.files.filesystem import FileSystem

_SNAPSHOT = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
_SEGMENT = re.compile(r"^(\d{20})\.log$")
_INSTEAD = "`kbroker metadata rebuild` makes a store from the partitions' directories alone, without settings"


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot by its name: all records before `end_offset`."""

    name: str
    end_offset: int
    epoch: int


def snapshots(files: FileSystem, directory: str) -> list[SnapshotFile]:
    """The complete snapshots in `__cluster_metadata-0`, the newest last."""
    found = []
    for entry in files.list_directory(directory):
        match = _SNAPSHOT.match(entry.name)
        if match is not None:
            found.append(SnapshotFile(entry.name, int(match[1]), int(match[2])))
    return sorted(found, key=lambda each: (each.end_offset, each.epoch))


class MetadataLog:
    """Reads the metadata log of a log directory.  The attributes count once `records` has come to its end.

    `was_closed`: Kafka ended in order, so nothing may be torn.  `end_offset`, `epoch`: what follows the last record,
    and its leader epoch; `voters`: the controllers as the newest leader has named them.
    """

    __slots__ = ("_files", "_was_closed", "directory", "end_offset", "epoch", "notes", "voters")

    def __init__(self, files: FileSystem, log_dir: str, *, was_closed: bool) -> None:
        self._files = files
        self._was_closed = was_closed
        self.directory = f"{log_dir}/{CLUSTER_METADATA_DIRECTORY}"
        self.end_offset = 0
        self.epoch = 0
        self.voters: tuple[int, ...] = ()
        self.notes: list[str] = []

    def records(self) -> Iterator[MetadataRecord]:
        """All records that count, in order.  MetadataLogError, OSError."""
        transactions = MetadataTransactions()
        yield from transactions.completed(self._all_records())
        if left := transactions.open_count:
            self.notes.append(f"{left} records at its end are of a change that was not completed: left out")

    def _all_records(self) -> Iterator[MetadataRecord]:
        found = snapshots(self._files, self.directory)
        if found:
            yield from self._of_snapshot(found[-1])
        segments = sorted(
            entry.name for entry in self._files.list_directory(self.directory) if _SEGMENT.match(entry.name)
        )
        if not segments and not found:
            raise MetadataLogError(f"{self.directory} has neither a snapshot nor a segment")
        start = self.end_offset
        for name, following in zip_longest(segments, segments[1:]):
            if following is not None and int(following[:20]) <= start:
                continue
            yield from self._of_segment(name, start, is_last=following is None)

    def _of_snapshot(self, snapshot: SnapshotFile) -> Iterator[MetadataRecord]:
        path = f"{self.directory}/{snapshot.name}"
        data = self._files.read_file(path)
        position, kinds = 0, []
        while position < len(data):
            info = self._header(data, position, path)
            for record in _records_of(data, info, path):
                if info.is_control:
                    kinds.append(self._control(record, path))
                else:
                    yield decode_record(record.value, f"{path}: record {record.offset}")
            position += info.size_in_bytes
        if kinds[:1] != [ControlType.SNAPSHOT_HEADER] or kinds[-1:] != [ControlType.SNAPSHOT_FOOTER]:
            raise MetadataLogError(f"{path} is not complete: it has no header or no footer. {_INSTEAD}")
        self.end_offset, self.epoch = snapshot.end_offset, snapshot.epoch

    def _of_segment(self, name: str, start: int, *, is_last: bool) -> Iterator[MetadataRecord]:
        path = f"{self.directory}/{name}"
        data = self._files.read_file(path)
        position = 0
        while position < len(data):
            try:
                info = read_stored_header(data, position, len(data), check_crc=True)
            except BatchError as error:
                self._end(data, position, path, error, is_last=is_last)
                return
            position += info.size_in_bytes
            if info.last_offset < start:
                continue
            if info.base_offset > self.end_offset:
                raise MetadataLogError(
                    f"{path}: records {self.end_offset} to {info.base_offset - 1} are missing. {_INSTEAD}"
                )
            self.end_offset = info.last_offset + 1
            self.epoch = max(self.epoch, info.partition_leader_epoch)
            for record in _records_of(data, info, path):
                if info.is_control:
                    self._control(record, path)
                elif record.offset >= start:
                    yield decode_record(record.value, f"{path}: record {record.offset}")

    def _header(self, data: bytes, position: int, path: str) -> BatchInfo:
        try:
            return read_stored_header(data, position, len(data), check_crc=True)
        except BatchError as error:
            raise MetadataLogError(f"{path} is damaged at byte {position}: {error}. {_INSTEAD}") from error

    def _end(self, data: bytes, position: int, path: str, error: BatchError, *, is_last: bool) -> None:
        """What is no batch: the end of the log, or damage."""
        if not any(data[position:]) and is_last:
            return
        if not is_last or self._was_closed or _batch_behind(data, position):
            raise MetadataLogError(f"{path} is damaged at byte {position}: {error}. {_INSTEAD}") from error
        self.notes.append(f"the last {len(data) - position} bytes of {path} were not completely written: left out")

    def _control(self, record: Record, path: str) -> ControlType:
        """Takes in a control record; its kind."""
        try:
            kind = parse_control_key(record.key)
            if kind is ControlType.LEADER_CHANGE and record.value is not None:
                leader = message("LeaderChangeMessage")
                version = int.from_bytes(record.value[:2], "big")
                fields = leader.program(min(version, leader.max_version)).decode(record.value)
                self.voters = tuple(voter.voter_id for voter in fields.voters)
        except ValueError as error:
            raise MetadataLogError(f"{path}: the control record {record.offset}: {error}") from error
        return kind


def _records_of(data: bytes, info: BatchInfo, path: str) -> Iterator[Record]:
    if info.magic != MAGIC_V2:
        raise MetadataLogError(f"{path}: at byte {info.position} is a message of format {info.magic}")
    try:
        yield from iterate_records(data, info)
    except (BatchError, CompressionError) as error:
        raise MetadataLogError(f"{path} is damaged at byte {info.position}: {error}. {_INSTEAD}") from error


def _batch_behind(data: bytes, position: int) -> bool:
    """Whether any whole batch begins behind a place where none does."""
    at = position + 1
    while (found := data.find(bytes([MAGIC_V2]), at + MAGIC_POSITION)) >= 0:
        at = found - MAGIC_POSITION
        size = int.from_bytes(data[at + LENGTH_POSITION : at + LENGTH_END], "big", signed=True) + LENGTH_END
        if BATCH_OVERHEAD < size <= len(data) - at:
            try:
                read_stored_header(data, at, len(data), check_crc=True)
            except BatchError:
                pass
            else:
                return True
        at += 1
    return False
