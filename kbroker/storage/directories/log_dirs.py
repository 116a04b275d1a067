"""Log directories: who owns one, which cluster and node it belongs to, and whether the last stop was clean.

    .lock                 locked by the one process that uses the directory (`FileSystem.lock`), whose id is in it
    meta.properties       version, cluster.id, node.id, directory.id (version 1; version 0 names the node broker.id)
    .kafka_cleanshutdown  written as the last thing of a clean stop, removed as the first thing of a start; it has the
                          broker epoch, the number of the run that wrote it

The marker is removed, durably, before anything else is read: a crash while loading then counts as unclean.  A start
that ends before its time puts it back (`LogManager.shutdown`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field

from kbroker.storage.directories.access import log_directory_refused
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import CLUSTER_METADATA_TOPIC, TopicPartition, random_uuid, uuid_from_text, uuid_to_text

logger = logging.getLogger("kbroker.storage")

LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
CLUSTER_METADATA_DIRECTORY = str(TopicPartition(CLUSTER_METADATA_TOPIC, 0))
MAX_PARTITION_DIRECTORY = 255
NO_EPOCH = -1
NO_NODE = -1
META_VERSION = 1
"""Version 0 is that of brokers with ZooKeeper."""

_PARTITION = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)$")
_MARKED = re.compile(r"^(?P<topic>\S+)-(?P<partition>[0-9]+)\.(?P<id>[0-9a-fA-F-]+)-(?P<mark>delete|future|stray)$")


class LogDirError(Exception):
    """A log directory cannot be used; the text says why and what to do."""


class LogDirUnusableError(LogDirError):
    """The directory gives I/O errors; others may serve without it."""


class LogDirLockedError(LogDirError):
    """Another process uses the directory."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What binds a directory to a cluster and a node."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    version: int = field(default=META_VERSION, compare=False)
    is_id_drawn: bool = field(default=False, compare=False)
    """Whether the file has no directory.id (Kafka before 3.7), and this one is drawn."""


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A directory's name taken apart; `mark` is "", "delete", "future" or "stray"."""

    topic: str
    partition: int
    mark: str


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """The partition that a directory is named after; None for other directories."""
    marked = _MARKED.match(name)
    if marked:
        return PartitionDirectory(marked["topic"], int(marked["partition"]), marked["mark"])
    plain = _PARTITION.match(name)
    return PartitionDirectory(plain["topic"], int(plain["partition"]), "") if plain else None


