"""The partitions in the log directory of a broker that does not run, as far as the files tell without opening logs.

Nothing is changed: no recovery is done and no marker is taken away.  The directory's lock is held meanwhile, so that
no broker starts underneath.  What only an open log knows is None: the high watermark and the log start offset are
those of the checkpoints, and the log end offset is the recovery point after a clean stop, else not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kbroker.storage.directories.log_dirs import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES,
    LogDirError,
    LogDirLockedError,
    PartitionDirectory,
    parse_partition_directory,
)
from kbroker.storage.files.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    OffsetCheckpoint,
    decode_checkpoint,
)
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.log.log_segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kbroker.storage.log.partition_metadata import PARTITION_METADATA, decode_partition_metadata
from kbroker.types import JsonObject, TopicPartition, uuid_to_text

_STATES = {"delete": "to be deleted", "stray": "stray", "future": "an unfinished move"}
_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


class StoppedDirectory:
    """One log directory; use it as `with opened(path) as directory`."""

    def __init__(self, path: str, files: FileSystem = SYSTEM_FILES) -> None:
        self.path = path
        self._files = files
        self.clean = files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        self._offsets = {name: OffsetCheckpoint(files, f"{path}/{name}").read() for name in _CHECKPOINTS}

    def summaries(self) -> list[dict[str, object]]:
        """A line for each partition, by topic and partition."""
        return [self._summary(name, found) for name, found in self._partitions()]

    def describe(self, topic: str, partition: int | None = None) -> list[dict[str, object]]:
        """Everything about a topic's partitions, or one of them."""
        return [
            self._description(name, found)
            for name, found in self._partitions()
            if found.topic == topic and partition in (None, found.partition) and not found.mark
        ]

    def _partitions(self) -> list[tuple[str, PartitionDirectory]]:
        found = [
            (entry.name, parsed)
            for entry in self._files.list_directory(self.path)
            if entry.is_directory and (parsed := parse_partition_directory(entry.name)) is not None
        ]
        return sorted(found, key=lambda each: (each[1].topic, each[1].partition, each[1].mark))

    def _summary(self, name: str, found: PartitionDirectory) -> dict[str, object]:
        tp = TopicPartition(found.topic, found.partition)
        segments = self._segments(name, None if found.mark else self._cleaned(tp))
        recovery, starts, watermarks, _ = (self._offsets[each].get(tp) for each in _CHECKPOINTS)
        cleaned = self._cleaned(tp)
        closed = segments[:-1]
        size = sum(segment["size_bytes"] for segment in closed)
        dirty = sum(segment["size_bytes"] for segment in closed if segment["state"] == "dirty")
        first = segments[0]["base_offset"] if segments else 0
        state = _STATES.get(found.mark) or ("stopped in order" if self.clean else "not stopped in order")
        known = not found.mark
        return {
            "topic": found.topic,
            "partition": found.partition,
            "size_bytes": sum(segment["size_bytes"] for segment in segments),
            "segment_count": len(segments),
            "log_start_offset": max(first, starts or 0),
            "high_watermark": watermarks if known else None,
            "last_stable_offset": None,
            "log_end_offset": recovery if known and self.clean else None,
            "cleanup_policy": None,
            "dirty_ratio": round(dirty / size, 4) if known and cleaned is not None and size else None,
            "dirty_bytes": dirty if known and cleaned is not None else None,
            "state": state,
            "directory": self.path,
        }

    def _cleaned(self, tp: TopicPartition) -> int | None:
        return self._offsets[CLEANER_OFFSET_CHECKPOINT].get(tp)

    def _segments(self, name: str, cleaned: int | None) -> list[JsonObject]:
        sizes = {entry.name: entry.size for entry in self._files.list_directory(f"{self.path}/{name}")}
        bases = sorted(
            int(file.removesuffix(LOG_SUFFIX))
            for file in sizes
            if file.endswith(LOG_SUFFIX) and file.removesuffix(LOG_SUFFIX).isdigit()
        )
        rows = []
        for at, base in enumerate(bases):
            prefix = f"{base:020d}"
            state = "active" if at == len(bases) - 1 else "closed"
            if cleaned is not None and state == "closed":
                state = "clean" if base < cleaned else "dirty"
            rows.append(
                {
                    "base_offset": base,
                    "size_bytes": sizes[prefix + LOG_SUFFIX],
                    "largest_timestamp": None,
                    "state": state,
                    "aborted_transactions": sizes.get(prefix + TXN_INDEX_SUFFIX, 0) > 0,
                    "index_bytes": sizes.get(prefix + INDEX_SUFFIX),
                    "time_index_bytes": sizes.get(prefix + TIME_INDEX_SUFFIX),
                }
            )
        return rows

    def _description(self, name: str, found: PartitionDirectory) -> dict[str, object]:
        tp = TopicPartition(found.topic, found.partition)
        values = [self._offsets[each].get(tp) for each in _CHECKPOINTS]
        names = ("recovery_point", "log_start_offset", "high_watermark", "cleaner_offset")
        return {
            **self._summary(name, found),
            "topic_id": self._topic_id(name),
            "path": f"{self.path}/{name}",
            "segments": self._segments(name, self._cleaned(tp)),
            "checkpoints": dict(zip(names, values, strict=True)),
            "leader_epochs": self._leader_epochs(name),
            "producers": None,
            "compaction": None,
            "explanation": None,
        }

    def _topic_id(self, name: str) -> str | None:
        path = f"{self.path}/{name}/{PARTITION_METADATA}"
        try:
            return uuid_to_text(decode_partition_metadata(self._files.read_file(path), path))
        except (OSError, ValueError):
            return None

    def _leader_epochs(self, name: str) -> list[dict[str, int]] | None:
        path = f"{self.path}/{name}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            lines = decode_checkpoint(self._files.read_file(path), path)
            return [{"epoch": int(epoch), "start_offset": int(start)} for epoch, start in lines]
        except FileNotFoundError:
            return []
        except (OSError, CorruptCheckpointError, ValueError):
            return None


@contextmanager
def opened(path: str, files: FileSystem = SYSTEM_FILES) -> Iterator[StoppedDirectory]:
    """Holds the directory's lock.  LogDirError when it is no log directory, or a broker uses it."""
    path = os.path.abspath(path)  # noqa: PTH100  (symbolic links stay as they were named)
    if not files.exists(f"{path}/{META_PROPERTIES}"):
        raise LogDirError(f"{path} is no log directory: it has no {META_PROPERTIES}")
    lock = f"{path}/{LOCK_FILE}"
    fd = files.open(lock, os.O_RDWR) if files.exists(lock) else -1
    try:
        if fd >= 0 and not files.lock(fd):
            raise LogDirLockedError(f"a broker is running on {path}: ask it, without --directory")
        yield StoppedDirectory(path, files)
    finally:
        if fd >= 0:
            files.close(fd)
