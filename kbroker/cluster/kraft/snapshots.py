"""Snapshots of the metadata log as files (KIP-630).

<end offset, 20 digits>-<epoch, 10 digits>.checkpoint   all that the records before that offset say: batches with
                                                        offsets of their own from 0 on, the first with the control
                                                        record SNAPSHOT_HEADER, the last with SNAPSHOT_FOOTER
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import (
    CONTROL_VERSION,
    ControlRecord,
    DamagedBatchesError,
    MetadataBatch,
    control_batch,
    records_of,
    whole_batches,
)
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.metadata.metadata_record import MetadataRecord, encode_record
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.protocol.messages import Message
    from kbroker.storage.files.filesystem import FileSystem

SNAPSHOT = re.compile(r"^(\d{20})-(\d{10})\.checkpoint(.*)$")
BATCH_BYTES = 64 << 10


def snapshot_name(snapshot: SnapshotId) -> str:
    """The name of a snapshot's file."""
    return f"{snapshot.end_offset:020}-{snapshot.epoch:010}.checkpoint"


def snapshots_in(files: FileSystem, directory: str, suffix: str = "") -> list[SnapshotId]:
    """The snapshots in a directory, the newest last; with a suffix those whose names end with it.  OSError."""
    matches = (SNAPSHOT.match(entry.name) for entry in files.list_directory(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match and match[3] == suffix)


def snapshot_batches(data: bytes, where: str) -> list[MetadataBatch]:
    """The batches of a whole snapshot.  DamagedBatchesError for anything else."""
    batches = list(whole_batches(data, where))
    end = 0
    for batch in batches:
        if batch.base_offset != end:
            raise DamagedBatchesError(f"{where}: a batch begins at offset {batch.base_offset}, {end} is due")
        end = batch.end_offset
    kinds = [
        record.kind
        for batch in (batches[:1] + batches[-1:])
        for _, record in records_of(batch, where)
        if isinstance(record, ControlRecord)
    ]
    is_whole = sum(len(batch.data) for batch in batches) == len(data)
    if not is_whole or kinds[:1] != [ControlType.SNAPSHOT_HEADER] or kinds[-1:] != [ControlType.SNAPSHOT_FOOTER]:
        raise DamagedBatchesError(f"{where} is not complete: it has no header or no footer")
    return batches


def timestamp_of(batches: Iterable[MetadataBatch], where: str) -> int:
    """When the last record that a snapshot contains was written, in ms since 1970; -1: unknown."""
    for batch in batches:
        for _, record in records_of(batch, where):
            if isinstance(record, ControlRecord) and isinstance(record.value, wire.SnapshotHeaderRecord):
                return record.value.last_contained_log_timestamp
            return -1
    return -1


def encoded_snapshot(
    records: Iterable[MetadataRecord],
    epoch: int,
    timestamp_ms: int,
    control: Iterable[wire.KRaftVersionRecord | wire.VotersRecord] = (),
) -> Iterator[bytes]:
    """The content of a snapshot file in pieces, a step for each record; most pieces are empty.

    `timestamp_ms`: when the last of the records was written, `control` what the log says of the quorum.
    """
    header = wire.SnapshotHeaderRecord(version=CONTROL_VERSION, last_contained_log_timestamp=timestamp_ms)
    first: list[tuple[ControlType, Message]] = [(ControlType.SNAPSHOT_HEADER, header)]
    for each in control:
        is_version = isinstance(each, wire.KRaftVersionRecord)
        first.append((ControlType.KRAFT_VERSION if is_version else ControlType.KRAFT_VOTERS, each))
    yield control_batch(first, 0, epoch, timestamp_ms)
    offset = len(first)
    builder = RecordBatchBuilder(offset, partition_leader_epoch=epoch)
    for record in records:
        builder.append(None, encode_record(record), timestamp_ms)
        if builder.size_bytes > BATCH_BYTES:
            offset += builder.count
            yield bytes(builder.build())
            builder = RecordBatchBuilder(offset, partition_leader_epoch=epoch)
        else:
            yield b""
    if builder.count:
        offset += builder.count
        yield bytes(builder.build())
    footer = wire.SnapshotFooterRecord(version=CONTROL_VERSION)
    yield control_batch([(ControlType.SNAPSHOT_FOOTER, footer)], offset, epoch, timestamp_ms)
