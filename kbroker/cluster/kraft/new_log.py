"""A metadata log that begins with a snapshot, for a node that is to be its only voter.

A voter takes a snapshot for its own only where a segment goes on behind it and `quorum-state` is of no earlier epoch
(`voter_files`): both are there, durably, before the snapshot gets its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import CONTROL_VERSION
from kbroker.cluster.kraft.bootstrap import BOOTSTRAP_FILE, bootstrap_checkpoint
from kbroker.cluster.kraft.quorum_state import QUORUM_STATE, QuorumState, encode_quorum_state
from kbroker.cluster.kraft.segments import SEGMENT, segment_name
from kbroker.cluster.kraft.snapshots import SNAPSHOT, encoded_snapshot, snapshot_name
from kbroker.cluster.raft.voter_set import DYNAMIC
from kbroker.schemas import wire
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY

if TYPE_CHECKING:
    from kbroker.cluster.kraft.quorum_steps import SnapshotId
    from kbroker.cluster.raft.voter_set import VoterSet
    from kbroker.metadata.metadata_record import MetadataRecord
    from kbroker.storage.files.filesystem import FileSystem


def holds_records(files: FileSystem, log_dir: str) -> bool:
    """Whether there is a metadata log in a log directory: not so where one was about to begin.  OSError."""
    directory = f"{log_dir}/{CLUSTER_METADATA_DIRECTORY}"
    found = files.list_directory(directory) if files.exists(directory) else []
    return any(SNAPSHOT.match(each.name) or (SEGMENT.match(each.name) and each.size) for each in found)


def begin_log(
    files: FileSystem,
    log_dir: str,
    snapshot: SnapshotId,
    records: Sequence[MetadataRecord],
    timestamp_ms: int,
    voters: int | VoterSet,
) -> str:
    """Begin the metadata log of a log directory with `records`; the snapshot's path.  OSError.

    `snapshot` lies behind the end of any log that is there.  `voters`: those that the log is to name; where settings
    name the one that there is, its id.  The snapshot gets its name last: before that the directory is what it was.
    """
    directory = f"{log_dir}/{CLUSTER_METADATA_DIRECTORY}"
    if not files.exists(directory):
        files.mkdir(directory)
        files.fsync_directory(log_dir)
    of_settings = [voters] if isinstance(voters, int) else None
    state = encode_quorum_state(QuorumState(snapshot.epoch), of_settings)
    files.write_atomic(f"{directory}/{QUORUM_STATE}", state)
    files.close(files.open(f"{directory}/{segment_name(snapshot.end_offset)}", os.O_RDWR | os.O_CREAT))
    files.fsync_directory(directory)
    if not files.exists(f"{log_dir}/{BOOTSTRAP_FILE}"):
        levels = [each for each in records if each.name == "FeatureLevelRecord"]
        files.write_atomic(f"{log_dir}/{BOOTSTRAP_FILE}", bootstrap_checkpoint(levels, timestamp_ms))
    control: tuple[wire.KRaftVersionRecord | wire.VotersRecord, ...] = ()
    if not isinstance(voters, int):
        control = (wire.KRaftVersionRecord(version=CONTROL_VERSION, kraft_version=DYNAMIC), voters.record())
    path = f"{directory}/{snapshot_name(snapshot)}"
    files.write_atomic(path, b"".join(encoded_snapshot(records, snapshot.epoch, timestamp_ms, control)))
    return path
