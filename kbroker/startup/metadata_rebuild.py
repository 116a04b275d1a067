"""A metadata store made anew from the log directories, for one that was lost, or for directories of Apache Kafka.

What the directories tell:

    topics, partitions   the names of the directories; a topic has partitions up to the highest number there is
    topic ids            partition.metadata; a new id where no partition of a topic has one
    leader epochs        leader-epoch-checkpoint and the newest segment; the new epoch is one above the highest
    cluster and node     meta.properties
    producer ids         counted on from the wall clock in milliseconds, or from the highest one in a snapshot: ids that
                         were given out are never given again

What they do not tell: settings of topics and of brokers, topics and partitions without a directory.  As the default
settings might delete or compact records that must be kept, a rebuilt topic keeps everything (KEEP_EVERYTHING) until an
operator restores its settings.  The state topics of coordinators get their standard settings.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.metadata.image import PartitionImage, TopicImage
from kbroker.metadata.internal_topics import internal_topic
from kbroker.metadata.topic_names import is_internal, is_legal
from kbroker.startup.new_store import StoreContents, write_store
from kbroker.storage.directories.log_dirs import CLUSTER_METADATA_DIRECTORY, parse_partition_directory
from kbroker.storage.files.checkpoints import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.partition_metadata import PARTITION_METADATA, CorruptPartitionMetadataError
from kbroker.storage.log.partition_metadata import decode_partition_metadata as decode_id
from kbroker.storage.log.producer_snapshot import SNAPSHOT_SUFFIX, CorruptSnapshotError, decode_snapshot
from kbroker.types import ZERO_UUID, TopicPartition, random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.storage.files.filesystem import FileSystem

KEEP_EVERYTHING: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
BEGINNING = struct.Struct(">qiib")
"""How a record batch begins: base offset, length, leader epoch, magic."""
RECORD_BATCH = 2


class RebuildError(Exception):
    """The directories do not tell one cluster's metadata; the text says what to do."""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """What a partition's directory tells."""

    topic_partition: TopicPartition
    path: str
    topic_id: bytes
    leader_epoch: int
    producer_id: int
    compacted: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """What the log directories tell, and the directories that are none of a partition in use."""

    partitions: tuple[FoundPartition, ...]
    left_aside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebuiltTopic:
    """A topic as it is stored, and what people should know of it."""

    image: TopicImage
    notes: tuple[str, ...]


def survey(files: FileSystem, directories: Iterable[str]) -> Survey:
    """Reads the log directories at these paths, which must be locked; changes nothing."""
    found: list[FoundPartition] = []
    aside: list[str] = []
    for directory in directories:
        compacted = OffsetCheckpoint(files, f"{directory}/{CLEANER_OFFSET_CHECKPOINT}").read()
        for entry in sorted(files.list_directory(directory), key=lambda each: each.name):
            if not entry.is_directory or entry.name == CLUSTER_METADATA_DIRECTORY:
                continue
            path = f"{directory}/{entry.name}"
            parsed = parse_partition_directory(entry.name)
            if parsed is None or parsed.mark or not is_legal(parsed.topic):
                aside.append(path)
                continue
            topic_partition = TopicPartition(parsed.topic, parsed.partition)
            found.append(_partition(files, path, topic_partition, topic_partition in compacted))
    return Survey(tuple(found), tuple(aside))


def plan(
    found: Sequence[FoundPartition], config: BrokerConfig, *, add_missing: bool, keep_everything: bool
) -> list[RebuiltTopic]:
    """The topics of the new store, by name.

    RebuildError when partitions of a topic contradict each other, or some are missing and `add_missing` does not say
    that these shall be made anew.
    """
    by_topic: dict[str, list[FoundPartition]] = defaultdict(list)
    for each in found:
        by_topic[each.topic_partition.topic].append(each)
    topics = []
    for name, partitions in sorted(by_topic.items()):
        topic_id, notes = _topic_id(name, partitions)
        numbers = {each.topic_partition.partition for each in partitions}
        missing = sorted(set(range(max(numbers) + 1)) - numbers)
        if missing and not add_missing:
            raise RebuildError(
                f"topic {name} has partition {max(numbers)}, but no directory for partition {_listed(missing)}: give "
                "all log directories in log.dirs, or say --add-missing, and those partitions are made anew, empty"
            )
        if missing:
            notes.append(f"partition {_listed(missing)} had no directory: made anew, empty")
        configs: Mapping[str, str] = {}
        if is_internal(name):
            configs = internal_topic(name, config, most_replicas=1).configs
        elif keep_everything:
            configs = KEEP_EVERYTHING
            if any(each.compacted for each in partitions):
                notes.append("it was compacted once: if it still is to be, set cleanup.policy=compact")
        image = TopicImage(name, topic_id, _images(partitions, config.node_id), is_internal(name), configs)
        topics.append(RebuiltTopic(image, tuple(notes)))
    return topics


def write(
    files: FileSystem, directory: str, cluster_id: str, topics: Sequence[RebuiltTopic], found: Sequence[FoundPartition]
) -> str:
    """Writes the store into the first log directory; its path.  StoreThereError when there is one."""
    past = max([int(time.time() * 1000), *(each.producer_id for each in found)])
    return write_store(files, directory, cluster_id, StoreContents([topic.image for topic in topics], past))


def _partition(files: FileSystem, path: str, topic_partition: TopicPartition, compacted: bool) -> FoundPartition:
    topic_id = ZERO_UUID
    with suppress(FileNotFoundError, CorruptPartitionMetadataError):
        topic_id = decode_id(files.read_file(f"{path}/{PARTITION_METADATA}"), path)
    epochs = LeaderEpochCache(files, path)
    epochs.load(exists=True)
    names = sorted(entry.name for entry in files.list_directory(path))
    logs = [f"{path}/{name}" for name in names if name.endswith(".log")]
    snapshots = [f"{path}/{name}" for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    epoch = max(epochs.latest_epoch, _newest_epoch(files, logs))
    return FoundPartition(topic_partition, path, topic_id, epoch, _highest_producer(files, snapshots), compacted)


def _newest_epoch(files: FileSystem, logs: Sequence[str]) -> int:
    """The leader epoch of the first batch in the newest segment that has one; -1 when none has."""
    for log in reversed(logs):
        fd = files.open(log, os.O_RDONLY)
        try:
            beginning = files.pread(fd, BEGINNING.size, 0)
        finally:
            files.close(fd)
        if len(beginning) == BEGINNING.size:
            _base_offset, _length, epoch, magic = BEGINNING.unpack(beginning)
            return int(epoch) if magic == RECORD_BATCH else -1
    return -1


def _highest_producer(files: FileSystem, snapshots: Sequence[str]) -> int:
    for path in reversed(snapshots):
        with suppress(CorruptSnapshotError):
            return max((entry.producer_id for entry in decode_snapshot(files.read_file(path), path)), default=-1)
    return -1


def _topic_id(name: str, partitions: Sequence[FoundPartition]) -> tuple[bytes, list[str]]:
    ids = Counter(each.topic_id for each in partitions if each.topic_id != ZERO_UUID)
    if len(ids) > 1:
        rows = "; ".join(f"{each.path}: {uuid_to_text(each.topic_id)}" for each in partitions)
        raise RebuildError(
            f"the partitions of {name} have different topic ids ({rows}): move those out of the log directories that "
            "belong to an older topic of this name"
        )
    if ids:
        return next(iter(ids)), []
    return random_uuid(), ["no partition had a topic id: it has a new one"]


def _images(partitions: Sequence[FoundPartition], node_id: int) -> tuple[PartitionImage, ...]:
    """All partitions up to the highest number, each with a higher leader epoch than before, so clients accept it."""
    epochs = Counter[int]()
    for each in partitions:
        number = each.topic_partition.partition
        epochs[number] = max(epochs[number], each.leader_epoch + 1)
    alone = (node_id,)
    return tuple(
        PartitionImage(number, node_id, epochs[number], alone, alone, epochs[number])
        for number in range(max(epochs) + 1)
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
