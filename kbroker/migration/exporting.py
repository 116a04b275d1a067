"""An export from beginning to end: the directories of a stopped kbroker as an Apache Kafka starts on them.

In place, the steps are these, each whole or absent after a crash, and kbroker starts as before until the last:

    1. a snapshot in `__cluster_metadata-0`, behind the end of a log that may be there from a time with Kafka
    2. `bootstrap.checkpoint` and `meta.properties` (version 1) where they are missing
    3. the metadata store is renamed to `kbroker-metadata.sqlite.exported`: a start of kbroker asks for an import then,
       as Kafka will have changed what the store says
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.kraft.new_log import begin_log
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.metadata.kept_damage import describe
from kbroker.metadata.local_store import FILE_NAME
from kbroker.metadata.wal import ignored_end
from kbroker.migration.copying import Copied, Copy, apart
from kbroker.migration.export_plan import ExportPlan, Node, Stored, levels_of, plan_export
from kbroker.migration.kafka_directories import locked
from kbroker.migration.state_topics import StateNames, read_state_names
from kbroker.migration.stored_metadata import (
    ExportRefusedError,
    check_all_here,
    contents,
    copied_store,
    earlier_log,
    partitions_of_topics,
)
from kbroker.startup.metadata_at_start import has_content
from kbroker.startup.metadata_rebuild import FoundPartition, survey
from kbroker.startup.new_store import EXPORTED_SUFFIX
from kbroker.storage.directories.log_dirs import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    LogDirError,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    open_directories,
    read_broker_epoch,
)
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What the operator wants.  `targets`: where to copy to; none: the directories become Kafka's where they are."""

    paths: tuple[str, ...]
    release: str
    targets: tuple[str, ...] = ()
    link: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was found, what is exported, and what was done: `snapshot` is None if nothing was written."""

    stored: Stored
    node_id: int
    plan: ExportPlan
    names: StateNames
    left_aside: tuple[str, ...]
    snapshot: str | None = None
    log_dirs: tuple[str, ...] = ()
    copied: Copied | None = None


def run_export(files: FileSystem, options: ExportOptions) -> ExportReport:
    """Does what `options` say.  ExportRefusedError, UnknownReleaseError, LogDirError, MetadataLogError, KafkaError or
    OSError."""
    levels_of(options.release)
    with ExitStack() as stack:
        if options.targets or options.dry_run:
            stack.enter_context(locked(files, options.paths))
        else:
            for directory in open_directories(files, list(options.paths)):
                stack.callback(directory.release)
        _check_stopped(files, options.paths)
        metas = [_meta(files, path) for path in options.paths]
        earlier = earlier_log(files, options.paths)
        with copied_store(files, options.paths[0]) as store:
            stored = contents(store, earlier.security)
        found = survey(files, options.paths)
        names = read_state_names(files, found.partitions)
        epoch = max(read_broker_epoch(files, f"{options.paths[0]}/{CLEAN_SHUTDOWN_FILE}"), 0)
        partitions = partitions_of_topics(stored, found.partitions)
        check_all_here(stored, metas[0].node_id, found.partitions, partitions)
        node = Node(metas[0].node_id, epoch, _ids(options, metas), _places(options, metas, partitions))
        plan = plan_export(stored, node, options.release, names.groups)
        taken = {each.path for each in partitions}
        aside = (*found.left_aside, *(each.path for each in found.partitions if each.path not in taken))
        report = ExportReport(stored, node.node_id, plan, names, aside)
        if options.dry_run:
            return report
        snapshot = earlier.snapshot(epoch)
        if options.targets:
            return _copy(files, report, options, metas, partitions, snapshot)
        path = begin_log(files, earlier.directory, snapshot, plan.records, SYSTEM_CLOCK.now_ms(), node.node_id)
        for log_dir, meta in zip(options.paths, metas, strict=True):
            files.write_atomic(f"{log_dir}/{META_PROPERTIES}", encode_meta_properties(meta))
        store_path = f"{options.paths[0]}/{FILE_NAME}"
        files.rename(store_path, store_path + EXPORTED_SUFFIX)
        files.fsync_directory(options.paths[0])
        return replace(report, snapshot=path, log_dirs=options.paths)


def _check_stopped(files: FileSystem, paths: Sequence[str]) -> None:
    if not has_content(files, f"{paths[0]}/{FILE_NAME}"):
        raise ExportRefusedError(f"{paths[0]} has no metadata store of kbroker's: name all log.dirs in their order")
    if (end := ignored_end(Path(paths[0]) / FILE_NAME)) is not None:
        raise ExportRefusedError(
            f"{paths[0]}/{FILE_NAME}: {describe(end)}: start and stop kbroker, which tells the rest"
        )
    for path in paths:
        if not files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"):
            raise ExportRefusedError(f"kbroker was not stopped in order on {path}: start and stop it once more")


def _meta(files: FileSystem, path: str) -> MetaProperties:
    try:
        return decode_meta_properties(files.read_file(f"{path}/{META_PROPERTIES}"), f"{path}/{META_PROPERTIES}")
    except FileNotFoundError:
        raise LogDirError(f"{path} is no log directory: it has no {META_PROPERTIES}") from None


def _ids(options: ExportOptions, metas: Sequence[MetaProperties]) -> list[bytes]:
    """The ids of the directories that Kafka will have: the last one's, where all are copied into one."""
    ids = [meta.directory_id for meta in metas]
    return ids[-1:] if len(options.targets) == 1 else ids


def _places(
    options: ExportOptions, metas: Sequence[MetaProperties], partitions: Sequence[FoundPartition]
) -> Mapping[TopicPartition, bytes]:
    ids = _ids(options, metas)
    by_path = {path: ids[min(number, len(ids) - 1)] for number, path in enumerate(options.paths)}
    return {each.topic_partition: by_path[each.path.rpartition("/")[0]] for each in partitions}


def _copy(
    files: FileSystem,
    report: ExportReport,
    options: ExportOptions,
    metas: Sequence[MetaProperties],
    partitions: Sequence[FoundPartition],
    snapshot: SnapshotId,
) -> ExportReport:
    targets = apart(options.targets, options.paths, "--in-place makes it Kafka's where it is")
    content = {path: encode_meta_properties(meta) for path, meta in zip(options.paths, metas, strict=True)}
    with Copy(files, options.paths, targets, link=options.link) as copy:
        copied = copy.run({each.path: each.topic_partition for each in partitions}, content.__getitem__)
        now_ms = SYSTEM_CLOCK.now_ms()
        path = begin_log(files, targets[0], snapshot, report.plan.records, now_ms, report.node_id)
        copy.complete(files.read_file(f"{options.paths[0]}/{CLEAN_SHUTDOWN_FILE}"))
    return replace(report, snapshot=path, log_dirs=targets, copied=copied)
