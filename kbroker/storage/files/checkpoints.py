"""Text checkpoints of a log directory and of a partition.

Format (Kafka's CheckpointFile): a version line, a line with the number of entries, then one entry per line.

    offset checkpoint        0 / n / `topic partition offset`
    leader epoch checkpoint  0 / n / `epoch start_offset`

A directory holds `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` and
`replication-offset-checkpoint` (high watermarks); a partition holds `leader-epoch-checkpoint`.  Files are replaced
atomically.  A file that cannot be parsed raises `CorruptCheckpointError`; the reader of an offset checkpoint goes on
without entries, because the logs tell these offsets, too.  An empty file (Kafka creates them so) has no entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

CHECKPOINT_VERSION = 0


class CorruptCheckpointError(ValueError):
    """A checkpoint file does not hold what its format says."""


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """The bytes of a checkpoint with these entries."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(entries)), *entries)).encode()


def decode_checkpoint(data: bytes, path: str) -> list[list[str]]:
    """The entries of a checkpoint, each split at spaces.  Raises CorruptCheckpointError."""
    if not data:
        return []
    try:
        lines = data.decode().split("\n")
        version, expected = int(lines[0]), int(lines[1])
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(f"{path}: the first two lines are not a version and a count") from error
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(f"{path}: version {version}, expected {CHECKPOINT_VERSION}")
    entries = [line.split() for line in lines[2:] if line]
    if len(entries) != expected:
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries where the file says {expected}")
    return entries


def whole_number(text: str, bits: int) -> int:
    """A number as Kafka reads it, which a damaged file may not hold.  ValueError when it has more bits."""
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} has more than {bits} bits")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """The content of a checkpoint with an offset for each partition."""
    return encode_checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    """The offsets by partition.  CorruptCheckpointError."""
    offsets: dict[TopicPartition, Offset] = {}
    try:
        for topic, partition, offset in decode_checkpoint(data, path):
            offsets[TopicPartition(topic, whole_number(partition, 32))] = Offset(whole_number(offset, 64))
    except CorruptCheckpointError:
        raise
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: an entry is not `topic partition offset`") from error
    return offsets


class OffsetCheckpoint:
    """One offset checkpoint file of a log directory."""

    __slots__ = ("_files", "_last", "_named", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self._last: bytes | None = None
        self._named: frozenset[TopicPartition] = frozenset()

    def read(self) -> dict[TopicPartition, Offset]:
        """The offsets; none when the file is missing or corrupt (which is logged)."""
        try:
            data = self._files.read_file(self.path)
        except FileNotFoundError:
            return {}
        try:
            offsets = decode_offsets(data, self.path)
        except CorruptCheckpointError as error:
            logger.warning("Ignoring a corrupt checkpoint: %s", error)
            return {}
        self._last = data
        self._named = frozenset(offsets)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> bool:
        """Replaces the file, unless it would hold what this object last wrote or read.  True when written."""
        data = encode_offsets(offsets)
        if data == self._last:
            return False
        self._files.write_atomic(self.path, data)
        self._last = data
        self._named = frozenset(offsets)
        return True

    def names(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition was in the file when this object last wrote or read it."""
        return topic_partition in self._named

    def forget(self, topic_partition: TopicPartition) -> None:
        """Takes a partition out of the file, if it `names` it."""
        if topic_partition in self._named:
            offsets = self.read()
            offsets.pop(topic_partition, None)
            self.write(offsets)
