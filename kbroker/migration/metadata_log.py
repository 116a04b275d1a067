"""`__cluster_metadata-0`, where KRaft keeps a cluster's metadata: its newest snapshot, and the records behind it.

Files and batches are read as by a broker of the cluster (`cluster.kraft`).  But what is here is all that there is, so
nothing may be left out and fetched anew.

Bytes at the end of the newest segment that are no batch, with no batch behind them, are a write that a crash cut short.
Kafka truncates them at its next start; here they are skipped, with a note.  Any other deviation from the format is a
MetadataLogError: half of a cluster's metadata is worse than none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import ControlRecord, DamagedBatchesError, MetadataBatch, records_of
from kbroker.cluster.kraft.segments import SEGMENT, stored_batches
from kbroker.cluster.kraft.snapshots import snapshot_batches, snapshot_name, snapshots_in
from kbroker.cluster.kraft.voter_files import batch_behind
from kbroker.metadata.metadata_record import MetadataLogError, MetadataRecord, MetadataTransactions
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY

if TYPE_CHECKING:
    from kbroker.cluster.kraft.quorum_steps import SnapshotId
    from kbroker.storage.files.filesystem import FileSystem

_INSTEAD = "`kbroker metadata rebuild` makes a store from the partitions' directories alone, without settings"


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
        found = snapshots_in(self._files, self.directory)
        if found:
            yield from self._of_snapshot(found[-1])
        segments = sorted(
            entry.name for entry in self._files.list_directory(self.directory) if SEGMENT.match(entry.name)
        )
        if not segments and not found:
            raise MetadataLogError(f"{self.directory} has neither a snapshot nor a segment")
        start = self.end_offset
        for name, following in zip_longest(segments, segments[1:]):
            if following is not None and int(following[:20]) <= start:
                continue
            yield from self._of_segment(f"{self.directory}/{name}", start, is_last=following is None)

    def _of_snapshot(self, snapshot: SnapshotId) -> Iterator[MetadataRecord]:
        path = f"{self.directory}/{snapshot_name(snapshot)}"
        try:
            batches = snapshot_batches(self._files.read_file(path), path)
        except DamagedBatchesError as error:
            raise MetadataLogError(f"{error}. {_INSTEAD}") from error
        for batch in batches:
            yield from self._records_of(batch, path, 0)
        self.end_offset, self.epoch = snapshot

    def _of_segment(self, path: str, start: int, *, is_last: bool) -> Iterator[MetadataRecord]:
        for batch in self._whole_batches(path, is_last=is_last):
            if batch.end_offset <= start:
                continue
            if batch.base_offset > self.end_offset:
                raise MetadataLogError(
                    f"{path}: records {self.end_offset} to {batch.base_offset - 1} are missing. {_INSTEAD}"
                )
            self.end_offset = batch.end_offset
            self.epoch = max(self.epoch, batch.epoch)
            yield from self._records_of(batch, path, start)

    def _whole_batches(self, path: str, *, is_last: bool) -> Iterator[MetadataBatch]:
        files = self._files
        fd = files.open(path, os.O_RDONLY)
        try:
            size, end = files.size(fd), 0
            batches = stored_batches(files, fd, size, path)
            while True:
                try:
                    position, batch = next(batches)
                except StopIteration:
                    return
                except DamagedBatchesError as error:
                    self._end(files.pread(fd, size - end, end), path, error, is_last=is_last)
                    return
                end = position + len(batch.data)
                yield batch
        finally:
            files.close(fd)

    def _records_of(self, batch: MetadataBatch, path: str, start: int) -> Iterator[MetadataRecord]:
        """The metadata records of a batch from an offset on."""
        try:
            for offset, record in records_of(batch, path):
                if not isinstance(record, ControlRecord):
                    if offset >= start:
                        yield record
                elif isinstance(record.value, wire.LeaderChangeMessage):
                    self.voters = tuple(voter.voter_id for voter in record.value.voters)
        except DamagedBatchesError as error:
            raise MetadataLogError(f"{error}. {_INSTEAD}") from error

    def _end(self, left: bytes, path: str, error: DamagedBatchesError, *, is_last: bool) -> None:
        """What is no batch: the end of the log, or damage."""
        if not any(left) and is_last:
            return
        if not is_last or self._was_closed or batch_behind(left):
            raise MetadataLogError(f"{error}. {_INSTEAD}") from error
        self.notes.append(f"the last {len(left)} bytes of {path} were not completely written: left out")
