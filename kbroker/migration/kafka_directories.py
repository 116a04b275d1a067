"""The log directories of a stopped Apache Kafka: of which kind it is, whether it really is stopped, how it ended.

A directory is only read here, so that one of a snapshot mounted read-only does.  Its lock is held meanwhile; where it
cannot be opened for writing nothing can run on it either.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kbroker.storage.directories.log_dirs import (
    CLEAN_SHUTDOWN_FILE,
    CLUSTER_METADATA_DIRECTORY,
    LOCK_FILE,
    META_PROPERTIES,
    META_VERSION,
    LogDirError,
    LogDirLockedError,
    MetaProperties,
    decode_meta_properties,
)

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem


class Mode(StrEnum):
    """Where the cluster's metadata is."""

    KRAFT = "KRaft"
    ZOOKEEPER = "ZooKeeper"


@dataclass(frozen=True, slots=True)
class KafkaDirectories:
    """Log directories of one node.  `metadata_dir`: the one with `__cluster_metadata-0`, which need not be one of them.

    `cluster_id` is empty where none is written down, as by brokers before 0.10.1.
    """

    paths: tuple[str, ...]
    mode: Mode
    cluster_id: str
    node_id: int
    was_closed: bool
    metadata_dir: str = ""


@contextmanager
def locked(files: FileSystem, paths: Sequence[str]) -> Iterator[None]:
    """Holds the locks of log directories.  LogDirLockedError where a broker runs."""
    with ExitStack() as stack:
        for path in dict.fromkeys(map(os.path.realpath, paths)):
            lock = f"{path}/{LOCK_FILE}"
            if not files.exists(lock):
                continue
            try:
                fd = files.open(lock, os.O_RDWR)
            except OSError as error:
                if error.errno in (errno.EROFS, errno.EACCES):
                    continue
                raise
            stack.callback(files.close, fd)
            if not files.lock(fd):
                process = files.lock_holder(fd)
                who = "a broker" if process is None else f"process {process}"
                raise LogDirLockedError(f"{path} is in use: {who} holds {lock}. Stop that broker first")
        yield


def read_directories(files: FileSystem, paths: Sequence[str], metadata_dir: str | None) -> KafkaDirectories:
    """What `meta.properties` and the names in the directories say.  LogDirError where they are none of one Kafka."""
    metas = [_meta(files, path) for path in paths]
    clusters = {meta.cluster_id for meta in metas if meta.cluster_id}
    nodes = {meta.node_id for meta in metas if meta.node_id >= 0}
    if len(clusters) > 1 or len(nodes) > 1:
        whose = ", ".join(
            f"{path}: cluster {meta.cluster_id}, node {meta.node_id}" for path, meta in zip(paths, metas, strict=True)
        )
        raise LogDirError(f"the directories are not of one node: {whose}")
    holders = [path for path in (metadata_dir, *paths) if path and files.exists(f"{path}/{CLUSTER_METADATA_DIRECTORY}")]
    version = max(meta.version for meta in metas)
    if not holders and (metadata_dir is not None or version == META_VERSION):
        raise LogDirError(
            f"there is no {CLUSTER_METADATA_DIRECTORY} in {metadata_dir or ', '.join(paths)}: name the directory of "
            "metadata.log.dir with --metadata-dir"
        )
    return KafkaDirectories(
        tuple(paths),
        Mode.KRAFT if holders else Mode.ZOOKEEPER,
        next(iter(clusters), ""),
        next(iter(nodes), -1),
        all(files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in paths),
        holders[0] if holders else "",
    )


def _meta(files: FileSystem, path: str) -> MetaProperties:
    try:
        return decode_meta_properties(files.read_file(f"{path}/{META_PROPERTIES}"), f"{path}/{META_PROPERTIES}")
    except (FileNotFoundError, NotADirectoryError):
        raise LogDirError(f"{path} is no log directory of a Kafka: it has no {META_PROPERTIES}") from None
