"""`__cluster_metadata-0`: the metadata log of a broker, in Kafka's layout.

    <20 digits>.log               the log (`segments`)
    <20>-<10 digits>.checkpoint   snapshots; `.checkpoint.part` while one is written
    quorum-state                  the epoch and its leader (`quorum_state`)
    partition.metadata            the topic's id

A snapshot has its name once it is whole and durable.  One that turns out to be damaged is renamed to
`.checkpoint.damaged`, and the one before it is taken, or the controllers' own.  Everything here can be fetched again,
so nothing that is missing or damaged keeps a broker from its start; I/O errors do.

All calls may wait for the disk, but `takes_at_once` and what that allows; they belong to one thread at a time.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch
from kbroker.cluster.kraft.quorum_requests import METADATA_TOPIC_ID
from kbroker.cluster.kraft.quorum_state import QUORUM_STATE, QuorumState, decode_quorum_state, encode_quorum_state
from kbroker.cluster.kraft.quorum_steps import KeptLog, SnapshotId
from kbroker.cluster.kraft.segments import Segments
from kbroker.cluster.kraft.snapshots import snapshot_batches, snapshot_name, snapshots_in, timestamp_of
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY
from kbroker.storage.files.filesystem import TEMPORARY_SUFFIX, naming
from kbroker.storage.log.partition_metadata import PARTITION_METADATA, encode_partition_metadata

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.kraft.settings import MetadataLogSettings
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.cluster")

PART_SUFFIX = ".part"
DAMAGED_SUFFIX = ".damaged"
AT_ONCE_BYTES = 64 << 10
_OF_KAFKA = re.compile(r"^(\d{20}\.(index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|.*\.deleted)$")
"""What Kafka keeps beside its segments and makes again where it is missing, and what it was about to delete."""


class Opened(NamedTuple):
    """What a start finds: the newest whole snapshot with its batches, and the batches of the log behind it."""

    log: KeptLog
    snapshot: list[MetadataBatch]
    batches: list[MetadataBatch]
    state: QuorumState


class _Kept(NamedTuple):
    """A snapshot on disk; `timestamp_ms` is when its last record was written."""

    id: SnapshotId
    timestamp_ms: int
    size: int


class MetadataDirectory:
    """See the module.  `open` comes first."""

    def __init__(self, files: FileSystem, log_dir: str, settings: MetadataLogSettings, clock: Clock) -> None:
        self._files = files
        self._settings = settings
        self._clock = clock
        self.path = f"{log_dir}/{CLUSTER_METADATA_DIRECTORY}"
        self._segments = Segments(files, self.path, settings.segment_bytes, settings.segment_ms)
        self._snapshots: list[_Kept] = []

    @property
    def size_bytes(self) -> int:
        """Of segments and snapshots."""
        return self._segments.size_bytes + sum(each.size for each in self._snapshots)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        """None where there is none."""
        return self._snapshots[-1].id if self._snapshots else None

    def open(self) -> Opened:
        """Make the directory what it has to be, and read it.  OSError."""
        files = self._files
        if not files.exists(self.path):
            files.makedirs(self.path)
            files.fsync_directory(os.path.dirname(self.path))  # noqa: PTH120
        for entry in files.list_directory(self.path):
            if entry.name.endswith((PART_SUFFIX, TEMPORARY_SUFFIX)) or _OF_KAFKA.match(entry.name):
                files.unlink_if_exists(f"{self.path}/{entry.name}")
        partition_metadata = f"{self.path}/{PARTITION_METADATA}"
        content = encode_partition_metadata(METADATA_TOPIC_ID)
        if not files.exists(partition_metadata) or files.read_file(partition_metadata) != content:
            files.write_atomic(partition_metadata, content)
        batches = self._newest_whole()
        newest = self.newest_snapshot
        log = self._segments.open(*(newest or (0, 0)))
        self._segments.sync()
        state = self._read_state()
        kept = KeptLog(self._segments.end_offset, tuple(self._segments.epochs), newest, state.epoch, state.leader_id)
        return Opened(kept, batches, log, state)

    def _newest_whole(self) -> list[MetadataBatch]:
        """The batches of the newest snapshot that is whole."""
        self._snapshots = []
        batches: list[MetadataBatch] = []
        for snapshot in reversed(snapshots_in(self._files, self.path)):
            path = self._path(snapshot)
            data = self._files.read_file(path)
            try:
                found = snapshot_batches(data, path)
                kept = _Kept(snapshot, timestamp_of(found, path), len(data))
            except DamagedBatchesError as error:
                logger.warning("%s; it is put aside, and what it said is fetched anew where nothing else has it", error)
                self._files.rename(path, path + DAMAGED_SUFFIX)
                self._files.fsync_directory(self.path)
                continue
            batches = batches or found
            self._snapshots.insert(0, kept)
        return batches

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.path}/{snapshot_name(snapshot)}"

    def _read_state(self) -> QuorumState:
        path = f"{self.path}/{QUORUM_STATE}"
        if not self._files.exists(path):
            return QuorumState()
        try:
            return decode_quorum_state(self._files.read_file(path))
        except ValueError as error:
            logger.warning("%s is damaged: %s; the epoch is learnt from the log and the controllers", path, error)
            return QuorumState()

    # -- the log ------------------------------------------------------------------------------------------------------

    def append(self, batches: tuple[MetadataBatch, ...]) -> None:
        """Write batches that follow the end, into the page cache: see `Segments.append`.

        An observer is no part of the quorum, and what it has counts for no commit; a start asks for what is missing.
        """
        self._segments.append(batches)

    def takes_at_once(self, batches: tuple[MetadataBatch, ...]) -> bool:
        """Whether `append` is one short write to an open file."""
        size = sum(len(each.data) for each in batches)
        return size <= AT_ONCE_BYTES and self._segments.goes_on_with(batches)

    def truncate(self, end_offset: int) -> None:
        """Take away all from this offset on, durably."""
        self._segments.truncate(end_offset)

    def append_durably(self, batches: tuple[MetadataBatch, ...]) -> None:
        """Write batches that follow the end, and sync them: other nodes count on what a voter says it has."""
        self._segments.append(batches)
        self._segments.sync()

    @property
    def start_offset(self) -> int:
        """Where the log on disk begins."""
        return self._segments.start_offset

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        """None where there is none."""
        return self._snapshots[0].id if self._snapshots else None

    def read(self, offset: int, max_bytes: int) -> bytes:
        """See `Segments.read`."""
        return self._segments.read(offset, max_bytes)

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The size of a snapshot, and bytes of it from a position on; None where it is not there.  OSError."""
        size = next((each.size for each in self._snapshots if each.id == snapshot), None)
        if size is None:
            return None
        path = self._path(snapshot)
        fd = self._files.open(path, os.O_RDONLY)
        try:
            with naming(path):
                return size, self._files.pread(fd, min(max_bytes, max(0, size - position)), position)
        finally:
            self._files.close(fd)

    def elected(self, state: QuorumState, voters: tuple[int, ...] | None = None) -> None:
        """Keep the epoch and the vote, durably; `voters`: see `encode_quorum_state`."""
        self._files.write_atomic(f"{self.path}/{QUORUM_STATE}", encode_quorum_state(state, voters))

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def write_piece(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Write bytes of a snapshot at their place, of which the first piece begins at 0."""
        path = self._path(snapshot) + PART_SUFFIX
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if position == 0 else 0)
        fd = self._files.open(path, flags)
        try:
            with naming(path):
                self._files.pwrite(fd, data, position)
        finally:
            self._files.close(fd)

    def written(self, snapshot: SnapshotId) -> list[MetadataBatch]:
        """The batches of a snapshot of which all pieces are written.  DamagedBatchesError."""
        path = self._path(snapshot) + PART_SUFFIX
        return snapshot_batches(self._files.read_file(path), path)

    def discard(self, snapshot: SnapshotId) -> None:
        """Delete the pieces of a snapshot."""
        self._files.unlink_if_exists(self._path(snapshot) + PART_SUFFIX)

    def keep(self, snapshot: SnapshotId, timestamp_ms: int) -> None:
        """Give a snapshot of which all pieces are written its name, durably, and begin a new segment behind it."""
        path = self._path(snapshot)
        self._files.sync_path(path + PART_SUFFIX)
        size = len(self._files.read_file(path + PART_SUFFIX))
        self._files.rename(path + PART_SUFFIX, path)
        self._files.fsync_directory(self.path)
        self._snapshots = sorted(
            (*(each for each in self._snapshots if each.id != snapshot), _Kept(snapshot, timestamp_ms, size))
        )
        self._segments.roll()

    def keep_own(self, snapshot: SnapshotId, timestamp_ms: int) -> None:
        """The same for a snapshot of this broker's; it is deleted where a newer one has come meanwhile."""
        newest = self.newest_snapshot
        if newest is not None and newest.end_offset >= snapshot.end_offset:
            self.discard(snapshot)
        else:
            self.keep(snapshot, timestamp_ms)

    def restart(self, snapshot: SnapshotId) -> None:
        """A snapshot from the controllers takes the place of the log: that is deleted, older snapshots, too."""
        self._segments.restart(snapshot.end_offset)
        for each in self._snapshots:
            if each.id != snapshot:
                self._files.unlink_if_exists(self._path(each.id))
        self._snapshots = [each for each in self._snapshots if each.id == snapshot]
        self._files.fsync_directory(self.path)

    def clean(self) -> None:
        """Delete snapshots that are too old or too much, all but the newest, and the segments before those left."""
        settings, deleted = self._settings, False
        while len(self._snapshots) > 1:
            oldest = self._snapshots[0]
            is_old = 0 <= settings.retention_ms < self._clock.now_ms() - oldest.timestamp_ms
            is_much = 0 <= settings.retention_bytes < self.size_bytes
            if not is_old and not is_much:
                break
            self._files.unlink_if_exists(self._path(oldest.id))
            del self._snapshots[0]
            deleted = True
            # The log reaches back to the oldest snapshot that is left.
            self._segments.delete_below(self._snapshots[0].id.end_offset)
        if deleted:
            self._files.fsync_directory(self.path)

    def close(self) -> None:
        """Make all durable and close the files."""
        self._segments.close()
