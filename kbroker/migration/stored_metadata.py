"""The metadata that a stopped kbroker keeps in its store, as records for a metadata log: for an export, and for a node
that becomes a controller.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.new_log import holds_records
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import snapshots_in
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.metadata.local_store import FILE_NAME, LocalStore
from kbroker.metadata.security_image import SecurityImage
from kbroker.migration.export_plan import Stored
from kbroker.migration.metadata_log import MetadataLog
from kbroker.startup.metadata_at_start import has_content

if TYPE_CHECKING:
    from kbroker.startup.metadata_rebuild import FoundPartition
    from kbroker.storage.files.filesystem import FileSystem

EPOCHS_APART = 1000
"""How far the first offset of the new log is above the broker's epoch: Kafka's epochs are offsets, and only grow."""


class ExportRefusedError(Exception):
    """The metadata cannot leave the store; the text says what is to be done first."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a metadata log from a time with Kafka leaves: where it is, where it ends, and its ACLs and users."""

    directory: str
    end_offset: int
    epoch: int
    security: SecurityImage

    def snapshot(self, broker_epoch: int) -> SnapshotId:
        """That with which the new log begins: behind this one, and behind all that the broker has been in."""
        return SnapshotId(max(self.end_offset, broker_epoch) + EPOCHS_APART, self.epoch + 1)


@contextmanager
def copied_store(files: FileSystem, directory: str) -> Iterator[LocalStore]:
    """A copy of the store in a log directory, open: opening the store itself would change it."""
    with tempfile.TemporaryDirectory(prefix="kbroker-export-") as scratch:
        for suffix in ("", "-wal"):
            if has_content(files, f"{directory}/{FILE_NAME}{suffix}"):
                files.copy_file(f"{directory}/{FILE_NAME}{suffix}", f"{scratch}/{FILE_NAME}{suffix}")
        store = LocalStore.open(Path(scratch) / FILE_NAME)
        try:
            yield store
        finally:
            store.close()


def contents(store: LocalStore, earlier: SecurityImage) -> Stored:
    """What a store holds.

    `earlier`: the ACLs and users of the Kafka before, for a store that was imported without them."""
    security = store.security()
    return Stored(
        store.cluster_id,
        store.topics(),
        store.configs(),
        store.client_quotas(),
        store.features(),
        store.allocate_producer_id_block().first_id,
        security if store.keeps_security else earlier.apply(SecurityImage().difference(security)),
    )


def earlier_log(files: FileSystem, paths: Sequence[str]) -> Earlier:
    """The metadata log that is in one of the log directories.  MetadataLogError, OSError."""
    for path in paths:
        if holds_records(files, path):
            log = MetadataLog(files, path, was_closed=False)
            metadata = KafkaMetadata()
            metadata.replay(log.records())
            newest = max((each.end_offset for each in snapshots_in(files, log.directory)), default=0)
            return Earlier(path, max(log.end_offset, newest), log.epoch, metadata.security)
    return Earlier(paths[0], 0, 0, SecurityImage())


def partitions_of_topics(stored: Stored, found: Sequence[FoundPartition]) -> list[FoundPartition]:
    """Those of the partitions in the log directories that are of the store's topics."""
    topics = {topic.name: topic for topic in stored.topics}
    return [
        each
        for each in found
        if (topic := topics.get(each.topic_partition.topic)) is not None
        and each.topic_id == topic.topic_id
        and each.topic_partition.partition < len(topic.partitions)
    ]


def check_all_here(
    stored: Stored, node_id: int, found: Sequence[FoundPartition], partitions: Sequence[FoundPartition]
) -> None:
    """ExportRefusedError where a broker would create partitions, empty, that only the metadata has, or set aside
    partitions that only the directories have.  `partitions`: those of `found` that are of the store's topics."""
    if found and not partitions:
        raise ExportRefusedError(
            "the metadata store knows none of the partitions in these directories: they are of a member of a cluster, "
            "or of a worker other than the first"
        )
    elsewhere = [
        f"{topic.name}-{each.partition}"
        for topic in stored.topics
        for each in topic.partitions
        if node_id not in each.isr and set(each.replicas) != {node_id}
    ]
    if elsewhere:
        raise ExportRefusedError(
            f"{len(elsewhere)} partitions, {elsewhere[0]} among them, are with other workers: move them to the first "
            "one (kbroker cluster drain, docs/workers.md), and stop"
        )
