"""An import from beginning to end: read, decide, and, unless it is only to be shown, copy and write the store.

The store is the last thing that is written, in one rename: before it, directories taken over in place are as they
were, and a copy is one that no broker starts on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig
from kbroker.metadata.kafka_metadata import KafkaMetadata
from kbroker.migration.copying import Copied, Copy, apart
from kbroker.migration.import_plan import ImportPlan, plan_from_directories, plan_import
from kbroker.migration.kafka_directories import KafkaDirectories, Mode, locked, read_directories
from kbroker.migration.metadata_log import MetadataLog
from kbroker.migration.state_topics import StateNames, read_state_names
from kbroker.startup.metadata_at_start import IMPORTED, end_of_metadata_log
from kbroker.startup.metadata_rebuild import survey
from kbroker.startup.new_store import check_no_store, write_store
from kbroker.storage.directories.log_dirs import CLEAN_SHUTDOWN_FILE, open_directories
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem

SEVERAL_VOTERS = (
    "the cluster had {count} controllers: the last records here may be some that the others have not agreed to, or "
    "lack some that they have"
)
UNCLEAN = "Kafka did not end in order: the first start recovers the logs, as Kafka's would"


class ImportRefusedError(Exception):
    """The import cannot be done; the text says what is to be decided or mended."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the operator wants.  `targets`: where to copy to; none: the directories are taken over where they are."""

    paths: tuple[str, ...]
    targets: tuple[str, ...] = ()
    metadata_dir: str | None = None
    zookeeper: str | None = None
    link: bool = False
    add_missing: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was found, what is imported, and what was done: `store` is None if nothing was written."""

    source: KafkaDirectories
    plan: ImportPlan
    names: StateNames
    left_aside: tuple[str, ...]
    notes: tuple[str, ...]
    store: str | None = None
    log_dirs: tuple[str, ...] = ()
    copied: Copied | None = None


def run_import(
    files: FileSystem, options: ImportOptions, progress: Callable[[int], None] = lambda size: None
) -> ImportReport:
    """Does what `options` say.  ImportRefusedError, MetadataLogError, LogDirError, KafkaError or OSError where it
    cannot be done."""
    with ExitStack() as stack:
        # A directory that is taken over in place is locked by kbroker's own lock, which requires a writable directory.
        if options.targets or options.dry_run:
            stack.enter_context(locked(files, options.paths))
        source = read_directories(files, options.paths, options.metadata_dir)
        if not options.targets and not options.dry_run:
            for directory in open_directories(files, list(options.paths)):
                stack.callback(directory.release)
        report = _read(files, source, options)
        if options.dry_run:
            return report
        if report.plan.blockers:
            raise ImportRefusedError("; ".join(report.plan.blockers))
        if not report.plan.topics:
            raise ImportRefusedError(f"there is no partition of this cluster in {', '.join(options.paths)}")
        cluster_id = source.cluster_id or uuid_to_text(random_uuid())
        if options.targets:
            return _copy(files, report, cluster_id, options, progress)
        if source.metadata_dir in options.paths:
            end = end_of_metadata_log(files, source.metadata_dir)
            files.write_atomic(f"{source.metadata_dir}/{IMPORTED}", end)
        store = write_store(files, options.paths[0], cluster_id, report.plan.contents)
        return replace(report, store=store, log_dirs=options.paths)


def _read(files: FileSystem, source: KafkaDirectories, options: ImportOptions) -> ImportReport:
    if not options.targets:
        check_no_store(files, options.paths[0])
    found = survey(files, options.paths)
    settings: dict[str, object] = {"log.dirs": ",".join(options.paths)}
    if source.node_id >= 0:
        settings["node.id"] = source.node_id
    config = BrokerConfig.from_mapping(settings)
    notes = [] if source.was_closed else [UNCLEAN]
    metadata: KafkaMetadata | None = None
    if source.mode is Mode.KRAFT:
        if options.zookeeper is not None:
            raise ImportRefusedError("these directories are of a Kafka with KRaft: leave --zookeeper away")
        log = MetadataLog(files, source.metadata_dir, was_closed=source.was_closed)
        metadata = KafkaMetadata()
        metadata.replay(log.records())
        notes += log.notes
        if len(log.voters) > 1:
            notes.append(SEVERAL_VOTERS.format(count=len(log.voters)))
    elif options.zookeeper is not None:
        # Only here, as kazoo is not needed otherwise.
        from kbroker.migration.zookeeper_metadata import from_zookeeper

        metadata = asyncio.run(from_zookeeper(options.zookeeper, source.cluster_id))
    add_missing = options.add_missing
    if metadata is None:
        plan = plan_from_directories(found.partitions, config, add_missing=add_missing)
    else:
        plan = plan_import(metadata, found.partitions, config, add_missing=add_missing)
    names = read_state_names(files, plan.partitions)
    aside = (*found.left_aside, *plan.left_directories)
    return ImportReport(source, plan, names, aside, (*notes, *names.notes))


def _copy(
    files: FileSystem, report: ImportReport, cluster_id: str, options: ImportOptions, progress: Callable[[int], None]
) -> ImportReport:
    targets = apart(options.targets, options.paths, "leave --to away to take it over where it is")
    with Copy(files, options.paths, targets, link=options.link) as copy:
        copied = copy.run({each.path: each.topic_partition for each in report.plan.partitions}, progress=progress)
        store = write_store(files, targets[0], cluster_id, report.plan.contents)
        marker = files.read_file(f"{options.paths[0]}/{CLEAN_SHUTDOWN_FILE}") if report.source.was_closed else None
        copy.complete(marker)
    return replace(report, store=store, log_dirs=targets, copied=copied)
