"""Copies partitions of stopped log directories into new ones; the originals are only read.

A file is copied by the kernel, which shares its blocks where the file system can (btrfs, XFS).  With `link`, a `.log`
file that neither side writes any more (of a rolled segment below the recovery point) is hard-linked instead, which
copies no bytes on any file system.  All other files are copied.

    meta.properties, checkpoints    with the rows of the partitions that come along
    under-way                       named UNDER_WAY, there until the whole is durable and complete: a copy that was
                                    interrupted is begun anew, and no broker starts on it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kbroker.startup.metadata_at_start import UNDER_WAY
from kbroker.startup.new_store import StoreThereError, check_no_store
from kbroker.storage.directories.log_dirs import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES,
    LogDir,
    LogDirError,
    open_directories,
)
from kbroker.storage.files.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpoint,
)
from kbroker.types import Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem

CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
LOG_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class Copied:
    """How much was copied, and how much only got a second name."""

    partitions: int
    files: int
    size_bytes: int
    linked_files: int
    linked_bytes: int


def absolute(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths from the root on; symbolic links stay as they were named."""
    return tuple(os.path.abspath(path) for path in paths)  # noqa: PTH100  (Path.resolve would follow links)


def apart(targets: Iterable[str], sources: Iterable[str], instead: str) -> tuple[str, ...]:
    """The targets of a copy, absolute.  LogDirError where one is a source; `instead`: what to do then."""
    found = absolute(targets)
    if set(map(os.path.realpath, found)) & set(map(os.path.realpath, sources)):
        raise LogDirError(f"a directory cannot be copied into itself; {instead}")
    return found


class Copy:
    """Copies partitions, by their paths, from `sources` into the `targets` at the same place of the list.

    Use it as `with Copy(…) as copy`: the targets are locked meanwhile.  LogDirError where one is not empty.
    """

    def __init__(self, files: FileSystem, sources: Sequence[str], targets: Sequence[str], *, link: bool) -> None:
        if len(targets) not in (1, len(sources)):
            raise LogDirError(f"{len(sources)} directories need one target, or as many as they are, not {len(targets)}")
        self._files = files
        self._sources = sources
        self._targets = targets
        self._link = link
        self._opened: list[LogDir] = []
        self._copied = [0, 0, 0, 0]

    def __enter__(self) -> Copy:
        self._opened = open_directories(self._files, list(self._targets))
        try:
            for directory in self._opened:
                self._prepare(directory.path)
        except BaseException:  # Interrupted or not: the locks go, and the error goes on.
            self._release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        for directory in self._opened:
            directory.release()

    def _prepare(self, target: str) -> None:
        files = self._files
        try:
            check_no_store(files, target)
        except StoreThereError as error:
            raise LogDirError(str(error)) from None
        entries = [entry for entry in files.list_directory(target) if entry.name not in (LOCK_FILE, UNDER_WAY)]
        if entries and not files.exists(f"{target}/{UNDER_WAY}"):
            raise LogDirError(f"{target} is not empty ({entries[0].name}): name a new directory")
        files.write_file(f"{target}/{UNDER_WAY}", b"", sync=True)
        files.fsync_directory(target)
        for entry in entries:
            path = f"{target}/{entry.name}"
            if entry.is_directory:
                files.remove_tree(path)
            else:
                files.unlink(path)

    def run(
        self,
        partitions: Mapping[str, TopicPartition],
        meta: Callable[[str], bytes] | None = None,
        progress: Callable[[int], None] = lambda size: None,
    ) -> Copied:
        """Copies partitions, topic and number by path, durably.  `progress` is called with the bytes of each one.

        `meta` gives the content of a source's `meta.properties`; without it that stays.
        """
        targets = self._targets if len(self._targets) == len(self._sources) else [self._targets[0]] * len(self._sources)
        rows: dict[str, dict[str, dict[TopicPartition, Offset]]] = {each.path: {} for each in self._opened}
        paths = {given: directory.path for given, directory in zip(self._targets, self._opened, strict=True)}
        for source, given in zip(self._sources, targets, strict=True):
            target = paths[given]
            here = {path: name for path, name in partitions.items() if path.rpartition("/")[0] == source}
            points = self._offsets(source, here.values(), rows[target])
            for path, partition in here.items():
                progress(self._partition(path, f"{target}/{path.rpartition('/')[2]}", points.get(partition, 0)))
            content = meta(source) if meta else self._files.read_file(f"{source}/{META_PROPERTIES}")
            self._files.write_atomic(f"{target}/{META_PROPERTIES}", content)
        for target, checkpoints in rows.items():
            for name, offsets in checkpoints.items():
                OffsetCheckpoint(self._files, f"{target}/{name}").write(offsets)
        self._make_durable()
        return Copied(len(partitions), *self._copied)

    def complete(self, marker: bytes | None) -> None:
        """All else is there: a broker may start.  `marker`: that of a clean stop, none where there was none."""
        for directory in self._opened:
            if marker is not None:
                self._files.write_atomic(f"{directory.path}/{CLEAN_SHUTDOWN_FILE}", marker)
            self._files.unlink_if_exists(f"{directory.path}/{UNDER_WAY}")
            self._files.fsync_directory(directory.path)

    def _offsets(
        self, source: str, names: Iterable[TopicPartition], rows: dict[str, dict[TopicPartition, Offset]]
    ) -> Mapping[TopicPartition, Offset]:
        wanted = set(names)
        for name in CHECKPOINTS:
            offsets = OffsetCheckpoint(self._files, f"{source}/{name}").read()
            rows.setdefault(name, {}).update({each: at for each, at in offsets.items() if each in wanted})
        return rows[RECOVERY_POINT_CHECKPOINT]

    def _partition(self, source: str, target: str, recovery_point: int) -> int:
        files = self._files
        files.mkdir(target)
        entries = sorted((each for each in files.list_directory(source) if not each.is_directory), key=lambda e: e.name)
        logs = [each.name for each in entries if each.name.endswith(LOG_SUFFIX)]
        following = dict(pairwise(logs))
        size = 0
        for entry in entries:
            after = following.get(entry.name)
            is_fixed = after is not None and int(after.removesuffix(LOG_SUFFIX)) <= recovery_point
            size += entry.size
            if self._link and is_fixed and self._linked(f"{source}/{entry.name}", f"{target}/{entry.name}"):
                self._copied[2] += 1
                self._copied[3] += entry.size
            else:
                files.copy_file(f"{source}/{entry.name}", f"{target}/{entry.name}")
                self._copied[0] += 1
                self._copied[1] += entry.size
        return size

    def _linked(self, source: str, target: str) -> bool:
        try:
            self._files.link(source, target)
        except OSError:
            return False
        return True

    def _make_durable(self) -> None:
        for directory in self._opened:
            if directory.sync_file_system():
                continue
            for entry in self._files.list_directory(directory.path):
                path = f"{directory.path}/{entry.name}"
                if entry.is_directory:
                    for each in self._files.list_directory(path):
                        self._files.sync_path(f"{path}/{each.name}")
                    self._files.fsync_directory(path)
                else:
                    self._files.sync_path(path)
            self._files.fsync_directory(directory.path)
