"""Directories of Apache Kafka as tests need them: recorded ones, and metadata logs made record by record.

`vectors/kafka-4.3.1.tar.xz`: one directory, `d1`, of a node that was stopped in order, with a snapshot.
`vectors/kafka-3.9.1.tar.xz`: two, without a snapshot, with an ACL.  Both have the topics `orders` and `compacted`, the
group `readers`, the transactional id `tx-a`, quotas, and a SCRAM credential.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.migration.metadata_log import MetadataLog
from kbroker.records.batch import RecordBatchBuilder
from kbroker.schemas import message
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests import archives
from tests.storage.batches import UNSYNCED_FILES

FILES = UNSYNCED_FILES
VECTORS = Path(__file__).parent / "vectors"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
META = f"#\nversion=1\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id=NyFQJ6pTQVu0mDXn1mW8Ww\n"
TOPIC_ID = bytes(range(16))


def unpack(version: str, folder: Path) -> list[Path]:
    """The recorded directories of a version."""
    folder.mkdir(parents=True, exist_ok=True)
    archives.unpack(VECTORS / f"kafka-{version}.tar.xz", folder)
    return sorted(path for path in folder.iterdir() if path.name.startswith("d"))


def sums(directories: Iterable[Path]) -> dict[str, str]:
    """A checksum of each file below directories, but locks."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for directory in directories
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def log_sums(directories: Iterable[Path]) -> dict[str, str]:
    """A checksum of each segment of a partition, by its partition's and its own name."""
    return {
        "/".join(Path(path).parts[-2:]): value
        for path, value in sums(directories).items()
        if path.endswith(".log") and "__cluster_metadata" not in path and "-delete" not in path
    }


def record(kind: str, version: int = 0, /, **fields: Any) -> bytes:
    """A record's value: frame version 1, type, version, fields."""
    cls = message(kind)
    return bytes(cls.program(version).encode(cls(**fields), bytes([1, cls.api_key, version])))


def topic(name: str = "t", topic_id: bytes = TOPIC_ID) -> bytes:
    return record("TopicRecord", name=name, topic_id=topic_id)


def partition(number: int = 0, topic_id: bytes = TOPIC_ID, replicas: Sequence[int] = (1,), **fields: Any) -> bytes:
    values = {"isr": list(replicas), "removing_replicas": [], "adding_replicas": [], "leader": replicas[0]}
    values |= {"leader_epoch": 3, "partition_epoch": 4, **fields}
    return record("PartitionRecord", partition_id=number, topic_id=topic_id, replicas=list(replicas), **values)


def batch(records: Sequence[bytes], base_offset: int = 0, epoch: int = 1) -> bytes:
    """One batch of the metadata log."""
    builder = RecordBatchBuilder(base_offset, partition_leader_epoch=epoch)
    for value in records:
        builder.append(None, value, 1_000)
    return bytes(builder.build())


def write_log(directory: Path, *batches: Sequence[bytes]) -> Path:
    """A log directory with a metadata log of these batches; its segment."""
    folder = directory / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (directory / "meta.properties").write_text(META)
    data, offset = b"", 0
    for records in batches:
        data += batch(records, offset)
        offset += len(records)
    log = folder / f"{0:020}.log"
    log.write_bytes(data)
    return log


def read(directory: Path, *, was_closed: bool = False) -> tuple[KafkaMetadata, MetadataLog]:
    """What a log directory's metadata log says."""
    log = MetadataLog(SYSTEM_FILES, str(directory), was_closed=was_closed)
    metadata = KafkaMetadata()
    metadata.replay(log.records())
    return metadata, log
