"""Whether the log directories go with a metadata store, before one is opened or made.

A new store beside partitions would set all of them aside: their topics would not exist.  So a start without a store is
refused where there are partitions or the metadata of another broker; the error says which.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kbroker.metadata.local_store import FILE_NAME
from kbroker.storage.directories.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    META_VERSION,
    LogDir,
    LogDirError,
    parse_partition_directory,
)
from kbroker.storage.manager.known_directories import FILE_NAME as KNOWN_FILE
from kbroker.storage.manager.known_directories import known_directories

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage
    from kbroker.storage.files.filesystem import DirectoryEntry, FileSystem

IMPORTED = "kbroker-imported"
"""Where the metadata log of a Kafka ended when its directories were taken over (`end_of_metadata_log`)."""
SUFFIX_OF_07 = ".kafka"
"""Of the segments of Kafka 0.7."""
_STARTS_AS_IT_IS = (
    ". A broker that is its own controller starts on them as they are: with process.roles=broker,controller and the "
    "controller.quorum settings that they were made with (docs/cluster.md)"
)
UNDER_WAY = "kbroker-copy-under-way"
"""In a directory that `kbroker import` or `kbroker export` has not filled yet."""


def check_metadata_is_there(files: FileSystem, directories: Sequence[LogDir]) -> None:
    """LogDirError, with what to do, where a broker must not begin with a new store."""
    reason = _reason_not_to_start(files, directories)
    if reason is not None:
        raise LogDirError(reason)


def check_node_has_partitions(image: ClusterImage, node_id: int, others: Collection[int]) -> None:
    """LogDirError where all partitions of a store are of another node, which the settings of this start do not name.

    `others`: the ids of the other workers of this host.
    """
    nodes = {node_id, *others}
    held: set[int] = set()
    for topic in image.topics.values():
        for partition in topic.partitions:
            if not nodes.isdisjoint(partition.replicas):
                return
            held.update(partition.replicas)
    if held:
        raise LogDirError(
            f"the partitions in the metadata store are of node {', '.join(map(str, sorted(held)))}, but this node is "
            f"{node_id}, and would lead none of them; set node.id={min(held)}"
        )


def _reason_not_to_start(files: FileSystem, directories: Sequence[LogDir]) -> str | None:
    first = directories[0].path
    path = f"{first}/{FILE_NAME}"
    if has_content(files, path):
        return reason_of_kafka_since(files, directories)
    for directory in directories[1:]:
        if has_content(files, f"{directory.path}/{FILE_NAME}"):
            return (
                f"the metadata store is in {directory.path}, but the first of log.dirs is {first}: name the directory "
                "with the store first, as when it was made"
            )
    paths = " ".join(shlex.quote(directory.path) for directory in directories)
    for directory in directories:
        if files.exists(f"{directory.path}/{UNDER_WAY}"):
            return f"the copy of a Kafka's directories into {directory.path} was not completed: make it again"
        written_by = kafka_that_wrote(files, directory)
        if written_by is not None:
            return (
                f"log directory {directory.path} was written by {written_by} and has no metadata store of kbroker's. "
                f"`kbroker import {paths} --dry-run` shows what can come along, `kbroker import {paths}` takes the "
                "directories over where they are, and with `--to NEW_DIRECTORY` makes a copy (docs/migration.md)"
                f"{_STARTS_AS_IT_IS if files.exists(f'{directory.path}/{CLUSTER_METADATA_DIRECTORY}') else ''}"
            )
    for directory in directories:
        segment = _segment_of_07(files, directory)
        if segment is not None:
            return (
                f"log directory {directory.path} was written by Kafka 0.7 ({segment}), whose files no Kafka since 0.8 "
                "reads. Have a broker of 0.7 serve it and copy its topics with the migration tool of Kafka 0.8, and "
                "give this broker another log.dirs"
            )
    if any(holds_partitions(files, directory) for directory in directories):
        return (
            f"the metadata store {path} is missing or empty, but there are partitions in the log directories, which "
            "are untouched. Is the right disk mounted, and the right directory first in log.dirs? Restore the file "
            f"from a backup, with {FILE_NAME}-wal if there is one, or make a new one from the directories, without "
            "settings: `kbroker metadata rebuild` (docs/operations.md)"
        )
    if first in known_directories(files, directories[1:]):
        return (
            f"the metadata store {path} is missing or empty, but this broker has used {first} before: is its disk "
            f"mounted? If all is gone for good and a new cluster may begin, remove {KNOWN_FILE} from the other log.dirs"
        )
    return None


def newest_segment(files: FileSystem, path: str) -> DirectoryEntry | None:
    """The newest segment of the metadata log in a log directory; None without one."""
    folder = f"{path}/{CLUSTER_METADATA_DIRECTORY}"
    if not files.exists(folder):
        return None
    segments = [entry for entry in files.list_directory(folder) if entry.name.endswith(".log")]
    return max(segments, key=lambda each: each.name, default=None)


def end_of_metadata_log(files: FileSystem, path: str) -> bytes:
    """Name and size of the newest segment of Kafka's metadata log in a directory; they change when Kafka runs."""
    newest = newest_segment(files, path)
    return b"" if newest is None else f"{newest.name} {newest.size}\n".encode()


def reason_of_kafka_since(files: FileSystem, directories: Sequence[LogDir]) -> str | None:
    """The reason to refuse a store if Kafka has run on its directories since: topics made then would be set aside."""
    for directory in directories:
        imported = f"{directory.path}/{IMPORTED}"
        if files.exists(imported) and files.read_file(imported) != end_of_metadata_log(files, directory.path):
            return (
                f"Apache Kafka has run on {directory.path} since it was imported, and the metadata store knows nothing "
                f"of that. Move {directories[0].path}/{FILE_NAME}* out of the directory, and import again "
                "(docs/migration.md)"
            )
    return None


def kafka_that_wrote(files: FileSystem, directory: LogDir) -> str | None:
    """The Apache Kafka that a log directory belongs to; None when nothing says so."""
    meta = directory.meta
    if files.exists(f"{directory.path}/{CLUSTER_METADATA_DIRECTORY}"):
        kind = "KRaft"
    elif meta is not None and meta.version < META_VERSION:
        kind = "with ZooKeeper"
    else:
        return None
    whose = f", cluster {meta.cluster_id}, node {meta.node_id}" if meta is not None else ""
    return f"Apache Kafka ({kind}{whose})"


def holds_partitions(files: FileSystem, directory: LogDir) -> bool:
    """Whether there are directories of partitions in a log directory."""
    entries = files.list_directory(directory.path)
    return any(entry.is_directory and parse_partition_directory(entry.name) is not None for entry in entries)


def _segment_of_07(files: FileSystem, directory: LogDir) -> str | None:
    """A segment as Kafka 0.7 names it, from the log directory on; None without one."""
    for partition in files.list_directory(directory.path):
        if partition.is_directory and parse_partition_directory(partition.name) is not None:
            for entry in files.list_directory(f"{directory.path}/{partition.name}"):
                if entry.name.endswith(SUFFIX_OF_07):
                    return f"{partition.name}/{entry.name}"
    return None


def has_content(files: FileSystem, path: str) -> bool:
    """Whether there is a file of at least one byte."""
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return files.size(fd) > 0
    finally:
        files.close(fd)