def marked_directory(topic: str, partition: int, suffix: str) -> str:
    """A directory's name while it waits to be deleted or moved: `topic-partition.<id><suffix>`, cut to fit."""
    tail = f"-{partition}.{random_uuid().hex()}{suffix}"
    return topic[: MAX_PARTITION_DIRECTORY - len(tail)] + tail


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """The content of `meta.properties`."""
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
    lines = (
        "#",
        f"#{stamp}",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_to_text(meta.directory_id)}",
        f"version={META_VERSION}",
        f"cluster.id={meta.cluster_id}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Reads version 1, and version 0 as ZooKeeper-era brokers wrote it.  LogDirError when it is neither."""
    fields = {}
    for line in data.decode(errors="replace").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            key, _, value = text.partition("=")
            fields[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    try:
        version = int(fields["version"])
        if version not in (0, META_VERSION):
            raise LogDirError(f"{path}: version {version}, expected 0 or {META_VERSION}")
        node_id = int(fields["node.id"] if "node.id" in fields else fields.get("broker.id", "-1"))
        directory = fields.get("directory.id")
        return MetaProperties(
            fields["cluster.id"] if version else fields.get("cluster.id", ""),
            node_id,
            uuid_from_text(directory) if directory else random_uuid(),
            version,
            is_id_drawn=not directory,
        )
    except (KeyError, ValueError) as error:
        raise LogDirError(
            f"{path} is damaged ({error}); restore it, or remove it to bind the directory anew"
        ) from error


def read_broker_epoch(files: FileSystem, path: str) -> int:
    """The broker epoch in a marker; NO_EPOCH where there is none, as in what Kafka wrote before 3.7."""
    try:
        fields = json.loads(files.read_file(path))
        return int(fields["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return NO_EPOCH


class LogDir:
    """One directory of `log.dirs`, locked by this process."""

    __slots__ = ("_files", "_lock_fd", "broker_epoch", "clean", "failure", "is_taken", "loaded", "meta", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._lock_fd = -1
        self.path = os.path.abspath(path)  # noqa: PTH100  (symbolic links stay as they were named)
        self.meta: MetaProperties | None = None
        self.clean = False
        self.broker_epoch = NO_EPOCH
        """What the marker said when the directory was opened."""
        self.is_taken = False
        """Whether the marker is gone and the directory's logs are being loaded, or are."""
        self.loaded = False
        """Whether all of its logs are loaded."""
        self.failure = ""

    def open(self) -> None:
        """Makes, locks and reads the directory.  LogDirError with a text for people when that cannot be."""
        files = self._files
        try:
            files.makedirs(self.path)
            self._lock_fd = files.open(f"{self.path}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._unusable(error) from error
        if not files.lock(self._lock_fd):
            holder = self._holder()
            self.release()
            raise LogDirLockedError(
                f"log directory {self.path} is in use by another broker ({holder} holds {self.path}/{LOCK_FILE}); "
                "stop that one, or give this one another log.dirs"
            )
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            self.meta = decode_meta_properties(files.read_file(path), path)
        except FileNotFoundError:
            self.meta = None
        except OSError as error:
            self.release()
            raise self._unusable(error) from error
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.clean = files.exists(marker)
        if self.clean:
            self.broker_epoch = read_broker_epoch(files, marker)

    def sign_lock(self) -> None:
        """Writes who holds the lock, for people and scripts; a disk without room for it does not matter.

        Not before the directory is known to be this broker's: a start that is refused writes nothing into another's.
        """
        with suppress(OSError):
            self._files.ftruncate(self._lock_fd, 0)
            self._files.pwrite(self._lock_fd, b"%d\n" % os.getpid(), 0)

    def _holder(self) -> str:
        process = self._files.lock_holder(self._lock_fd)
        if process is not None:
            return f"process {process}"
        with suppress(OSError):
            text = self._files.pread(self._lock_fd, 20, 0).strip()
            if text.isdigit():
                return f"process {int(text)}"
        return "it"

    def _unusable(self, error: OSError) -> LogDirError:
        # What is no directory is a mistake in log.dirs, not a disk that fails.
        kind = LogDirError if isinstance(error, (FileExistsError, NotADirectoryError)) else LogDirUnusableError
        if isinstance(error, PermissionError):
            return kind(log_directory_refused(self.path))
        return kind(f"cannot use log directory {self.path}: {error.strerror or error}")

    def is_present(self) -> bool:
        """Whether the path still leads to the directory that was opened.  OSError when that cannot be found out."""
        return self._lock_fd >= 0 and self._files.is_same(self._lock_fd, f"{self.path}/{LOCK_FILE}")

    def bind(self, cluster_id: str, node_id: int, directory_id: bytes | None = None) -> None:
        """Writes meta.properties into a new directory; refuses one of another cluster or node.

        `directory_id`: the id of a new directory, a random one without it.
        """
        meta = self.meta
        if meta is not None:
            self._check_is_of(meta, cluster_id, node_id)
        self.sign_lock()
        # Brokers before 0.10.1 wrote no cluster id; what is missing is added, so that later starts are held to it.
        # KRaft's controllers know a directory by its id: one that changed with each start would be another directory.
        is_nameless = meta is not None and meta.is_id_drawn and meta.version == META_VERSION
        if meta is None or not meta.cluster_id or meta.node_id < 0 or is_nameless:
            new_id = meta.directory_id if meta else directory_id or random_uuid()
            self.meta = MetaProperties(cluster_id, node_id, new_id)
            self._files.write_atomic(f"{self.path}/{META_PROPERTIES}", encode_meta_properties(self.meta))

    def _check_is_of(self, meta: MetaProperties, cluster_id: str, node_id: int) -> None:
        if meta.cluster_id not in (cluster_id, ""):
            raise LogDirError(
                f"log directory {self.path} belongs to cluster {meta.cluster_id}, not {cluster_id}; "
                "give this broker its own log.dirs"
            )
        self.check_is_of_node(node_id)

    def check_is_of_node(self, node_id: int) -> None:
        """LogDirError where the directory is bound to another node than `node_id`."""
        meta = self.meta
        if meta is not None and meta.node_id not in (node_id, -1):
            raise LogDirError(
                f"log directory {self.path} belongs to node {meta.node_id}, but this node is {node_id}; "
                f"set node.id={meta.node_id}, or give this broker its own log.dirs"
            )

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean.  The marker is gone, durably, when this returns."""
        self.is_taken = True
        if self.clean:
            self._files.unlink_if_exists(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
            self._files.fsync_directory(self.path)
        return self.clean

    def check_epoch(self, last: int) -> None:
        """Logs when the directory was not closed by the last run of this broker, which had the epoch `last`."""
        if NO_EPOCH not in (self.broker_epoch, last) and self.broker_epoch != last:
            logger.warning(
                "%s was last closed by broker epoch %d, but the last run of this broker was %d: the directory was away "
                "then, or comes from a copy, and lacks what was written to it since",
                self.path,
                self.broker_epoch,
                last,
            )

    def write_clean_marker(self, broker_epoch: int = NO_EPOCH) -> None:
        """Mark a stop in order, with the broker epoch (KIP-966).  OSError."""
        data = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
        self._files.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", data)

    def sync_file_system(self) -> bool:
        """Makes all of the directory's file system durable; False where the call would not report earlier write errors.

        The lock's descriptor reports every write error since the directory was opened.
        """
        return self._files.sync_file_system(self._lock_fd)

    def release(self) -> None:
        """Give the lock back."""
        if self._lock_fd >= 0:
            self._files.close(self._lock_fd)
            self._lock_fd = -1


@dataclass(frozen=True, slots=True)
class OpenedDirs:
    """What the directories say before anything is loaded."""

    first: str
    cluster_id: str | None


def open_directories(
    files: FileSystem,
    paths: list[str],
    *,
    tolerate: bool = False,
    first_has_metadata: bool = True,
    node_id: int = NO_NODE,
) -> list[LogDir]:
    """Opens all; on a failure gives those already locked back.

    `tolerate`: a directory that gives I/O errors gets the reason in `failure`, and the others are opened.  An error is
    still raised for the first directory if it has the metadata, and when no directory is left.
    `node_id`: whose they have to be, where that is known.
    """
    opened: list[LogDir] = []
    seen: set[str] = set()
    try:
        for path in paths:
            directory = LogDir(files, path)
            real = os.path.realpath(directory.path)
            if real in seen:
                raise LogDirError(f"log.dirs names {path} twice")
            seen.add(real)
            try:
                directory.open()
            except LogDirUnusableError as error:
                if not tolerate:
                    raise
                if not opened and first_has_metadata:
                    raise LogDirError(f"{error}; the first of log.dirs has the metadata, so it must work") from error
                directory.failure = str(error)
            opened.append(directory)
        if all(directory.failure for directory in opened):
            reasons = "; ".join(str(directory.failure) for directory in opened)
            raise LogDirError(f"none of log.dirs works: {reasons}")
        ids = {directory.meta.cluster_id for directory in opened if directory.meta and directory.meta.cluster_id}
        if len(ids) > 1:
            raise LogDirError(f"the log.dirs belong to different clusters: {', '.join(sorted(ids))}")
        _check_no_copies(opened)
        if node_id != NO_NODE:
            for directory in opened:
                directory.check_is_of_node(node_id)
    except LogDirError:
        for directory in opened:
            directory.release()
        raise
    return opened


def _check_no_copies(directories: list[LogDir]) -> None:
    """LogDirError where two have one directory.id, as with Kafka: a replica could not be found by it."""
    seen: dict[bytes, str] = {}
    for each in directories:
        if each.meta is None:
            continue
        other = seen.setdefault(each.meta.directory_id, each.path)
        if other != each.path:
            raise LogDirError(
                f"log directories {other} and {each.path} have the same directory.id "
                f"{uuid_to_text(each.meta.directory_id)}: one is a copy of the other; take it out of log.dirs"
            )


def describe(directories: list[LogDir]) -> OpenedDirs:
    """The first directory's path, and the cluster id that the directories name."""
    cluster_id = next((d.meta.cluster_id for d in directories if d.meta and d.meta.cluster_id), None)
    return OpenedDirs(directories[0].path, cluster_id)
