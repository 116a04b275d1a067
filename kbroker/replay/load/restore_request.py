"""What a restore is asked for, and what its files have to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.replay.load.errors import LoadError
from kbroker.replay.load.manifest import Manifest
from kbroker.replay.load.restore_rows import KEEP, InputFile


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What goes where.  `topic` may be None for a load: each record to the topic it came from.  `state` is a directory
    of this job's own: one that the driver and all executors see, or on one of Spark's file systems.  `create` makes a
    missing topic with so many partitions."""

    bootstrap: str
    directory: str
    state: str
    topic: str | None = None
    only: str | None = None
    partitions: str = KEEP
    timestamps: bool = True
    headers: bool = True
    compression: str = "none"
    create: int | None = None
    slice_records: int = 50_000
    options: Mapping[str, str] = field(default_factory=dict)


def of_manifest(manifest: Manifest, request: RestoreRequest) -> list[InputFile]:
    """The files of a load, in the order of their partitions' offsets."""
    entries = sorted(manifest.files, key=lambda row: (row.topic, row.partition, row.start))
    return [
        InputFile(f"{manifest.where}/{row.path}", row.rows, row.bytes, row.topic, row.partition)
        for row in entries
        if row.path is not None and request.only in (None, row.topic)
    ]


def check_columns(path: str, names: Sequence[str], request: RestoreRequest) -> None:
    """LoadError where a file's columns make no records."""
    if "value" not in names:
        raise LoadError(f"{path} has no column value: it has {', '.join(names)}")
    if request.partitions == KEEP and "partition" not in names:
        raise LoadError(f"{path} has no column partition to keep: say --partitions key")
