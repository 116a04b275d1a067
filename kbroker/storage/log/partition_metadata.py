"""`partition.metadata`: binds a partition's directory to its topic's id.

Two lines, the second without a line end, as Kafka writes it:

    version: 0
    topic_id: <22-character id>

Written without waiting for the disk when the partition is made, or when the file was damaged, and durable with the
log's next flush.  Until then a crash of the machine may leave it empty.  The next start logs that and writes the id
again, from the cluster's metadata, which owns it.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from kbroker.errors import InconsistentTopicIdError
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text

logger = logging.getLogger("kbroker.storage")

PARTITION_METADATA = "partition.metadata"
VERSION = 0


class CorruptPartitionMetadataError(ValueError):
    """The file does not hold a version and a topic id."""


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The content of `partition.metadata` (version 0)."""
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> bytes:
    """The topic id in a file's content: the same for all partitions of a topic, and a start reads all of them."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line.strip())
        version = int(fields["version"])
        topic_id = uuid_from_text(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise CorruptPartitionMetadataError("not `version` and `topic_id` lines") from error
    if version != VERSION:
        raise CorruptPartitionMetadataError(f"version {version}, expected {VERSION}")
    if topic_id == ZERO_UUID:
        raise CorruptPartitionMetadataError("the topic id is all zeros")
    return topic_id


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id in a file's content.  Raises CorruptPartitionMetadataError."""
    try:
        return _topic_id(data)
    except CorruptPartitionMetadataError as error:
        raise CorruptPartitionMetadataError(f"{path}: {error}") from error


class PartitionMetadata:
    """The file of one partition, read when the id is asked for."""

    __slots__ = ("_files", "_topic_id", "path", "was_damaged")

    def __init__(self, files: FileSystem, directory: str, *, exists: bool) -> None:
        self._files = files
        self.path = f"{directory}/{PARTITION_METADATA}"
        self._topic_id: bytes | None = None if exists else ZERO_UUID
        self.was_damaged = False

    @property
    def topic_id(self) -> bytes:
        """Zeros while there is no id, or none that can be read: the next `assign` writes it again."""
        if self._topic_id is None:
            try:
                self._topic_id = decode_partition_metadata(self._files.read_file(self.path), self.path)
            except CorruptPartitionMetadataError as error:
                logger.warning("Ignoring damaged partition metadata: %s", error)
                self.was_damaged = True
                self._topic_id = ZERO_UUID
        return self._topic_id

    def assign(self, topic_id: bytes, topic_partition: TopicPartition) -> None:
        """Writes the id on first use; later ones must be the same.  Raises InconsistentTopicIdError."""
        known = self.topic_id
        if known == topic_id:
            return
        if known != ZERO_UUID:
            raise InconsistentTopicIdError(
                f"Tried to assign topic ID {uuid_to_text(topic_id)} to log for topic partition {topic_partition}, "
                f"but log already contained topic ID {uuid_to_text(known)}"
            )
        self._files.write_atomic(self.path, encode_partition_metadata(topic_id), sync=False)
        self._topic_id = topic_id

    def moved_to(self, directory: str) -> None:
        """The partition's files are in another directory now."""
        self.path = f"{directory}/{PARTITION_METADATA}"
