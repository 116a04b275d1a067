"""The metadata store of a cluster that lives on this machine: one SQLite file, `kbroker-metadata.sqlite`.

Tables (schema version 3, kept in `PRAGMA user_version`; `PRAGMA application_id` is "kbrk"):

    cluster(key, value)                       cluster_id; next_producer_id; directory_ids: JSON, id by path;
                                              broker_epoch: the number of the broker's last start, broker_epoch.N that
                                              of worker N's; features: JSON; keeps_security: 1, where ACLs
                                              and users have been kept from the beginning
    topics(topic_id, name)                    topic_id: 16 bytes
    partitions(topic_id, partition, leader, leader_epoch, partition_epoch, replicas, isr,
               adding_replicas, removing_replicas, elr, last_known_elr)
                                              lists of replicas: node ids, comma-separated
    topic_configs(topic_id, name, value)      only what was set on the topic
    resource_configs(kind, resource, name, value)
                                              only what was set at run time; kind: 4 a broker ('' for all of them),
                                              16 client metrics, 32 a group
    client_quotas(entity, name, value)        see `quota_rows`
    acls, scram_credentials, delegation_tokens
                                              see `security_rows`
    deleted_topics(number, topic_id)          the last ones; see `deleted_topics`

Version 1 had no settings of brokers, version 2 no others and only the first seven columns of partitions; opening such a
file brings it to this version.

Every change is one transaction in WAL mode with `synchronous=FULL`: durable when the method returns, whole or absent
after a crash at any moment.  Opening checks the pages (`quick_check`) and the rules that SQL cannot state; what does
not pass is refused with a message that names the file, since a broker that starts without its topics would tell its
clients that their data is gone.  What SQLite would leave out of the WAL is looked at before (`kept_damage`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kbroker.metadata import deleted_topics, quota_rows, security_rows
from kbroker.metadata.features import Features
from kbroker.metadata.image import ConfigResource, MetadataDelta, PartitionImage, QuotaEntity, TopicImage
from kbroker.metadata.kept_damage import KeptDamage, kept_damages, settle
from kbroker.metadata.security_image import SecurityImage
from kbroker.metadata.spare_file import SpareFile
from kbroker.metadata.store import (
    PRODUCER_ID_BLOCK_LENGTH,
    ClusterIdMismatchError,
    CorruptMetadataError,
    MetadataStoreError,
    MetadataVersionError,
    ProducerIdBlock,
    damaged,
)
from kbroker.metadata.store_tables import SCHEMAS
from kbroker.metadata.topic_names import is_internal, is_legal
from kbroker.types import random_uuid, uuid_from_text, uuid_to_text

logger = logging.getLogger("kbroker.metadata")

FILE_NAME = "kbroker-metadata.sqlite"
SCHEMA_VERSION = 3
DIRECTORIES = "directory_ids"
BROKER_EPOCH = "broker_epoch"
FEATURES = "features"
KEEPS_SECURITY = "keeps_security"
APPLICATION_ID = int.from_bytes(b"kbrk", "big")
MAX_PRODUCER_ID = 2**63 - 1
BUSY_TIMEOUT_S = 2.0
# What no later attempt can be expected to survive; a full disk is not among them.
DISK_FAILURES = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    }
)
_PARTITION_COLUMNS = (
    "leader, leader_epoch, partition_epoch, replicas, isr, adding_replicas, removing_replicas, elr, last_known_elr"
)
_CHANGED_COLUMNS = ", ".join(f"{name} = ?" for name in _PARTITION_COLUMNS.split(", "))


class LocalStore:
    """`MetadataStore` over one SQLite file.  Changes may come from any thread; one waits for the other."""

    __slots__ = ("_cluster_id", "_connection", "_lock", "_path", "_spare", "damages", "on_failure")

    def __init__(self, path: Path, connection: sqlite3.Connection, cluster_id: str) -> None:
        self._path = path
        self.damages: Sequence[KeptDamage] = kept_damages(path)
        self._connection = connection
        self._cluster_id = cluster_id
        self._lock = threading.Lock()
        self._spare = SpareFile(path)
        self.on_failure: Callable[[str], object] = lambda reason: None

    @classmethod
    def open(cls, path: str | Path, cluster_id: str | None = None) -> LocalStore:
        """Open the file, or make it for `cluster_id` (a random one when None).

        MetadataVersionError, CorruptMetadataError or ClusterIdMismatchError when it must not be used.
        """
        path = Path(path)
        with _explained(path):
            is_short = settle(path)
            connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            try:
                _check_pages(path, connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                stored = _prepare(path, connection, cluster_id)
                connection.execute(quota_rows.CREATE)
                connection.execute(deleted_topics.CREATE)
                security_rows.create(connection)
                if is_short:
                    # The next start would find what is left of the ignored frames again.
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except BaseException:
                connection.close()
                raise
        if cluster_id is not None and cluster_id != stored:
            connection.close()
            raise ClusterIdMismatchError(
                f"{path} belongs to cluster {stored}, but the log directories belong to cluster {cluster_id}: "
                f"check log.dirs, or move the file away if the data of {stored} is not wanted"
            )
        return cls(path, connection, stored)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, made with the store."""
        return self._cluster_id

    def topics(self) -> list[TopicImage]:
        """All topics as they are stored."""
        with _explained(self._path):
            configs: dict[bytes, dict[str, str]] = {}
            for topic_id, name, value in self._connection.execute("SELECT topic_id, name, value FROM topic_configs"):
                configs.setdefault(topic_id, {})[name] = value
            partitions: dict[bytes, list[PartitionImage]] = {}
            query = f"SELECT topic_id, partition, {_PARTITION_COLUMNS} FROM partitions ORDER BY topic_id, partition"
            for topic_id, *row in self._connection.execute(query):
                partitions.setdefault(topic_id, []).append(self._partition(topic_id, row))
            rows = self._connection.execute("SELECT name, topic_id FROM topics ORDER BY name").fetchall()
        return [self._topic(name, id_, partitions.get(id_, []), configs.get(id_, {})) for name, id_ in rows]

    def write(self, delta: MetadataDelta) -> None:
        """Store what a delta changes, all or none; brokers and controllers are not kept.

        Topics can be deleted on a full disk, because that is how one frees space, and partitions be altered: else those
        of another disk that failed, or came back, would stay offline.  The spare file makes room for both.
        """
        try:
            self._write(delta)
        except MetadataStoreError as error:
            if _primary_code(error) != sqlite3.SQLITE_FULL or not _frees_or_alters(delta) or not self._spare.give_up():
                raise
            self._write(delta)

    def _write(self, delta: MetadataDelta) -> None:
        with self._transaction() as connection:
            for topic in delta.created:
                connection.execute("INSERT INTO topics VALUES (?, ?)", (topic.topic_id, topic.name))
                self._insert_partitions(topic.topic_id, topic.partitions)
                self._insert_configs(topic.topic_id, topic.configs)
            if delta.deleted:
                ids = [topic.topic_id for topic in delta.deleted]
                connection.executemany("DELETE FROM topics WHERE topic_id = ?", [(each,) for each in ids])
                for statement, rows in deleted_topics.statements(ids):
                    connection.executemany(statement, rows)
            for old, new in delta.changed:
                self._change_topic(connection, old, new)
            for resource, configs in delta.configs.items():
                connection.execute("DELETE FROM resource_configs WHERE kind = ? AND resource = ?", resource)
                connection.executemany(
                    "INSERT INTO resource_configs VALUES (?, ?, ?, ?)",
                    [(*resource, name, value) for name, value in configs.items()],
                )
            quota_rows.write(connection, delta.quotas)
            security_rows.write(connection, delta.security)
            if (features := delta.features) is not None:
                stored = {"epoch": features.epoch, "chosen": dict(features.chosen)}
                _write_key(connection, FEATURES, json.dumps(stored))

    def _change_topic(self, connection: sqlite3.Connection, old: TopicImage, new: TopicImage) -> None:
        rows = [(*_columns(each), new.topic_id, each.partition) for each in _altered(old, new)]
        connection.executemany(f"UPDATE partitions SET {_CHANGED_COLUMNS} WHERE topic_id = ? AND partition = ?", rows)
        self._insert_partitions(new.topic_id, new.partitions[len(old.partitions) :])
        if new.configs != old.configs:
            connection.execute("DELETE FROM topic_configs WHERE topic_id = ?", (new.topic_id,))
            self._insert_configs(new.topic_id, new.configs)

    def directories(self) -> dict[str, str]:
        """The ids of the log directories that the broker has used, by path."""
        with _explained(self._path):
            found: dict[str, str] = json.loads(_read_key(self._connection, DIRECTORIES) or "{}")
        return found

    def remember_directories(self, ids: Mapping[str, str]) -> None:
        """Adds directories to them, or gives them new ids."""
        known = self.directories()
        if any(known.get(path) != directory_id for path, directory_id in ids.items()):
            with self._transaction() as connection:
                _write_key(connection, DIRECTORIES, json.dumps({**known, **ids}))

    def keep_spare(self) -> None:
        """Keeps the space that deletions and changes of leaders need on a full disk; call it from time to time."""
        self._spare.hold()

    def deleted_topics(self) -> frozenset[bytes]:
        """The ids of topics that were deleted last: a crash may have left directories of theirs."""
        with _explained(self._path):
            return deleted_topics.read(self._connection)

    def configs(self) -> dict[ConfigResource, dict[str, str]]:
        """The dynamic settings of brokers, groups and client metrics."""
        with _explained(self._path):
            configs: dict[ConfigResource, dict[str, str]] = {}
            query = "SELECT kind, resource, name, value FROM resource_configs"
            for kind, resource, name, value in self._connection.execute(query):
                configs.setdefault(ConfigResource(kind, resource), {})[name] = value
            return configs

    def client_quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """What clients may use, by entity.  CorruptMetadataError for what is no quota."""
        with _explained(self._path):
            try:
                return quota_rows.read(self._connection)
            except ValueError as error:
                raise CorruptMetadataError(damaged(self._path, str(error))) from error

    @property
    def keeps_security(self) -> bool:
        """Whether ACLs and users were kept from the store's beginning: an import by an older kbroker left them out."""
        with _explained(self._path):
            return _read_key(self._connection, KEEPS_SECURITY) is not None

    def security(self) -> SecurityImage:
        """ACLs, SCRAM credentials and delegation tokens.  CorruptMetadataError for what is none."""
        with _explained(self._path):
            try:
                return security_rows.read(self._connection)
            except ValueError as error:
                raise CorruptMetadataError(damaged(self._path, str(error))) from error

    def features(self) -> Features:
        """The levels of features that were set, and their epoch.  Raises CorruptMetadataError."""
        with _explained(self._path):
            text = _read_key(self._connection, FEATURES)
        if text is None:
            return Features()
        try:
            stored = json.loads(text)
            chosen = {str(name): int(level) for name, level in stored["chosen"].items()}
            return Features(int(stored["epoch"]), MappingProxyType(chosen))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptMetadataError(damaged(self._path, f"levels of features: {error}")) from error

    def begin_broker_epoch(self, node_id: int | None = None) -> tuple[int, int]:
        """The number of this start, larger than those of all before it, and that of the last one.

        -1 for none: before the first start, and where this one's cannot be stored, as on a full disk.
        `node_id`: of a broker other than the one that keeps the store.
        """
        key = BROKER_EPOCH if node_id is None else f"{BROKER_EPOCH}.{node_id}"
        with _explained(self._path):
            last = int(_read_key(self._connection, key) or -1)
        try:
            with self._transaction() as connection:
                _write_key(connection, key, str(last + 1))
        except MetadataStoreError as error:
            logger.warning("This start has no broker epoch: %s", error)
            return -1, last
        return last + 1, last

    def allocate_producer_id_block(self) -> ProducerIdBlock:
        """Reserve a block of producer ids for good.  Raises CorruptMetadataError."""
        with self._transaction() as connection:
            first_id = int(_read_key(connection, "next_producer_id") or 0)
            if not 0 <= first_id <= MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_LENGTH:
                raise CorruptMetadataError(f"{self._path}: the next producer id, {first_id}, is out of range")
            _write_key(connection, "next_producer_id", str(first_id + PRODUCER_ID_BLOCK_LENGTH))
        return ProducerIdBlock(first_id, PRODUCER_ID_BLOCK_LENGTH)

    def skip_producer_ids(self, past: int) -> None:
        """Give out no producer id up to `past` any more."""
        with self._transaction() as connection:
            blocks = past // PRODUCER_ID_BLOCK_LENGTH + 1
            known = int(_read_key(connection, "next_producer_id") or 0)
            _write_key(connection, "next_producer_id", str(max(known, blocks * PRODUCER_ID_BLOCK_LENGTH)))

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, _explained(self._path), _write_transaction(self._connection):
                yield self._connection
        except MetadataStoreError as error:
            if _primary_code(error) in DISK_FAILURES:
                self.on_failure(str(error))
            raise

    def _insert_partitions(self, topic_id: bytes, partitions: Sequence[PartitionImage]) -> None:
        self._connection.executemany(
            f"INSERT INTO partitions (topic_id, partition, {_PARTITION_COLUMNS}) VALUES ({', '.join('?' * 11)})",
            [(topic_id, p.partition, *_columns(p)) for p in partitions],
        )

    def _insert_configs(self, topic_id: bytes, configs: Mapping[str, str]) -> None:
        self._connection.executemany(
            "INSERT INTO topic_configs VALUES (?, ?, ?)", [(topic_id, name, value) for name, value in configs.items()]
        )

    def _partition(self, topic_id: bytes, row: Sequence[Any]) -> PartitionImage:
        partition, leader, leader_epoch, partition_epoch, *lists = row
        try:
            replicas, isr, adding, removing, elr, last_known_elr = map(_split, lists)
            return PartitionImage(
                partition,
                leader,
                leader_epoch,
                replicas,
                isr,
                partition_epoch,
                adding_replicas=adding,
                removing_replicas=removing,
                elr=elr,
                last_known_elr=last_known_elr,
            )
        except ValueError as error:
            raise CorruptMetadataError(
                f"{self._path}: partition {partition} of topic id {uuid_to_text(topic_id)} has no readable replicas"
            ) from error

    def _topic(
        self, name: str, topic_id: bytes, partitions: list[PartitionImage], configs: dict[str, str]
    ) -> TopicImage:
        numbers = [partition.partition for partition in partitions]
        if not is_legal(name) or numbers != list(range(len(numbers))) or not numbers:
            raise CorruptMetadataError(
                f"{self._path}: topic {name!r} (id {uuid_to_text(topic_id)}) is damaged: its partitions are {numbers}"
            )
        return TopicImage(name, topic_id, tuple(partitions), is_internal(name), MappingProxyType(configs))


