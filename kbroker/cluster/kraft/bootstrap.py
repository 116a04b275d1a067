"""What a new cluster begins with: the files that formatting writes for controllers (KIP-778, KIP-853).

    bootstrap.checkpoint                               in each log directory: the first records of the metadata log,
                                                       which the first active controller writes
    __cluster_metadata-0/0…0-0…0.checkpoint            in that of the metadata log: the first voters, a snapshot without
                                                       records that is never sent to another node

Both have the form of a snapshot: see `snapshots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import (
    CONTROL_VERSION,
    ControlRecord,
    DamagedBatchesError,
    control_batch,
    records_of,
)
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot, snapshot_batches, snapshot_name
from kbroker.cluster.raft.voter_set import DYNAMIC, VoterSet
from kbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION, NO_LEVEL
from kbroker.metadata.metadata_record import MetadataLogError, MetadataRecord, encode_record, metadata_record
from kbroker.metadata.release_levels import default_levels
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem

BOOTSTRAP_FILE = "bootstrap.checkpoint"
FIRST_SNAPSHOT = SnapshotId(0, 0)
"""The snapshot that has the first voters."""
FIRST_VOTERS_FILE = snapshot_name(FIRST_SNAPSHOT)


class BootstrapError(MetadataLogError):
    """A bootstrap.checkpoint that a cluster cannot begin with; the text says why, and what to do."""


def feature_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    """The records of features' levels: metadata.version first, the others above 0 by name; none for kraft.version,
    which is a record of the quorum itself."""
    others = sorted(name for name, level in levels.items() if level > NO_LEVEL)
    names = [METADATA_VERSION, *(name for name in others if name not in (METADATA_VERSION, KRAFT_VERSION))]
    made = wire.FeatureLevelRecord
    return [metadata_record(made(name=name, feature_level=levels[name])) for name in names]


def default_bootstrap_records() -> list[MetadataRecord]:
    """The first records of a cluster whose directories have no bootstrap.checkpoint: the newest metadata.version, and
    the levels that Kafka's release of it begins with."""
    return feature_records(default_levels())


def bootstrap_checkpoint(records: Iterable[MetadataRecord], timestamp_ms: int) -> bytes:
    """The content of a bootstrap.checkpoint of at least one record."""
    header = wire.SnapshotHeaderRecord(version=CONTROL_VERSION, last_contained_log_timestamp=0)
    footer = wire.SnapshotFooterRecord(version=CONTROL_VERSION)
    builder = RecordBatchBuilder(1, partition_leader_epoch=0)
    for record in records:
        builder.append(None, encode_record(record), timestamp_ms)
    end = 1 + builder.count
    return (
        control_batch([(ControlType.SNAPSHOT_HEADER, header)], 0, 0, timestamp_ms)
        + bytes(builder.build())
        + control_batch([(ControlType.SNAPSHOT_FOOTER, footer)], end, 0, timestamp_ms)
    )


def initial_voters_checkpoint(voters: VoterSet, timestamp_ms: int) -> bytes:
    """The content of the snapshot that has the first voters."""
    version = wire.KRaftVersionRecord(version=CONTROL_VERSION, kraft_version=DYNAMIC)
    return b"".join(encoded_snapshot((), FIRST_SNAPSHOT.epoch, timestamp_ms, (version, voters.record())))


def bootstrap_records(files: FileSystem, path: str) -> list[MetadataRecord]:
    """The records of a bootstrap.checkpoint, a file of a few KB.

    BootstrapError for one that is missing, damaged or without metadata.version; OSError.
    """
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        raise BootstrapError(
            f"there is no {path}, with which the cluster begins: `kbroker format` writes it into new directories"
        ) from None
    try:
        found = [
            record
            for batch in snapshot_batches(data, path)
            for _, record in records_of(batch, path)
            if not isinstance(record, ControlRecord)
        ]
    except DamagedBatchesError as error:
        why = "it is empty" if not data else str(error)
        raise BootstrapError(
            f"{path} is damaged ({why}): copy that of another controller of the cluster, which has the same content, "
            "or format the directories anew"
        ) from error
    if not any(_is_metadata_version(record) for record in found):
        raise BootstrapError(
            f"No FeatureLevelRecord for {METADATA_VERSION} was found in the bootstrap metadata from {path}"
        )
    return found


def first_records(files: FileSystem, directory: str) -> list[MetadataRecord]:
    """The first records of a cluster: those of the bootstrap.checkpoint in a log directory, or where it has none,
    `default_bootstrap_records`.  BootstrapError for a damaged file; OSError."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    return bootstrap_records(files, path) if files.exists(path) else default_bootstrap_records()


def _is_metadata_version(record: MetadataRecord) -> bool:
    value = record.value
    return isinstance(value, wire.FeatureLevelRecord) and value.name == METADATA_VERSION
