"""`__cluster_metadata-0`: the metadata log of a broker, in Kafka's layout.

    <20 digits>.log               the log (`segments`)
    <20>-<10 digits>.checkpoint   snapshots; `.checkpoint.part` while one is written
    quorum-state                  the epoch and its leader (`quorum_state`)
    partition.metadata            the topic's id
    durable-end                   of a voter: how far its log was at least (`voter_files`)

A snapshot has its name once it is whole and durable.  One that turns out to be damaged is renamed to
`.checkpoint.damaged`, and the one before it is taken, or the controllers' own.  Everything that a broker has here can
be fetched again, so nothing that is missing or damaged keeps it from its start; I/O errors do.  A node with the
controller role has promised what it has here, and starts with nothing less (`voter_files`).

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
    from collections.abc import Mapping, Sequence

    from kbroker.clock import Clock
    from kbroker.cluster.kraft.settings import MetadataLogSettings
    from kbroker.cluster.kraft.voter_files import DurableEnd
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
        self._durable_end: DurableEnd | None = None

    @property
    def size_bytes(self) -> int:
        """Of segments and snapshots."""
        return self._segments.size_bytes + sum(each.size for each in self._snapshots)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        """None where there is none."""
        return self._snapshots[-1].id if self._snapshots else None

    @property
    def has_older_snapshots(self) -> bool:
        """Whether there are others than the newest, so that `clean` may have something to do."""
        return len(self._snapshots) > 1

    def open(self, *, is_voter: bool = False) -> Opened:
        """Make the directory what it has to be, and read it.  OSError, for a voter MetadataLogError."""
        files = self._files
        if not files.exists(self.path):
            files.makedirs(self.path)
            files.fsync_directory(os.path.dirname(self.path))  # noqa: PTH120
        batches, damaged = self._newest_whole()
        if is_voter:
            from kbroker.cluster.kraft.voter_files import VoterFiles

            parts = snapshots_in(files, self.path, PART_SUFFIX)
            found = VoterFiles(files, self.path, [each.id for each in self._snapshots], list(damaged))
            found.make_whole(parts)
            self._durable_end = found.durable_end
        self._put_aside(damaged)
        for entry in files.list_directory(self.path):
            if entry.name.endswith((PART_SUFFIX, TEMPORARY_SUFFIX)) or _OF_KAFKA.match(entry.name):
                files.unlink_if_exists(f"{self.path}/{entry.name}")
        partition_metadata = f"{self.path}/{PARTITION_METADATA}"
        content = encode_partition_metadata(METADATA_TOPIC_ID)
        if not files.exists(partition_metadata) or files.read_file(partition_metadata) != content:
            files.write_atomic(partition_metadata, content)
        newest = self.newest_snapshot
        log = self._segments.open(*(newest or (0, 0)))
        self._segments.sync()
        # Their records are no longer in the log behind them: no replica goes on from there.
        self._delete_snapshots([each for each in self._snapshots[:-1] if each.id.end_offset < self.start_offset])
        state = self._read_state()
        kept = KeptLog(self._segments.end_offset, tuple(self._segments.epochs), newest, state.epoch, state.leader_id)
        return Opened(kept, batches, log, state)

    def _newest_whole(self) -> tuple[list[MetadataBatch], dict[SnapshotId, str]]:
        """The batches of the newest snapshot that is whole, and what is wrong with those that are not."""
        self._snapshots = []
        batches: list[MetadataBatch] = []
        damaged: dict[SnapshotId, str] = {}
        for snapshot in reversed(snapshots_in(self._files, self.path)):
            path = self._path(snapshot)
            data = self._files.read_file(path)
            try:
                found = snapshot_batches(data, path)
                kept = _Kept(snapshot, timestamp_of(found, path), len(data))
            except DamagedBatchesError as error:
                damaged[snapshot] = str(error)
                continue
            batches = batches or found
            self._snapshots.insert(0, kept)
        return batches, damaged

    def _put_aside(self, damaged: Mapping[SnapshotId, str]) -> None:
        for snapshot, why in damaged.items():
            logger.warning("%s; it is put aside, and what it said is fetched anew where nothing else has it", why)
            self._files.rename(self._path(snapshot), self._path(snapshot) + DAMAGED_SUFFIX)
            self._files.fsync_directory(self.path)

    def _delete_snapshots(self, snapshots: Sequence[_Kept]) -> None:
        for each in snapshots:
            self._files.unlink_if_exists(self._path(each.id))
            self._snapshots.remove(each)
        if snapshots:
            self._files.fsync_directory(self.path)

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
        if self._durable_end is not None:
            self._durable_end.fall(end_offset)
        self._segments.truncate(end_offset)

    def append_durably(self, batches: tuple[MetadataBatch, ...]) -> None:
        """Write batches that follow the end, and sync them: other nodes count on what a voter says it has."""
        before, noted = self._segments.count, self._durable_end
        self._durable_end = None  # Of a disk that fails here it is not known what is durable.
        self._segments.append(batches)
        self._segments.sync()
        self._durable_end = noted
        if self._segments.count != before:
            self._note_end()

    def _note_end(self) -> None:
        if self._durable_end is not None:
            epochs, newest = self._segments.epochs, self.newest_snapshot or SnapshotId(0, 0)
            self._durable_end.keep(self._segments.end_offset, epochs[-1].epoch if epochs else newest.epoch)

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

    def restart(self, snapshot: SnapshotId, timestamp_ms: int) -> None:
        """A snapshot from the controllers, of which all pieces are written, takes the place of the log and of older
        snapshots.  After a crash one of the two is there whole."""
        if snapshot.end_offset <= self._segments.end_offset:
            # The leader has a later epoch before this offset than the log: what lies behind it was not committed.
            self.truncate(snapshot.end_offset)
        self._files.sync_path(self._path(snapshot) + PART_SUFFIX)
        self._files.fsync_directory(self.path)
        self._segments.prepare(snapshot.end_offset)
        self.keep(snapshot, timestamp_ms)
        if self._durable_end is not None:
            self._durable_end.fall(snapshot.end_offset)
        self._segments.restart(snapshot.end_offset)
        self._delete_snapshots([each for each in self._snapshots if each.id != snapshot])

    def clean(self) -> None:
        """Delete snapshots that are too old or too much, all but the newest, and the segments before those left."""
        settings = self._settings
        while len(self._snapshots) > 1:
            oldest = self._snapshots[0]
            is_old = 0 <= settings.retention_ms < self._clock.now_ms() - oldest.timestamp_ms
            is_much = 0 <= settings.retention_bytes < self.size_bytes
            if not is_old and not is_much:
                break
            self._delete_snapshots([oldest])
            # The log reaches back to the oldest snapshot that is left.
            self._segments.delete_below(self._snapshots[0].id.end_offset)

    def close(self) -> None:
        """Make all durable and close the files."""
        self._segments.close()
        self._note_end()