def _frees_or_alters(delta: MetadataDelta) -> bool:
    """Whether topics are deleted or partitions altered."""
    return bool(delta.deleted) or any(_altered(*change) for change in delta.changed)


def _altered(old: TopicImage, new: TopicImage) -> list[PartitionImage]:
    """The partitions of a topic that were there before and are others now."""
    return [each for before, each in zip(old.partitions, new.partitions, strict=False) if each is not before]


def _columns(p: PartitionImage) -> tuple[int | str, ...]:
    """The values of `_PARTITION_COLUMNS`."""
    lists = (p.replicas, p.isr, p.adding_replicas, p.removing_replicas, p.elr, p.last_known_elr)
    return p.leader, p.leader_epoch, p.partition_epoch, *map(_join, lists)


def _join(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))


def _split(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _read_key(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM cluster WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def _write_key(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute(
        "INSERT INTO cluster VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@contextlib.contextmanager
def _write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into the store's, with the file's name and what can be done."""
    try:
        yield
    except sqlite3.Error as error:
        # SQLite reports damage with the base class itself; full disks, locks and the like have subclasses.
        if type(error) is sqlite3.DatabaseError:
            raise CorruptMetadataError(damaged(path, str(error))) from error
        hint = "" if os.access(path, os.W_OK) else "; `kbroker doctor` says whose file it is, and what mends it"
        raise MetadataStoreError(f"cannot use the metadata store {path}: {error}{hint}") from error


def _primary_code(error: MetadataStoreError) -> int:
    """SQLite's own code for what went wrong, without its extension; 0 when it was something else."""
    cause = error.__cause__
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0


def _check_pages(path: Path, connection: sqlite3.Connection) -> None:
    problems = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problems is not None and problems[0] != "ok":
        raise CorruptMetadataError(damaged(path, str(problems[0])))


def _prepare(path: Path, connection: sqlite3.Connection, cluster_id: str | None) -> str:
    """Make the tables in a new file, or check that an old one is ours.  The cluster id that it holds."""
    version = _pragma(connection, "user_version")
    application_id = _pragma(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == 0 and application_id == 0 and not tables:
        return _create(path, connection, cluster_id or uuid_to_text(random_uuid()))
    if application_id != APPLICATION_ID:
        raise MetadataVersionError(f"{path} is an SQLite file, but not one of kbroker's")
    if 1 <= version < SCHEMA_VERSION:
        with _write_transaction(connection):
            _bring_up(connection, version)
        logger.info("brought the metadata store %s to schema version %d", path, SCHEMA_VERSION)
        version = SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise MetadataVersionError(
            f"{path} has schema version {version}, this kbroker knows {SCHEMA_VERSION}: start the version that wrote it"
        )
    stored = _read_key(connection, "cluster_id")
    if stored is None:
        raise CorruptMetadataError(damaged(path, "it holds no cluster id"))
    return stored


def _bring_up(connection: sqlite3.Connection, version: int) -> None:
    """Adds what a store of an older version, 0 for a new one, lacks."""
    for schema in SCHEMAS[version:]:
        for statement in schema.split(";"):
            if statement.strip():
                connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _create(path: Path, connection: sqlite3.Connection, cluster_id: str) -> str:
    try:
        uuid_from_text(cluster_id)
    except ValueError as error:
        logger.warning("the cluster id is used as it is, although it is not in Kafka's form: %s", error)
    with _write_transaction(connection):
        _bring_up(connection, 0)
        _write_key(connection, "cluster_id", cluster_id)
        _write_key(connection, KEEPS_SECURITY, "1")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    logger.info("made the metadata store %s for cluster %s", path, cluster_id)
    return cluster_id
